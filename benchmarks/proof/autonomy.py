"""Kill a long run with a plan and sub-agents again and again, and judge the result.

The agent has a plan, delegates its items to many sub-agents at a time, and works by itself in
between; its memory compresses the log.  SIGKILL hits it at random instants throughout, and each
time another process resumes it.  Work and bills are counted outside of the killed processes.  Every
item must be done once, every sub-agent must end once and report its outcome once, and the billed
amount must be within the bounds of the books.  The rows are the runs with more billed than settled:
those that were in a model call when they were killed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.context import ForkServerProcess
from typing import Any

import anyio
import orjson

from agent_runtime import Plan, Runtime
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.messages import decode_result
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.log import ACTIVE, Node, Run
from agent_runtime_storage.contract.records.usage import UsageTotal
from agent_runtime_storage.urls import Backend
from benchmarks.backends import BACKENDS, empty_databases
from benchmarks.frame import Report, at_least, at_most
from benchmarks.proof.autonomy_world import (
    PAGES,
    THREAD,
    USER,
    Course,
    path_of,
    read,
    settings_of,
    start,
)

LATEST = 0.05
"""Seconds: the most by which a kill follows its drawn moment."""
MOST_LIVES = 3
"""Processes per kill after which the run is abandoned."""
_ALL = 100_000


@dataclass(frozen=True, slots=True)
class Difference:
    """What was billed for a run of the tree, and what its books say.

    Attributes:
        lost: how many answers were billed and never recorded.
    """

    agent: str
    key: str
    lost: int
    billed: int
    settled: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the long run.

    Attributes:
        violations: the faults.
        differences: the runs of the tree with more billed than settled.
        unsettled: what may have been billed in addition, at most, by the books.
    """

    kills: int
    lives: int
    seconds: float
    steps: int
    sub_agents: int
    interrupted: int
    billed: int
    settled: int
    unsettled: int
    violations: tuple[str, ...]
    differences: tuple[Difference, ...]


def kill_again_and_again(
    steps: int, items: int, at_once: int, kills: int, seed: int, backend: Backend
) -> Outcome:
    """Kill the run at random, `kills` times, and resume it each time. Blocks until it is over.

    Args:
        steps: of the agent itself; those of its sub-agents come on top.
        items: of its plan, each for a sub-agent.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, empty_databases() as make:
        course = Course(folder, make(backend), steps, items, at_once)
        done, lives = _campaign(course, kills, random.Random(seed))
        return anyio.run(judge, course, done, lives, time.monotonic() - begun)


def _campaign(course: Course, kills: int, chance: random.Random) -> tuple[int, int]:
    """Return how many kills hit, and how many processes the run took."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.proof.autonomy_world"])
    answers = course.steps + course.items * (PAGES + 3)
    moments = sorted(chance.sample(range(1, answers), kills))
    hits = lives = 0
    while lives < MOST_LIVES * kills + 1:
        life = context.Process(target=start, args=(course,))
        life.start()
        lives += 1
        if hits < kills and _killed(life, course, moments[hits], chance.uniform(0, LATEST)):
            hits += 1
            continue
        life.join()
        if life.exitcode == 0:
            break
    return hits, lives


def _killed(life: ForkServerProcess, course: Course, moment: int, later: float) -> bool:
    """Kill a process a little after a number of answers were billed; False if it ended."""
    path = path_of(course.folder)
    seen = size = 0
    while life.is_alive():
        if path.exists() and path.stat().st_size > size:
            with path.open("rb") as file:
                file.seek(size)
                new = file.read()
            size += len(new)
            # Each line is a single write, so no read ends within one.
            seen += new.count(b'"billed"')
        if seen >= moment:
            time.sleep(later)
            life.kill()
            life.join()
            return life.exitcode != 0
        time.sleep(0.002)
    return False


# Judging


async def judge(course: Course, kills: int, lives: int, seconds: float) -> Outcome:
    """Read the state after all lives, and judge it."""
    facts = read(path_of(course.folder))
    async with Runtime.open(settings_of(course)) as runtime:
        store = runtime.store.of(USER)
        [root] = await store.runs.list(thread_id=THREAD)
        runs = await store.runs.list(root_run_id=root.id, limit=_ALL)
        usage = await store.spending.usage_by_run(root.id)
        versions = await runtime.plans.versions(THREAD, limit=_ALL)
        head = (await store.threads.get(THREAD)).head
        nodes = await store.log.branch(THREAD, head) if head else []
        faults = [*_check_plan(course, versions), *_check_work(course, facts)]
        faults += _check_delegations(course, nodes, runs)
        faults += [fault for run in runs for fault in await check_run(store, run)]
    books = differences(runs, usage, facts)
    faults += _check_books(root, books)
    calls = [call for node in nodes for call in node.calls]
    return Outcome(
        kills=kills,
        lives=lives,
        seconds=seconds,
        steps=root.steps,
        sub_agents=len(runs) - 1,
        interrupted=sum(call.outcome == "interrupted" for call in calls),
        billed=sum(difference.billed for difference in books),
        settled=root.settled.tokens,
        unsettled=root.unsettled.tokens,
        violations=tuple(faults),
        differences=tuple(
            difference for difference in books if difference.billed != difference.settled
        ),
    )


def _check_plan(course: Course, versions: Sequence[Plan]) -> Iterator[str]:
    completed: Counter[str] = Counter()
    before: dict[str, str] = {}
    for plan in reversed(versions):
        now = {item.id: item.status for item in plan.items}
        completed.update(
            item_id for item_id in now if now[item_id] == "completed" != before.get(item_id)
        )
        for one, status in now.items():
            if before.get(one) == "completed" != status:
                yield f"{one} was completed and is {status} again"
        before = now
    if len(before) != course.items:
        yield f"the plan has {len(before)} items, and {course.items} were planned"
    for item_id in before:
        if completed[item_id] != 1:
            yield f"{item_id} was completed {completed[item_id]} times"


def _check_work(course: Course, facts: Sequence[dict[str, Any]]) -> Iterator[str]:
    worked = Counter(fact["item"] for fact in facts if fact["what"] == "work")
    for item in (name for wave in range(course.waves) for name in course.of_wave(wave)):
        if worked[item] != 1:
            yield f"{item} was worked on {worked[item]} times"


def _check_delegations(course: Course, nodes: Sequence[Node], runs: Sequence[Run]) -> Iterator[str]:
    """Compare the outcomes that the agent got with the sub-agents that ran."""
    reported: Counter[str] = Counter()
    for node in nodes:
        for call in node.calls:
            text = decode_result(call.body).text
            if '"task_key"' in text and text.startswith("{"):
                outcome = orjson.loads(text)
                reported[outcome["run_id"]] += 1
                if outcome["status"] != "succeeded":
                    yield f"{outcome['task_key']}: the agent got {outcome['status']}"
    below = {run.id for run in runs if run.parent_run_id is not None}
    if len(below) != course.items:
        yield f"{len(below)} sub-agents ran for {course.items} items"
    for run_id in below ^ reported.keys():
        yield f"run {run_id} and the outcomes that the agent got do not agree"
    for run_id, times in reported.items():
        if times > 1:
            yield f"run {run_id} gave its outcome {times} times"


async def check_run(store: UserStore, run: Run) -> list[str]:
    """Return what is wrong with a run that should have succeeded, and with its thread."""
    faults: list[str] = []
    who = f"run {run.agent} {record_key(run)}".strip()
    if run.status != "succeeded":
        faults.append(f"{who} is {run.status}: {run.detail}")
    thread = await store.threads.get(run.thread_id)
    if thread.active_run is not None or run.open_node is not None or run.status in ACTIVE:
        faults.append(f"{who} left its thread occupied or its exchange open")
    if run.reserved.tokens:
        faults.append(f"{who} left {run.reserved.tokens} tokens reserved")
    events = await store.events.list(run.thread_id, limit=_ALL)
    ends = sum(event.kind == "run-finish" for event in events)
    if ends != 1:
        faults.append(f"{who} has {ends} events of its end")
    if [event.id for event in events] != list(range(1, thread.last_event + 1)):
        faults.append(f"{who}: its events are not without gaps")
    return faults


def record_key(run: Run) -> str:
    """Return the key of a run's task; empty for the root."""
    record = delegation_record(run)
    return record.key if record else ""


def differences(
    runs: Sequence[Run], usage: dict[str, UsageTotal], facts: Sequence[dict[str, Any]]
) -> list[Difference]:
    """Return what was billed and settled for each run of the tree."""
    billed: defaultdict[str, list[int]] = defaultdict(list)
    for fact in facts:
        if fact["what"] == "billed":
            billed[fact["thread"]].append(fact["tokens"])
    compared: list[Difference] = []
    for run in runs:
        known = usage.get(run.id) or UsageTotal.of(())
        compared.append(
            Difference(
                agent=run.agent,
                key=record_key(run),
                lost=len(billed[run.thread_id]) - known.calls,
                billed=sum(billed[run.thread_id]),
                settled=known.prompt_tokens + known.completion_tokens,
            )
        )
    return compared


def _check_books(root: Run, books: Sequence[Difference]) -> Iterator[str]:
    billed, settled = (
        sum(difference.billed for difference in books),
        sum(difference.settled for difference in books),
    )
    most = root.settled.tokens + root.unsettled.tokens
    if settled != root.settled.tokens:
        yield f"the usage sums up to {settled} tokens, and {root.settled.tokens} are settled"
    if not settled <= billed <= most:
        yield f"{billed} tokens were billed, {settled} are settled, {most} at most"
    for run in books:
        if run.lost < 0 or run.billed < run.settled or (run.billed > run.settled and not run.lost):
            yield f"{run.agent} {run.key}: {run.billed} billed, {run.settled} settled"


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--steps", type=int, default=2000, help="of the agent itself")
    parser.add_argument("--delegations", type=int, default=200, help="items of its plan")
    parser.add_argument("--at-once", type=int, default=20, help="how many sub-agents at a time")
    parser.add_argument("--kills", type=int, default=50, help="how often it is killed")
    parser.add_argument("--seed", type=int, default=1, help="of the instants")
    parser.add_argument("--backend", choices=BACKENDS, default="file", help="a new database of it")


def run(args: argparse.Namespace) -> Report:
    """Kill, resume and judge. Blocks until it is done."""
    came = kill_again_and_again(
        args.steps, args.delegations, args.at_once, args.kills, args.seed, args.backend
    )
    for violation in came.violations:
        print(violation, file=sys.stderr)
    wrong, most = len(came.violations), came.settled + came.unsettled
    targets = [
        at_least("steps of the agent", came.steps, args.steps),
        at_least("sub-agents", came.sub_agents, args.delegations),
        at_least("kills", came.kills, args.kills),
        at_most("items, sub-agents or books that are not as they should be", wrong, 0),
        at_least("tokens billed, of those settled", came.billed / came.settled, 1),
        at_most("tokens billed, of those settled or unsettled", came.billed / most, 1),
    ]
    return Report("autonomy", [asdict(difference) for difference in came.differences], targets)
