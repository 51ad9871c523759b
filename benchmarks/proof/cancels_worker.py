"""The processes in which `benchmarks.proof.cancels` has an agent and its sub-agents work."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import anyio
import anyio.to_thread

from agent_runtime import Agent, LiteLLMModel, Runtime, Settings, tool
from agent_runtime.events import Event
from agent_runtime.testing.model_server import Reply

THREAD = "t"
WAITED_FOR, BACKGROUND = 5, 5
"""How many sub-agents the agent waits for, and how many work in the background."""
KEY = "sk-benchmark"
TRAILING = 30.0
"""The most seconds for what ends by itself: a commit's last notice, the leases' last poll."""
LONGEST_LIFE = 300


@dataclass(frozen=True, slots=True)
class Place:
    """The database of a trial, and the model's server."""

    database_url: str
    model_url: str


@dataclass(frozen=True, slots=True)
class Left:
    """The report of a process once all its runs have ended.

    Attributes:
        at: the time of that, by the machine's monotonic clock.
        statuses: how each resumed run ended.
        tasks: leftover tasks of the event loop, without those of the open runtime.
    """

    at: float
    statuses: tuple[str, ...]
    tasks: tuple[str, ...]


@tool(idempotent=True)
async def look(item: str) -> str:
    """Look at an item."""
    await anyio.sleep(0.01)
    return f"{item}: as it was."


@tool(idempotent=True)
async def nap() -> str:
    """Sleep."""
    await anyio.sleep_forever()
    return "never"


def script(request: dict[str, Any], n: int) -> Reply:
    """Answer for the agent, which delegates all items, and for sub-agents, which never end."""
    del n
    messages = request["messages"]
    answers = sum(message["role"] == "assistant" for message in messages)
    match = re.search(r"item-(\d+)", str(messages[1]["content"]))
    if match is None:
        return Reply(calls=tuple(_orders())) if not answers else Reply(stall_after=0)
    number = int(match[1])
    if not answers or number % 4 == 0:
        return Reply(calls=(("look", {"item": match[0]}),), delay=0.01)
    if number % 4 == 1:
        return Reply(calls=(("nap", {}),))
    return Reply(
        text="It is as it was. " * 20, fragments=20, stall_after=0 if number % 4 == 2 else 5
    )


def _orders() -> list[tuple[str, dict[str, Any]]]:
    order = {"role": "worker", "instructions": "Work."}
    return [
        (
            "delegate",
            {
                **order,
                "briefing": f"item-{number}",
                "task_key": f"item-{number}",
                "background": number >= WAITED_FOR,
            },
        )
        for number in range(WAITED_FOR + BACKGROUND)
    ]


def _agent(place: Place, *, delegation: bool) -> Agent:
    model = LiteLLMModel("openai/bench", base_url=place.model_url, api_key=KEY)
    return Agent(model, tools=[look, nap], delegation=delegation, name="boss")


def settings_of(place: Place) -> Settings:
    """Return the settings of every process of a trial."""
    return Settings(
        database_url=place.database_url,
        synchronous="normal",
        delegation_parallel=WAITED_FOR,
        loop_limit=0,
        max_steps=10_000,
        sub_agent_max_steps=10_000,
    )


def begin(place: Place) -> None:
    """Run the agent until this process is killed."""
    signal.alarm(LONGEST_LIFE)

    async def live() -> None:
        async with Runtime.open(settings_of(place)) as runtime:
            await runtime.run(_agent(place, delegation=True), "Do all.", thread=THREAD)

    anyio.run(live)


def go_on(place: Place, run_ids: Sequence[str], delegation: bool, pipe: Connection) -> None:
    """Resume runs, report through the pipe when they are at work, and later what they left.

    Afterwards the runtime stays open until anything arrives through the pipe.
    """
    signal.alarm(LONGEST_LIFE)
    anyio.run(_go_on, place, run_ids, delegation, pipe)


async def _go_on(place: Place, run_ids: Sequence[str], delegation: bool, pipe: Connection) -> None:
    begun = set[str]()
    statuses: list[str] = []

    def hear(event: Event) -> None:
        if event.run_id in run_ids and event.run_id not in begun:
            begun.add(event.run_id)
            if len(begun) == len(run_ids):
                pipe.send("at work")

    async with Runtime.open(settings_of(place)) as runtime:
        # The open runtime has tasks of its own, which are not leftovers.
        before = asyncio.all_tasks()

        async def resume(run_id: str) -> None:
            agent = _agent(place, delegation=delegation)
            statuses.append((await runtime.resume(run_id, agent, on_event=hear)).status)

        async with anyio.create_task_group() as group:
            for run_id in run_ids:
                group.start_soon(resume, run_id)
        at = time.monotonic()
        tasks = asyncio.all_tasks() - before
        if tasks:
            _, tasks = await asyncio.wait(tasks, timeout=TRAILING)
        names = sorted(getattr(task.get_coro(), "__qualname__", repr(task)) for task in tasks)
        pipe.send(Left(at, tuple(statuses), tuple(names)))
        await anyio.to_thread.run_sync(pipe.recv)
