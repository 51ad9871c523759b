"""The command line: `agent-runtime`."""

from .main import main

__all__ = ["main"]
