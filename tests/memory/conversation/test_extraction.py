"""The branch of a list of messages, from ids, parents and an explicit head only."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.errors import CorruptThread, NotFound
from agent_runtime.log.branches import extract

# From the README of Dify's memory: A' was regenerated as A'', and both were continued.
REGENERATED = {"A": None, "A'": "A", "B": "A'", "B'": "B", "A''": "A", "C": "A''", "C'": "C"}


def branch(parents: dict[str, str | None], head: str, order: list[str] | None = None) -> list[str]:
    """Return the branch of messages that are their own ids, listed in this order."""
    return extract(order or list(parents), head, ids=lambda one: (one, parents[one]))


def test_a_linear_conversation_is_its_branch() -> None:
    parents = {"a": None, "b": "a", "c": "b"}
    assert branch(parents, "c") == ["a", "b", "c"]


def test_a_regenerated_answer_excludes_its_sibling() -> None:
    assert branch(REGENERATED, "C'") == ["A", "A''", "C", "C'"]


def test_the_head_can_move_back_to_the_first_answer() -> None:
    assert branch(REGENERATED, "B'") == ["A", "A'", "B", "B'"]


def test_a_head_in_the_middle_ends_the_branch_there() -> None:
    assert branch(REGENERATED, "A''") == ["A", "A''"]


def test_a_regenerated_root_begins_a_branch_of_its_own() -> None:
    parents = {"a": None, "b": "a", "a2": None, "b2": "a2"}
    assert branch(parents, "b2") == ["a2", "b2"]
    assert branch(parents, "b") == ["a", "b"]


def test_the_order_of_the_messages_does_not_matter() -> None:
    for order in itertools.permutations(REGENERATED):
        assert branch(REGENERATED, "C'", list(order)) == ["A", "A''", "C", "C'"]


def test_equal_times_do_not_matter() -> None:
    # A message here is its id, its parent and a time; all times are equal.
    messages = [("c", "b", 7), ("a", None, 7), ("x", "a", 7), ("b", "a", 7)]
    extracted = extract(messages, "c", ids=lambda one: (one[0], one[1]))
    assert [message[0] for message in extracted] == ["a", "b", "c"]


def test_a_missing_ancestor_starts_the_branch() -> None:
    assert branch({"c": "b", "d": "c", "x": None}, "d") == ["c", "d"]


@pytest.mark.parametrize(
    "parents", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "c", "b": "a", "c": "b", "x": None}]
)
def test_a_cycle_of_parents_is_reported(parents: dict[str, str | None]) -> None:
    with pytest.raises(CorruptThread, match="circle"):
        branch(parents, "a")


def test_a_cycle_outside_the_branch_is_ignored() -> None:
    assert branch({"a": None, "b": "a", "x": "y", "y": "x"}, "b") == ["a", "b"]


def test_duplicate_message_ids_are_reported() -> None:
    with pytest.raises(CorruptThread, match="Two messages have the id 'a'"):
        extract(["a", "a"], "a", ids=lambda one: (one, None))


def test_a_missing_head_is_reported() -> None:
    with pytest.raises(NotFound, match="no message 'z'"):
        branch({"a": None}, "z")


@given(st.lists(st.integers(min_value=-1, max_value=60), min_size=1, max_size=60), st.randoms())
def test_in_any_tree_the_branch_is_the_walk_to_the_root(
    choices: list[int], shuffle: random.Random
) -> None:
    # Each message's parent is an earlier message or None.
    parents = [None if choice < 0 or not i else choice % i for i, choice in enumerate(choices)]
    head = shuffle.randrange(len(parents))
    order = list(range(len(parents)))
    shuffle.shuffle(order)

    walk = extract(order, head, ids=lambda one: (one, parents[one]))

    assert walk[-1] == head and parents[walk[0]] is None
    assert all(parents[one] == before for before, one in itertools.pairwise(walk))
