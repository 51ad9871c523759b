"""Passages to embed: pieces of about equal size of searchable text, with no word lost."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_runtime.memory.recall.passages import (
    MESSAGE,
    MOST_OF_RESULT,
    RESULT,
    SIZE,
    node_and_call_of,
    passages,
    split,
)
from agent_runtime.messages import AssistantMessage, Note, ToolCall, ToolResult, UserMessage
from agent_runtime.prompt.view import Entry

WORDS = st.lists(st.sampled_from(["a", "word", "longer.", "line\n", "日本", "é", "x" * 50]))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(WORDS.map(" ".join))
def test_pieces_contain_every_word_once_and_in_order(text: str) -> None:
    assert " ".join(split(text)).split() == text.split()


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.sampled_from(["a", "some", "words.", "again\n"]), min_size=1).map(" ".join))
def test_no_piece_exceeds_the_size_in_any_script(text: str) -> None:
    assert all(0 < len(piece.encode()) <= SIZE for piece in split(text * 40))


def test_pieces_are_of_about_equal_size() -> None:
    sizes = [len(piece) for piece in split("Some words of a sentence. " * 35)]
    assert len(sizes) == 2
    assert max(sizes) < 1.2 * min(sizes)


def test_a_piece_ends_with_a_paragraph_or_else_a_sentence() -> None:
    first, second = split("a" * 500 + " b. " + "c" * 60 + "\n" + "d" * 600)
    assert (first[-1], second[0]) == ("c", "d")
    first, second = split("a " * 250 + "end. " + "b " * 300)
    assert first.endswith("end.")


def test_text_without_sentence_ends_is_cut_at_the_size() -> None:
    assert [len(piece) for piece in split("x" * 2000)] == [800, 800, 400]
    assert [len(piece) for piece in split("日" * 600)] == [266, 266, 68]


@pytest.mark.parametrize("text", ["", " \n\t", "\ud800"])
def test_blank_and_unencodable_text_is_harmless(text: str) -> None:
    assert split(text) in ([], ["\ufffd"])


def test_a_passage_names_its_message_or_result() -> None:
    calls = (ToolCall("c1", "read", {"path": "a.txt"}), ToolCall("c2", "recall", {"query": "x"}))
    results = (ToolResult("what stands there"), ToolResult("what was said before"))
    entries = [
        Entry(1, None, UserMessage("u " * 600)),
        Entry(2, 1, AssistantMessage("I look.", calls), results),
        Entry(3, 2, Note("Said before: u", source="recall")),
        Entry(4, 3, Note("Stop", source="steer")),
    ]
    pieces = passages(entries)
    places = [
        (piece.source, *node_and_call_of(piece.source, piece.source_id), piece.part)
        for piece in pieces
    ]
    assert places == [
        (MESSAGE, 1, None, 0),
        (MESSAGE, 1, None, 1),
        (MESSAGE, 2, None, 0),
        (RESULT, 2, 0, 0),
        (MESSAGE, 4, None, 0),
    ]
    assert pieces[3].text == "what stands there"


def test_only_the_start_of_a_long_result_is_embedded() -> None:
    entry = Entry(
        1,
        None,
        AssistantMessage("", (ToolCall("c1", "read", {}),)),
        (ToolResult("words " * 100_000),),
    )
    text = sum(len(passage.text) for passage in passages([entry]) if passage.source == RESULT)
    assert 0.9 * MOST_OF_RESULT < text <= MOST_OF_RESULT
