"""A tool that waits for an approval."""

from __future__ import annotations

import pytest

from agent_runtime import tool

erased: list[str] = []
"""What the tool has erased in this test."""


@pytest.fixture(autouse=True)
def nothing_erased() -> None:
    """Forget what another test erased."""
    erased.clear()


@tool(needs_approval=True)
async def erase(path: str) -> str:
    """Erase a file."""
    erased.append(path)
    return f"erased {path}"
