"""Fixtures of the workflow tests: a runtime over a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from agent_runtime import Runtime, Settings


@pytest.fixture
async def runtime(database_url: str) -> AsyncGenerator[Runtime]:
    """A runtime over a database of the test's own."""
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        yield runtime
