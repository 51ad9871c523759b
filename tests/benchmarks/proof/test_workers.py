"""Clusters on a small scale: a disturbed one passes, and the judge detects what is made wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import Runtime, Settings
from agent_runtime.testing import OpenAIServer, Reply
from agent_runtime_storage import open_store
from benchmarks.proof.cluster.agents import Effects, application
from benchmarks.proof.cluster.campaign import Order, Plan
from benchmarks.proof.cluster.journal import Fact, Journal, read
from benchmarks.proof.cluster.judge import Absence, Bill, judge
from benchmarks.proof.cluster.processes import BUDGET
from benchmarks.proof.cluster.script import reply, task_of
from benchmarks.proof.cluster.world import bills_of, disturb
from tests.services.process import MissingPart

ORDERS = [Order("r0000", "alone", "ann"), Order("r0001", "placed", "bob")]


@dataclass(frozen=True, slots=True)
class Left:
    """What a small world left behind."""

    database: Path
    facts: list[Fact]
    bills: list[Bill]


async def _live(folder: Path) -> Left:
    """Work on the orders in this process."""
    journal = folder / "journal"

    def at_once(request: dict[str, Any], n: int) -> Reply:
        return replace(reply(request, n), delay=0)

    settings = Settings(
        database_url=f"file:{folder / 'store.db'}",
        budget_tokens=BUDGET,
        observer_model="extractive",
    )
    async with OpenAIServer(at_once) as model, Runtime.open(settings) as runtime:
        app = application(Effects(Journal(journal), "worker", 0), model.base_url)
        for order in ORDERS:
            agent, task = app.named(order.kind), task_of(order.name, order.kind)
            await runtime.enqueue(agent, task, app=app, user=order.user)
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.work, app)
            with anyio.fail_after(60):
                while await runtime.queue.list_all():  # noqa: ASYNC110
                    await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        return Left(folder / "store.db", read(journal), bills_of(model))


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """A world in which nothing went wrong."""
    return anyio.run(_live, tmp_path_factory.mktemp("calm"))


def _effect(facts: list[Fact], tool: str) -> Fact:
    return next(fact for fact in facts if fact["what"] == "effect" and fact["tool"] == tool)


def _twice(facts: list[Fact], bills: list[Bill]) -> None:
    facts.append(_effect(facts, "send"))


def _never(facts: list[Fact], bills: list[Bill]) -> None:
    facts.remove(_effect(facts, "press"))


def _elsewhere_at_the_same_time(facts: list[Fact], bills: list[Bill]) -> None:
    effect = _effect(facts, "put")
    facts.append({**effect, "what": "begin", "member": "other", "at": effect["at"] - 100})
    facts.append({**effect, "member": "other"})


def _bill_more(facts: list[Fact], bills: list[Bill]) -> None:
    bills[0] = replace(bills[0], tokens=10_000_000)


def _bill_less(facts: list[Fact], bills: list[Bill]) -> None:
    bills[0] = replace(bills[0], tokens=0)


def _ask_twice(facts: list[Fact], bills: list[Bill]) -> None:
    bill = next(bill for bill in bills if bill.asked.name == "r0000")
    bills.append(replace(bill, tokens=0))


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (_twice, "was done 2 times"),
        (_never, "was done 0 times"),
        (_elsewhere_at_the_same_time, "at the same time"),
        (_bill_more, "tokens were billed"),
        (_bill_less, "tokens were billed"),
        (_ask_twice, "asked 1 times again"),
    ],
)
async def test_the_judge_detects_wrong_facts(
    calm: Left, tmp_path: Path, tamper: Callable[[list[Fact], list[Bill]], None], found: str
) -> None:
    store = await open_store(f"file:{shutil.copy(calm.database, tmp_path)}")
    try:
        right = await judge(store, ORDERS, calm.facts, calm.bills)
        facts, bills = [*calm.facts], [*calm.bills]
        tamper(facts, bills)
        wrong = await judge(store, ORDERS, facts, bills)
        # One that is stopped may end its call when it goes on.
        excused = await judge(store, ORDERS, facts, bills, [Absence("other", 0.0)])
    finally:
        await store.close()
    assert right.violations == [] and right.ends == 4
    assert any(found in violation for violation in wrong.violations)
    assert not any("at the same time" in violation for violation in excused.violations)


@pytest.mark.parametrize(
    ("orders", "found"),
    [
        ([*ORDERS, Order("r0002", "alone", "ann")], "r0002 was begun 0 times"),
        (ORDERS[:1], "an effect of"),
        ([replace(ORDERS[0], kind="placed"), ORDERS[1]], "was not ordered"),
    ],
)
async def test_the_judge_detects_runs_that_are_missing_or_too_many(
    calm: Left, tmp_path: Path, orders: list[Order], found: str
) -> None:
    store = await open_store(f"file:{shutil.copy(calm.database, tmp_path)}")
    try:
        wrong = await judge(store, orders, calm.facts, calm.bills)
    finally:
        await store.close()
    assert any(found in violation for violation in wrong.violations)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_whose_parts_die_does_everything_once(tmp_path: Path) -> None:
    plan = Plan(runs=24, workers=3, every=5, pace=0.8, database_restarts=1, limit=400)
    try:
        outcome = disturb(plan, tmp_path)
    except MissingPart as missing:
        pytest.skip(str(missing))
    assert outcome.verdict.violations == []
    assert outcome.faults and outcome.restarts["database"] == 1
