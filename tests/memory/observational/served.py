"""Runs with memory whose provider is a server on loopback that plays both models.

It answers as the agent's model, and also as the Observer and the Reflector, which use the run's own
model: all of it through HTTP.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, NativeModel, RunResult, Runtime, Settings, tool
from agent_runtime.memory.observational.observer import model as model_observer
from agent_runtime.memory.observational.reflector import model as model_reflector
from agent_runtime.models import attempts
from agent_runtime.models.tokens import count_text
from agent_runtime.testing.model_server import OpenAIServer, Reply
from agent_runtime.testing.observer import is_for_memory, notes_for
from tests.support.prompt_judge import MAIN, Judge, Message, Sent, read_left
from tests.support.stores import driver_of

KEY = "sk-test-0123456789abcdefghij"
LIMITS: dict[str, Any] = {
    "observational_memory": True,
    "observer_message_tokens": 3000,
    "reflector_observation_tokens": 1000,
    "last_messages": 6,
    "max_steps": 500,
}
STEPS = 40
TASK = "Find the bug."

Remember = Callable[[dict[str, Any]], Reply]
"""From a request of the Observer or the Reflector to the reply."""


def well(request: dict[str, Any]) -> Reply:
    """Answer as a good Observer would."""
    return Reply(text=notes_for(request))


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message as sent."""
    content: Any = message.get("content")
    return content if isinstance(content, str) else ""


@dataclass
class Provider:
    """The script of the server, and the requests it received.

    Attributes:
        act: returns the text of a tool result by the number of the step.
        asked: the agent's requests; `memory`: those of the Observer and the Reflector.
    """

    remember: Remember = well
    steps: int = STEPS
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    memory: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def __call__(self, request: dict[str, Any], n: int) -> Reply:
        del n
        if is_for_memory(request):
            self.memory.append(request)
            return self.remember(request)
        self.asked.append(request)
        done = len(self.asked)
        if done > self.steps:
            return Reply(text=f"Done after {done}.")
        return Reply(calls=(("look", {"number": done}),))

    def observed(self) -> list[tuple[str, str]]:
        """Return the observations shown in each prompt, in order: their nodes and text."""
        return [
            (match[1], match[2])
            for request in self.asked
            for message in request["messages"]
            if (match := _OBSERVED.fullmatch(text_of(message)))
        ]


_OBSERVED = re.compile(r"<observed \w+ nodes (\d+ to \d+)>\n(.*)\n</observed \w+>", re.DOTALL)


def seen(number: int) -> str:
    """Return what is visible at a place."""
    if number % 17 == 0:
        raise ValueError(f"cannot open src/part_{number}.py")
    return f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20


@dataclass
class Served:
    """A runtime whose provider is a server, and the events of its run."""

    runtime: Runtime
    provider: Provider
    server: OpenAIServer
    look: Callable[[int], Any] = seen
    last_messages: int = 6
    events: list[Event] = field(default_factory=list[Event])
    changed: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, task: str = TASK) -> RunResult:
        """Run a task on the main thread."""

        @tool
        async def look(number: int) -> str:
            """Look.

            Args:
                number: at what.
            """
            result = self.look(number)
            return result if isinstance(result, str) else await result

        agent = Agent(tools=[look], last_messages=self.last_messages)
        return await self.runtime.run(agent, task, thread=MAIN, on_event=self._note)

    def _note(self, event: Event) -> None:
        self.events.append(event)
        self.changed.set()
        self.changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the run's events satisfy a condition."""
        while not condition():
            await self.changed.wait()

    def of(self, kind: str) -> list[Event]:
        """Return the events of a kind."""
        return [event for event in self.events if event.kind == kind]

    def observations(self, level: int = 0) -> list[Event]:
        """Return the observation events of a level."""
        return [
            observation
            for observation in self.of("observation")
            if observation.data["level"] == level
        ]

    async def wrong(self) -> list[str]:
        """Return the coverage errors of all prompts, computed from the rows only."""
        store, user = self.runtime.store, self.runtime.settings.user
        left = await read_left(store, driver_of(store), user)
        judge = Judge(left, [], frozenset())
        prompts = [judge.prompt(_sent(request)) for request in self.provider.asked]
        return [faults for faults in prompts if faults]


def _sent(request: dict[str, Any]) -> Sent:
    messages: list[Message] = []
    for message in request["messages"]:
        made: list[dict[str, Any]] = message.get("tool_calls") or []
        ids = [str(call["id"]) for call in made]
        messages.append((message["role"], text_of(message), ids, message.get("tool_call_id") or ""))
    return Sent("", messages, "")


def longest(requests: list[dict[str, Any]]) -> int:
    """Return the token count of the longest prompt."""
    return max(sum(count_text(text_of(message)) for message in r["messages"]) for r in requests)


@asynccontextmanager
async def serve(
    url: str,
    remember: Remember = well,
    *,
    steps: int = STEPS,
    look: Callable[[int], Any] = seen,
    factor: float = 1.0,
    patch: pytest.MonkeyPatch,
    **settings: Any,
) -> AsyncGenerator[Served]:
    """Open a runtime with memory and a server as its provider; retries do not wait."""
    patch.setattr(attempts, "FIRST_WAIT", 0.0)
    patch.setattr(model_observer, "WAIT", 0.0)
    patch.setenv("AGENT_RUNTIME_FORBID_REAL_MODELS", "1")
    provider = Provider(remember, steps)
    async with OpenAIServer(provider, factor=factor) as server:
        model = NativeModel("openai/test", base_url=server.base_url, api_key=KEY, retries=1)
        configured = Settings(database_url=url, **(LIMITS | settings))
        async with Runtime.open(configured, model=model) as runtime:
            yield Served(runtime, provider, server, look)


def reflects(request: dict[str, Any]) -> bool:
    """Return whether a memory request is the Reflector's."""
    return text_of(request["messages"][0]) == model_reflector.INSTRUCTIONS
