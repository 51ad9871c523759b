"""Judges the rows of an interleaving against the history of everyone who wrote them.

Rows are read by plain SQL, not by the store's own methods.  Every event states in its data what its
action did, so the ordered events are the thread's history as the database knows it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from agent_runtime_storage.drivers.protocol import Driver, Row
from benchmarks.proof.interleavings.history import Op
from benchmarks.proof.interleavings.store_actions import COMMITS, LIMIT, Side
from benchmarks.proof.interleavings.store_jobs import check_jobs
from tests.support.prompt_judge import MAIN

ENDED = ("succeeded", "failed", "cancelled")

_TABLES = {
    "threads": "id, head, last_seq, last_activation, last_event, last_inbox, last_usage, "
    "active_run, metadata",
    "nodes": "thread_id, id, parent_id, status, body, blob",
    "calls": "thread_id, node_id, position, status, outcome",
    "activations": "thread_id, id, cause",
    "events": "thread_id, id, kind, data",
    "inbox": "thread_id, id, kind",
    "usage": "thread_id, id, model",
    "jobs": "key, status, attempts",
    "runs": "id, thread_id, parent_run_id, root_run_id, status, epoch, cancel_requested, "
    "own_reserved_tokens, tree_reserved_tokens, tree_settled_tokens, tree_unsettled_tokens, "
    "own_reserved_cost, tree_reserved_cost, tree_settled_cost, tree_unsettled_cost",
}


@dataclass(frozen=True, slots=True)
class Written:
    """An action as its events describe it."""

    op: str
    what: str
    thread: str
    first: int
    last: int
    data: dict[str, Any]


async def read_rows(driver: Driver, owner: str) -> dict[str, list[Row]]:
    """Read all of an owner's rows."""
    return {
        table: await driver.read(
            f"SELECT {columns} FROM {table} WHERE user_id = :user_id ORDER BY 1, 2",
            {"user_id": owner},
            owner=owner,
        )
        for table, columns in _TABLES.items()
    }


class Judge:
    """The rows and the history of one interleaving.

    Args:
        history: the actions of all sides, in any order; a killed side's up to its last line.
        sides: those that followed the events to the end.
    """

    def __init__(
        self, rows: dict[str, list[Row]], history: Sequence[Op], sides: Sequence[Side] = ()
    ) -> None:
        self.rows = rows
        self.history = history
        self.sides = sides
        self.problems: list[str] = []
        self.ops = {op.id: op for op in history}
        self.written = self._written()

    def judge(self) -> list[str]:
        """Return the faults, one sentence each."""
        for part in (
            self._outcomes,
            self._ids,
            self._once_and_whole,
            self._order,
            self._fencing,
            self._one_active_run,
            self._heads,
            self._inbox,
            self._budgets,
            self._cancels,
            self._jobs,
            self._metadata,
            self._followers,
            self._refusals,
        ):
            part()
        return self.problems

    def _say(self, problem: str) -> None:
        self.problems.append(problem)

    def _of(self, *what: str) -> Iterator[Op]:
        return (op for op in self.history if op.what in what)

    # The events, as the thread's own history

    def _written(self) -> dict[str, Written]:
        written: dict[str, Written] = {}
        parts: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for thread, identity, kind, text in self.rows["events"]:
            data = orjson.loads(text)
            parts[data["op"]].append((data["part"], identity))
            what = kind.split(" ")[0]
            written[data["op"]] = Written(data["op"], what, thread, identity, identity, data)
        for op, ids in parts.items():
            one = written[op]
            first = min(identity for _, identity in ids)
            if ids != [(part, first + part) for part in range(one.data["events"])]:
                self._say(f"the events of {op} are {ids}, not {one.data['events']} in a row")
            written[op] = Written(op, one.what, one.thread, first, ids[-1][1], one.data)
        return written

    def _in_order(self, thread: str) -> list[Written]:
        of_thread = (entry for entry in self.written.values() if entry.thread == thread)
        return sorted(of_thread, key=lambda one: one.first)

    def _outcomes(self) -> None:
        for op in self.history:
            if op.outcome in ("failed", "crashed"):
                self._say(f"{op.what} {op.id} failed: {op.error}")
            if op.what in COMMITS:
                there = op.id in self.written
                if op.outcome == "ok" and not there:
                    self._say(f"{op.what} {op.id} was acknowledged and is not there")
                if op.outcome in ("refused", "nothing") and there:
                    self._say(f"{op.what} {op.id} was refused and is there")
                if op.outcome == "ok" and there:
                    last = self.written[op.id].last
                    if op.facts["last_event"] != last:
                        self._say(f"{op.id} learned of event {op.facts['last_event']}, not {last}")
                late = op.facts.get("there")
                if late is not None and late != there:
                    self._say(f"{op.what} {op.id} was written after its cancellation had returned")
            if op.what == "repeat" and op.outcome == "ok":
                self._say(f"the commit of {op.facts['of']} was written again")
            if op.what == "wrong" and op.outcome == "ok":
                self._say(f"{op.id} wrote what must be refused: {op.facts['wrong']}")
        for op in self.written:
            if op not in self.ops:
                self._say(f"nobody in the history wrote {op}")

    def _ids(self) -> None:
        for identity, head, seq, activation, event, _, usage, *_ in self.rows["threads"]:
            for table, last in (
                ("nodes", seq),
                ("activations", activation),
                ("events", event),
                ("usage", usage),
            ):
                ids = [row[1] for row in self.rows[table] if row[0] == identity]
                if ids != list(range(1, last + 1)):
                    self._say(f"{table} of thread {identity}: {ids}, and the counter is {last}")
            if head is not None:
                nodes = {row[1]: row[3] for row in self.rows["nodes"] if row[0] == identity}
                if nodes.get(head) != "closed":
                    self._say(f"the head {head} of {identity} is {nodes.get(head)}")

    def _once_and_whole(self) -> None:
        """Check that what an action wrote with its events is there exactly once, or not at all."""
        nodes: Counter[str] = Counter()
        for thread, seq, _, _, body, blob in self.rows["nodes"]:
            # The mark of such a body is in the blob, which is not read here.
            if blob is not None:
                continue
            op, number = bytes(body).split(b" ")[:2]
            nodes[op.decode()] += 1
            if int(number) != seq:
                self._say(f"node {seq} of {thread} says that it is {number.decode()}")
        usage = Counter(row[2] for row in self.rows["usage"])
        causes = Counter(row[2] for row in self.rows["activations"])
        for op, count in [*nodes.items(), *usage.items(), *causes.items()]:
            if op not in self.written:
                self._say(f"{count} rows of {op} are there without its events")
        places = {(row[0], row[1]) for row in self.rows["nodes"]}
        calls = {(row[0], row[1], row[2]): (row[3], row[4]) for row in self.rows["calls"]}
        done: Counter[tuple[str, int, int]] = Counter()
        started: Counter[tuple[str, int, int]] = Counter()
        for entry in self.written.values():
            seqs = entry.data.get("nodes", [])
            if nodes[entry.op] > len(seqs):
                self._say(f"{entry.op} wrote {nodes[entry.op]} nodes, not {len(seqs)}")
            if missing := [seq for seq in seqs if (entry.thread, seq) not in places]:
                self._say(f"nodes {missing} of {entry.op} are missing")
            if usage[entry.op] != entry.data.get("usage", 0):
                self._say(f"{entry.op} wrote {usage[entry.op]} rows of usage")
            if causes[entry.op] != ("activation" in entry.data):
                self._say(f"{entry.op} wrote {causes[entry.op]} activations")
            done.update((entry.thread, node, index) for node, index in entry.data.get("done", []))
            started.update(
                (entry.thread, node, index) for node, index in entry.data.get("start", [])
            )
        for counts, states in ((done, {"done"}), (started, {"started", "done"})):
            for call, count in counts.items():
                if count > 1 or calls.get(call, ("", ""))[0] not in states:
                    self._say(f"call {call} went {count} times to {states}, is {calls.get(call)}")
        closed = {(row[0], row[1]) for row in self.rows["nodes"] if row[3] == "closed"}
        for call, (status, _) in calls.items():
            if status == "done" and call not in done:
                self._say(f"call {call} is done and nobody did it")
            if status != "done" and call[:2] in closed:
                self._say(f"call {call} of a closed exchange is {status}")
        self._closings()

    def _closings(self) -> None:
        closes = Counter(
            (entry.thread, entry.data["closes"])
            for entry in self.written.values()
            if "closes" in entry.data
        )
        opens = {
            (entry.thread, entry.data["opens"])
            for entry in self.written.values()
            if "opens" in entry.data
        }
        for thread, seq, parent, status, *_ in self.rows["nodes"]:
            place = (thread, seq)
            wanted = "open" if place in opens and not closes[place] else "closed"
            if status != wanted or closes[place] > 1:
                self._say(f"node {place} is {status}, closed {closes[place]} times")
            if parent is not None and not 0 < parent < seq:
                self._say(f"the parent of node {place} is {parent}")

    def _order(self) -> None:
        """Check that an action that began after another was acknowledged has later events."""
        known = [
            (self.ops[entry.op], entry)
            for entry in self.written.values()
            if entry.op in self.ops and self.ops[entry.op].end is not None
        ]
        for before, early in known:
            for after, late in known:
                if early.thread != late.thread or before.end is None:
                    continue
                if before.end < after.start and early.last > late.first:
                    self._say(f"{after.id} began after {before.id} and has an earlier event")

    # Leases, heads, the inbox

    def _fencing(self) -> None:
        granted = Counter(
            (op.facts["run"], op.facts["given"]) for op in self._of("take") if "given" in op.facts
        )
        for (run, epoch), count in granted.items():
            if count > 1:
                self._say(f"epoch {epoch} of {run} was given {count} times")
        newest: dict[str, int] = {}
        for thread in {entry.thread for entry in self.written.values()}:
            for entry in self._in_order(thread):
                run, epoch = entry.data["run"], entry.data["epoch"]
                if epoch < newest.get(run, 1):
                    self._say(f"{entry.op} wrote with epoch {epoch} after {newest[run]}")
                newest[run] = max(epoch, newest.get(run, 1))
        for op in self._of(*COMMITS):
            for take in self._of("take"):
                fenced = (
                    op.outcome == "ok"
                    and take.outcome == "ok"
                    and take.facts["run"] == op.facts.get("run")
                    and take.facts["given"] > op.facts["epoch"]
                    and take.end is not None
                    and take.end < op.start
                )
                if fenced:
                    self._say(f"{op.id} wrote with a lease that {take.id} had replaced")
        for run, _, _, _, _, epoch, *_ in self.rows["runs"]:
            if epoch < max((e for r, e in granted if r == run), default=1):
                self._say(f"run {run} is at epoch {epoch}, below one that was given")

    def _one_active_run(self) -> None:
        runs = {row[0]: row for row in self.rows["runs"]}
        for identity, *_, active, _ in self.rows["threads"]:
            current: str | None = None
            for entry in self._in_order(identity):
                run = entry.data["run"]
                if current not in (None, run):
                    self._say(f"{entry.op} wrote for {run} while {current} was active")
                over = entry.what == "end" and entry.data["status"] in ENDED
                current = None if over else run
            live = [r[0] for r in runs.values() if r[1] == identity and r[4] not in ENDED]
            if live != ([active] if active else []):
                self._say(f"thread {identity} names {active} active; active are {live}")

    def _heads(self) -> None:
        for identity, head, *_ in self.rows["threads"]:
            heads = [
                entry.data["head"] for entry in self._in_order(identity) if "head" in entry.data
            ]
            moved = [op for op in self._of("move") if identity == MAIN and op.outcome != "refused"]
            possible = {*heads[-1:], *(op.facts.get("head") for op in moved)}
            if not heads:
                possible.add(None)
            if head not in possible:
                self._say(f"the head of {identity} is {head}, which is none of {possible}")
        for move in self._of("move"):
            for entry in self._in_order(MAIN):
                op = self.ops.get(entry.op)
                # From a run's beginning to its first possible end nobody else moves the head.
                if entry.what != "begin" or op is None or op.end is None or move.outcome != "ok":
                    continue
                ends = [e.start for e in self._of("end") if e.facts.get("run") == entry.data["run"]]
                until = min(ends, default=None)
                if op.end < move.start and (until is None or (move.end or 0) < until):
                    self._say(f"{move.id} moved the head while {entry.data['run']} was active")

    def _inbox(self) -> None:
        drained: Counter[int] = Counter()
        drains: dict[int, Written] = {}
        kinds: dict[int, str] = {}
        for entry in self.written.values():
            for item, kind in entry.data.get("drained", []):
                if entry.thread == MAIN:
                    drained[item] += 1
                    drains[item], kinds[item] = entry, kind
        waiting = {row[1]: row[2] for row in self.rows["inbox"]}
        last = next((row[5] for row in self.rows["threads"] if row[0] == MAIN), 0)
        if sorted([*drained.elements(), *waiting]) != list(range(1, last + 1)):
            self._say(f"inbox: {dict(drained)} drained, {sorted(waiting)} waiting, {last} posted")
        kinds.update(waiting)
        if twice := [kind for kind, count in Counter(kinds.values()).items() if count > 1]:
            self._say(f"posted twice: {twice}")
        posts = {op.id: op for op in self._of("post")}
        for item, kind in kinds.items():
            op = posts.get(kind)
            if op is None or op.outcome == "refused":
                self._say(f"item {item} is of {kind}, which was not posted")
        for op in posts.values():
            if op.outcome == "ok" and kinds.get(op.facts["item"]) != op.id:
                self._say(f"post {op.id} returned item {op.facts['item']}, which is another's")
        self._quiet_ends(posts, drains)

    def _quiet_ends(self, posts: dict[str, Op], drains: dict[int, Written]) -> None:
        for end in self._of("end"):
            if end.outcome != "ok" or not end.facts["quiet"] or end.facts["thread"] != MAIN:
                continue
            at = self.written[end.id].first if end.id in self.written else 0
            for post in posts.values():
                if post.outcome != "ok" or post.end is None or post.end >= end.start:
                    continue
                drain = drains.get(post.facts["item"])
                if drain is None or drain.first > at:
                    self._say(f"{end.id} ended a run over the item of {post.id}")

    # Budgets and cancels

    def _budgets(self) -> None:
        runs = {row[0]: row for row in self.rows["runs"]}
        trees: defaultdict[str, Counter[str]] = defaultdict(Counter)
        limits: dict[str, int | None] = {}
        held: Counter[tuple[str, int]] = Counter()
        for entry in self.written.values():
            root = runs[entry.data["run"]][3]
            for name in ("reserve", "release", "settle"):
                trees[root][name] += entry.data.get(name) or 0
            # After a takeover a run starts with nothing reserved.
            place = (entry.data["run"], entry.data["epoch"])
            held[place] += (entry.data.get("reserve") or 0) - (entry.data.get("release") or 0)
            if "limit" in entry.data:
                limits[entry.data["run"]] = entry.data["limit"]
        for identity, _, _, root, status, epoch, _, own, *rest in runs.values():
            reserved, settled, unsettled, own_cost, *costs = rest
            if [2 * own, *(2 * amount for amount in (reserved, settled, unsettled))] != [
                own_cost,
                *costs,
            ]:
                self._say(f"tokens and money of {identity} differ: {rest}")
            if own != (held[identity, epoch] if status == "running" else 0):
                self._say(f"{identity} is {status} and has {own} tokens reserved: {held}")
            if identity != root:
                continue
            spent = trees[identity]
            owned = sum(row[7] for row in runs.values() if row[3] == identity)
            if reserved != owned:
                self._say(f"tree {identity} has {reserved} reserved, its runs {owned}")
            if settled != spent["settle"]:
                self._say(f"tree {identity} has {settled} settled, not {spent['settle']}")
            if reserved + unsettled != spent["reserve"] - spent["release"]:
                self._say(f"tree {identity}: {reserved} + {unsettled} of {dict(spent)}")
            if limits.get(identity) and reserved + settled + unsettled > LIMIT:
                self._say(f"tree {identity} spent more than {LIMIT}: {rest}")

    def _cancels(self) -> None:
        runs = {row[0]: row for row in self.rows["runs"]}
        begun = {op.facts["run"]: op for op in self._of("child") if "parent" in op.facts}
        for cancel in self._of("cancel"):
            if cancel.outcome != "ok":
                continue
            reached = set[str](cancel.facts["reached"])
            for identity, _, parent, *_ in runs.values():
                # A child of a cancelled run that was not resumed since has not escaped.
                if parent not in reached or identity in reached:
                    continue
                op = begun.get(identity)
                ends = [e for e in self._of("end") if e.facts.get("run") == identity]
                takes = [t for t in self._of("take") if t.facts.get("run") in (parent, identity)]
                if op is None or takes or any(e.start < (cancel.end or 0) for e in ends):
                    continue
                self._say(f"child {identity} of {parent} escaped the cancel {cancel.id}")
            for identity in reached:
                takes = [t for t in self._of("take") if t.facts.get("run") == identity]
                if not takes and not runs[identity][6]:
                    self._say(f"{identity} lost the cancel {cancel.id}")
        for child in begun.values():
            parent = child.facts["parent"]
            takes = [t for t in self._of("take") if t.facts.get("run") == parent]
            for end in self._of("end"):
                over = end.outcome == "ok" and end.facts["run"] == parent
                if over and child.outcome == "ok" and not takes and end.end < child.start:  # pyright: ignore[reportOptionalOperand]
                    self._say(f"child {child.id} began after {end.id} had ended its parent")

    # Jobs, metadata, readers, refusals

    def _jobs(self) -> None:
        self.problems += check_jobs(self.rows["jobs"], self.history)

    def _metadata(self) -> None:
        [text] = [row[8] for row in self.rows["threads"] if row[0] == MAIN] or ["{}"]
        keys = set[str](orjson.loads(text))
        for op in self._of("describe"):
            if op.outcome == "ok" and op.id not in keys:
                self._say(f"the metadata of {op.id} is lost")
            if op.outcome == "refused" and op.id in keys:
                self._say(f"the metadata of {op.id} was refused and is there")

    def _followers(self) -> None:
        there = [(row[1], row[2]) for row in self.rows["events"] if row[0] == MAIN]
        for side in self.sides:
            if side.followed != there[: len(side.followed)]:
                self._say(f"who followed on {side.name} saw {side.followed}, not {there}")

    def _refusals(self) -> None:
        """Check that each refusal has a cause in the history."""
        for op in self.history:
            before = [
                other for other in self.history if other is not op and other.start < (op.end or 0)
            ]
            if op.error in _CAUSES:
                caused = any(other.what in _CAUSES[op.error] for other in before)
            elif op.error == "LeaseLost" and "run" in op.facts:
                caused = any(_voids(other, op) for other in before)
            elif op.error == "BudgetExceeded":
                caused = op.facts.get("reserve") is not None
            else:
                continue
            if not caused:
                self._say(f"{op.what} {op.id} was refused with {op.error} for no reason")


_CAUSES = {
    "InboxWaiting": {"post"},
    "RunCancelled": {"cancel", "end"},
    "ThreadBusy": {"begin", "child", "take"},
}


def _voids(one: Op, lost: Op) -> bool:
    """Return whether an action may have invalidated the lease that another one used."""
    if one.facts.get("run") != lost.facts["run"]:
        return False
    # A takeover records the epoch that it is about to get.
    least = lost.facts["epoch"] + (lost.what != "take")
    return one.what == "end" or (one.what == "take" and one.facts["epoch"] >= least)
