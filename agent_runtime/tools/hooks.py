"""Hooks: a program's own code around each call of a tool."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolCall, ToolResult
from agent_runtime.tools.base import error_result
from agent_runtime.tools.context import ToolContext


class ToolHook(Protocol):
    """An async function around the calls of an agent's tools, and of those of its sub-agents.

    It is called when a call may run: after its arguments were checked, and after a person allowed
    it where that is needed.  `await proceed()` runs the tool and returns its result; what the hook
    returns is recorded.  A hook that does not call `proceed` keeps the tool from running.  It can
    be called once: a tool is never started twice for one call.

    The arguments are a copy: what a person approved is what runs.  An error that a hook raises is
    the result of the call, so a hook that guards fails closed.  If `proceed` was called before,
    the tool has run, and its result is lost.  A call that asks a person, or whose sub-agent
    does, runs again after the answer, and its hooks with it; until then what they return is not
    used.  Cancellation passes through.
    """

    def __call__(
        self,
        call: ToolCall,
        context: ToolContext[Any],
        proceed: Callable[[], Awaitable[ToolResult]],
        /,
    ) -> Awaitable[ToolResult]: ...


@dataclass(frozen=True, slots=True)
class ToolHooks:
    """The hooks of a run, the outermost first.

    Raises:
        ConfigError: one is not an async function.
    """

    each: tuple[ToolHook, ...] = ()

    def __post_init__(self) -> None:
        for hook in self.each:
            # An object is asked for its method, which is what a call of it runs.
            method = getattr(type(hook), "__call__", None)  # noqa: B004
            if not (inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(method)):
                raise ConfigError(
                    f"{hook!r} is not a hook of tools.",
                    cure="Give an async function of (call, context, proceed), as `ToolHook` says.",
                )

    async def around(
        self,
        call: ToolCall,
        context: ToolContext[Any],
        run: Callable[[], Awaitable[ToolResult]],
        waits: Callable[[ToolResult], bool],
    ) -> ToolResult:
        """Return the result of a call that runs within the hooks.

        Args:
            waits: whether a result says that the call waits for somebody, and is made again.
        """
        for hook in reversed(self.each):
            # Each gets what is within it.
            run = _Within(hook, call, context, run, waits).result
        return await run()


NO_HOOKS = ToolHooks()


class _Within:
    """A call within one hook."""

    def __init__(
        self,
        hook: ToolHook,
        call: ToolCall,
        context: ToolContext[Any],
        run: Callable[[], Awaitable[ToolResult]],
        waits: Callable[[ToolResult], bool],
    ) -> None:
        self._hook, self._context, self._run, self._waits = hook, context, run, waits
        self._call = replace(call, arguments=deepcopy(call.arguments))
        self._inner: ToolResult | None = None
        self._began = False

    async def result(self) -> ToolResult:
        try:
            returned = cast("object", await self._hook(self._call, self._context, self._proceed))
        except Exception as error:
            returned = error_result(error)
        if self._inner is not None and self._waits(self._inner):
            return self._inner
        if isinstance(returned, ToolResult):
            return returned
        name = getattr(self._hook, "__name__", type(self._hook).__name__)
        return ToolResult(
            f"The hook {name} returned {type(returned).__name__} instead of a ToolResult, so the "
            "result of the call is lost.",
            outcome="error",
        )

    async def _proceed(self) -> ToolResult:
        if self._began:
            raise RuntimeError("A hook called `proceed` twice: a call starts its tool once.")
        self._began = True
        self._inner = await self._run()
        return self._inner
