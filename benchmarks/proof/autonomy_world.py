"""The long run of `benchmarks.proof.autonomy`: sub-agents carry out the items of its plan.

Its models answer from their prompts alone, so any process that takes the run over after a kill can
continue it.  The effects of tools and the bills of models are lines of a journal in a folder,
written at once and without the runtime.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import anyio
import orjson

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, ToolContext, tool
from agent_runtime.delegation.assignment import PROTOCOL
from agent_runtime.models.base import ModelAnswer, ModelRequest, TokenUsage
from agent_runtime.models.scripted import RawCall, calls, raw_call, say
from agent_runtime.models.tokens import count_message, count_text, count_tools
from agent_runtime.run.tool_calls import INTERRUPTED
from agent_runtime_storage.contract.records.log import ACTIVE

THREAD = "autonomy"
USER = "local"
BUDGET = 200_000_000
"""Tokens: more than the run uses; with a budget each call is reserved on the root."""
PAGES = 2
"""How many pages a sub-agent reads after its work."""
LONGEST_LIFE = 600
_PAGE = "A line of a page, of which nothing has to be remembered.\n" * 12


@dataclass(frozen=True, slots=True)
class Course:
    """The assignment of the run.

    Attributes:
        folder: of the journal.
        url: of the database.
        steps: of the agent itself.
        items: of its plan, each delegated to a sub-agent.
        at_once: items delegated at a time.
    """

    folder: str
    url: str
    steps: int
    items: int
    at_once: int

    @property
    def waves(self) -> int:
        """How many times the agent delegates."""
        return -(-self.items // self.at_once)

    @property
    def work(self) -> int:
        """The agent's own steps after each wave, at least."""
        return (self.steps - 2) // self.waves - 1

    def of_wave(self, wave: int) -> list[str]:
        """Return the items that are delegated together."""
        first = wave * self.at_once
        return [f"item-{number}" for number in range(first, min(first + self.at_once, self.items))]


class Journal:
    """Lines that survive the process that wrote them."""

    def __init__(self, folder: str) -> None:
        path = path_of(folder)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._path = path

    def note(self, what: str, **facts: Any) -> None:
        """Append a line by a single write."""
        os.write(self._file, orjson.dumps({"what": what, **facts}) + b"\n")

    def holds(self, what: str, item: str) -> bool:
        """Return whether the journal has such a line for an item."""
        return any(line["what"] == what and line.get("item") == item for line in read(self._path))


def path_of(folder: str) -> Path:
    """Return the journal's path."""
    return Path(folder, "journal")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def journal_of(context: ToolContext) -> Journal:
    """Return the run's journal."""
    return cast(Journal, context.deps)


# Tools


@tool
async def work(context: ToolContext, item: str) -> str:
    """Do the work of an item; it must not be done twice."""
    await anyio.sleep(0.002)
    journal_of(context).note("work", item=item)
    await anyio.sleep(0.002)
    return f"{item} is worked on."


@tool(idempotent=True)
async def look(context: ToolContext, item: str) -> str:
    """Look up whether an item was worked on."""
    done = journal_of(context).holds("work", item)
    return f"{item} is {'done' if done else 'not done'}."


@tool(idempotent=True)
async def read_page(number: int) -> str:
    """Read a page."""
    return f"Page {number}\n{_PAGE}"


# Models


def agent_of(course: Course, journal: Journal) -> Agent:
    """Return the agent; its sub-agents have its model and tools."""

    def respond(request: ModelRequest) -> ModelAnswer:
        if request.messages[0].text.startswith(PROTOCOL):
            answer = sub_agent(request)
        else:
            answer = boss(request, course)
        prompt = sum(map(count_message, request.messages)) + count_tools(request.tools)
        completion = count_text(answer.text) + 16 * len(answer.calls)
        journal.note("billed", thread=request.session, tokens=prompt + completion)
        return replace(answer, usage=TokenUsage(prompt, completion))

    return Agent(
        ScriptedModel(respond),
        tools=[work, look, read_page],
        instructions="Have all items worked on, each once.",
        planning=True,
        delegation=True,
        name="boss",
    )


_STEP = re.compile(r"Step (\d+)\.")


def boss(request: ModelRequest, course: Course) -> ModelAnswer:
    """Answer for the agent: a plan, then waves of tasks, each followed by its own work."""
    step = 0
    outcomes: list[dict[str, Any]] = []
    for message in request.messages:
        if message.role == "assistant" and (match := _STEP.match(message.text)):
            step = int(match[1]) + 1
            outcomes = []
        elif message.role == "tool" and message.text.startswith("{"):
            outcomes.append(orjson.loads(message.text))
    if step == 0:
        return _next(step, raw_call("plan", action="create", goal="All.", steps=_plan(course)))
    wave, turn = divmod(step - 1, course.work + 1)
    if turn == 0 and wave < course.waves:
        return _next(step, *_orders(course.of_wave(wave)))
    if failed := [outcome["task_key"] for outcome in outcomes if outcome["status"] != "succeeded"]:
        return _next(step, *_orders(failed))
    if step < course.steps - 1:
        return _next(step, raw_call("read_page", number=step))
    return say(f"All {course.items} items are done, after {step} steps.")


def _plan(course: Course) -> list[dict[str, Any]]:
    items = [item for wave in range(course.waves) for item in course.of_wave(wave)]
    return [{"id": item, "description": f"Do {item}.", "phase": "execute"} for item in items]


def _orders(items: Sequence[str]) -> list[RawCall]:
    return [
        raw_call("delegate", role="worker", instructions="Work.", briefing=item, task_key=item)
        for item in items
    ]


def _next(step: int, *requested: RawCall) -> ModelAnswer:
    return calls(*requested, text=f"Step {step}.")


def sub_agent(request: ModelRequest) -> ModelAnswer:
    """Answer for a sub-agent: it looks, works and reads, and looks again after an interruption."""
    item = next(iter(re.findall(r"item-\d+", request.messages[1].text)))
    done, pages, unsure = False, 0, True
    for message in request.messages[2:]:
        if message.role != "tool":
            continue
        if INTERRUPTED in message.text:
            unsure = True
        elif message.text.startswith("Page"):
            pages += 1
        elif message.text.endswith(("is worked on.", "is done.")):
            done = True
        elif message.text.endswith("is not done."):
            unsure = False
    if not done:
        return calls(raw_call("look" if unsure else "work", item=item))
    if pages < PAGES:
        return calls(raw_call("read_page", number=pages))
    return say(f"{item} is done.")


# A life


def settings_of(course: Course) -> Settings:
    """Return the settings of every life."""
    return Settings(
        database_url=course.url,
        synchronous="normal",
        user=USER,
        budget_tokens=BUDGET,
        max_steps=2 * course.steps,
        delegation_parallel=course.at_once,
        observer_model="extractive",
        loop_limit=0,
        # Between two waves the agent works for longer than the limit without changing its plan.
        plan_stall_limit=0,
    )


async def live(course: Course) -> None:
    """Begin the run, or take it over from the dead process, and run it to its end."""
    journal = Journal(course.folder)
    async with Runtime.open(settings_of(course)) as runtime:
        store = runtime.store.of(USER)
        await store.threads.ensure(THREAD)
        runs = await store.runs.list(thread_id=THREAD)
        agent = agent_of(course, journal)
        if not runs:
            await runtime.run(agent, "Do all.", thread=THREAD, deps=journal)
        elif runs[0].status in ACTIVE:
            journal.note("taken over")
            await runtime.resume(runs[0].id, agent, deps=journal)


def start(course: Course) -> None:
    """Live in a process of its own."""
    signal.alarm(LONGEST_LIFE)
    try:
        anyio.run(live, course)
    except BaseException as error:
        print(f"A life ended by {type(error).__name__}: {error}", file=sys.stderr)
        raise
