"""The judge of a simulated world: it watches every batch that was written and keeps a ledger.

It reads the parameters of the statements and the rows that they return.  What a pick may take is
computed a second time, in Python, from the rows before it (`picking`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from agent_runtime_storage.contract.records.queue import QueueLimits
from agent_runtime_storage.drivers.protocol import Row, Statement, Value
from agent_runtime_storage.sql.loader import load_queries
from benchmarks.proof.simulated.database import SimulatedDatabase
from benchmarks.proof.simulated.picking import Candidate, possible_picks
from benchmarks.proof.simulated.scheduler import Process

MOST_BLAME, MOST_TAKEOVERS = 2.0, 10
ENDED = ("succeeded", "failed", "cancelled")

_CANDIDATES = """
SELECT q.user_id, q.run_id, q.thread_id, q.program, q.agent, q.version, q.model, q.state, q.tag,
       q.enqueued_at, q.due_at, r.status, r.lease_until, t.active_run, q.takeovers,
       r.lease_instance, q.steps_seen < r.steps
FROM queue AS q JOIN runs AS r ON r.user_id = q.user_id AND r.id = q.run_id
JOIN threads AS t ON t.user_id = q.user_id AND t.id = q.thread_id
"""
_INCONSISTENT = """
SELECT q.run_id, q.state, r.status FROM queue AS q
JOIN runs AS r ON r.user_id = q.user_id AND r.id = q.run_id
JOIN threads AS t ON t.user_id = q.user_id AND t.id = q.thread_id
WHERE NOT CASE q.state
    WHEN 'working' THEN r.status = 'running' AND t.active_run = q.run_id
    WHEN 'waiting' THEN r.status IN ('queued', 'suspended', 'failed')
                        OR r.status = 'running' AND r.lease_until <= unixepoch('subsec')
    WHEN 'parked' THEN r.status = 'suspended'
                       OR r.status = 'running' AND r.lease_until <= unixepoch('subsec')
    WHEN 'dead' THEN r.status = 'failed'
    ELSE r.status = 'queued' END
LIMIT 1
"""
_FORGOTTEN = """
SELECT r.id, r.status FROM runs AS r
WHERE r.status IN ('queued', 'running', 'suspended')
  AND NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.user_id = r.user_id AND q.run_id = r.id)
LIMIT 1
"""
_OPEN_CHILDREN = """
SELECT count(*) FROM runs AS c
WHERE c.user_id = :user_id AND c.parent_run_id = :run_id
  AND c.status IN ('queued', 'running', 'suspended')
  AND NOT coalesce(json_extract(c.spec, '$.internal.delegation.background'), 0)
"""

Key: TypeAlias = tuple[str, str]
"""A run: its owner and its id."""


@dataclass(slots=True)
class Known:
    """What the ledger knows of a run.

    Attributes:
        epoch: the newest that was given.
        holder: who holds it; None if the run was suspended or has ended.
        until: when its lease expires, by the database's clock.
        lost: the takeovers since its last step.
        blame: its shares in these losses.
        blamed: whether the loss of its holder was counted.
        since: when the first of these takeovers was noticed.
        others: the workers that were lost since then and did not have it, when it was picked.
        seen: its steps at the last takeover.
        expired: whether a pick has found its lease expired.
        awaits: whether it is suspended until its children have ended.
        nudged: whether somebody woke it by hand.
    """

    user: str
    thread: str
    agent: str
    model: str
    enqueued_at: float
    tick: bool = False
    epoch: int = 0
    holder: Process | None = None
    until: float = -math.inf
    begun: int = 0
    steps: int = 0
    lost: int = 0
    blame: float = 0.0
    blamed: bool = False
    since: float = 0.0
    others: int = 0
    seen: int = 0
    status: str = "queued"
    expired: bool = False
    awaits: bool = False
    nudged: bool = False

    @property
    def is_poison(self) -> bool:
        """Whether it has been lost too often to be worked on."""
        return self.blame > MOST_BLAME + self.others + 1e-6 or self.lost >= MOST_TAKEOVERS


@dataclass(slots=True)
class Judge:
    """Watches the batches of a world.

    Attributes:
        sampled: judge one in this number of picks and batches thoroughly.
        left: how many runs are not over.
        kills: returns whether the next step of a run, at its place, ends its worker.
        held: the runs that somebody holds.
        lost_workers: when the last lease of each was found expired.
        happened: how often each counted event occurred.
    """

    database: SimulatedDatabase
    limits: QueueLimits
    sampled: int = 1
    kills: Callable[[str, int], bool] = lambda run, steps: True
    problems: list[str] = field(default_factory=list[str])
    happened: Counter[str] = field(default_factory=Counter[str])
    runs: dict[Key, Known] = field(default_factory=dict[Key, Known])
    ticks: dict[tuple[str, str], list[float]] = field(default_factory=dict[Any, Any])
    waits: list[float] = field(default_factory=list[float])
    held: dict[Key, Known] = field(default_factory=dict[Key, Known])
    threads: dict[Key, Known] = field(default_factory=dict[Key, Known])
    lost_workers: dict[str, float] = field(default_factory=dict[str, float])
    left: int = 0
    _candidates: list[Candidate] | None = None
    _claim: Mapping[str, Any] = field(default_factory=dict[str, Any])
    _count: int = 0

    def say(self, problem: str) -> None:
        """Note a fault."""
        self.problems.append(f"{problem} (after {self.database.batches} batches)")
        if len(self.problems) > MOST_PROBLEMS:
            raise Hopeless

    def before(self, process: Process, statements: Sequence[Statement], _: object) -> None:
        """Read what a pick finds."""
        del process
        self._count += 1
        self._candidates = None
        if self._count % self.sampled == 0 and _is_pick(statements):
            rows = self.database.query(_CANDIDATES)
            self._candidates = [Candidate(*row) for row in rows]

    def after(
        self, process: Process, statements: Sequence[Statement], rows: Sequence[list[Row]]
    ) -> None:
        """Compare a batch that was written with the ledger."""
        idle = _is_pick(statements) and not rows[-1]
        for statement, found in zip(statements, rows, strict=True):
            name = _NAMES.get(statement.sql)
            if name is not None:
                getattr(self, f"_{name}")(process, statement.params, found)
        if idle or self._count % self.sampled:
            return
        if bad := self.database.query(_INCONSISTENT):
            [(run, state, status)] = bad
            self.say(f"{run} is {state} in the queue and {status}")

    # Each statement, by its name

    def _enqueue(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        del process
        user, run = str(params["user_id"]), str(params["run_id"])
        agent = f"{params['program']} {params['agent']}"
        key = user, run
        if key in self.runs:
            self.say(f"{run} was enqueued twice")
        self.runs[key] = Known(
            user, str(params["thread_id"]), agent, str(params["model"]), self.database.now
        )
        self.left += 1
        self.happened["enqueued"] += 1

    def _enqueue_child(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        user, run = str(params["user_id"]), str(params["run_id"])
        parent = self.runs[user, str(params["parent_run_id"])]
        if parent.holder is not process and parent.holder is not None:
            self.say(f"{process.name} enqueued {run} below a run of {parent.holder.name}")
        if (user, run) in self.runs:
            self.say(f"{run} was enqueued twice")
        self.runs[user, run] = Known(
            user, str(params["thread_id"]), parent.agent,
            str(params["model"]) or parent.model, self.database.now,
        )  # fmt: skip
        self.left += 1
        self.happened["enqueued below another"] += 1

    def _queue_claimed(
        self, process: Process, params: Mapping[str, Any], rows: Sequence[Row]
    ) -> None:
        del params
        for user, run, _, _, epoch, takeovers, _, blame, others in rows:
            known = self.runs[user, run]
            if known.begun == 0 and known.epoch == 0:
                self.waits.append(self.database.now - known.enqueued_at)
            self._give(known, run, process, int(epoch), fresh=True)
            if int(takeovers) != known.lost:
                self.say(f"{run} has {takeovers} takeovers, and lost {known.lost} leases")
            if float(blame) != known.blame:
                self.say(f"{run} was picked with the blame {blame}, not {known.blame}")
            lost = sum(at >= known.since - 1 for at in self.lost_workers.values())
            known.others = max(0, lost - known.lost) if known.lost else 0
            if int(others) != known.others:
                self.say(f"{run} was picked with {others} other losses, not {known.others}")
            if known.awaits and not known.nudged and self._open_children(user, run):
                self.say(f"{run} was woken before its children had ended")
            known.awaits = known.nudged = False
            self.happened["picked"] += 1
        self._limits()

    def _queue_claim(
        self, process: Process, params: Mapping[str, Any], rows: Sequence[Row]
    ) -> None:
        """Compare what was claimed at the end of the batch, which has not come yet."""
        del process, rows
        self._claim = params

    def _queue_unclaim(
        self, process: Process, params: Mapping[str, Any], rows: Sequence[Row]
    ) -> None:
        del process, rows
        self.happened["picks"] += 1
        if self._candidates is None:
            return
        claim = str(params["claim"])
        found = self.database.query(
            "SELECT user_id, run_id FROM queue WHERE claim = :claim AND state = 'working'",
            {"claim": claim},
        )
        picks = {(str(user), str(run)) for user, run in found}
        fault = possible_picks(self._candidates, self._claim, self.database.now).fault_of(picks)
        if fault:
            self.say(fault)

    def _take_run(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        run = str(params["run_id"])
        known = self.runs[str(params["user_id"]), run]
        known.awaits = False
        self._give(known, run, process, int(params["replaces"]) + 1, fresh=False)

    def _give(self, known: Known, run: str, process: Process, epoch: int, *, fresh: bool) -> None:
        if epoch <= known.epoch:
            self.say(f"{run} was given with epoch {epoch} after {known.epoch}")
        if known.holder is not None and (fresh or known.holder is not process):
            # One that expired was revoked, whatever a clock says that was set back since.
            if fresh and known.until > self.database.now and not known.expired:
                self.say(f"{run} was picked from {known.holder.name}, whose lease is live")
            if not known.expired:
                self._lose(known)
        other = self.threads.get((known.user, known.thread))
        if other is not None and other is not known:
            self.say(f"{run} was given while another run holds its thread")
        self.left += known.status in ENDED
        known.epoch, known.holder, known.status = epoch, process, "running"
        known.expired = known.blamed = False
        known.until = self.database.now + LEASE_SECONDS
        self.held[known.user, run] = self.threads[known.user, known.thread] = known

    def _queue_blame(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        del process, params
        now = self.database.now
        lost = [one for one in self.held.values() if one.until <= now and not one.expired]
        for holder in {one.holder.name for one in lost if one.holder is not None}:
            self._share_blame(one for one in self.held.values() if _is_of(one, holder))

    def _queue_blame_taken(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        user, run = str(params["user_id"]), str(params["run_id"])
        taken = self.held.get((user, run))
        if taken is None or taken.expired or taken.holder in (None, process):
            return
        holder = taken.holder.name
        self._share_blame(
            one for one in self.held.values() if one.user == user and _is_of(one, holder)
        )

    def _share_blame(self, company: Iterable[Known]) -> None:
        company = [one for one in company if not one.blamed]
        for one in company:
            one.blamed = True
            if one.steps > one.seen:
                one.blame = 0.0
        most = max((one.blame for one in company), default=0.0)
        guilty = [one for one in company if one.blame == most]
        for one in guilty:
            one.blame += 1.0 / len(guilty)

    def _lose(self, known: Known) -> None:
        known.lost = 1 if known.steps > known.seen else known.lost + 1
        if known.lost == 1:
            known.since = self.database.now
        known.seen = known.steps
        self.happened["taken over"] += 1

    def _queue_expire(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        del process, params
        now = self.database.now
        for known in self.held.values():
            if known.until <= now and not known.expired:
                known.expired = True
                if known.holder is not None:
                    self.lost_workers[known.holder.owner.instance] = now
                self._lose(known)

    def _commit_guard(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        run = str(params["run_id"])
        known = self.runs[str(params["user_id"]), run]
        if int(params["epoch"]) != known.epoch or known.holder is not process:
            self.say(f"{process.name} wrote for {run} with epoch {params['epoch']}")
        steps = params["steps"]
        if steps is not None:
            if steps != known.steps + 1:
                self.say(f"{run} made step {steps} after {known.steps}")
            known.steps = int(steps)
            self.happened["steps"] += 1

    def _begin_queued(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        run = str(params["run_id"])
        known = self.runs[str(params["user_id"]), run]
        known.begun += 1
        if known.begun > 1:
            self.say(f"{run} began {known.begun} times")
        if int(params["epoch"]) != known.epoch or known.holder is not process:
            self.say(f"{process.name} began {run} with epoch {params['epoch']}")
        known.until = self.database.now + float(params["seconds"])

    def _finish_run(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        del process
        user, run = str(params["user_id"]), str(params["run_id"])
        known = self.runs[user, run]
        status, reason = str(params["status"]), str(params["stop_reason"])
        if known.holder is None:
            self.say(f"{run} became {status} while nobody held it")
            return
        if reason == "dead_letter":
            self._bury(run, known)
        if status == "suspended" and known.steps > known.seen:
            known.lost, known.blame = 0, 0.0
        known.holder, known.status = None, status
        del self.held[user, run]
        if status != "suspended":
            del self.threads[user, known.thread]
        self.left -= status in ENDED
        known.awaits = reason == "awaiting_children"
        self.happened[reason if reason == "dead_letter" else status] += 1

    def _bury(self, run: str, known: Known) -> None:
        if not known.is_poison:
            self.say(f"{run} is a dead letter after {known.lost} takeovers, blame {known.blame}")
        if self.kills(run, known.steps):
            self.happened["dead letters that ended their workers"] += 1
            self.happened["workers that these ended"] += known.lost
        else:
            self.happened["dead letters without a fault"] += 1

    def _withdraw_queued(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        del process
        run = str(params["run_id"])
        known = self.runs[str(params["user_id"]), run]
        if known.holder is not None or known.status != "queued":
            self.say(f"{run} was withdrawn as {known.status}")
        known.status = "cancelled"
        self.left -= 1
        self.happened["withdrawn"] += 1

    def _queue_wake(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        del process
        known = self.runs[str(params["user_id"]), str(params["run_id"])]
        known.lost, known.blame, known.nudged = 0, 0.0, True

    def _renew_leases(
        self, process: Process, params: Mapping[str, Any], rows: Sequence[Row]
    ) -> None:
        for user, run, epoch in rows:
            known = self.runs[user, run]
            if int(epoch) != known.epoch or known.holder is not process:
                self.say(f"{process.name} renewed {run} with epoch {epoch}")
            known.until = self.database.now + float(params["seconds"])
            known.expired = False
        self._limits()

    def _queue_expel(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        del process
        for user, run, epoch in orjson.loads(params["leases"]):
            known = self.runs[user, run]
            if known.epoch == epoch:
                if known.holder is not None and known.holder.alive:
                    self.say(f"{run} was taken from {known.holder.name}, which is alive")
                known.until = self.database.now

    def _advance_schedule(self, process: Process, params: Mapping[str, Any], _: object) -> None:
        del process
        if params["last_at"] is None:
            return
        ticks = self.ticks.setdefault((str(params["user_id"]), str(params["id"])), [])
        if float(params["was"]) in ticks:
            self.say(f"the tick {params['was']} of {params['id']} was started twice")
        ticks.append(float(params["was"]))
        self.happened["ticks"] += 1

    # Rules over several runs

    def worked(self, user: str, run: str) -> None:
        """Note that somebody works on a run that it has taken."""
        if self.runs[user, run].is_poison:
            self.say(f"{run} is worked on after {self.runs[user, run].lost} takeovers")

    def _limits(self) -> None:
        if self.limits == QueueLimits():
            return
        now = self.database.now
        live = [
            one for one in self.held.values()
            if one.holder is not None and one.until > now and one.holder.name.startswith("worker")
        ]  # fmt: skip
        counted = (
            (self.limits.per_user, Counter(one.user for one in live)),
            (self.limits.per_agent, Counter(one.agent for one in live)),
            (self.limits.per_model, Counter(one.model for one in live)),
        )
        for limit, counts in counted:
            for what, count in counts.items():
                if limit is not None and count > limit:
                    self.say(f"{count} runs of {what} work at once, and {limit} may")

    def _open_children(self, user: str, run: str) -> int:
        values: dict[str, Value] = {"user_id": user, "run_id": run}
        return int(self.database.query(_OPEN_CHILDREN, values)[0][0])

    def conclude(self) -> None:
        """Judge the end, when nothing disturbs the world any more and its time is over."""
        if bad := self.database.query(_FORGOTTEN):
            self.say(f"{bad[0][0]} is {bad[0][1]} and not in the queue")
        for (_, run), known in self.runs.items():
            if known.status not in ENDED:
                self.say(f"{run} is {known.status} at the end")
        for row in self.database.query("SELECT run_id, state FROM queue WHERE state <> 'dead'"):
            self.say(f"{row[0]} is {row[1]} in the queue at the end")


MOST_PROBLEMS = 20
LEASE_SECONDS = 30.0


class Hopeless(BaseException):
    """A world that has too many faults to go on."""


_QUERIES = load_queries("sqlite")
_RIPEN = _QUERIES["queue_ripen"]
WATCHED = (
    "enqueue", "enqueue_child", "queue_claimed", "queue_claim", "queue_unclaim", "take_run",
    "commit_guard", "begin_queued", "finish_run", "withdraw_queued", "queue_wake", "renew_leases",
    "queue_expel", "queue_expire", "queue_blame", "queue_blame_taken", "advance_schedule",
)  # fmt: skip
_NAMES = {_QUERIES[name]: name for name in WATCHED}


def _is_of(known: Known, holder: str) -> bool:
    return known.holder is not None and known.holder.name == holder and not known.expired


def _is_pick(statements: Sequence[Statement]) -> bool:
    return _RIPEN in [one.sql for one in statements[:2]]
