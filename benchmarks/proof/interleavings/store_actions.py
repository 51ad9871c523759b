"""The actions of an interleaving on one thread.

Each action does what an engine does: it reads what it needs (or trusts an earlier read), then
writes.  Everything written carries the action's id, so the rows later show for each action whether
it was written once and completely.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agent_runtime_storage import (
    ACTIVE,
    Amount,
    Budget,
    CallDone,
    Commit,
    Finish,
    Job,
    Lease,
    LeaseOwner,
    NewActivation,
    NewEvent,
    NewNode,
    NewRun,
    Run,
    Thread,
    Usage,
    UserStore,
)
from agent_runtime_storage.contract.records.log import RunStatus
from benchmarks.proof.interleavings.history import Note, Op, choose
from tests.support.prompt_judge import MAIN

LIMIT = 100
"""Tokens of a run tree with a budget; its limit of money is twice that number."""
COMMITS = ("begin", "child", "think", "start", "result", "close", "say", "drain", "activate", "end")
"""The actions that write events."""
KEYS = ("observe 1", "observe 2", "observe 3")
_CHOICES = 6
_FAR = 100_000
"""More than an interleaving appends."""
_ENDS: tuple[RunStatus, ...] = ("succeeded", "failed", "cancelled", "suspended", "suspended")


@dataclass
class Side:
    """What one store's user knows of the thread, which may be out of date."""

    name: str
    leases: dict[str, Lease] = field(default_factory=dict[str, Lease])
    own: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens that each run has reserved, as its holder believes."""
    threads: dict[str, Thread] = field(default_factory=dict[str, Thread])
    runs: list[Run] = field(default_factory=list[Run])
    jobs: list[Job] = field(default_factory=list[Job])
    last: tuple[str, Lease, Commit] | None = None
    """The last commit that states what it appends, with the id of its action."""
    following: bool = False
    cursor: int = 0
    followed: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def forget(self, op: Op) -> None:
        """Forget the reservations of the action's run: it is unknown which of them were written."""
        if run_id := op.facts.get("run"):
            self.own.pop(run_id, None)


class NothingToDo(Exception):
    """The side knows nothing that this action could be applied to."""


def marked(chance: random.Random, text: str) -> bytes:
    """Return a body that starts with the text and a space; now and then it is large enough for a
    blob.
    """
    return text.encode() + b" " + b"x" * (5000 if chance.random() < 0.05 else 0)


class Actor:
    """Does one action for a side.

    Args:
        note: gets the action before each of its writes, with all that it intends to write.
    """

    def __init__(
        self, user: UserStore, side: Side, chance: random.Random, op: Op, note: Note
    ) -> None:
        self.user = user
        self.side = side
        self.chance = chance
        self.op = op
        self._note = note

    async def act(self) -> bool:
        """Do the action; return False if nothing could be done.

        If the action cannot be applied, another one is chosen, a few times.
        """
        for _ in range(_CHOICES):
            try:
                await ACTIONS[self.op.what](self)
            except NothingToDo:
                self.op.what = choose(WEIGHTS, self.chance)
                self.op.facts.clear()
            else:
                return True
        return False

    # What the side knows

    async def thread(self, thread_id: str = MAIN) -> Thread:
        """Read the thread, or trust an earlier read."""
        known = self.side.threads.get(thread_id)
        if known is None or self.chance.random() < 0.8:
            known = self.side.threads[thread_id] = await self.user.threads.get(thread_id)
        return known

    async def some_run(self) -> Run:
        """Return a run of either side, as it was when it was read."""
        if not self.side.runs or self.chance.random() < 0.7:
            self.side.runs = await self.user.runs.list(limit=20)
        if not self.side.runs:
            raise NothingToDo
        return self.chance.choice(self.side.runs)

    def some_lease(self) -> Lease:
        """Return a lease that the side acquired; it may have been lost."""
        if not self.side.leases:
            raise NothingToDo
        lease = self.chance.choice(list(self.side.leases.values()))
        self.op.facts.update(run=lease.run_id, thread=lease.thread_id, epoch=lease.epoch)
        return lease

    # Writing for a run

    def _money(self, run_id: str) -> dict[str, Amount]:
        spent: dict[str, int] = {}
        own = self.side.own.get(run_id, 0)
        if own and self.chance.random() < 0.6:
            spent["release"] = own
            spent["settle"] = self.chance.randint(0, own)
        if self.chance.random() < 0.5:
            spent["reserve"] = self.chance.randint(1, 60)
        self.op.facts.update(spent)
        return {name: Amount(tokens, 2 * tokens) for name, tokens in spent.items()}

    def _events(self, **data: Any) -> tuple[NewEvent, ...]:
        count = self.chance.randint(1, 2)
        self.op.facts["events"] = count
        facts = {**self.op.facts, "op": self.op.id, **data}
        return tuple(
            NewEvent(f"{self.op.what} {self.op.id}", None, {**facts, "part": part})
            for part in range(count)
        )

    async def commit(self, lease: Lease, commit: Commit) -> None:
        """Write a commit with its mark and its spending."""
        facts = self.op.facts
        usage = Usage(
            lease.run_id, lease.root_run_id, None, "step", self.op.id, 1, 0, 0, 1, 1, None
        )
        money = self._money(lease.run_id)
        facts["nodes"] = [node.seq for node in commit.nodes]
        facts["usage"] = self.chance.randint(0, 2)
        commit = replace(commit, usage=(usage,) * facts["usage"], **money)  # pyright: ignore[reportArgumentType]
        commit = replace(commit, events=self._events())
        self._note(self.op)
        facts["last_event"] = await self.user.runs.commit(lease, commit)
        own = max(0, self.side.own.get(lease.run_id, 0) - facts.get("release", 0))
        self.side.own[lease.run_id] = 0 if commit.finish else own + facts.get("reserve", 0)
        if commit.nodes or commit.activation:
            self.side.last = (self.op.id, lease, commit)

    def message(self, seq: int, parent: int | None, role: str = "user") -> NewNode:
        """Return a closed node with the action's mark."""
        body = marked(self.chance, f"{self.op.id} {seq}")
        return NewNode(seq, parent, "message", role, body, 1, 0)

    async def begin(self) -> None:
        """Begin a run on the thread."""
        thread = await self.thread()
        await self._begin(thread, None)

    async def child(self) -> None:
        """Begin a child run on its own thread, for a run whose lease the side has."""
        lease = self.some_lease()
        name = f"child {self.op.id}"
        thread = await self.user.threads.ensure(name)
        await self._begin(thread, lease)

    async def _begin(self, thread: Thread, parent: Lease | None) -> None:
        seq, facts = thread.last_seq + 1, self.op.facts
        run_id = f"run {self.op.id}"
        facts.update(run=run_id, thread=thread.id, epoch=1, nodes=[seq], head=seq)
        facts["parent"] = parent.run_id if parent else None
        facts["limit"] = self.chance.choice([None, LIMIT])
        reserve = self.chance.choice([None, self.chance.randint(1, 60)])
        if reserve is not None:
            facts["reserve"] = reserve
        limit = facts["limit"]
        self._note(self.op)
        lease, last = await self.user.runs.begin(
            NewRun(
                id=run_id,
                thread_id=thread.id,
                agent="coder",
                max_steps=10,
                spec={},
                owner=LeaseOwner(self.side.name, "boot", 1, "start"),
                lease_seconds=60,
                expect_head=thread.head,
                expect_seq=thread.last_seq,
                nodes=(self.message(seq, thread.head),),
                task_id=seq,
                parent_run_id=parent.run_id if parent else None,
                budget=Budget() if limit is None else Budget(limit, 2 * limit),
                reserve=None if reserve is None else Amount(reserve, 2 * reserve),
                events=self._events(),
            )
        )
        facts["last_event"] = last
        self.side.leases[run_id] = lease
        self.side.own[run_id] = reserve or 0

    async def think(self) -> None:
        """Write an exchange ahead."""
        lease = self.some_lease()
        thread = await self.thread(lease.thread_id)
        seq = thread.last_seq + 1
        tools = ("tool",) * self.chance.randint(1, 3)
        self.op.facts["opens"] = seq
        body = marked(self.chance, f"{self.op.id} {seq}")
        node = NewNode(seq, thread.head, "exchange", "assistant", body, 1, 0, "open", tools)
        await self.commit(lease, Commit(nodes=(node,), steps=seq))

    async def _open_exchange(self, lease: Lease) -> tuple[int, list[int], list[int]]:
        """Return the open exchange, its pending and its started calls."""
        run = await self.user.runs.get(lease.run_id)
        if run.open_node is None:
            raise NothingToDo
        node = await self.user.log.node(lease.thread_id, run.open_node)
        pending = [call.index for call in node.calls if call.status == "pending"]
        started = [call.index for call in node.calls if call.status == "started"]
        return node.seq, pending, started

    def _done(self, node: int, indexes: list[int]) -> tuple[CallDone, ...]:
        self.op.facts["done"] = [[node, index] for index in indexes]
        body = marked(self.chance, self.op.id)
        return tuple(CallDone(node, index, "ok", body, 1) for index in indexes)

    async def start(self) -> None:
        """Mark pending calls as started."""
        lease = self.some_lease()
        node, pending, _ = await self._open_exchange(lease)
        if not pending:
            raise NothingToDo
        self.op.facts["start"] = [[node, index] for index in pending]
        await self.commit(lease, Commit(start=tuple((node, index) for index in pending)))

    async def result(self) -> None:
        """Record the result of a call, even of one that was never marked as started."""
        lease = self.some_lease()
        node, pending, started = await self._open_exchange(lease)
        if not pending + started:
            raise NothingToDo
        index = self.chance.choice(started or pending)
        await self.commit(lease, Commit(done=self._done(node, [index])))

    async def close(self) -> None:
        """Record the missing results, close the exchange, and move the head to it."""
        lease = self.some_lease()
        node, pending, started = await self._open_exchange(lease)
        missing = pending + started
        if missing and self.chance.random() < 0.2:
            # Too early, unless another task has recorded this result meanwhile.
            missing.remove(self.chance.choice(missing))
        done = self._done(node, missing)
        self.op.facts.update(closes=node, head=node)
        await self.commit(lease, Commit(done=done, close=(node,), head=node))

    async def say(self) -> None:
        """Append a few messages."""
        lease = self.some_lease()
        thread = await self.thread(lease.thread_id)
        first = thread.last_seq + 1
        nodes = [self.message(first, thread.head)]
        for seq in range(first + 1, first + self.chance.randint(1, 3)):
            nodes.append(self.message(seq, seq - 1))
        self.op.facts["head"] = nodes[-1].seq
        await self.commit(lease, Commit(nodes=tuple(nodes), head=nodes[-1].seq))

    async def drain(self) -> None:
        """Move the inbox into the log."""
        lease = self.some_lease()
        items = await self.user.inbox.pending(lease.thread_id)
        if not items:
            raise NothingToDo
        thread = await self.thread(lease.thread_id)
        node = self.message(thread.last_seq + 1, thread.head)
        self.op.facts["drained"] = [[item.id, item.kind] for item in items]
        self.op.facts["head"] = node.seq
        drained = tuple(item.id for item in items)
        await self.commit(lease, Commit(nodes=(node,), head=node.seq, drained=drained))

    async def activate(self) -> None:
        """Append an activation at the head."""
        lease = self.some_lease()
        thread = await self.thread(lease.thread_id)
        number = thread.last_activation + 1
        self.op.facts["activation"] = number
        prefix = b"prompt of " + self.op.id.encode()
        activation = NewActivation(number, thread.head, self.op.id, b"{}", prefix)
        await self.commit(lease, Commit(activation=activation))

    async def end(self) -> None:
        """End the run, or suspend it."""
        lease = self.some_lease()
        status = self.chance.choice(_ENDS)
        quiet = self.chance.random() < 0.5
        self.op.facts.update(status=status, quiet=quiet)
        finish = Finish(status, "completed", self.op.id, marked(self.chance, self.op.id))
        await self.commit(lease, Commit(finish=finish, quiet_inbox=quiet))

    async def repeat(self) -> None:
        """Send the last acknowledged commit again; it must be refused."""
        if self.side.last is None:
            raise NothingToDo
        original, lease, commit = self.side.last
        self.op.facts["of"] = original
        await self.user.runs.commit(lease, commit)

    async def wrong(self) -> None:
        """Commit something invalid, with a lease that may be valid."""
        lease = self.some_lease()
        thread = await self.user.threads.get(lease.thread_id)
        seq, head = thread.last_seq + 1, thread.head
        exchange = NewNode(seq, head, "exchange", "assistant", b"", 1, 0, "open", ("tool",))
        call = CallDone(seq - 1, 0, "ok", b"", 1)
        later = NewActivation(thread.last_activation + _FAR, None, "x", b"{}", b"")
        wrongs = {
            "head on an open node": Commit(nodes=(exchange,), head=seq),
            "node under an open one": Commit(nodes=(exchange, self.message(seq + 1, seq))),
            "head on a node that is not there": Commit(head=seq + _FAR),
            "item that is not there": Commit(drained=(_FAR,)),
            "seq left out": Commit(nodes=(self.message(seq + _FAR, head),)),
            "activation left out": Commit(activation=later),
            "call started twice": Commit(start=((seq - 1, 0),) * 2),
            "call done twice": Commit(done=(call, call)),
        }
        self.op.facts["wrong"] = name = self.chance.choice(list(wrongs))
        self._note(self.op)
        await self.user.runs.commit(lease, wrongs[name])

    # Without a lease, or about it

    async def take(self) -> None:
        """Take over a run."""
        run = await self.some_run()
        self.op.facts.update(run=run.id, epoch=run.epoch + 1, thread=run.thread_id)
        owner = LeaseOwner(self.side.name, "boot", 1, "start")
        self._note(self.op)
        lease = await self.user.runs.take_lease(run.id, owner, seconds=60, replaces=run.epoch)
        self.op.facts["given"] = lease.epoch
        self.side.leases[run.id] = lease
        self.side.own[run.id] = 0

    async def renew(self) -> None:
        """Renew a lease."""
        self.op.facts["cancelled"] = await self.user.runs.renew_lease(self.some_lease(), seconds=60)

    async def poll(self) -> None:
        """Poll for messages and cancellation."""
        self.op.facts["cancelled"], _ = await self.user.runs.poll(self.some_lease())

    async def cancel(self) -> None:
        """Cancel a run and its children."""
        run = await self.some_run()
        self.op.facts["run"] = run.id
        self._note(self.op)
        self.op.facts["reached"] = await self.user.runs.cancel(run.id)

    async def post(self) -> None:
        """Post to the inbox."""
        body = marked(self.chance, self.op.id)
        self._note(self.op)
        self.op.facts["item"] = await self.user.inbox.post(MAIN, self.op.id, body)

    async def move(self) -> None:
        """Move the head to another node."""
        thread = await self.thread()
        head = self.chance.choice([None, *range(1, thread.last_seq + 1)])
        self.op.facts.update(head=head, expect=thread.head)
        self._note(self.op)
        await self.user.threads.move_head(MAIN, head, expect=thread.head)

    async def describe(self) -> None:
        """Add to the thread's metadata."""
        self._note(self.op)
        await self.user.threads.update(MAIN, metadata={self.op.id: 1})

    async def enqueue(self) -> None:
        """Enqueue a job that other actions enqueue as well."""
        self.op.facts["key"] = key = self.chance.choice(KEYS)
        body = marked(self.chance, key)
        self._note(self.op)
        self.op.facts["added"] = await self.user.jobs.enqueue(MAIN, "observe", key, body)

    async def claim(self) -> None:
        """Claim a job, with a claim that expires at once or late."""
        self.op.facts["seconds"] = seconds = self.chance.choice([0, 0, 3600])
        self._note(self.op)
        job = await self.user.jobs.claim("observe", seconds=seconds)
        if job is None:
            return
        self.op.facts.update(key=job.key, attempt=job.attempts, token=job.token)
        if not job.payload.startswith(job.key.encode()):
            raise ValueError(f"job {job.key!r} came with the payload {job.payload[:40]!r}")
        self.side.jobs.append(job)

    async def settle_job(self) -> None:
        """End a claim, whether or not it is still valid."""
        if not self.side.jobs:
            raise NothingToDo
        job = self.chance.choice(self.side.jobs)
        how = self.chance.choice(["done", "done", "retry", "give up"])
        self.op.facts.update(key=job.key, attempt=job.attempts, how=how)
        self._note(self.op)
        if how == "done":
            await self.user.jobs.finish(job)
        else:
            await self.user.jobs.fail(job, retry_after=0 if how == "retry" else None, detail="x")

    async def follow(self) -> None:
        """Read the events since the last read."""
        if self.side.following:
            raise NothingToDo
        self.side.following = True
        try:
            limit = self.chance.choice([1, 1000])
            for event in await self.user.events.list(MAIN, after=self.side.cursor, limit=limit):
                self.side.followed.append((event.id, event.kind))
                self.side.cursor = event.id
        finally:
            self.side.following = False

    async def read(self) -> None:
        """Read the head's branch, as a prompt builder does."""
        thread = await self.user.threads.get(MAIN)
        if thread.head is None:
            return
        for node in await self.user.log.branch(MAIN, thread.head):
            open_calls = any(call.status != "done" for call in node.calls)
            if node.status == "open" or open_calls:
                raise ValueError(f"node {node.seq} of the head's branch is not closed")
        active = await self.user.runs.list(thread_id=MAIN, status=ACTIVE)
        if len(active) > 1:
            raise ValueError(f"{len(active)} runs are active")


ACTIONS: dict[str, Callable[[Actor], Awaitable[None]]] = {
    name: getattr(Actor, name)
    for name in (
        *COMMITS,
        *("repeat", "wrong", "take", "renew", "poll", "cancel", "post", "move", "describe"),
        *("enqueue", "claim", "settle_job", "follow", "read"),
    )
}
WEIGHTS = (
    dict.fromkeys(ACTIONS, 2)
    | dict.fromkeys(("begin", "think", "close"), 5)
    | dict.fromkeys(("say", "child", "end", "result"), 4)
    | dict.fromkeys(("take", "post", "follow", "move", "wrong"), 3)
    | {"poll": 1}
)
