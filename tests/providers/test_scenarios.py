"""Whole runs against strict providers: nothing that is sent may be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from .anthropic import Anthropic
from .scenario import play


@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
async def test_anthropic(tmp_path: Path, thinking: bool) -> None:
    await play(Anthropic(thinking=thinking), "anthropic/claude-sonnet-4-5", tmp_path)
