"""`@tool`: schemas, validation, results, errors, timeouts, threads."""

from __future__ import annotations

import functools
import math
import re
import threading
from collections.abc import Awaitable, Callable, Generator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, Field, field_serializer

from agent_runtime.errors import ConfigError, ToolError
from agent_runtime.messages import FileRef, ToolResult, decode_result, encode_result
from agent_runtime.tools.base import NeedsApproval
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import MAX_THREADS, FunctionTool, tool
from agent_runtime.tools.results import NO_RESULT
from agent_runtime.tools.toolset import Toolset
from tests.tools.calling import call, context, error, text


class Point(BaseModel):
    x: int
    title: str = "origin"


class Stubborn(BaseModel):
    x: int = 1

    @field_serializer("x")
    def refuse(self, value: int) -> int:
        raise ValueError("not today")


@dataclass
class Plain:
    when: datetime
    tags: set[str]


@tool
def lookup(
    city: str, copy: list[int], _private: Annotated[int, Field(ge=1, description="deep")] = 3
) -> str:
    """Look a city up.

    It is quick.

    Args:
        city: its name,
            in English: no other
        copy (list): numbers
        _private: not this text

    Returns:
        what is known
    """
    return f"{city} {copy} {_private}"


def test_the_description_is_the_docstring_without_its_arguments() -> None:
    assert lookup.name == "lookup"
    assert lookup.description == "Look a city up.\n\nIt is quick.\n\nReturns:\n    what is known"
    assert lookup.spec.description == lookup.description


def test_the_schema_comes_from_hints_and_docstring() -> None:
    assert lookup.spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "its name, in English: no other"},
            "copy": {"type": "array", "items": {"type": "integer"}, "description": "numbers"},
            "_private": {"type": "integer", "minimum": 1, "default": 3, "description": "deep"},
        },
        "required": ["city", "copy"],
    }


def test_a_tool_can_be_called_as_the_function() -> None:
    assert lookup("Rome", [1], _private=0) == "Rome [1] 0"


async def test_arguments_are_validated_and_defaults_applied() -> None:
    assert await text(lookup, city="Rome", copy=["1", 2]) == "Rome [1, 2] 3"


async def test_each_bad_argument_is_named_without_its_value() -> None:
    reply = await error(lookup, copy=["secret"], _private=0, town="x")
    assert reply.split("\n") == [
        "The arguments are not valid, so the call was not made:",
        "- city: is missing",
        "- copy.0: Input should be a valid integer, unable to parse string as an integer",
        "- _private: Input should be greater than or equal to 1",
        "- town: there is no such argument; there are: city, copy, _private",
    ]


@tool
def move(to: Point, along: list[Point], flags: list[str] | None = None, speed: int = 1) -> str:
    """Move."""
    return f"{to.x} {[one.x for one in along]} {flags} {speed}"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"to": {"x": 1}, "along": [], "speed": None}, "1 [] None 1"),
        ({"to": '{"x": 1}', "along": '[{"x": 2}, {"x": "3"}]'}, "1 [2, 3] None 1"),
        ({"to": {"x": 1, "title": None}, "along": {"x": 2}}, "1 [2] None 1"),
    ],
)
async def test_what_can_be_meant_in_one_way_only_is_taken(
    arguments: dict[str, Any], shown: str
) -> None:
    before = deepcopy(arguments)
    assert await text(move, **arguments) == shown
    # Approvals and their patterns see what runs.
    along = [str(one["x"]) for one in move.given(arguments)["along"]]
    assert along == re.findall(r"\d", shown)[1:-1]
    assert arguments == before


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": None, "along": []},
        {"to": "[1]", "along": []},
        {"to": {"x": 1}, "along": "{"},
        {"to": {"x": 1}, "along": "[" * 100_000},
        {"to": {"x": 1}, "along": [], "speed": "fast"},
        {"to": {"x": 1}, "along": [None]},
    ],
)
async def test_other_invalid_arguments_stay_invalid(arguments: dict[str, Any]) -> None:
    assert (await error(move, **arguments)).startswith("The arguments are not valid")


async def test_the_context_may_be_any_parameter_and_is_not_in_the_schema() -> None:
    @tool
    async def who(first: int, context: ToolContext, *, last: int = 2) -> str:
        return f"{first} {context.user_id} {context.step} {last}"

    assert set(who.spec.parameters["properties"]) == {"first", "last"}
    assert await text(who, first=1) == "1 user 3 2"
    assert "context: there is no such argument" in await error(who, first=1, context="x")


def returning(value: Any) -> FunctionTool[[], Any]:
    def give() -> Any:
        return value

    return tool(give)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("as it is\n", "as it is\n"),
        (None, NO_RESULT),
        (Point(x=1), '{"x":1,"title":"origin"}'),
        (
            Plain(datetime(2026, 1, 2, tzinfo=UTC), {"a"}),
            '{"when":"2026-01-02T00:00:00Z","tags":["a"]}',
        ),
        ([1, {"ä": (True, None)}], '[1,{"ä":[true,null]}]'),
        (b"bytes \xff", "bytes �"),
        ("lone \udcff", "lone �"),
        (1.5, "1.5"),
    ],
)
async def test_results_are_text_or_json(value: Any, shown: str) -> None:
    assert await text(returning(value)) == shown


async def test_a_tool_result_is_returned_unchanged() -> None:
    result = ToolResult("no", outcome="refused")
    assert await call(returning(result)) == result


async def test_surrogates_are_replaced_in_a_tool_result_too() -> None:
    bad = FileRef("image", "file:///\udcff", "image/\udcff", "\ud83d\ude00")
    result = await call(returning(ToolResult("\udcff", files=(bad,))))
    assert result == ToolResult(
        "\ufffd", files=(FileRef("image", "file:///\ufffd", "image/\ufffd", "\U0001f600"),)
    )
    assert decode_result(encode_result(result)) == result


async def test_an_unserializable_value_is_an_error_that_says_the_tool_ran() -> None:
    reply = await error(returning(Stubborn()))
    assert reply.startswith("The tool ran, but what it returned cannot be shown as JSON: ")


def raising(problem: Exception, *, is_async: bool) -> FunctionTool[[], Any]:
    def fail() -> None:
        raise problem

    async def fail_async() -> None:
        raise problem

    return tool(fail_async if is_async else fail)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("problem", "shown"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (KeyError(), "KeyError"),
        (TimeoutError("inner"), "TimeoutError: inner"),
        (ToolError("The city is closed.", cure="Try Rome."), "The city is closed. Try Rome."),
    ],
)
async def test_an_exception_is_an_error_result(
    problem: Exception, shown: str, is_async: bool
) -> None:
    assert await error(raising(problem, is_async=is_async)) == shown


async def test_system_exit_passes_through() -> None:
    @tool
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await call(leave)


async def test_an_async_tool_is_stopped_by_its_timeout() -> None:
    stopped = anyio.Event()

    @tool(timeout=0.01)
    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    result = await call(wait)
    assert (result.outcome, result.text) == ("error", "The tool was stopped after 0.01 s.")
    assert stopped.is_set()


async def test_the_effect_of_a_sync_tool_that_outlasts_its_timeout_is_unverified() -> None:
    release = threading.Event()

    @tool(timeout=1)
    def block() -> None:
        release.wait(30)

    result = await call(block)
    release.set()
    assert result.outcome == "interrupted"
    assert "its effect is unverified" in result.text


@pytest.mark.parametrize(
    ("own", "of_the_run", "stops"),
    [(None, 0.01, True), (math.inf, 0.01, False), (30.0, 0.01, False)],
)
async def test_a_tools_timeout_overrides_the_runs(
    own: float | None, of_the_run: float, stops: bool
) -> None:
    @tool(timeout=own)
    async def ten_turns() -> str:
        if stops:
            await anyio.sleep_forever()
        await anyio.sleep(of_the_run * 3)
        return "done"

    result = await ten_turns.call({}, context(timeout=of_the_run))
    assert result.outcome == ("error" if stops else "ok")


async def test_cancelling_the_caller_cancels_the_tool_and_passes_through() -> None:
    begun, release = anyio.Event(), threading.Event()
    finished: list[str] = []

    @tool
    async def wait() -> None:
        begun.set()
        await anyio.sleep_forever()

    @tool
    def block() -> None:
        release.wait(30)

    async def run(waiting: FunctionTool[[], Any]) -> None:
        await call(waiting)
        finished.append(waiting.name)

    async with anyio.create_task_group() as group:
        group.start_soon(run, wait)
        group.start_soon(run, block)
        await begun.wait()
        group.cancel_scope.cancel()
    release.set()
    assert finished == []


async def test_sync_tools_run_concurrently_in_separate_threads() -> None:
    together = threading.Barrier(MAX_THREADS)

    @tool
    def meet() -> str:
        together.wait(30)
        return str(threading.get_ident())

    names: list[str] = []

    async def run() -> None:
        names.append(await text(meet))

    async with anyio.create_task_group() as group:
        for _ in range(MAX_THREADS):
            group.start_soon(run)
    assert len(set(names)) == MAX_THREADS
    assert str(threading.get_ident()) not in names


async def test_a_sync_tool_without_a_free_thread_in_time_does_not_run() -> None:
    release = threading.Event()
    busy = threading.Semaphore(0)
    ran: list[bool] = []
    reply = ""

    @tool
    def block() -> None:
        busy.release()
        release.wait(30)

    @tool(timeout=0.01)
    def late() -> None:
        ran.append(True)

    async with anyio.create_task_group() as group:
        for _ in range(MAX_THREADS):
            group.start_soon(call, block)
        for _ in range(MAX_THREADS):
            await anyio.to_thread.run_sync(busy.acquire)
        reply = await error(late)
        release.set()
    assert reply == "No thread was free for this call within 0.01 s. It did not run."
    assert ran == []


async def test_a_coroutine_from_a_sync_function_is_awaited() -> None:
    async def inner() -> str:
        await anyio.lowlevel.checkpoint()
        return "awaited"

    @tool
    def outer() -> Awaitable[str]:
        return inner()

    assert await text(outer) == "awaited"


async def test_a_default_that_is_no_json_is_used_but_not_in_the_schema() -> None:
    marker = object()

    @tool
    def is_marker(by: Any = marker) -> bool:
        return by is marker

    assert is_marker.spec.parameters["properties"] == {"by": {}}
    assert await text(is_marker) == "true"


async def test_a_bound_method_can_be_a_tool() -> None:
    class Counter:
        count = 0

        def add(self, by: int = 1) -> int:
            """Count."""
            self.count += by
            return self.count

    counter = Counter()
    assert await text(tool(counter.add), by=2) == "2"
    with pytest.raises(ConfigError, match=r"tool\(instance.method\)"):
        tool(Counter.add)


def test_needs_approval_selects_calls() -> None:
    def pay(amount: int, to: str = "") -> None: ...

    def approval(needed: NeedsApproval, **arguments: object) -> object:
        return tool(needs_approval=needed)(pay).approval(arguments)

    assert approval(False, amount=9) is None
    assert approval(True, amount=9) == {}

    def large(arguments: dict[str, Any]) -> bool:
        return arguments["amount"] > 5

    assert (approval(large, amount=9), approval(large, amount=1)) == ({}, None)
    abroad = {"to": "CH*"}
    assert approval(abroad, amount=1, to="CH12") == abroad
    assert approval(abroad, amount=1, to="DE12") is None


def many(*things: int) -> None: ...
def keywords(**things: int) -> None: ...
def by_place(thing: int, /) -> None: ...
def without_hint(thing: int) -> None: ...
def two_contexts(one: ToolContext, two: ToolContext) -> None: ...
def no_schema(thing: Callable[[], threading.Lock]) -> None: ...
def default_field(thing: int = Field(default=1)) -> None: ...
def generator(thing: int) -> Generator[int]:
    yield thing


del without_hint.__annotations__["thing"]


@pytest.mark.parametrize(
    ("function", "reply"),
    [
        (many, r"\*things of the tool many takes any number"),
        (keywords, r"\*\*things of the tool keywords"),
        (by_place, "thing of the tool by_place is positional-only"),
        (without_hint, "thing of the tool without_hint has no type hint"),
        (two_contexts, "two of the tool two_contexts is a second context"),
        (no_schema, "no_schema has a type hint without a JSON schema"),
        (default_field, "thing of the tool default_field has a `Field` as its default"),
        (generator, "generator is a generator"),
        (functools.partial(many), "has no name"),
        (lambda: None, "'<lambda>' is not a valid name for a tool"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_at_once(
    function: Callable[..., Any], reply: str
) -> None:
    with pytest.raises(ConfigError, match=reply) as caught:
        tool(function)
    assert caught.value.cure


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a.b", "a\n", "1a", "-a"])
def test_a_name_that_a_provider_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid name for a tool"):
        tool(name=name or "\0")(lambda: None)


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
def test_a_timeout_must_be_above_zero(timeout: float) -> None:
    with pytest.raises(ConfigError, match="timeout"):
        tool(timeout=timeout)(returning)


def test_a_toolset_wraps_functions_and_keeps_the_order() -> None:
    def plain() -> None:
        """Plain."""

    tools = Toolset([lookup, plain])
    assert [spec.name for spec in tools.specs] == ["lookup", "plain"]
    assert tools.get("lookup") is lookup
    assert tools.get("nothing") is None
    assert len(tools) == len(list(tools)) == 2


def test_two_tools_of_the_same_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="Two tools are called 'lookup'"):
        Toolset([lookup, tool(returning(1).function, name="lookup")])
