"""What must hold after a campaign, by the journal of effects, the model's bill and the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import orjson

from agent_runtime.messages import AssistantMessage, decode_message, decode_result
from agent_runtime_storage import Run, Store, UserStore
from agent_runtime_storage.contract.records.log import Node
from benchmarks.proof.autonomy import check_run
from benchmarks.proof.chaos_check import Effects
from benchmarks.proof.cluster.campaign import CLOCK, Order
from benchmarks.proof.cluster.journal import Fact
from benchmarks.proof.cluster.script import (
    IDEMPOTENT,
    PARTS,
    PLANS,
    Asked,
    Kind,
    answer_of,
    items_of,
    part_of,
    root_of,
)

_ALL = 100_000
MINUTE = 60


@dataclass(frozen=True, slots=True)
class Bill:
    """A request to the model, and the tokens of its answer."""

    asked: Asked
    tokens: int


@dataclass(frozen=True, slots=True)
class Absence:
    """When a worker was stopped, or that it was killed: until then it may have been at work."""

    member: str
    begin: float
    end: float = inf


@dataclass
class Verdict:
    """What was found.

    Attributes:
        violations: the faults; empty if everything held.
        ends: how many runs ended, with those of sub-agents and schedules.
        interrupted: calls whose effect the log calls uncertain.
        repeated: calls of idempotent tools that ran again.
        asked_again: requests to the model for a step that had been asked for.
    """

    violations: list[str] = field(default_factory=list[str])
    ends: int = 0
    steps: int = 0
    ticks: int = 0
    interrupted: int = 0
    repeated: int = 0
    asked_again: int = 0
    takeovers: int = 0
    billed: int = 0
    settled: int = 0
    unsettled: int = 0


async def judge(
    store: Store,
    orders: Sequence[Order],
    facts: Sequence[Fact],
    bills: Sequence[Bill],
    absences: Sequence[Absence] = (),
) -> Verdict:
    """Read what a campaign left, and judge it.

    Args:
        orders: the runs that were enqueued.
        facts: the journal.
        bills: of the model, in order.
        absences: the workers that were stopped or killed.
    """
    verdict = Verdict()
    effects = Effects([fact for fact in facts if fact["what"] == "effect"])
    trees = _Trees(store, effects, bills, verdict)
    for user in sorted({order.user for order in orders}):
        await trees.check_orders(user, [order for order in orders if order.user == user])
    await trees.check_ticks(facts)
    verdict.violations += effects.unknown()
    verdict.violations += _check_items(facts, trees.named, trees.uncertain)
    verdict.violations += _check_holders(facts, absences)
    verdict.interrupted, verdict.repeated = effects.interrupted, effects.repeated
    verdict.violations += [one.detail for one in await store.maintenance.check()]
    if left := await store.queue.list(limit=_ALL):
        verdict.violations.append(f"{len(left)} runs are left in the queue: {left[0]}")
    return verdict


class _Trees:
    """The trees of runs, compared with what was ordered, done and billed.

    Attributes:
        named: the roots of orders that were found, by name.
        uncertain: the items of interrupted calls.
    """

    def __init__(
        self, store: Store, effects: Effects, bills: Sequence[Bill], verdict: Verdict
    ) -> None:
        self._store = store
        self._effects = effects
        self._verdict = verdict
        self._bills: defaultdict[str, list[Bill]] = defaultdict(list)
        for bill in bills:
            self._bills[root_of(bill.asked.name)].append(bill)
        self.named: dict[str, Kind] = {}
        self.uncertain = set[str]()

    async def check_orders(self, user: str, orders: Sequence[Order]) -> None:
        """Check that each order of a user became one tree that ended once."""
        own = self._store.of(user)
        wanted = {order.name: order.kind for order in orders}
        found = Counter[str]()
        for root in await self._roots(own):
            name, kind = await _named(own, root)
            found[name] += 1
            if wanted.get(name) != kind:
                self._fault(f"{name} of {user} was not ordered as {kind or 'a run'}")
                continue
            self.named[name] = kind
            await self._check_tree(own, root, name, kind, self._bills[name])
        for name in wanted:
            if found[name] != 1:
                self._fault(f"{name} was begun {found[name]} times")

    async def check_ticks(self, facts: Iterable[Fact]) -> None:
        """Check that each schedule started one run for each minute since it was added."""
        own = self._store.of(CLOCK)
        pressed = Counter(str(fact["item"]) for fact in facts if fact["what"] == "effect")
        ticks: defaultdict[str, list[Run]] = defaultdict(list)
        for root in await self._roots(own):
            name, kind = await _named(own, root)
            ticks[name].append(root)
            await self._check_tree(own, root, name, kind, None)
        for row in await own.schedules.list():
            name, first = f"t-{row.id}", (row.created_at // MINUTE + 1) * MINUTE
            roots, wanted = ticks[name], round((row.next_at - first) / MINUTE)
            self._verdict.ticks += len(roots)
            if len(roots) != wanted:
                self._fault(f"the schedule of {row.id} started {len(roots)} runs for {wanted}")
            [(item, _)] = items_of(name, "tick")
            if not len(roots) - (item in self.uncertain) <= pressed[item] <= len(roots):
                self._fault(f"{item} was done {pressed[item]} times by {len(roots)} runs")
            self._check_bill(roots, name, self._bills[name])

    async def _roots(self, own: UserStore) -> list[Run]:
        return [run for run in await own.runs.list(limit=_ALL) if run.parent_run_id is None]

    async def _check_tree(
        self, own: UserStore, root: Run, name: str, kind: Kind, bills: Sequence[Bill] | None
    ) -> None:
        """Check a tree; those of schedules have no names of their own, so no bills either."""
        runs = await own.runs.list(root_run_id=root.id, limit=_ALL)
        children = [run for run in runs if run.id != root.id]
        if len(children) != (PARTS if any("delegate" in step for step in PLANS[kind]) else 0):
            self._fault(f"{name} has {len(children)} runs below it")
        named: dict[str, tuple[str, Kind]] = {root.id: (name, kind)}
        for child in children:
            named[child.id] = await _named(own, child)
        usage = await own.spending.usage_by_run(root.id)
        asked = Counter(bill.asked for bill in bills or ())
        for run in runs:
            one, what = named[run.id]
            self._verdict.ends += 1
            self._verdict.steps += run.steps
            self._verdict.takeovers += run.epoch - 1
            for fault in [*await check_run(own, run), *await self._check_log(own, run, one, what)]:
                self._fault(f"{one}: {fault}")
            if (calls := usage[run.id].calls if run.id in usage else 0) != run.steps:
                self._fault(f"{one}: {calls} answers are in the books of {run.steps} steps")
            if bills is None:
                continue
            again = sum(asked[Asked(one, what, step)] - 1 for step in range(len(PLANS[what]) + 1))
            self._verdict.asked_again += again
            if not 0 <= again <= run.epoch - 1:
                self._fault(
                    f"{one}: the model was asked {again} times again, "
                    f"and {run.epoch - 1} workers took the run over"
                )
        used = sum(one.prompt_tokens + one.completion_tokens for one in usage.values())
        if used != root.settled.tokens:
            self._fault(f"{name}: {used} tokens were used, and {root.settled.tokens} are settled")
        if bills is not None:
            self._check_bill([root], name, bills)

    def _check_bill(self, roots: Sequence[Run], name: str, bills: Sequence[Bill]) -> None:
        """Check that what was billed for trees lies between what is settled and what may be."""
        billed = sum(bill.tokens for bill in bills)
        settled = sum(root.settled.tokens for root in roots)
        most = settled + sum(root.unsettled.tokens for root in roots)
        self._verdict.billed += billed
        self._verdict.settled += settled
        self._verdict.unsettled += most - settled
        if not settled <= billed <= most:
            self._fault(f"{name}: {billed} tokens were billed, {settled} settled, {most} at most")

    async def _check_log(self, own: UserStore, run: Run, name: str, kind: Kind) -> list[str]:
        """Compare a run's steps, calls and answer with its plan and with the effects."""
        thread = await own.threads.get(run.thread_id)
        nodes = await own.log.branch(thread.id, thread.head) if thread.head else []
        faults: list[str] = []
        if [node.seq for node in nodes] != list(range(1, thread.last_seq + 1)):
            faults.append("its history is not one chain without gaps")
        exchanges = [node for node in nodes if node.kind == "exchange"]
        answers = sum(node.role == "assistant" for node in nodes)
        if {len(exchanges) + 1, run.steps, answers} != {len(PLANS[kind]) + 1}:
            faults.append(f"{len(exchanges)} exchanges, {answers} answers and {run.steps} steps")
        for step, node in enumerate(exchanges):
            faults += self._check_exchange(run.thread_id, node, name, step)
        if orjson.loads(run.output or b"null") != answer_of(name):
            faults.append(f"its output is {run.output!r}")
        return faults

    def _check_exchange(self, thread: str, node: Node, name: str, step: int) -> Iterator[str]:
        message = decode_message(node.body)
        if not isinstance(message, AssistantMessage) or message.text != f"Step {step}.":
            yield f"node {node.seq} is not the answer of step {step}"
            return
        for call, row in zip(message.calls, node.calls, strict=True):
            result = decode_result(row.body)
            if call.name == "delegate":
                text = result.text if result.text.startswith("{") else "{}"
                outcome: dict[str, Any] = orjson.loads(text)
                part = part_of(name, row.index)
                if (outcome.get("status"), outcome.get("result")) != ("succeeded", answer_of(part)):
                    yield f"the sub-agent {part} gave {result.text[:300]}"
                continue
            if result.outcome == "interrupted":
                self.uncertain.add(str(call.arguments["item"]))
            elif result.outcome != "ok":
                yield f"the call of {call.name} in step {step} was {result.outcome}"
            yield from self._effects.judge(thread, call.id, call.name, result)

    def _fault(self, text: str) -> None:
        self._verdict.violations.append(text)


async def _named(own: UserStore, run: Run) -> tuple[str, Kind]:
    """Return the name and the kind of a run, by its task in the log."""
    if run.task_id is not None:
        task = decode_message((await own.log.node(run.thread_id, run.task_id)).body)
        asked = Asked.of({"messages": [{"role": "user", "content": task.text}]})
        if asked.name:
            return asked.name, asked.kind
    return "", "part"


def _check_items(
    facts: Iterable[Fact], named: Mapping[str, Kind], uncertain: set[str]
) -> Iterator[str]:
    """Count the effects by what they are for, without a look at the log's calls."""
    done = Counter(str(fact["item"]) for fact in facts if fact["what"] == "effect")
    for name, kind in named.items():
        for item, tool in items_of(name, kind):
            most = inf if tool in IDEMPOTENT else 1
            if not (0 if item in uncertain else 1) <= done[item] <= most:
                yield f"{item} was done {done[item]} times"


def _check_holders(facts: Iterable[Fact], absences: Sequence[Absence]) -> Iterator[str]:
    """Check that no two workers had tools of one run at work at the same time.

    A worker that was stopped may end, when it goes on, the calls that had begun before.
    """
    begun: dict[tuple[str, str, str], float] = {}
    spans: defaultdict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for fact in facts:
        if fact["what"] == "begin":
            begun[fact["run"], fact["call"], fact["member"]] = fact["at"]
        elif fact["what"] == "effect":
            begin = begun.pop((fact["run"], fact["call"], fact["member"]), fact["at"])
            away = any(
                one.member == fact["member"] and one.begin <= fact["at"] and begin <= one.end
                for one in absences
            )
            if not away:
                spans[fact["run"]].append((begin, fact["at"], fact["member"]))
    for run, of_run in spans.items():
        of_run.sort()
        last, holder = -inf, ""
        for begin, end, member in of_run:
            if begin < last and member != holder:
                yield f"run {run}: {holder} and {member} had its tools at work at the same time"
            if end > last:
                last, holder = end, member
