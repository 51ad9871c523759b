"""Fixtures of the tests of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_runtime import Runtime, Settings


@pytest.fixture(params=[True, False], ids=["with memory", "without memory"])
async def runtime(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    """A runtime, with and without observational memory."""
    settings = Settings(
        database_url=f"file:{tmp_path / 'run.db'}",
        observational_memory=request.param,
        observer_message_tokens=3000,
    )
    async with Runtime.open(settings) as opened:
        yield opened
