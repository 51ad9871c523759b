"""The arithmetic of prompts: what is cacheable, what it weighs, what OpenAI would refuse."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from benchmarks.peers.prompts import (
    Volume,
    called_pages,
    common_prefix,
    noted_pages,
    orphans,
    pieces,
    visible_pages,
)
from benchmarks.peers.server import SUMMARY_BYTES, summary_of

CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "function": {"name": "read_page", "arguments": '{"number": 7}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "page 7:\nwords"}
TASK = {"role": "user", "content": "Read."}


def request(*messages: dict[str, Any], tools: bool = True) -> dict[str, Any]:
    return {"messages": list(messages)} | ({"tools": [{"name": "read_page"}]} if tools else {})


def test_a_prompt_is_its_tools_and_then_its_messages() -> None:
    assert pieces(request(TASK)) == [orjson.dumps([{"name": "read_page"}]), orjson.dumps(TASK)]
    assert pieces(request(TASK, tools=False)) == [orjson.dumps(TASK)]


@pytest.mark.parametrize(
    ("before", "after", "common"),
    [
        ([], [b"abc"], 0),
        ([b"abc"], [b"abc"], 3),
        ([b"abc", b"de"], [b"abc", b"dx", b"yz"], 4),
        ([b"abc", b"de"], [b"abc"], 3),
        ([b"xbc", b"de"], [b"abc", b"de"], 0),
        ([b"ab"], [b"abc"], 2),
    ],
)
def test_the_common_prefix_ends_at_the_first_difference(
    before: list[bytes], after: list[bytes], common: int
) -> None:
    assert common_prefix(before, after) == common


def test_a_growing_prompt_is_cacheable_but_for_what_is_new() -> None:
    volume = Volume()
    first, second = request(TASK), request(TASK, CALL, RESULT)
    volume.step(first)
    volume.step(second)
    sizes = [sum(map(len, pieces(one))) for one in (first, second)]

    assert (volume.calls, volume.prompt, volume.breaks) == (2, sum(sizes), 0)
    assert volume.cacheable == sizes[0]
    assert volume.share == sizes[0] / sum(sizes)
    assert volume.weighted == pytest.approx(sizes[1] + 0.1 * sizes[0])
    assert volume.largest == sizes[1]


def test_a_prompt_that_changes_at_its_beginning_is_a_break() -> None:
    volume = Volume()
    volume.step(request(TASK, CALL, RESULT))
    volume.step(request(TASK))
    assert volume.breaks == 1


def test_a_summary_weighs_in_full_and_is_no_step() -> None:
    volume = Volume()
    volume.step(request(TASK))
    before = volume.weighted
    summary = request(TASK, tools=False)
    volume.summary(summary, "Read.")

    assert volume.weighted == before + sum(map(len, pieces(summary)))
    assert (volume.calls, volume.summaries, volume.written) == (1, 1, 5)


def test_two_runs_are_compared_with_themselves() -> None:
    volume = Volume()
    volume.step(request(TASK), "a")
    volume.step(request({"role": "user", "content": "Write."}), "b")
    assert (volume.cacheable, volume.breaks) == (0, 0)


def test_pages_are_found_in_calls_and_results() -> None:
    asked = request(TASK, CALL, RESULT)
    assert called_pages(asked) == [7]
    assert visible_pages(asked) == {7}
    parts = RESULT | {"content": [{"type": "text", "text": "page 8:\n"}]}
    assert visible_pages(request(TASK, CALL, parts)) == {8}
    assert visible_pages(request({"role": "user", "content": "page 9:"})) == set()


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([TASK, CALL, RESULT, TASK], ""),
        ([TASK, CALL], "must be followed by tool messages"),
        ([TASK, CALL, TASK], "must be followed by tool messages"),
        ([TASK, RESULT], "must be a response to a preceding message"),
        ([TASK, CALL, RESULT, RESULT], "must be a response to a preceding message"),
    ],
)
def test_calls_without_results_are_refused(messages: list[dict[str, Any]], says: str) -> None:
    found = orphans(request(*messages))
    assert says in found and bool(found) == bool(says)


def test_a_summary_has_a_line_for_each_of_the_newest_pages_that_it_was_shown() -> None:
    pages = [f"<message>page {n}:\nbegins with {n} {'x ' * 900}</message>" for n in range(50)]
    first = summary_of(request({"role": "user", "content": "\n".join(pages)}, tools=False))

    assert len(first) <= SUMMARY_BYTES
    assert "page 49: begins with 49" in first and "page 0:" not in first
    kept = noted_pages(request({"role": "user", "content": first}))
    assert list(kept) == list(range(50 - len(kept), 50))
    # A summary of a summary keeps what its room allows.
    again = request({"role": "user", "content": f"{first}\npage 50:\nnew"}, tools=False)
    assert list(noted_pages(request({"role": "user", "content": summary_of(again)})))[-2:] == [
        49,
        50,
    ]
