"""Observational memory in whole runs: what replaces which messages, and that runs always finish."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings
from agent_runtime.memory.observational import worker
from agent_runtime.memory.observational.observer.base import (
    ObserverFailed,
    ObserverInput,
    ObserverResult,
)
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from tests.memory.observational.observing import observe_with

STEPS = 120
LIMITS: dict[str, Any] = {"observer_message_tokens": 3000, "reflector_observation_tokens": 600}


class Script:
    """Calls a tool `steps` times, then answers; records its requests."""

    def __init__(self, steps: int = STEPS) -> None:
        self.steps = steps
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Scripted:
        self.requests.append(request)
        done = len(self.requests)
        return call("look", number=done) if done <= self.steps else say("Done.")


def look(number: int) -> str:
    """Look.

    Args:
        number: at what.
    """
    if number % 17 == 0:
        raise ValueError(f"cannot open src/part_{number}.py")
    return f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20


AGENT = Agent(tools=[look], last_messages=6)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """A runtime with observational memory."""
    url = f"file:{tmp_path / 'run.db'}"
    settings = Settings(database_url=url, observational_memory=True, max_steps=500, **LIMITS)
    async with Runtime.open(settings) as opened:
        yield opened


async def _run(runtime: Runtime, script: Script, thread: str | None = None) -> list[Event]:
    events: list[Event] = []
    agent = Agent(ScriptedModel(script), tools=[look], last_messages=6)
    result = await runtime.run(agent, "Find the bug.", on_event=events.append, thread=thread)
    assert result.ok
    return events


def _of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


async def test_observations_replace_older_messages(runtime: Runtime) -> None:
    script = Script()
    events = await _run(runtime, script, thread="t")

    observations = _of(events, "observation")
    assert any(event.data["level"] == 0 for event in observations)
    assert any(event.data["level"] > 0 for event in observations)
    assert len(_of(events, "activation")) > 5
    last = script.requests[-1].messages
    assert "Find the bug." in "".join(message.text for message in last)
    assert any("<observed " in message.text for message in last)
    assert sum(len(message.text) for message in last) < 20_000
    # Every error is in the observation of its messages, unless they are still raw.  No prompt need
    # have shown it: a reflection may replace it before it takes effect.
    rows = await runtime.store.of("local").log.observations("t", ending_from=1)
    base = [row.body for row in rows if not row.level]
    raw = "".join(message.text for message in last if not message.text.startswith("<observed "))
    for number in range(17, STEPS, 17):
        error = f"cannot open src/part_{number}.py"
        assert error in raw or any(error.encode() in body for body in base)


async def test_the_prompt_grows_by_appending_between_activations(runtime: Runtime) -> None:
    script = Script()
    events = await _run(runtime, script)

    changed = sum(
        before.messages != after.messages[: len(before.messages)]
        for before, after in zip(script.requests, script.requests[1:], strict=False)
    )
    assert changed <= len(_of(events, "activation"))
    systems = {request.messages[0].text for request in script.requests}
    assert len(systems) == 1


async def test_a_second_run_continues_from_the_firsts_observations(runtime: Runtime) -> None:
    await _run(runtime, Script(60), thread="t")
    script = Script(1)

    await _run(runtime, script, thread="t")

    assert any("<observed " in message.text for message in script.requests[0].messages)


async def test_each_node_is_observed_once_and_in_order(runtime: Runtime) -> None:
    await _run(runtime, Script(), thread="t")

    rows = await runtime.store.of("local").log.observations("t", ending_from=1)
    base = [row for row in rows if not row.level]
    assert [row.parent_id for row in base] == [None, *(row.last for row in base[:-1])]
    jobs = {(row.first, row.last) for row in base}
    assert len(jobs) == len(base)


class Failing:
    """An Observer that fails."""

    def __init__(self, way: str) -> None:
        self.way = way

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        if self.way == "slow":
            await anyio.sleep_forever()
        if self.way == "broken":
            raise ZeroDivisionError
        raise ObserverFailed(f"It is {self.way}.")

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        return 0, 0


@pytest.mark.parametrize("way", ["down", "slow", "broken"])
async def test_rules_observe_in_place_of_a_failing_observer(
    runtime: Runtime, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe_with(monkeypatch, Failing(way), deadline=0.05)
    monkeypatch.setattr(worker, "GRACE_SECONDS", 0.0)

    script = Script()
    events = await _run(runtime, script, thread="t")

    seen = [event for event in _of(events, "observation") if not event.data["level"]]
    assert seen and all(event.data["provisional"] for event in seen)
    assert all(event.data["why"] for event in seen)
    assert any("<observed " in message.text for message in script.requests[-1].messages)


async def test_a_thread_with_observations_continues_without_memory(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'run.db'}"
    on = Settings(database_url=url, observational_memory=True, max_steps=500, **LIMITS)
    off = Settings(database_url=url, observational_memory=False, max_steps=500)
    async with Runtime.open(on) as runtime:
        await _run(runtime, Script(60), thread="t")
    script = Script(3)
    async with Runtime.open(off) as runtime:
        await _run(runtime, script, thread="t")
    assert not any("<observed " in message.text for message in script.requests[-1].messages)
    async with Runtime.open(on) as runtime:
        await _run(runtime, Script(60), thread="t")
