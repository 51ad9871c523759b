"""What the tests of long unattended runs share: the loop's worlds."""

from __future__ import annotations

from tests.loop.conftest import play, serve

__all__ = ["play", "serve"]
