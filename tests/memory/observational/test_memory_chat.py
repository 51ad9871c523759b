"""Memory in a conversation of short runs: an observation may outlast the run that started it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings
from agent_runtime.errors import StoreError
from agent_runtime.memory.observational.observer.base import (
    MemoryCall,
    ObserverInput,
    ObserverResult,
)
from agent_runtime.models.base import ModelAnswer, TokenUsage
from agent_runtime.models.scripted import say
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes
from tests.memory.observational.observing import observe_with

WORDS = "what was said there, in a few words and then in a few words more; " * 12
AGENT = Agent(ScriptedModel(lambda request: say(WORDS), delay=0.3))
"""Long enough for the memory to start due work."""


class Slow:
    """An Observer that waits for a signal before it writes."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.go = anyio.Event()
        self.intervals: list[tuple[int, int]] = []

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        """Wait, then write a line."""
        nodes = interval.entries[0].seq, interval.entries[-1].seq
        self.intervals.append(nodes)
        self.asked.set()
        await self.go.wait()
        line = ObservationLine(
            "2026-11-21 14:05", "info", f"The model saw nodes {nodes[0]} to {nodes[1]}."
        )
        usage = TokenUsage(prompt=100, completion=10)
        call = MemoryCall(ModelAnswer("", (), "stop", "observer", usage=usage, cost=7), 90)
        return ObserverResult(ObservationNotes((line,)), (call,), "model", "observer")

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        """Return what a call may cost."""
        return 200, 20


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """The Observer of every run."""
    slow = Slow()
    observe_with(monkeypatch, slow)
    return slow


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Small thresholds."""
    return Settings(
        database_url=f"file:{tmp_path / 'run.db'}",
        observational_memory=True,
        observer_message_tokens=2000,
        last_messages=4,
        budget_tokens=1_000_000,
    )


@pytest.fixture
async def runtime(settings: Settings) -> AsyncIterator[Runtime]:
    """A runtime with observational memory."""
    async with Runtime.open(settings) as opened:
        yield opened


async def _talk(runtime: Runtime, times: int) -> list[Event]:
    """Send `times` messages, each in a run of its own."""
    events: list[Event] = []
    for _ in range(times):
        result = await runtime.run(AGENT, WORDS, thread="t", on_event=events.append)
        assert result.ok
    return events


async def _observed(runtime: Runtime, count: int) -> None:
    store = runtime.store.of("local")
    with anyio.fail_after(30):
        async with aclosing(store.events.follow("t")) as events:
            async for event in events:
                count -= event.kind == "observation"
                if not count:
                    return


async def test_an_observation_continues_after_its_run_has_ended(
    runtime: Runtime, observer: Slow
) -> None:
    heard = await _talk(runtime, 8)
    assert observer.intervals and not [event for event in heard if event.kind == "observation"]
    observer.go.set()
    await _observed(runtime, 1)

    store = runtime.store.of("local")
    [row] = await store.log.observations("t", ids=[1])
    assert (row.first, row.last) == observer.intervals[0] and not row.provisional
    assert (await store.spending.usage_by_purpose(thread_id="t"))["observe"].calls >= 1
    observations = [event for event in await store.events.list("t") if event.kind == "observation"]
    assert observations[0].data["first"] == row.first
    # A listener hears of it only while its run lasts.
    assert len([event for event in heard if event.kind == "observation"]) == 0


async def test_later_runs_use_it_and_do_not_pay_for_it_again(
    runtime: Runtime, observer: Slow
) -> None:
    await _talk(runtime, 10)
    assert len(observer.intervals) == 1
    observer.go.set()
    await _observed(runtime, 1)
    for count in range(2, 5):
        await _talk(runtime, 2)
        await _observed(runtime, count)
    assert len(set(observer.intervals)) == len(observer.intervals)
    causes = [
        activation.cause for activation in await runtime.store.of("local").log.activations("t")
    ]
    assert "observed" in causes


async def test_closing_the_runtime_releases_an_observation_in_progress(
    settings: Settings, observer: Slow
) -> None:
    async with Runtime.open(settings) as runtime:
        await _talk(runtime, 8)
        assert len(observer.intervals) == 1
    observer.go.set()
    async with Runtime.open(settings) as runtime:
        await _talk(runtime, 1)
        await _observed(runtime, 1)
    # The next one begins with the same node, and has what was said since.
    assert observer.intervals[0][0] == observer.intervals[1][0]


async def test_its_possible_cost_counts_as_spent_when_the_run_ends(
    runtime: Runtime, observer: Slow
) -> None:
    result = await runtime.run(AGENT, WORDS, thread="t")
    while not observer.asked.is_set():
        result = await runtime.run(AGENT, WORDS, thread="t")
    run = await runtime.store.of("local").runs.get(result.run_id)
    assert run.reserved.tokens == 0
    assert run.unsettled.tokens == 200


async def test_a_store_failure_after_the_run_fails_nothing(
    runtime: Runtime, observer: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = type(runtime.store.of("local").runs)

    async def gone(*args: object) -> int:
        raise StoreError("It is gone.", cure="")

    await _talk(runtime, 8)
    monkeypatch.setattr(store, "commit_late", gone)
    observer.go.set()
    await _talk(runtime, 2)
