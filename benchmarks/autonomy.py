"""Autonomy: what a budget allows where many sub-agents work at once.

`--budgets N` runs N agents that each hand tasks over to twenty sub-agents, with a budget of tokens
for all together and calls of random sizes and times.  The model bills what it is sent and what it
answers.  Reported are the largest share of a budget that was billed, the smallest (what is left
over is not enough for another call), and how many sub-agents were at work at once.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import anyio

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.base import ModelAnswer, ModelEvent, ModelInfo, ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say

from .frame import Report, at_least, at_most

CHILDREN = 20
LEAST, MOST = 150_000, 400_000
"""Tokens of the budgets."""
LONGEST = 0.02
"""Seconds of the longest answer."""
USABLE, AT_ONCE = 0.9, 10
_WORD = "word "


@dataclass(frozen=True, slots=True)
class Spent:
    """What came of a budget.

    Attributes:
        billed: the tokens that the model has answered for.
        settled, unsettled: those that the run's root knows of.
        at_once: how many sub-agents were at work at the same time, at most.
        finished: how many of them ended.
    """

    budget: int
    billed: int
    settled: int
    unsettled: int
    at_once: int
    finished: int
    seconds: float


class Billing:
    """A model that bills: it sums the usage of all answers that it gave."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self.billed = 0

    @property
    def name(self) -> str:
        """The model's."""
        return self._model.name

    async def info(self) -> ModelInfo:
        """Return the model's."""
        return await self._model.info()

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Answer as the model does."""
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        async with self._model.stream(request) as events:
            yield self._counted(events)

    async def _counted(self, events: AsyncIterator[ModelEvent]) -> AsyncGenerator[ModelEvent]:
        async for event in events:
            if isinstance(event, ModelAnswer) and event.usage is not None:
                self.billed += event.usage.prompt + event.usage.completion
            yield event


@tool(idempotent=True)
async def read(words: int, number: int) -> str:
    """Read so many words."""
    return f"page {number}: {_WORD * words}"


def script(chance: random.Random) -> Any:
    """Return what the agent answers, and its sub-agents, who never end by themselves."""
    number = 0

    async def respond(request: ModelRequest) -> Scripted:
        nonlocal number
        number += 1
        await anyio.sleep(chance.uniform(0, LONGEST))
        if request.messages[0].text.startswith("You are a sub-agent"):
            return call("read", words=chance.randrange(300), number=number)
        if any(message.role == "assistant" for message in request.messages):
            return say("Done.")
        return calls(
            *(
                raw_call("delegate", role="reader", instructions="Read on.", task_key=f"task {one}")
                for one in range(CHILDREN)
            )
        )

    return respond


async def spend(seed: int, folder: Path) -> Spent:
    """Run an agent with a budget until it is spent."""
    chance = random.Random(seed)
    budget = chance.randrange(LEAST, MOST)
    model = Billing(ScriptedModel(script(chance), max_output=4096))
    settings = Settings(
        database_url=f"file:{folder / f'{seed}.db'}",
        synchronous="normal",
        budget_tokens=budget,
        delegation_parallel=CHILDREN,
        loop_limit=0,
        observational_memory=False,
    )
    working, most, finished = set[str](), 0, 0

    def hear(event: Event) -> None:
        nonlocal most, finished
        if event.kind == "run-start":
            working.add(event.run_id)
            most = max(most, len(working) - 1)
        elif event.kind == "run-finish":
            working.discard(event.run_id)
            finished += 1

    begun = time.monotonic()
    async with Runtime.open(settings, model=model) as runtime:
        agent = Agent(tools=[read], delegation=True, name="boss")
        result = await runtime.run(agent, "Have it all read.", on_event=hear)
        root = await runtime.store.of(settings.user).run(result.run_id)
    if root.reserved.tokens or working:
        raise RuntimeError(f"seed {seed}: {root.reserved} reserved, {len(working)} runs open")
    return Spent(
        budget=budget,
        billed=model.billed,
        settled=root.settled.tokens,
        unsettled=root.unsettled.tokens,
        at_once=most,
        finished=finished - 1,
        seconds=time.monotonic() - begun,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--budgets", type=int, default=50, metavar="N", help="how many runs")
    parser.add_argument("--seed", type=int, default=1, help="of the first")


def run(args: argparse.Namespace) -> Report:
    """Spend budgets. Blocks until it is done."""
    found: list[Spent] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seed, args.seed + args.budgets):
            found.append(anyio.run(spend, seed, Path(folder)))
            if len(found) % 10 == 0:
                print(f"{len(found)} budgets", file=sys.stderr)
    shares = [one.billed / one.budget for one in found]
    wrong = sum(not one.settled <= one.billed <= one.settled + one.unsettled for one in found)
    row = {
        "runs": len(found),
        "sub-agents": sum(one.finished for one in found),
        "billed, least share": min(shares),
        "billed, median": median(shares),
        "billed, largest": max(shares),
        "at once, least": min(one.at_once for one in found),
        "seconds, median": median(one.seconds for one in found),
    }
    targets = [
        at_most("largest share of a budget that was billed", max(shares), 1.0),
        at_least("smallest share of a budget that was usable", min(shares), USABLE),
        at_least("sub-agents at once, in each run", row["at once, least"], AT_ONCE),
        at_most("runs whose books disagree with what was billed", wrong, 0),
    ]
    return Report("autonomy", [row], targets)
