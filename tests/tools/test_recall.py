"""`recall` in a real run: it opens what an earlier call of the thread gave, page by page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, load_settings, tool
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.scripted import call, say

LONG = "".join(f"line {number}\n" for number in range(20_000))


@tool
def produce() -> str:
    """Give a long text."""
    return LONG


async def converse(tmp_path: Path, **arguments: object) -> str:
    """Run `produce`, then `recall` of its result with these arguments; return what it says."""
    results: list[PromptMessage] = []

    def script(request: ModelRequest) -> ModelAnswer:
        results[:] = [one for one in request.messages if one.role == "tool"]
        if not results:
            return call("produce")
        if len(results) == 1:
            assert LONG not in results[0].text
            marked = re.search(r'recall\(handle="(\w+)", offset=(\d+)\)', results[0].text)
            assert marked is not None
            return call("recall", **{"handle": marked[1], **arguments})
        return say("done")

    settings = load_settings({"AGENT_RUNTIME_DATABASE_URL": f"file:{tmp_path / 'store.db'}"})
    async with Runtime.open(settings) as runtime:
        result = await runtime.run(Agent(ScriptedModel(script), tools=[produce]), "Go")
    assert result.ok
    return results[1].text


async def test_a_cut_result_is_opened_where_it_was_cut(tmp_path: Path) -> None:
    shown = await converse(tmp_path, offset=70_000, limit=500)
    header, _, page = shown.partition("\n")
    assert header == (
        f"produce (ok): {len(LONG)} characters; characters 70000 to 70500 follow; "
        "next: offset=70500."
    )
    assert page == LONG[70_000:70_500]


async def test_the_last_page_names_no_next_one(tmp_path: Path) -> None:
    shown = await converse(tmp_path, offset=len(LONG) - 5)
    assert shown.endswith(f"to {len(LONG)} follow.\n{LONG[-5:]}")


async def test_an_offset_beyond_the_end_says_so(tmp_path: Path) -> None:
    assert "nothing lies after 999999." in await converse(tmp_path, offset=999_999)


@pytest.mark.parametrize(
    ("handle", "told"),
    [("nonsense", "is no handle of a tool result"), ("czzzzzzzz", "has no tool result with the")],
)
async def test_a_bad_handle_is_an_error_that_says_what_handles_look_like(
    tmp_path: Path, handle: str, told: str
) -> None:
    shown = await converse(tmp_path, handle=handle)
    assert told in shown
    assert "Handles look like c0000001a" in shown


async def test_a_number_opens_the_node_that_an_observation_names(tmp_path: Path) -> None:
    shown = await converse(tmp_path, handle="1")
    assert shown == "Node 1, of the user: 2 characters; characters 0 to 2 follow.\nGo"


async def test_an_exchange_names_the_handles_of_its_results(tmp_path: Path) -> None:
    shown = await converse(tmp_path, handle="2")
    assert shown.startswith("Node 2, of the agent: ")
    assert re.search(r"called produce \(ok\); recall\(handle='c\w{8}'\) opens it$", shown)


async def test_a_node_that_is_not_there_is_an_error_with_a_cure(tmp_path: Path) -> None:
    shown = await converse(tmp_path, handle="999")
    assert "no node 999" in shown and "Handles look like" in shown
