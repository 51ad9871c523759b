"""Thresholds: what may leave, what is observed next, and when observations take effect."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.memory.observational.thresholds import (
    MemoryThresholds,
    activation_due,
    measure,
    movable,
    next_chunk,
    observations_late,
    threshold,
)
from agent_runtime.messages import AssistantMessage, PromptMessage, ToolResult, UserMessage
from agent_runtime.prompt.observation import Observation, ObservationNotes
from agent_runtime.prompt.view import Entry
from agent_runtime.prompt.window import covered

BANDS = MemoryThresholds(observe=1000, reflect=500, last_messages=4)


def entry(seq: int, tokens: int, results: int = 1, *, rides: bool = False) -> Entry:
    """A node with this many results; a riding one has no message of its own in the prompt."""
    message = AssistantMessage("x") if results else UserMessage("x")
    prompt = () if rides else (PromptMessage("user", "x"),)
    return Entry(seq, seq - 1 or None, message, (ToolResult("r"),) * results, (), prompt, tokens)


def thread(*tokens: int) -> tuple[Entry, ...]:
    """Exchanges of one call each, with these tokens."""
    return tuple(entry(seq, count) for seq, count in enumerate(tokens, 1))


def observed(identity: int, first: int, last: int, *, provisional: bool = False) -> Observation:
    """An observation of an interval."""
    return Observation(
        identity, 0, first - 1 or None, first, last, ObservationNotes(()), provisional=provisional
    )


def test_nothing_is_observed_below_half_the_threshold() -> None:
    assert next_chunk(measure(thread(*[49] * 10), [], 1.0), BANDS) == ()
    assert next_chunk(measure(thread(*[51] * 10), [], 1.0), BANDS)


def test_chunks_are_consecutive_from_the_oldest_node() -> None:
    entries = thread(*[50] * 19)

    first = next_chunk(measure(entries, [], 1.0), BANDS)
    second = next_chunk(measure(entries, [observed(1, 1, 4)], 1.0), BANDS)

    assert [one.seq for one in first] == [1, 2, 3, 4]
    assert [one.seq for one in second] == [5, 6, 7, 8]


def test_at_the_threshold_a_chunk_has_all_that_waits_up_to_a_limit() -> None:
    late = next_chunk(measure(thread(*[50] * 20), [observed(1, 1, 4)], 1.0), BANDS)
    later = next_chunk(measure(thread(*[50] * 200), [observed(1, 1, 4)], 1.0), BANDS)

    assert [one.seq for one in late] == list(range(5, 17))
    assert sum(one.tokens for one in later) == BANDS.observe


def test_the_more_is_raw_the_more_an_activation_removes() -> None:
    entries = thread(*[50] * 200)

    assert not activation_due(measure(entries, [observed(1, 1, 58)], 1.0), BANDS)
    assert activation_due(measure(entries, [observed(1, 1, 59)], 1.0), BANDS)


def test_tokens_are_multiplied_by_the_calibration() -> None:
    entries = thread(*[30] * 12)

    assert next_chunk(measure(entries, [], 1.0), BANDS) == ()
    assert next_chunk(measure(entries, [], 2.0), BANDS)


def test_prepared_observations_take_effect_at_the_threshold() -> None:
    prepared = [observed(1, 1, 4), observed(2, 5, 8)]

    assert not activation_due(measure(thread(*[49] * 20), prepared, 1.0), BANDS)
    assert activation_due(measure(thread(*[50] * 20), prepared, 1.0), BANDS)
    assert not activation_due(measure(thread(*[50] * 20), [], 1.0), BANDS)
    assert not activation_due(measure(thread(*[50] * 20), prepared[:1], 1.0), BANDS)


def test_recent_messages_over_half_the_threshold_raise_it() -> None:
    raw = measure(thread(*[20] * 10, 400, 400), [observed(1, 1, 10)], 1.0)

    assert threshold(raw, BANDS) == 800 + 500
    assert not activation_due(raw, BANDS)


def test_observations_are_late_a_fifth_past_the_threshold() -> None:
    assert not observations_late(measure(thread(*[50] * 23), [], 1.0), BANDS)
    assert observations_late(measure(thread(*[50] * 24), [], 1.0), BANDS)


def test_a_riding_note_stays_with_its_exchange() -> None:
    entries = [*thread(*[50] * 20)]
    entries[4] = entry(5, 0, 0, rides=True)

    chunk = next_chunk(measure(entries, [], 1.0), BANDS)

    assert [one.seq for one in chunk] == [1, 2, 3, 4, 5]


def test_observations_of_another_branch_do_not_count() -> None:
    entries = thread(*[50] * 20)

    assert covered(entries, [observed(1, 2, 4)])[0] == []
    assert covered(entries, [observed(1, 1, 99)])[0] == []
    assert [one.id for one in covered(entries, [observed(1, 1, 4), observed(2, 9, 12)])[0]] == [1]


def test_the_final_then_the_newest_observation_of_an_interval_counts() -> None:
    entries = thread(*[50] * 20)
    both = [observed(1, 1, 4), observed(2, 1, 4, provisional=True)]

    assert [one.id for one in covered(entries, both)[0]] == [1]
    assert [one.id for one in covered(entries, [*both, observed(3, 1, 4)])[0]] == [3]


def test_thresholds_fit_the_window() -> None:
    assert MemoryThresholds(30_000, 40_000, 20).within(10_000) == MemoryThresholds(5_000, 2_500, 20)
    # What is fixed in a small window leaves less for observations, and never nothing.
    assert MemoryThresholds(30_000, 40_000, 20).within(1_500, 750).reflect == 225
    assert MemoryThresholds(30_000, 40_000, 20).within(1_500, 2_000).reflect == 100
    assert MemoryThresholds(30_000, 40_000, 20).within(119_808, 8_000).reflect == 29_952
    assert MemoryThresholds(30_000, 40_000, 20).within(1_000_000) == MemoryThresholds(
        30_000, 40_000, 20
    )


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=60))
def test_recent_messages_never_leave(shape: list[tuple[int, int]]) -> None:
    entries = tuple(entry(seq, tokens, results) for seq, (tokens, results) in enumerate(shape, 1))
    raw = measure(entries, [], 1.0)

    end = movable(raw, BANDS)
    staying = entries[end:]

    assert end == 0 or sum(one.size for one in staying) >= BANDS.last_messages
    assert end == 0 or sum(one.tokens for one in staying) >= BANDS.observe * 0.2
    chunk = next_chunk(raw, BANDS)
    assert chunk == entries[: len(chunk)] and len(chunk) <= end


@given(st.lists(st.integers(1, 400), min_size=1, max_size=80))
def test_observing_chunk_by_chunk_covers_each_node_once(tokens: list[int]) -> None:
    entries = thread(*tokens)
    prepared: list[Observation] = []
    while chunk := next_chunk(measure(entries, prepared, 1.0), BANDS):
        prepared.append(observed(len(prepared) + 1, chunk[0].seq, chunk[-1].seq))

    raw = measure(entries, [], 1.0)
    coverage, nodes = covered(entries, prepared)

    assert coverage == prepared
    assert [node.seq for node in nodes] == list(range(1, len(nodes) + 1))
    assert len(nodes) <= movable(raw, BANDS)
