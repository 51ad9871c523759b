"""What the tests of delegation share: those of the loop's worlds, and agents that delegate."""

from __future__ import annotations

from tests.loop.conftest import play, serve

__all__ = ["play", "serve"]
