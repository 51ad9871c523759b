"""The command line: `agent-runtime`."""

from agent_runtime.cli.main import main

__all__ = ["main"]
