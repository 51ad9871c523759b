"""A run whose Observer hangs, in a process that a test kills.

As a program, the module works over a database until it is killed, and writes a line of JSON with
the nodes that its Observer was asked to observe.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import orjson
import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.memory.observational.observer.base import ObserverInput, ObserverResult
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes
from tests.memory.observational.observing import observe_with

STEPS = 20
MEMORY: dict[str, Any] = {
    "observational_memory": True,
    "observer_message_tokens": 3000,
    "reflector_observation_tokens": 10_000,
}


@tool(idempotent=True)
async def look(number: int) -> str:
    """Look.

    Args:
        number: at what.
    """
    return f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20


class RecordingObserver:
    """Records the nodes of each call; the first call may hang."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.asked: list[str] = []
        self.called = anyio.Event()
        self._hangs = hangs

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        """Write a line, or hang."""
        self.asked.append(f"{interval.entries[0].seq}-{interval.entries[-1].seq}")
        self.called.set()
        if self._hangs:
            await anyio.sleep_forever()
        line = ObservationLine("2026-11-21 14:05", "info", f"Seen: {self.asked[-1]}.")
        return ObserverResult(ObservationNotes((line,)), origin="model")

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        """Cost nothing."""
        return 0, 0


def agent_for(observer: RecordingObserver) -> Agent:
    """Return an agent that looks often enough to be observed, and ends after the observation."""

    async def script(request: ModelRequest) -> Scripted:
        done = sum(message.role == "assistant" for message in request.messages)
        if done < STEPS and not observer.called.is_set():
            return call("look", number=done)
        await observer.called.wait()
        return say("Done.")

    return Agent(ScriptedModel(script), tools=[look], last_messages=6)


async def main(database_url: str) -> None:
    """Run until killed."""
    observer = RecordingObserver(hangs=True)
    # A claim lasts a little longer than the Observer's deadline.
    observe_with(pytest.MonkeyPatch(), observer, deadline=3600)

    async def script(request: ModelRequest) -> Scripted:
        if not observer.called.is_set():
            return call("look", number=len(request.messages))
        sys.stdout.buffer.write(orjson.dumps({"kind": "asked", "nodes": observer.asked[0]}) + b"\n")
        sys.stdout.buffer.flush()
        await anyio.sleep_forever()
        return say("Done.")

    async with Runtime.open(Settings(database_url=database_url, **MEMORY)) as runtime:
        agent = Agent(ScriptedModel(script), tools=[look], last_messages=6)
        await runtime.run(agent, "Look.", thread="t")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
