"""Observers that are slower than the agent: prompts stay small and are seldom rewritten."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings
from agent_runtime.memory.observational.observer.base import ObserverInput, ObserverResult
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes
from tests.memory.observational.observing import observe_with

STEPS = 200
T = 3000


class SlowObserver:
    """An Observer that takes as long as eight steps of the agent, whatever it observes."""

    def __init__(self) -> None:
        self.steps = 0
        self.stepped = anyio.Event()
        self.observing = anyio.Event()

    def step(self) -> None:
        """Note a step of the agent."""
        self.steps += 1
        self.stepped.set()
        self.stepped = anyio.Event()

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        """Write one line after eight steps."""
        ready = min(self.steps + 8, STEPS)
        while self.steps < ready:
            await self.stepped.wait()
        first, last = interval.entries[0].seq, interval.entries[-1].seq
        line = ObservationLine("2026-11-21 14:05", "info", f"Nodes {first} to {last} were seen.")
        return ObserverResult(ObservationNotes((line,)), origin="model")

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        """Cost nothing."""
        return 0, 0


def look(number: int) -> str:
    """Look.

    Args:
        number: at what.
    """
    return f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20


async def test_a_slow_observer_is_caught_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        database_url=f"file:{tmp_path / 'run.db'}",
        observational_memory=True,
        observer_message_tokens=T,
        reflector_observation_tokens=10_000,
    )
    observer = SlowObserver()
    observe_with(monkeypatch, observer, deadline=300)
    sizes: list[int] = []
    events: list[Event] = []

    async def script(request: ModelRequest) -> Scripted:
        raw = [message for message in request.messages if message.role in ("assistant", "tool")]
        sizes.append(sum(count_text(message.text) for message in raw))
        observer.step()
        # The memory's worker takes its turn: a real call takes longer than its own work.
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        return call("look", number=observer.steps) if observer.steps <= STEPS else say("Done.")

    async with Runtime.open(settings) as runtime:
        agent = Agent(ScriptedModel(script), tools=[look], last_messages=6)
        assert (await runtime.run(agent, "Look.", on_event=events.append, thread="t")).ok

    assert max(sizes) < 2 * T
    activations = sum(event.kind == "activation" for event in events)
    assert activations <= STEPS // 6
