"""Spend budgets with many sub-agents at work, and compare with what the model billed.

`--runs N` runs N agents that each delegate to twenty sub-agents, with calls of random sizes and
times, until a shared budget is spent: in turn one in tokens and one in dollars of the run tree, and
one in tokens of the user's day.  The model bills its input and output by its own count, which
differs from the runtime's, and bills some calls that then break.  The report has the largest and
the smallest share of a budget that was billed (the rest was too small for another call, or was
billed for broken calls), how many sub-agents worked at once, and whether the agent could still give
its last answer.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import anyio

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.delegation.assignment import PROTOCOL
from agent_runtime.errors import ModelStalled
from agent_runtime.models.base import (
    ModelAnswer,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    Price,
    TokenUsage,
)
from agent_runtime.models.cost import NANO, add_amounts
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime_storage import Amount
from benchmarks.frame import Report, at_least, at_most

CHILDREN = 20
KINDS: tuple[str, ...] = ("tokens", "dollars", "tokens of a day")
LEAST, MOST = 250_000, 500_000
"""Tokens of the budgets."""
DOLLARS = 0.6, 1.1
PRICE = Price(input=3000, output=15_000, cache_read=1500, cache_write=3000)
FACTORS = 0.8, 1.38
"""Tokens that the model bills per token that the runtime counts."""
LONGEST = 0.02
"""Seconds of the longest answer."""
BREAKS = 300
"""One in this many calls of sub-agents breaks after it was billed."""
USABLE, AT_ONCE = 0.9, 10
DAY_SECONDS = 86_400
_WORD = "word "


@dataclass(frozen=True, slots=True)
class Spent:
    """The spending of one run, in tokens or nanodollars.

    Attributes:
        billed: by the model, for answers and broken calls.
        settled, unsettled: on the run's root, and the same on the day.
        at_once: the most sub-agents at work at the same time.
        finished: how many sub-agents ended.
        answered: whether the agent itself could give its last answer.
    """

    kind: str
    budget: int
    billed: int
    settled: int
    unsettled: int
    at_once: int
    finished: int
    answered: bool
    seconds: float

    @property
    def share(self) -> float:
        """The share of the budget that was billed."""
        return self.billed / self.budget


class Billing:
    """A model that bills: it sums the cost of its calls by its own count."""

    def __init__(self, model: ScriptedModel, chance: random.Random) -> None:
        self._model = model
        self._chance = chance
        self._factor = chance.uniform(*FACTORS)
        self.billed = Amount()

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    async def info(self) -> ModelInfo:
        """Return the model's info, with a ratio that is safe until usage is known."""
        return replace(await self._model.info(), start_ratio=1.6)

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Answer as the model does, or break."""
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        async with self._model.stream(request) as events:
            yield self._counted(events, breaks=of_sub_agent(request))

    async def _counted(
        self, events: AsyncIterator[ModelEvent], *, breaks: bool
    ) -> AsyncGenerator[ModelEvent]:
        async for event in events:
            if isinstance(event, ModelAnswer) and event.usage is not None:
                event = self._bill(event, event.usage)
                if breaks and self._chance.randrange(BREAKS) == 0:
                    raise ModelStalled("It broke at its end.", lost=1)
            yield event

    def _bill(self, answer: ModelAnswer, counted: TokenUsage) -> ModelAnswer:
        prompt, cached = (
            round(tokens * self._factor) for tokens in (counted.prompt, counted.cached)
        )
        usage = replace(counted, prompt=prompt, cached=cached)
        dollars = (prompt - cached) * PRICE.input + cached * PRICE.cache_read
        cost = round(dollars + usage.completion * PRICE.output)
        self.billed = add_amounts(self.billed, Amount(prompt + usage.completion, cost))
        return replace(answer, usage=usage, cost=cost)


@tool(idempotent=True)
async def read(words: int) -> str:
    """Read a text of `words` words."""
    return _WORD * words


def of_sub_agent(request: ModelRequest) -> bool:
    """Return whether a request is a sub-agent's."""
    return request.messages[0].text.startswith(PROTOCOL)


def script(chance: random.Random) -> Any:
    """Return the script of the agent and of its sub-agents, which never end by themselves.

    Each sub-agent reads a lot first, so that all its calls are large, and then small pieces.
    """

    async def respond(request: ModelRequest) -> Scripted:
        await anyio.sleep(chance.uniform(0, LONGEST))
        begun = any(message.role == "assistant" for message in request.messages)
        if of_sub_agent(request):
            words = chance.randrange(100) if begun else chance.randrange(2000, 4000)
            return call("read", words=words)
        if begun:
            return say("Done.")
        return calls(
            *(
                raw_call(
                    "delegate", role="reader", instructions="Read on.", task_key=f"task {number}"
                )
                for number in range(CHILDREN)
            )
        )

    return respond


async def spend(seed: int, folder: Path) -> Spent:
    """Run an agent until its budget is spent."""
    chance = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    tokens, dollars = chance.randrange(LEAST, MOST), round(chance.uniform(*DOLLARS), 6)
    model = Billing(ScriptedModel(script(chance), max_output=1024, price=PRICE), chance)
    settings = Settings(
        database_url=f"file:{folder / f'{seed}.db'}",
        synchronous="normal",
        budget_tokens=tokens if kind == "tokens" else None,
        budget_usd=dollars if kind == "dollars" else None,
        day_budget_tokens=tokens if kind == "tokens of a day" else None,
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
        store = runtime.store.of(settings.user)
        root = await store.runs.get(result.run_id)
        day = await store.spending.of_day()
    if root.reserved != Amount() or working:
        raise RuntimeError(f"seed {seed}: {root.reserved} reserved, {len(working)} runs open")
    same_day = time.time() // DAY_SECONDS == root.created_at // DAY_SECONDS
    if same_day and (day.settled, day.unsettled) != (root.settled, root.unsettled):
        raise RuntimeError(f"seed {seed}: the day has {day}, the run {root.settled}")
    part = _cost if kind == "dollars" else _tokens
    return Spent(
        kind=kind,
        budget=int(dollars * NANO) if kind == "dollars" else tokens,
        billed=part(model.billed),
        settled=part(root.settled),
        unsettled=part(root.unsettled),
        at_once=most,
        finished=finished - 1,
        answered=result.output == "Done.",
        seconds=time.monotonic() - begun,
    )


def _tokens(amount: Amount) -> int:
    return amount.tokens


def _cost(amount: Amount) -> int:
    return amount.cost


def spend_alone(seed: int) -> Spent:
    """Run `spend` in its own event loop and folder."""
    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(spend, seed, Path(folder))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--runs", type=int, default=50, metavar="N", help="how many runs")
    parser.add_argument("--seed", type=int, default=1, help="of the first")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes work at once")


def run(args: argparse.Namespace) -> Report:
    """Spend budgets. Blocks until it is done."""
    runs: list[Spent] = []
    seeds = range(args.seed, args.seed + args.runs)
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        for spent in pool.map(spend_alone, seeds):
            runs.append(spent)
            if len(runs) % 10 == 0:
                print(f"{len(runs)} budgets", file=sys.stderr)
    rows = [_row(kind, [spent for spent in runs if spent.kind == kind]) for kind in KINDS]
    wrong = sum(
        not spent.settled <= spent.billed <= spent.settled + spent.unsettled for spent in runs
    )
    shares = [spent.share for spent in runs]
    # What a call that broke has cost is not known, so its bound is not usable.
    whole = [spent.share for spent in runs if not spent.unsettled]
    targets = [
        at_most("largest share of a budget that was billed", max(shares), 1.0),
        at_least("smallest share billed where no call broke", min(whole, default=1.0), USABLE),
        at_least("sub-agents at once, in each run", min(spent.at_once for spent in runs), AT_ONCE),
        at_most("runs whose books disagree with what was billed", wrong, 0),
        at_most("agents without a last answer", sum(not spent.answered for spent in runs), 0),
    ]
    return Report("budgets", [row for row in rows if row], targets)


def _row(kind: str, runs: list[Spent]) -> dict[str, Any]:
    if not runs:
        return {}
    shares = [spent.share for spent in runs]
    return {
        "budget": kind,
        "runs": len(runs),
        "with a broken call": sum(spent.unsettled > 0 for spent in runs),
        "sub-agents": sum(spent.finished for spent in runs),
        "billed, least share": min(shares),
        "billed, median": median(shares),
        "billed, largest": max(shares),
        "unsettled, largest": max(spent.unsettled / spent.budget for spent in runs),
        "at once, least": min(spent.at_once for spent in runs),
        "seconds, median": median(spent.seconds for spent in runs),
    }
