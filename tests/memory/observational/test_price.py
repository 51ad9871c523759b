"""Activation by price: when carrying old messages has cost as much as removing them."""

from __future__ import annotations

from agent_runtime.memory.observational.thresholds import (
    ActivationPrices,
    MemoryThresholds,
    activation_due,
    carrying_calls,
    measure,
    next_chunk,
)
from agent_runtime.messages import AssistantMessage, PromptMessage, ToolResult, UserMessage
from agent_runtime.models.base import Price
from agent_runtime.prompt.observation import Observation, ObservationNotes
from agent_runtime.prompt.view import Entry

SONNET = Price(input=3000, output=15_000, cache_read=300, cache_write=3750)
FLASH = Price(input=300, output=2500, cache_read=75, cache_write=300)
BY_PRICE = MemoryThresholds(10_000, 40_000, 4, ActivationPrices(SONNET, FLASH))
BY_THRESHOLD = MemoryThresholds(10_000, 40_000, 4)


def entry(seq: int, tokens: int) -> Entry:
    """An exchange; node 1 is the user's message."""
    if seq == 1:
        return Entry(1, None, UserMessage("x"), (), (), (PromptMessage("user", "x"),), tokens)
    prompt = (PromptMessage("assistant", "x"),)
    return Entry(seq, seq - 1, AssistantMessage("x"), (ToolResult("r"),), (), prompt, tokens)


def thread(*tokens: int) -> tuple[Entry, ...]:
    """A task followed by exchanges."""
    return tuple(entry(seq, count) for seq, count in enumerate(tokens, 1))


def observed(first: int, last: int) -> Observation:
    """An observation of an interval."""
    return Observation(first, 0, first - 1 or None, first, last, ObservationNotes(()))


def test_a_call_carries_the_messages_before_its_answer() -> None:
    assert carrying_calls(thread(10, 10, 10, 10), None) == (3, 2, 1, 0)


def test_calls_before_the_activation_do_not_count() -> None:
    assert carrying_calls(thread(10, 10, 10, 10), 3) == (1, 1, 1, 0)
    assert carrying_calls(thread(10, 10, 10, 10), 4) == (0, 0, 0, 0)


def test_carrying_costs_a_cache_read_per_call() -> None:
    assert ActivationPrices(SONNET).carried((100, 50, 10), (3, 2, 1), 2) == (300 + 100) * 300


def test_removing_costs_the_rewrite_the_observations_and_the_observer() -> None:
    rest, written = 500 * (3750 - 300), 125 * 3750
    assert ActivationPrices(SONNET).removing((1000, 500), 1) == rest + written
    assert ActivationPrices(SONNET, FLASH).removing((1000, 500), 1) == (
        rest + written + 1000 * 300 + 125 * 2500
    )


def test_messages_leave_below_the_threshold_once_it_pays() -> None:
    short, long = thread(*[100] * 26), thread(*[100] * 60)
    assert activation_due(measure(short, [observed(1, 6)], 1.0), BY_PRICE) is None
    assert activation_due(measure(long, [observed(1, 40)], 1.0), BY_PRICE) == "price"
    assert activation_due(measure(long, [observed(1, 40)], 1.0), BY_THRESHOLD) is None


def test_observations_are_prepared_before_it_pays() -> None:
    entries, ready = thread(*[100] * 60), list[Observation]()
    prepared = activated = 0
    for count in range(8, 60):
        if chunk := next_chunk(measure(entries[:count], ready, 1.0), BY_PRICE):
            prepared = prepared or count
            ready.append(observed(chunk[0].seq, chunk[-1].seq))
        if activation_due(measure(entries[:count], ready, 1.0), BY_PRICE):
            activated = count
            break
    assert 0 < prepared < activated


def test_an_expensive_observer_delays_removal() -> None:
    dear = MemoryThresholds(10_000, 40_000, 4, ActivationPrices(SONNET, SONNET))
    entries, gone = thread(*[100] * 90), [observed(1, 20)]

    def first(bands: MemoryThresholds) -> int:
        sizes = range(22, 90)
        return next(n for n in sizes if activation_due(measure(entries[:n], gone, 1.0), bands))

    assert first(BY_PRICE) < first(dear)


def test_a_few_tokens_never_leave_by_price() -> None:
    entries = thread(*[5] * 500)
    assert activation_due(measure(entries, [observed(1, 20)], 1.0), BY_PRICE) is None


def test_the_threshold_is_the_upper_bound() -> None:
    free = MemoryThresholds(10_000, 40_000, 4, ActivationPrices(Price(0, 0, 0, 1_000_000)))
    entries = thread(*[1000] * 11)
    assert next_chunk(measure(entries, [], 1.0), free)
    assert activation_due(measure(entries, [observed(1, 5)], 1.0), free) == "observed"


def test_free_messages_never_leave_by_price() -> None:
    free = MemoryThresholds(10_000, 40_000, 4, ActivationPrices(Price(0, 0, 0, 0)))
    assert activation_due(measure(thread(*[100] * 60), [observed(1, 40)], 1.0), free) is None
