"""A run of thirty steps: calls of all kinds, a sub-agent, activations and a resume."""

from __future__ import annotations

import gc
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp

from agent_runtime import Agent, Event, RunResult, Runtime, Settings, tool
from agent_runtime.messages import AssistantMessage, decode_message, decode_result
from agent_runtime.models.litellm import LiteLLMModel
from agent_runtime.models.native import NativeModel
from agent_runtime.testing.providers.server import (
    Call,
    Part,
    Provider,
    Say,
    StrictServer,
    Think,
    Turn,
)

STEPS = 30
FIRST = 17
"""Steps before the run reaches its limit and is resumed."""
_CHANGING = re.compile(r'"(?:duration|run_id)": [^,\n]+')
ANSWER = "All thirty steps are done."
SETTINGS: dict[str, Any] = {
    "observational_memory": True,
    "observer_model": "extractive",
    "reflector_model": "extractive",
    "observer_message_tokens": 2000,
    "loop_limit": 0,
    "model_retries": 0,
}


@tool
def look(number: int) -> str:
    """Look at a part."""
    return f"src/part_{number}.py:\n" + f"what was seen in part {number}, in a few words\n" * 12


@tool
def fail(number: int) -> str:
    """Fail."""
    raise ValueError(f"cannot open src/part_{number}.py")


def script(child: bool, n: int, steps: int = STEPS) -> Turn:
    """Return what the model answers in this number of steps: no two turns are the same."""
    if child:
        one = Call("look", {"number": 900 + n})
        return (Think("A small thing."), one) if n == 0 else (Say("The part is fine."),)
    if n >= steps - 1:
        return (Think("That was all."), Say(ANSWER))
    thought = Think(f"Step {n}: what now? \u2713 {{}}")
    at: Part = Call("look", {"number": n})
    again: Part = Call("look", {"number": n + 100})
    match n % 6:
        case 1:
            return (thought, Say(f"Two at once at {n}."), at, again)
        case 2:
            return (Think(f"hidden{n}", hidden=True), thought, Call("fail", {"number": n}), at)
        case 3:
            hidden = Think(f"between{n}", hidden=True)
            return (thought, Say(f"First {n}."), hidden, at, Think(f"Then {n}."), again)
        case 4:
            order = {"role": "reader", "instructions": "Read.", "briefing": f"Part {n}."}
            if n == 10:
                return (thought, Call("delegate", {**order, "task_key": f"k{n}"}), at)
            return (thought, Call("no_such_tool", {"text": f'"{{}}" {n}'}), at)
        case _:
            return (thought, at)


Transport: TypeAlias = type[LiteLLMModel] | type[NativeModel]
Transports: TypeAlias = tuple[Transport, Transport]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What two transports must agree on.

    Attributes:
        messages: of the log: texts, reasoning, calls and results, without ids.
        usage: of each step.
    """

    messages: Sequence[object]
    usage: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Played:
    """A provider, and what calls it."""

    provider: Provider
    model: str
    path: str = ""

    def agent(self, server: StrictServer, transport: Transport) -> Agent:
        """Return the agent of the scenario, with the model of this provider."""
        url = server.url + self.path
        model = transport(self.model, base_url=url, api_key="sk-test-0123456789", retries=0)
        return Agent(model, tools=[look, fail], delegation=True, last_messages=4, max_steps=FIRST)


async def play(
    one: Played, folder: Path, transports: Transports, other: Played | None = None
) -> Meaning:
    """Run the scenario, resume it, with another model if there is one, and assert that all is well.

    No provider may have anything to refuse.  Return what was logged.

    Args:
        transports: that of the first part, and that of the resumed one.
    """
    settings = Settings(database_url=f"file:{folder / 'run.db'}", **SETTINGS)
    events: list[Event] = []
    then = other or one
    then.provider.foreign = other is not None
    before = open_sessions()
    async with StrictServer(one.provider, script) as server:
        async with Runtime.open(settings) as runtime:
            agent = one.agent(server, transports[0])
            first = await runtime.run(agent, "Look at all parts.", on_event=events.append)
        server.turn_to(then.provider)
        async with Runtime.open(settings) as runtime:
            agent = then.agent(server, transports[1])
            result = await runtime.resume(first.run_id, agent, on_event=events.append)
            meaning = await meaning_of(runtime, result, events)
    assert [one for one in open_sessions() if all(one is not old for old in before)] == []
    _assert_well(server, first, result, events)
    return meaning


async def meaning_of(runtime: Runtime, result: RunResult, events: Sequence[Event]) -> Meaning:
    """Return the messages of a run's thread as they are logged, and the usage of its steps."""
    store = runtime.store_of()
    thread = await store.threads.get(result.thread_id)
    assert thread.head is not None
    messages: list[object] = []
    for node in await store.log.branch(result.thread_id, thread.head):
        message = decode_message(node.body)
        if isinstance(message, AssistantMessage):
            calls = [(call.name, call.arguments) for call in message.calls]
            results = [_CHANGING.sub("", decode_result(call.body).text) for call in node.calls]
            messages.append((message.text, message.reasoning, calls, results))
        else:
            messages.append(message)
    steps = [event.data for event in events if event.kind == "answer"]
    used = ("step", "calls", "prompt_tokens", "cached_tokens", "completion_tokens")
    return Meaning(messages, [tuple(step[name] for name in used) for step in steps])


def _assert_well(
    server: StrictServer, first: RunResult, result: RunResult, events: list[Event]
) -> None:
    assert server.violations == []
    assert (first.stop_reason, first.steps) == ("max_steps", FIRST)
    assert (result.status, result.output, result.steps) == ("succeeded", ANSWER, STEPS)
    assert server.asked == {False: STEPS, True: 2}
    own = [event for event in events if event.run_id == first.run_id]
    began = [event for event in own if event.kind == "activation"]
    breaks = server.breaks()
    # At least one before the resume and one after it, and no prompt changed without one.
    assert 2 <= len(breaks) <= len(began)
    assert breaks[0] < FIRST < breaks[-1]


def open_sessions() -> list[object]:
    """Return the aiohttp sessions in this process that are open."""
    living = [one for one in gc.get_objects() if type(one) is aiohttp.ClientSession]
    return [one for one in living if not one.closed]
