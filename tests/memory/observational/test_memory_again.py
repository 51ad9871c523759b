"""Provisional observations: after rules wrote during a failure, a model rewrites them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings
from agent_runtime.memory.observational import worker
from agent_runtime.memory.observational.observer.base import (
    MemoryCall,
    ObserverFailed,
    ObserverInput,
    ObserverResult,
)
from agent_runtime.models.base import ModelAnswer, ModelRequest, TokenUsage
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes
from tests.memory.observational.observing import observe_with

STEPS = 60


class Recovering:
    """An Observer whose first calls fail, and cost tokens."""

    def __init__(self, down: int) -> None:
        self.down = down
        self.asked: list[tuple[int, int]] = []

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        """Fail, or write a line that names the interval."""
        nodes = interval.entries[0].seq, interval.entries[-1].seq
        self.asked.append(nodes)
        usage = TokenUsage(prompt=100, completion=10)
        calls = (MemoryCall(ModelAnswer("", (), "stop", "observer", usage=usage, cost=7), 90),)
        if len(self.asked) <= self.down:
            raise ObserverFailed("It is down.", calls=calls)
        line = ObservationLine(
            "2026-11-21 14:05", "info", f"The model saw nodes {nodes[0]} to {nodes[1]}."
        )
        return ObserverResult(ObservationNotes((line,)), calls, "model", "observer")

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        """Return what a call may cost."""
        return 200, 20


class Script:
    """Calls a tool `STEPS` times; records its requests and events.

    Half-way it may wait until an observation is rewritten.
    """

    def __init__(self, *, waits: bool = False) -> None:
        self.requests: list[ModelRequest] = []
        self.events: list[Event] = []
        self._again = anyio.Event()
        self._waits = waits

    def heard(self, event: Event) -> None:
        """Record an event."""
        self.events.append(event)
        if event.kind == "observation" and event.data["again"]:
            self._again.set()

    async def __call__(self, request: ModelRequest) -> Scripted:
        """Answer."""
        self.requests.append(request)
        done = len(self.requests)
        if self._waits and done == STEPS // 2:
            with anyio.fail_after(60):
                await self._again.wait()
        return call("look", number=done) if done <= STEPS else say("Done.")


def look(number: int) -> str:
    """Look.

    Args:
        number: at what.
    """
    return f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """A runtime with observational memory."""
    settings = Settings(
        database_url=f"file:{tmp_path / 'run.db'}",
        observational_memory=True,
        observer_message_tokens=3000,
        reflector_observation_tokens=10_000,
    )
    async with Runtime.open(settings) as opened:
        yield opened


async def _run(
    runtime: Runtime, observer: Recovering, script: Script, monkeypatch: pytest.MonkeyPatch
) -> list[Event]:
    observe_with(monkeypatch, observer)
    monkeypatch.setattr(worker, "AGAIN_SECONDS", 0.0)
    agent = Agent(ScriptedModel(script), tools=[look], last_messages=6)
    result = await runtime.run(agent, "Find the bug.", on_event=script.heard, thread="t")
    assert result.ok
    return script.events


async def test_a_recovered_model_rewrites_what_rules_wrote(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer, script = Recovering(down=1), Script(waits=True)
    events = await _run(runtime, observer, script, monkeypatch)

    seen = [event.data for event in events if event.kind == "observation"]
    assert seen[0]["provisional"] and seen[0]["why"] == "It is down."
    again = next(one for one in seen if one["again"])
    assert (again["first"], again["last"]) == (seen[0]["first"], seen[0]["last"])
    assert not again["provisional"] and again["origin"] == "model"
    first = f"The model saw nodes {again['first']} to {again['last']}."
    assert first in "".join(message.text for message in script.requests[-1].messages)


async def test_a_rewritten_observation_takes_effect_only_at_an_activation(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(waits=True)
    events = await _run(runtime, Recovering(down=3), script, monkeypatch)

    changed = sum(
        before.messages != after.messages[: len(before.messages)]
        for before, after in zip(script.requests, script.requests[1:], strict=False)
    )
    assert changed <= sum(event.kind == "activation" for event in events)


async def test_while_the_model_is_down_rules_notes_stay_and_every_call_is_booked(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer, script = Recovering(down=10_000), Script()
    events = await _run(runtime, observer, script, monkeypatch)

    seen = [event.data for event in events if event.kind == "observation"]
    assert seen and all(one["provisional"] and not one["again"] for one in seen)
    (run,) = await runtime.store.of("local").runs.list(thread_id="t", limit=5)
    usage = await runtime.store.of("local").spending.usage_by_purpose(root_run_id=run.id)
    observing = usage["observe"]
    assert observing.calls >= len(observer.asked) - 1


async def test_a_later_run_rewrites_an_earlier_runs_provisional_observations(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _run(runtime, Recovering(down=10_000), Script(), monkeypatch)
    observer = Recovering(down=0)
    events = await _run(runtime, observer, Script(waits=True), monkeypatch)

    again = [event.data for event in events if event.kind == "observation" and event.data["again"]]
    assert again
    rows = await runtime.store.of("local").log.observations("t", ending_from=1)
    final = {(row.first, row.last) for row in rows if not row.provisional}
    assert {(one["first"], one["last"]) for one in again} <= final
