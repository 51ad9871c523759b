"""What the tests of people in the loop share: the loop's worlds."""

from __future__ import annotations

from tests.loop.conftest import play, serve

__all__ = ["play", "serve"]
