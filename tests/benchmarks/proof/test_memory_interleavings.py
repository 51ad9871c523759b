"""Two runtimes with memory on one thread, in the order of many seeds; and tests of the judge.

The judge reads prompts and rows and uses none of the product's own checks.  So each check and each
fence of the store is disabled once, and the judge has to detect the result.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from agent_runtime.log import lease_keeper
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory import accounting as keeping
from agent_runtime.memory.observational import memory as observational
from agent_runtime.memory.observational import thresholds as bands
from agent_runtime.memory.observational import worker
from agent_runtime.prompt import build as context
from agent_runtime.prompt import render
from agent_runtime.prompt import window as recent
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.view import Entry, Gap, View
from agent_runtime_storage import open_store
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.urls import backend_of
from benchmarks.proof.interleavings.harness import Action, Verdict, run_seeds
from benchmarks.proof.interleavings.history import Op
from benchmarks.proof.interleavings.memory import MemoryWorld
from benchmarks.proof.interleavings.processes import run_kills
from tests.support.prompt_judge import MAIN
from tests.support.stores import expire

SEEDS = {"file": 25}
"""How many seeds the tests try; `python -m benchmarks interleavings.memory` tries more."""
MOST_ROUNDS = 5
KILLS = {"file": 3}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the memory's retry wait after each test."""
    for name in ("RETRY_SECONDS", "AGAIN_SECONDS"):
        monkeypatch.setattr(worker, name, getattr(worker, name))


@pytest.mark.slow
async def test_two_runtimes_on_one_thread_in_the_order_of_many_seeds(database_url: str) -> None:
    verdicts: list[Verdict] = []
    count = SEEDS.get(backend_of(database_url), 3)

    enough = Counter({"activated: observed": 3 * count, "reflected by model": count})
    happened = Counter[str]()

    # What a seed leads to depends on the speed of the database too: more seeds make up for it.
    for first in range(0, MOST_ROUNDS * count, count):
        seeds = range(first, first + count)
        await run_seeds(MemoryWorld, database_url, seeds, verdicts.append, actions=12)
        assert len(verdicts) == seeds.stop
        happened = sum((Counter(verdict.happened) for verdict in verdicts), Counter[str]())
        if happened >= enough:
            break

    assert {verdict.seed: verdict.problems for verdict in verdicts if verdict.problems} == {}
    assert happened >= enough
    if count == SEEDS["file"]:
        acted = {(op.what, op.outcome) for verdict in verdicts for op in verdict.history}
        assert acted >= {("crash", "ok"), ("fork", "ok"), ("resume", "ok"), ("run", "crashed")}


@pytest.mark.backends("file")
async def test_a_seed_repeats_its_interleaving(database_url: str) -> None:
    verdicts: list[Verdict] = []

    for _ in range(2):
        await run_seeds(
            MemoryWorld, database_url, [7], verdicts.append, actions=12, concurrent=False
        )

    first, second = verdicts
    assert acted(first) == acted(second)
    assert first.happened == second.happened


def acted(verdict: Verdict) -> list[tuple[str, ...]]:
    """Return a history without its times."""
    return [(op.id, op.what, op.side, op.outcome, op.error) for op in verdict.history]


@pytest.mark.timeout(300)
@pytest.mark.slow
async def test_a_killed_process_leaves_a_consistent_thread(
    database_url: str, tmp_path: Path
) -> None:
    verdicts: list[Verdict] = []
    count = KILLS.get(backend_of(database_url), 1)

    kill = partial(run_kills, MemoryWorld, database_url, range(count), verdicts.append, tmp_path)
    # In a thread: the processes have event loops of their own.
    await anyio.to_thread.run_sync(kill)

    assert {verdict.seed: verdict.problems for verdict in verdicts if verdict.problems} == {}
    assert len(verdicts) == count


async def test_two_runtimes_never_observe_the_same_and_a_late_writer_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.01)
    url = f"file:{tmp_path / 'run.db'}"
    stores = [await open_store(url) for _ in range(2)]
    slow, other = MemoryWorld("ann"), MemoryWorld("ann")
    observing, release = anyio.Event(), anyio.Event()

    async def hold(what: str) -> None:
        if what == "observe":
            observing.set()
            await release.wait()
        elif observing.is_set():
            await anyio.sleep_forever()

    try:
        user = stores[0].of("ann")
        await user.threads.ensure(MAIN)
        written = 0
        first, second, third = Op("1", "run", "slow"), Op("2", "tidy", "b"), Op("3", "tidy", "b")
        async with anyio.create_task_group() as group:
            act = partial(slow.act, Action(first, stores[0], random.Random(15), hold))
            group.start_soon(act)
            with anyio.fail_after(30):
                await observing.wait()
            # The run's lease has expired; the job's claim has not.
            await expire(stores[0], "ann", claims=False)
            await other.act(Action(second, stores[1], random.Random(4)))
            # Its work in the background may outlive its run.
            await other.close()
            written = len(await user.log.observations(MAIN, ending_from=0))
            release.set()
            group.cancel_scope.cancel()
        assert second.outcome == "ok"
        assert len(await user.log.observations(MAIN, ending_from=0)) == written
        await expire(stores[0], "ann")
        await other.act(Action(third, stores[1], random.Random(36)))
        assert third.outcome == "ok"
        rows = await user.log.observations(MAIN, ending_from=0)
        intervals = [(row.first, row.last) for row in rows if not row.level and not row.provisional]
        assert intervals
        assert len(set(intervals)) == len(intervals)
    finally:
        await slow.close()
        await other.close()
        for store in stores:
            await store.close()


# Detection by the judge

Cover = Callable[[Sequence[Entry], Sequence[Observation]], tuple[list[Observation], Any]]


def _object_to_nothing(patch: pytest.MonkeyPatch) -> None:
    """Disable the product's check of coverage, so that the judge alone detects the fault."""

    def accept(view: View) -> None:
        del view

    patch.setattr(context, "_check_coverage", accept)


def _cover_as(patch: pytest.MonkeyPatch, cover: Cover) -> None:
    """Replace the function that computes what observations cover."""
    for module in (bands, observational, recent):
        patch.setattr(module, "covered", cover)
    _object_to_nothing(patch)


def lose_a_node(patch: pytest.MonkeyPatch) -> None:
    """Remove one more node than is observed."""
    true = recent.covered

    def cover(entries: Sequence[Entry], prepared: Sequence[Observation]) -> Any:
        found, nodes = true(entries, prepared)
        return found, entries[: len(nodes) + 1] if 0 < len(nodes) < len(entries) - 1 else nodes

    patch.setattr(recent, "covered", cover)
    _object_to_nothing(patch)


def show_a_node_twice(patch: pytest.MonkeyPatch) -> None:
    """Remove one node fewer than is observed."""
    true = recent.covered

    def cover(entries: Sequence[Entry], prepared: Sequence[Observation]) -> Any:
        found, nodes = true(entries, prepared)
        return found, nodes[:-1]

    patch.setattr(recent, "covered", cover)
    _object_to_nothing(patch)


def take_from_other_branches(patch: pytest.MonkeyPatch) -> None:
    """Select observations by their numbers alone, whatever their branch."""

    def cover(entries: Sequence[Entry], prepared: Sequence[Observation]) -> Any:
        by_first = {observation.first: observation for observation in prepared}
        found: list[Observation] = []
        reached = 0
        while reached < len(entries) and (one := by_first.get(entries[reached].seq)) is not None:
            within = [place for place, entry in enumerate(entries) if entry.seq <= one.last]
            found.append(one)
            reached = within[-1] + 1
        return found, entries[:reached]

    _cover_as(patch, cover)


def commit_without_the_job(patch: pytest.MonkeyPatch) -> None:
    """Commit an observation by itself, so that its job stays claimed."""
    true = keeping.commit_observation

    async def remember(log: RunLog, written: Observation, job: Any, **more: Any) -> Observation:
        return await true(log, written, None, **more)

    patch.setattr(keeping, "commit_observation", remember)


def end_the_job_first(patch: pytest.MonkeyPatch) -> None:
    """End the job in its own transaction, before the observation is committed."""
    true = keeping.commit_observation

    async def remember(log: RunLog, written: Observation, job: Any, **more: Any) -> Observation:
        if job is not None:
            await log.store.jobs.finish(job)
        return await true(log, written, None, **more)

    patch.setattr(keeping, "commit_observation", remember)


def forget_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Do not compare lease epochs, so that a former holder can write."""
    true: Any = OwnerScope.statement

    def statement(self: OwnerScope, *args: Any, **more: Any) -> Any:
        made = true(self, *args, **more)
        return replace(made, sql=made.sql.replace("epoch = :epoch", ":epoch = :epoch"))

    patch.setattr(OwnerScope, "statement", statement)
    # A holder that hears of its loss at once writes nothing more.
    patch.setattr(lease_keeper, "POLL_SECONDS", 0.4)


def reflect_too_much(patch: pytest.MonkeyPatch) -> None:
    """Have a reflection replace one observation more than its parts."""

    def replaced(standing: Sequence[Any], reflections: Sequence[Any]) -> tuple[Any, ...]:
        left = list(standing)
        for reflection in reflections:
            ids = [each.id for each in left]
            if reflection.parts and reflection.parts[0] in ids:
                place = ids.index(reflection.parts[0])
                left[place : place + len(reflection.parts) + 1] = [reflection]
        return tuple(left)

    patch.setattr(observational, "apply_reflections", replaced)
    _object_to_nothing(patch)


def claim_too_much(patch: pytest.MonkeyPatch) -> None:
    """Say that observations stand for what is in none of them."""

    def claimed(gaps: Sequence[Gap], **_: bool) -> str:
        del gaps
        return "; the observations above stand for them"

    patch.setattr(render, "_unobserved", claimed)


@pytest.mark.backends("file")
@pytest.mark.parametrize(
    ("mutant", "found", "seeds"),
    [
        (lose_a_node, "it says that observations stand for all", range(5)),
        (show_a_node_twice, "is shown as", range(5)),
        pytest.param(
            take_from_other_branches,
            "has observations of another branch",
            range(30),
            marks=pytest.mark.slow,
        ),
        (commit_without_the_job, "without its job", range(2)),
        (end_the_job_first, "is done without a commit", range(2)),
        pytest.param(
            forget_the_fence, "was written with epoch", range(120), marks=pytest.mark.slow
        ),
        (reflect_too_much, "it says that observations stand for all", range(40)),
        (claim_too_much, "it says that observations stand for all", range(20)),
    ],
)
async def test_the_judge_detects_each_disabled_check(
    mutant: Callable[[pytest.MonkeyPatch], None],
    found: str,
    seeds: range,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    problems: list[str] = []

    def add(verdict: Verdict) -> None:
        problems.extend(verdict.problems)

    for seed in seeds:
        await run_seeds(MemoryWorld, database_url, [seed], add, actions=12, concurrent=False)
        if any(found in problem for problem in problems):
            break

    assert any(found in problem for problem in problems), problems[:10]
