"""Which prepared observations can take effect; on an abandoned branch, none up to the head."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime.memory import accounting
from agent_runtime.memory.observational.memory import ObservationalMemory
from agent_runtime.memory.observational.observer.rules import RuleObserver
from agent_runtime.memory.observational.reflector.base import (
    Reflection,
    ReflectionOutcome,
    size_of,
)
from agent_runtime.memory.observational.reflector.rules import RuleReflector
from agent_runtime.memory.observational.thresholds import MemoryThresholds
from agent_runtime.messages import AssistantMessage, ToolCall, ToolResult, UserMessage, call_id
from agent_runtime.prompt.build import view_of
from agent_runtime.prompt.observation import Observation, ObservationLine, ObservationNotes
from agent_runtime.prompt.view import ActivationContent, Entry, PromptPrefix, View

WORDS = "what was seen there, in a few words " * 8


def entry(seq: int, kind: str) -> Entry:
    """A user's message, or an exchange."""
    parent = seq - 1 or None
    if kind == "user":
        return Entry(seq, parent, UserMessage(WORDS))
    call = ToolCall(call_id(seq, 0), "look", {"number": seq})
    return Entry(seq, parent, AssistantMessage("", (call,)), (ToolResult(WORDS),), (None,))


def view(kinds: str) -> View:
    """A branch of user messages (u) and exchanges (x)."""
    entries = [entry(n, "user" if one == "u" else "exchange") for n, one in enumerate(kinds, 1)]
    return view_of(
        1, None, ActivationContent(remembers=True), PromptPrefix(system="s"), None, entries
    )


def memory(*intervals: tuple[int, int]) -> ObservationalMemory:
    """A memory with prepared observations of these intervals."""
    observer, reflector = RuleObserver(), RuleReflector()
    prepared = [
        Observation(number, 0, first - 1 or None, first, last, ObservationNotes(()))
        for number, (first, last) in enumerate(intervals, 1)
    ]
    return ObservationalMemory(
        log=cast(Any, None),
        thresholds=MemoryThresholds(observe=200, reflect=1000, last_messages=2),
        observer=observer,
        rule_observer=observer,
        reflector=reflector,
        rule_reflector=reflector,
        deadline=1.0,
        ratio=lambda: 1.0,
        prepared=prepared,
    )


@pytest.mark.parametrize(
    ("kinds", "intervals", "ready"),
    [
        ("uxxxxx", [(1, 2), (3, 4)], [1, 2]),
        # The head is the end of one of them: a user message that is answered again.
        ("uxu", [(1, 3)], []),
        ("uxxu", [(1, 2), (3, 4)], [1]),
        ("u", [(1, 1)], []),
        # The last exchange stays even if it is observed.
        ("uxx", [(1, 3)], []),
        ("uxx", [(1, 2), (3, 3)], [1]),
        # In a long chat without exchanges, old messages may leave.
        ("uxuuuuuu", [(1, 3), (4, 5)], [1, 2]),
        ("uxuuuuuu", [(1, 3), (4, 8)], [1]),
    ],
)
def test_an_observation_that_includes_the_head_is_not_ready(
    kinds: str, intervals: list[tuple[int, int]], ready: list[int]
) -> None:
    held = memory(*intervals)

    assert [prepared.id for prepared in held.ready(view(kinds))] == ready
    assert held.raw(view(kinds)).prepared == sum(
        last - first + 1 for number, (first, last) in enumerate(intervals, 1) if number in ready
    )


@pytest.mark.parametrize(("limit", "room"), [(4.5, False), (5.2, True)])
def test_rows_of_observations_between_gaps_share_one_limit(limit: float, room: bool) -> None:
    line = ObservationLine(
        "2026-11-20", "critical", "The door must stay shut: " + "before noon " * 40
    )
    # Five rows of three, each followed by a node that no observation covers.
    present = [
        Observation(n, 0, n + n // 3, n + n // 3 + 1, n + n // 3 + 1, ObservationNotes((line,)))
        for n in range(15)
    ]
    row = 3 * size_of(present[0])
    reflection = memory().reflection(view("u"), present, int(limit * row))

    assert reflection is not None
    assert [part.id for part in reflection.parts] == [0, 1]
    assert reflection.room is room


async def test_a_reflection_committed_during_a_reload_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = memory()
    new = Observation(7, 1, None, 1, 6, ObservationNotes(()), parts=(1, 2))

    async def commit(*_: Any, **__: Any) -> Observation:
        # `load` does this in the meantime.
        held.reflections = []
        return new

    monkeypatch.setattr(accounting, "commit_observation", commit)
    held.log = cast(Any, SimpleNamespace(lease=SimpleNamespace(run_id="r", root_run_id="r")))
    await held.commit_reflection(None, Reflection((), 1), ReflectionOutcome(new))
    assert held.reflections == [new]
