"""`FunctionTool`: a tool made of a function, by the decorator `tool`."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Generic, ParamSpec, TypeVar, overload

import anyio
from anyio.lowlevel import RunVar

from agent_runtime.concurrency import run_in_daemon_thread
from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolResult, ToolSpec
from agent_runtime.tools.base import NeedsApproval, Tool, error_result
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.fingerprint import code_digest
from agent_runtime.tools.observes import Observes, observing
from agent_runtime.tools.results import has_files, render_files, result_of_value
from agent_runtime.tools.signature import function_name, is_async, read_signature

P = ParamSpec("P")
R = TypeVar("R")

MAX_THREADS = 64
"""How many sync tools run at once, in threads apart from the store's."""

_threads: RunVar[anyio.CapacityLimiter] = RunVar("agent_runtime_tool_threads")


class FunctionTool(Tool, Generic[P, R]):
    """A tool made of a function by `tool`; called directly, it is that function.

    An async function runs on the event loop.  A sync one runs in a thread, which cannot be stopped:
    after a timeout or a cancellation it may keep running, and the result says that its effect is
    unverified.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        needs_approval: NeedsApproval = False,
        max_result_tokens: int | None = None,
        observes: Observes | None = None,
    ) -> None:
        name = name or function_name(function)
        signature = read_signature(function, ToolContext)
        super().__init__(
            name=name,
            description=signature.description,
            spec=ToolSpec(name, signature.description, signature.schema),
            timeout=timeout,
            idempotent=idempotent,
            needs_approval=needs_approval,
            max_result_tokens=max_result_tokens,
        )
        if inspect.iscoroutinefunction(observes):
            raise ConfigError(
                f"`observes` of the tool {name} is async.", cure="Give a plain function."
            )
        self.function = function
        self.observes = observes
        self._untyped: Callable[..., Any] = function
        self._signature = signature
        self.in_thread = not is_async(function)
        # Computed now, because a call may change what the function holds; ours change nothing.
        own = str(getattr(function, "__module__", "")).startswith("agent_runtime.")
        self._made = "" if own else code_digest(function, made=True)

    @property
    def takes_context(self) -> bool:
        """Whether its function takes a `ToolContext`, with which it can run agents."""
        return self._signature.context is not None

    def given(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as JSON: validated, coerced, and with defaults.

        Raises:
            ToolError: they are not valid.
        """
        return self._signature.given(arguments)

    def _held(self) -> tuple[str, ...]:
        self._made = self._made or code_digest(self.function, made=True)
        return (self._made, code_digest(self.function, made=False))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without validation, thread or timeout."""
        return self.function(*args, **kwargs)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Validate the arguments, run the function, and return its result."""
        try:
            given = self._signature.validate(arguments)
        except Exception as error:
            # A `ToolError`, or whatever a validator of the tool's author raises.
            return error_result(error)
        if self._signature.context is not None:
            given[self._signature.context] = context
        limit = context.timeout if self.timeout is None else self.timeout
        # Before the function has the arguments, which it may change.
        kept = deepcopy(arguments) if self.observes else arguments
        run = self._call_in_thread if self.in_thread else self._call_here
        result = await run(given, limit, context)
        return result if self.observes is None else await observing(self.observes, kept, result)

    async def _call_here(
        self, given: dict[str, Any], limit: float | None, context: ToolContext
    ) -> ToolResult:
        with context.timer.limit(limit):
            try:
                return await _rendered(await self._untyped(**given), context)
            except Exception as error:
                return error_result(error)
        # The coroutine was cancelled and has ended, so unlike a thread it runs no more.
        return ToolResult(f"The tool was stopped after {limit:g} s.", outcome="error")

    async def _call_in_thread(
        self, given: dict[str, Any], limit: float | None, context: ToolContext
    ) -> ToolResult:
        started = threading.Event()

        def run() -> Any:
            started.set()
            try:
                value = self._untyped(**given)
                # Large values are made JSON here; what needs the store is left to the event loop.
                return (
                    value
                    if inspect.isawaitable(value) or has_files(value)
                    else result_of_value(value)
                )
            except Exception as error:
                return error_result(error)

        with context.timer.limit(limit):
            # Abandoned, because nothing can stop a thread, and the run must not wait for it.
            value = await run_in_daemon_thread(run, _limiter())
            return value if isinstance(value, ToolResult) else await _settle(value, context)
        # Without an effect, so it is a plain error that the model may repeat.
        if not started.is_set():
            text = f"No thread was free for this call within {limit:g} s. It did not run."
            return ToolResult(text, outcome="error")
        text = (
            f"The tool took longer than {limit:g} s and may still be running: its effect is "
            "unverified. Check what it did before you repeat it."
        )
        return ToolResult(text, outcome="interrupted")


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    needs_approval: NeedsApproval = False,
    max_result_tokens: int | None = None,
    observes: Observes | None = None,
) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    needs_approval: NeedsApproval = False,
    max_result_tokens: int | None = None,
    observes: Observes | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    needs_approval: NeedsApproval = False,
    max_result_tokens: int | None = None,
    observes: Observes | None = None,
) -> Any:
    """Make a tool of a function, sync or async: `@tool`, or `@tool(timeout=60)`.

    The model sees the function's name, its docstring, and its parameters with their type hints
    (`Annotated[..., Field(...)]` works) and their descriptions in the docstring's `Args:`.

    The model gets a returned text unchanged, other values as JSON; a `ToolResult` passes through.
    A `File`, or a list of texts and `File`s, is stored with the thread and shown to models that
    take such files.  An exception becomes an error result; of a `ToolError` it has just the text.

    Args:
        function: its parameters must have type hints and be passable by name; one annotated
            `ToolContext` gets the call's context and is hidden from the model.
        name: the tool's name; None for the function's.
        timeout: seconds, not counting child runs; None for the run's default, `math.inf` for no
            limit.
        idempotent: whether it may run again after a crash that left its effect unknown.
        needs_approval: which calls need an approval: all (True); those whose arguments match
            patterns, such as `{"path": "/etc/*"}`; or those for which a function of the arguments
            returns True.  Both see the final arguments: coerced, with defaults, as JSON.  Paths
            match in every form, relative ones from the process's folder.  If a pattern cannot
            decide, a person is asked.
        max_result_tokens: how much of a result prompts show, at any window; None for the setting.
        observes: what memory keeps of a call next to its notes: a function of the call's arguments
            and its `ToolResult` that returns a `Verdict`, a `Change`, several, or None.  It is
            called once, in a thread and for at most 2 seconds, and what it returns is stored with
            the result; if it fails, nothing is.
            Without it memory knows the arguments of common tools for edits and shells.

    Raises:
        ConfigError: the function, the name or the timeout is not usable.
    """

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(
            function,
            name=name,
            timeout=timeout,
            idempotent=idempotent,
            needs_approval=needs_approval,
            max_result_tokens=max_result_tokens,
            observes=observes,
        )

    return make if function is None else make(function)


async def _settle(value: Any, context: ToolContext) -> ToolResult:
    # A sync function may return a coroutine, as many decorated ones do.
    try:
        return await _rendered(await value if inspect.isawaitable(value) else value, context)
    except Exception as error:
        return error_result(error)


async def _rendered(value: Any, context: ToolContext) -> ToolResult:
    return await render_files(value, context.keep) if has_files(value) else result_of_value(value)


def _limiter() -> anyio.CapacityLimiter:
    # One per event loop, so that tools do not take threads from the default limiter.
    try:
        return _threads.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _threads.set(limiter)
        return limiter
