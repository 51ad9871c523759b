"""Call a tool directly, outside of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio.to_thread

from agent_runtime.messages import ToolResult
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.workspace.shell_session import ShellSession


class NoStore:
    """Takes the place of a store; any use fails the test."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the tool used the store: {name}")


def context(
    *,
    timeout: float | None = None,
    deps: Any = None,
    session: ShellSession | None = None,
    call: str = "c00000001",
) -> ToolContext:
    """Return a context without a run."""
    store: Any = NoStore()

    async def run_agent(*_: Any) -> Any:
        raise AssertionError("the tool started a run")

    services = {ShellSession: session} if session else {}
    return ToolContext(
        "user", "thread", "run", call, 3, store, deps, run_agent, timeout, services=services
    )


async def call(tool: Tool, **arguments: Any) -> ToolResult:
    """Call a tool as the loop does."""
    return await tool.call(arguments, context())


async def text(tool: Tool, **arguments: Any) -> str:
    """Return the text of a call that must succeed."""
    result = await call(tool, **arguments)
    assert result.outcome == "ok", result.text
    return result.text


async def error(tool: Tool, **arguments: Any) -> str:
    """Return the text of a call that must fail."""
    result = await call(tool, **arguments)
    assert result.outcome == "error", result.text
    return result.text


PATIENCE = 90.0
"""Seconds: on a busy machine the start of a process alone takes more than 20; pytest allows 120."""


async def until(done: Callable[[], object]) -> None:
    """Wait until a condition holds; fail after `PATIENCE` seconds."""

    def wait() -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, "the condition never held"
            time.sleep(0.01)

    await anyio.to_thread.run_sync(wait)
