"""Tools: `Tool`, `FunctionTool` (made by `@tool`), and the `Toolset` of an agent."""

from __future__ import annotations

import inspect
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from agent_runtime.errors import ConfigError, ToolError, text_of
from agent_runtime.files.attach import MAX_BYTES, File, store_file
from agent_runtime.messages import FileRef, ToolResult, ToolSpec, encodable
from agent_runtime.tools.argument_patterns import Arguments, may_match
from agent_runtime.tools.fingerprint import code_digest, json_digest
from agent_runtime.tools.results import has_files, render_files, result_of_value
from agent_runtime.tools.signature import function_name, is_async, read_signature
from agent_runtime.tools.timer import ToolTimer
from agent_runtime_storage.contract.store import UserStore

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_THREADS = 64
"""How many sync tools run at once, in threads apart from the store's."""
REFUSED = "This call needs a person's approval, and nobody can be asked from here. It was not made."
NeedsApproval: TypeAlias = bool | Mapping[str, str] | Callable[[dict[str, Any]], bool]
"""Which calls need an approval: all or none; those whose arguments match patterns (`*`, `?`,
`[…]`), by argument; or those for whose arguments the function returns True."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_threads: RunVar[anyio.CapacityLimiter] = RunVar("agent_runtime_tool_threads")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The run that calls a tool; passed to a parameter annotated `ToolContext`.

    Attributes:
        call_id: the call's id; also the handle by which `recall` opens its result.
        step: how many model calls the run has made.
        store: the store, as the run's owner sees it.
        deps: the object that the program passed to the run.
        run_agent: `await run_agent(agent, task)` runs an agent or a workflow as a child run and
            returns its `RunResult`.  `before` gives messages that precede the task; `on_event` gets
            its events too, and is the only listener once the calling run is over.
        timeout: seconds that a tool without its own timeout may take; None for no limit.
        timer: of this call; it stops while `run_agent` works.
        user_context: the outermost run's data about its user.
        max_file_bytes: the largest file that can be stored.
        services: parts of the run that the runtime's own tools use, by type; see `service`.
    """

    user_id: str
    thread_id: str
    run_id: str
    call_id: str
    step: int
    store: UserStore
    deps: Any
    run_agent: Callable[..., Awaitable[Any]]
    timeout: float | None = None
    timer: ToolTimer = field(default_factory=ToolTimer)
    user_context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_file_bytes: int = MAX_BYTES
    services: Mapping[type[Any], Any] = field(default_factory=dict[type[Any], Any])

    def service(self, kind: type[T]) -> T | None:
        """Return the run's service of a type, such as its `Planner`; None if it has none."""
        return self.services.get(kind)

    async def keep(self, file: File) -> FileRef:
        """Store a file with the thread; return the reference to put into a `ToolResult`.

        Raises:
            InvalidFile: it is empty, too large, or cannot be read.
        """
        return await store_file(
            self.store, self.thread_id, file, self.max_file_bytes, origin="tool"
        )


StateFunction: TypeAlias = Callable[[ToolContext], str | Awaitable[str | None] | None]
"""Returns text about the run's present state; None or an empty text if there is none."""


class Tool(ABC):
    """Something that a model can call.

    Args:
        name: letters, digits, `_` and `-`, at most 64.
        spec: name, description and parameters for the model; None makes it of the first two.
        timeout: seconds; None for the run's default, `math.inf` for no limit.
        idempotent: whether it may run again after a crash that left its effect unknown.
        needs_approval: which calls need an approval; see `NeedsApproval`.
        max_result_tokens: how much of a result prompts show; None for the setting.

    Attributes:
        in_thread: whether its calls run in threads, which a cancellation does not stop.
        folder: where relative paths in its arguments start; None for the process's folder.

    Raises:
        ConfigError: the name or a limit is not usable.
    """

    in_thread: bool = False
    max_result_tokens: int | None = None
    folder: Path | None = None

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        spec: ToolSpec | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        needs_approval: NeedsApproval = False,
        max_result_tokens: int | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a valid name for a tool.",
                cure="Use 1 to 64 letters (a-z), digits, `_` and `-`.",
            )
        if timeout is not None and not timeout > 0:
            raise ConfigError(
                f"The timeout of the tool {name} is {timeout!r}.", cure="Give seconds above 0."
            )
        if max_result_tokens is not None and max_result_tokens < 1:
            raise ConfigError(
                f"The tool {name} has max_result_tokens={max_result_tokens!r}.",
                cure="Give at least 1, or None for AGENT_RUNTIME_MAX_RESULT_TOKENS.",
            )
        self.name = name
        self.description = description
        self.spec = spec or ToolSpec(name, description, {"type": "object", "properties": {}})
        self.timeout = timeout
        self.idempotent = idempotent
        self.needs_approval = needs_approval
        self.max_result_tokens = max_result_tokens
        if not isinstance(needs_approval, bool) and not callable(needs_approval):
            self._check_patterns(needs_approval)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _check_patterns(self, patterns: Mapping[str, str]) -> None:
        if unknown := [one for one in patterns if not self.takes(one)]:
            known = ", ".join(self.spec.parameters.get("properties", {})) or "none"
            raise ConfigError(
                f"Approvals of the tool {self.name} name arguments that it does not have: "
                f"{', '.join(unknown)}.",
                cure=f"Its arguments are: {known}.",
            )

    @abstractmethod
    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool; return failures as a result that the model can read.

        Never raises an `Exception`.  Cancellation passes through.
        """
        ...

    def given(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as JSON, completed by the tool's defaults.

        Raises:
            ToolError: they are not valid.
        """
        properties: dict[str, Any] = self.spec.parameters.get("properties", {})
        known: dict[str, Any] = {
            name: one["default"]
            for name, one in properties.items()
            if isinstance(one, dict) and "default" in one
        }
        return deepcopy(known | arguments)

    def takes(self, name: str) -> bool:
        """Return whether the tool may have an argument of this name."""
        schema = self.spec.parameters
        if name in (properties := schema.get("properties", {})):
            return True
        return not properties and schema.get("additionalProperties") is not False

    def binding(self) -> str:
        """Return a digest of the tool, the same in every process, to bind approvals to."""
        spec = [self.spec.name, self.spec.description, self.spec.parameters]
        return json_digest(spec, str(self.folder), *self._held())

    def _held(self) -> tuple[str, ...]:
        return (code_digest(self, made=False),)

    def approval(self, arguments: dict[str, Any]) -> Mapping[str, str] | None:
        """Return the pattern for which a call needs an approval; None if it needs none.

        If the `needs_approval` function fails, the call needs one.

        Args:
            arguments: as `given` returns them.
        """
        wanted = self.needs_approval
        if isinstance(wanted, bool):
            return {} if wanted else None
        if callable(wanted):
            try:
                return {} if wanted(deepcopy(arguments)) else None
            except (Exception, SystemExit, GeneratorExit):
                return {}
        return wanted if may_match(wanted, self.arguments(arguments)) else None

    def arguments(self, given: Mapping[str, Any]) -> Arguments:
        """Return the arguments of a call for matching patterns."""
        return Arguments(given, self.takes, self.folder)

    def refusal(self) -> ToolResult:
        """Return the result of a call that nobody can approve."""
        return ToolResult(REFUSED, outcome="refused")


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
        self.function = function
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
            # `ToolError`, or anything that a validator of the tool's author raises.
            return error_result(error)
        if self._signature.context is not None:
            given[self._signature.context] = context
        limit = context.timeout if self.timeout is None else self.timeout
        if not self.in_thread:
            return await self._call_here(given, limit, context)
        return await self._call_in_thread(given, limit, context)

    async def _call_here(
        self, given: dict[str, Any], limit: float | None, context: ToolContext
    ) -> ToolResult:
        with context.timer.limit(limit):
            try:
                return await _rendered(await self._untyped(**given), context)
            except Exception as error:
                return error_result(error)
        return ToolResult(f"The tool was stopped after {limit:g} s.", outcome="error")

    async def _call_in_thread(
        self, given: dict[str, Any], limit: float | None, context: ToolContext
    ) -> ToolResult:
        started = threading.Event()

        def run() -> Any:
            started.set()
            try:
                value = self._untyped(**given)
                return (
                    value
                    if inspect.isawaitable(value) or has_files(value)
                    else result_of_value(value)
                )
            except Exception as error:
                return error_result(error)

        with context.timer.limit(limit):
            value = await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=_limiter())
            return value if isinstance(value, ToolResult) else await _settle(value, context)
        if not started.is_set():
            text = f"No thread was free for this call within {limit:g} s. It did not run."
            return ToolResult(text, outcome="error")
        text = (
            f"The tool took longer than {limit:g} s and may still be running: its effect is "
            "unverified. Check what it did before you repeat it."
        )
        return ToolResult(text, outcome="interrupted")


class Toolset:
    """The tools of an agent, by name, in the order given.

    Raises:
        ConfigError: two tools have the same name, or a function cannot be a tool.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]]) -> None:
        self._tools: dict[str, Tool] = {}
        for one in tools:
            made = one if isinstance(one, Tool) else FunctionTool(one)
            if made.name in self._tools:
                raise ConfigError(
                    f"Two tools are called {made.name!r}.",
                    cure="Rename one: `tool(function, name=...)`.",
                )
            self._tools[made.name] = made
        self.specs: tuple[ToolSpec, ...] = tuple(made.spec for made in self._tools.values())

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name; None if there is none."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


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
) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    needs_approval: NeedsApproval = False,
    max_result_tokens: int | None = None,
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
        )

    return make if function is None else make(function)


def error_result(error: BaseException) -> ToolResult:
    """Return an exception as the result that a model reads."""
    text = text_of(error)
    if not isinstance(error, ToolError):
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    return ToolResult(encodable(text), outcome="error")


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
