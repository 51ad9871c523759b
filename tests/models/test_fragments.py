"""Tool calls from fragments as the servers send them, by the book and not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent_runtime.models.tool_call_stream import ToolCallAssembler

F = dict[str, Any]


def gathered(*fragments: F) -> list[tuple[str, str]]:
    """Return (name, arguments) of the calls; a fragment is what litellm makes of it."""
    calls = ToolCallAssembler()
    for one in fragments:
        function = SimpleNamespace(name=one.get("name"), arguments=one.get("arguments"))
        calls.add(SimpleNamespace(index=one.get("index", 0), id=one.get("id"), function=function))
    return [(call.name, "".join(call.arguments)) for call in calls.opened]


def in_pieces(name: str, text: str, **fields: Any) -> list[F]:
    """Return a call's fragments: its name, then its arguments letter by letter."""
    return [{"name": name, "arguments": "", **fields}, *({"arguments": c} for c in text)]


BOTH = [("f", '{"a": 1}'), ("f", '{"a": 2}')]
MIXED = [("f", '{"a": 1}'), ("g", '{"b": "}{"}')]


@pytest.mark.parametrize("want", [BOTH, MIXED], ids=["same tool", "two tools"])
def test_ids_tell_calls_apart_where_indices_are_missing(want: list[tuple[str, str]]) -> None:
    sent = [part for n, (f, text) in enumerate(want) for part in in_pieces(f, text, id=f"c{n}")]
    assert gathered(*sent) == want


@pytest.mark.parametrize("want", [BOTH, MIXED], ids=["same tool", "two tools"])
@pytest.mark.parametrize("ids", [None, "call_0"], ids=["no id", "one id for all"])
def test_names_tell_calls_apart_where_ids_do_not(
    want: list[tuple[str, str]], ids: str | None
) -> None:
    sent = [part for name, text in want for part in in_pieces(name, text, id=ids)]
    assert gathered(*sent) == want


def test_what_follows_whole_arguments_of_one_call_stays_with_it() -> None:
    """It is no JSON then, which the model is to hear."""
    assert gathered({"id": "a", "name": "f", "arguments": "{}"}, {"arguments": "}"}) == [
        ("f", "{}}")
    ]


@pytest.mark.parametrize("want", [BOTH, MIXED], ids=["same tool", "two tools"])
@pytest.mark.parametrize("ids", [None, "call_0"], ids=["no id", "one id for all"])
def test_whole_calls_are_told_apart(want: list[tuple[str, str]], ids: str | None) -> None:
    sent = [{"name": name, "arguments": text, "id": ids} for name, text in want]
    assert gathered(*sent) == want


@pytest.mark.parametrize("want", [BOTH, MIXED], ids=["same tool", "two tools"])
@pytest.mark.parametrize("indexed", [True, False], ids=["index", "no index"])
def test_id_and_name_may_be_repeated_in_each_fragment(
    want: list[tuple[str, str]], indexed: bool
) -> None:
    sent: list[F] = []
    for n, (name, text) in enumerate(want):
        head = {"id": f"c{n}", "name": name, "index": n if indexed else 0}
        sent += [{**head, "arguments": letter} for letter in text]
    sent.append({"id": "c0", "name": want[0][0], "arguments": ""})
    assert gathered(*sent) == want


def test_an_id_made_up_for_each_fragment_begins_no_call() -> None:
    sent: list[F] = []
    for n, (name, text) in enumerate(BOTH):
        sent.append({"id": f"r{n}", "index": n, "name": name, "arguments": ""})
        sent += [{"id": f"r{n}.{i}", "index": n, "arguments": c} for i, c in enumerate(text)]
    assert gathered(*sent) == BOTH


def test_interleaved_calls_are_found_by_index_even_if_all_have_one_id() -> None:
    heads: list[F] = [{"index": n, "id": "x", "name": "f", "arguments": ""} for n in (0, 1)]
    letters = [
        {"index": n, "id": "x", "arguments": letter}
        for pair in zip(BOTH[0][1], BOTH[1][1], strict=True)
        for n, letter in enumerate(pair)
    ]
    assert gathered(*heads, *letters) == BOTH


def test_interleaved_calls_are_found_by_id_where_indices_are_missing() -> None:
    heads: list[F] = [{"id": f"c{n}", "name": "f", "arguments": ""} for n in (0, 1)]
    letters = [
        {"id": f"c{n}", "arguments": letter}
        for pair in zip(BOTH[0][1], BOTH[1][1], strict=True)
        for n, letter in enumerate(pair)
    ]
    assert gathered(*heads, *letters) == BOTH


def test_two_calls_opened_in_one_chunk_go_on_without_an_index() -> None:
    # litellm numbers what has no index within its chunk.
    first: list[F] = [
        {"index": 0, "id": "a", "name": "f", "arguments": '{"a": 1}'},
        {"index": 1, "id": "b", "name": "f", "arguments": '{"a":'},
    ]
    assert gathered(*first, {"index": 0, "arguments": " 2}"}) == BOTH


def test_a_fragment_without_id_and_name_at_a_new_index_goes_on_with_the_last_call() -> None:
    sent: list[F] = [{"index": 3, "id": "a", "name": "f", "arguments": '{"a":'}]
    assert gathered(*sent, {"arguments": " 1}"}) == BOTH[:1]


def test_a_name_may_come_after_its_id() -> None:
    assert gathered({"id": "a"}, {"name": "f"}, {"arguments": '{"a": 1}'}) == BOTH[:1]


def test_arguments_may_be_an_object() -> None:
    assert gathered({"name": "f", "arguments": {"a": 1}}) == [("f", '{"a":1}')]


@pytest.mark.parametrize("text", ['{"a": "\\"}{"}', '{"a": {"b": "\\\\"}}', "{}"])
def test_braces_in_texts_close_nothing(text: str) -> None:
    """Same name in each fragment and no id: only the braces tell where a call ends."""
    sent: list[F] = [{"name": "f", "arguments": letter} for letter in text * 2]
    assert gathered(*sent) == [("f", text), ("f", text)]
