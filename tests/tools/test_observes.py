"""What a tool of one's own tells memory of a call."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime import Change, ToolResult, Verdict, tool
from agent_runtime.memory.observational.observer.slots.extract import observed
from agent_runtime.messages import ToolCall, call_id, decode_result, encode_result
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


@pytest.mark.parametrize("observes", [broken, of_texts, None])
async def test_a_bug_in_it_fails_no_call(observes: Any) -> None:
    @tool(observes=observes)
    def add(one: int, other: int) -> int:
        """Add."""
        return one + other

    assert await call(add, one=1, other=2) == ToolResult("3")
