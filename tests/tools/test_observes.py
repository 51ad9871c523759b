"""What a tool of one's own tells memory of a call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import anyio
import pytest

from agent_runtime import Change, ToolResult, Verdict, tool
from agent_runtime.errors import ConfigError
from agent_runtime.memory.observational.observer.slots.extract import observed
from agent_runtime.messages import ToolCall, call_id, decode_result, encode_result
from agent_runtime.tools.function import FunctionTool
from agent_runtime.tools.observes import MOST, observing
from tests.tools.calling import call


def change_of(arguments: dict[str, Any], result: ToolResult) -> Change | None:
    return Change(arguments["cell"], f"-> {arguments['value']}") if result.outcome == "ok" else None


@tool(observes=change_of)
def write_cell(cell: str, value: int) -> str:
    """Write a cell of the table."""
    if value < 0:
        raise ValueError("below zero")
    return "Written."


@tool(
    observes=lambda _, result: [
        Verdict("nightly", passed="0 red" in result.text, failing=("a\nb", "c" * 900)),
        Change("report", "x\ud800"),
    ]
)
async def nightly() -> str:
    """Run the nightly checks."""
    return "2 red"


async def test_what_a_call_shows_is_stored_with_its_result() -> None:
    result = await call(write_cell, cell="B2", value=4)
    assert result.observed == (Change("B2", "-> 4"),)
    read = decode_result(encode_result(result))
    assert read == result
    made = ToolCall(call_id(1, 0), "write_cell", {"cell": "B2", "value": 4})
    assert observed(made, read) == result.observed


async def test_it_is_made_short_and_plain() -> None:
    result = decode_result(encode_result(await call(nightly)))
    verdict, change = result.observed
    assert isinstance(verdict, Verdict) and isinstance(change, Change)
    assert not verdict.passed and verdict.failing[0] == "a b" and len(verdict.failing[1]) < 500
    assert change.what.startswith("x")


async def test_a_failed_call_shows_what_the_function_says_of_it() -> None:
    result = await call(write_cell, cell="B2", value=-1)
    assert (result.outcome, result.observed) == ("error", ())


def broken(arguments: dict[str, Any], result: ToolResult) -> Change:
    arguments.clear()
    raise KeyError(result.text)


def of_texts(*_: object) -> list[str]:
    return ["text"]


def endless(*_: object) -> Iterator[Change]:
    while True:
        yield Change("a", "b")


async def test_of_an_endless_answer_the_first_are_kept() -> None:
    @tool(observes=endless)
    def add(one: int, other: int) -> int:
        """Add."""
        return one + other

    assert len((await call(add, one=1, other=2)).observed) == MOST


async def test_one_that_hangs_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_runtime.tools.observes.SECONDS", 0.05)
    waiting, ended = threading.Event(), threading.Event()

    def observes(*_: object) -> None:
        waiting.wait(20)
        ended.set()

    assert await observing(observes, {}, ToolResult("Sent.")) == ToolResult("Sent.")
    assert not ended.is_set()
    waiting.set()


async def test_a_cancelled_run_keeps_what_a_call_showed() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        result = await observing(change_of, {"cell": "B2", "value": 4}, ToolResult("Sent."))
        assert result.observed == (Change("B2", "-> 4"),)
    assert scope.cancel_called


def test_an_async_one_is_refused() -> None:
    async def observes(arguments: dict[str, Any], result: ToolResult) -> None: ...

    with pytest.raises(ConfigError, match="is async"):
        FunctionTool(write_cell.function, observes=cast("Any", observes))


@pytest.mark.parametrize("observes", [broken, of_texts, None])
async def test_a_bug_in_it_fails_no_call(observes: Any) -> None:
    @tool(observes=observes)
    def add(one: int, other: int) -> int:
        """Add."""
        return one + other

    assert await call(add, one=1, other=2) == ToolResult("3")
