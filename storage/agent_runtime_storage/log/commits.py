"""The two writes that a run is made of: beginning it, and committing a step's boundary."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from agent_runtime_storage.contract.errors import (
    Conflict,
    InboxWaiting,
    LeaseLost,
    RunCancelled,
    StoreError,
    StoreInDoubt,
)
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records import (
    Amount,
    Commit,
    LateObservation,
    Lease,
    NewNode,
    NewRun,
    Usage,
)
from agent_runtime_storage.contract.spending_records import Spending
from agent_runtime_storage.drivers.protocol import BatchMissed, Row, Statement
from agent_runtime_storage.log.run_statements import RunStatements
from agent_runtime_storage.log.spending import OVER_LIMIT, is_below, over_budget, takes_lock
from agent_runtime_storage.log.threads import thread_busy
from agent_runtime_storage.objects.bodies import BodyWriter
from agent_runtime_storage.queries.owner import not_found
from agent_runtime_storage.queries.row_decoding import to_run, to_thread

_READ_AGAIN = "Read the thread again and decide anew."


class Commits(RunStatements):
    """The methods of `UserStore` that begin a run and write its steps."""

    async def begin_run(self, run: NewRun) -> tuple[Lease, int]:
        if problem := name_problem(run.id):
            raise StoreError(f"The run's id {problem}.", cure="Give the run a short id.")
        root = run.root_run_id or await self._root_of_new(run)
        _check_seqs(run.nodes, run.expect_seq + 1)
        bodies = await self._pack(run.thread_id, run.nodes, run.activation)
        batch: list[Statement] = []
        if run.parent_run_id is not None:
            parent = {"parent_run_id": run.parent_run_id, "root_run_id": root}
            batch.append(self._statement("parent_can_spawn", parent, rows=1, miss="parent"))
        batch.append(self._begin_row(run, root))
        thread_at = len(batch)
        batch.append(
            self._statement(
                "begin_thread",
                {
                    "thread_id": run.thread_id,
                    "run_id": run.id,
                    "nodes": len(run.nodes),
                    "activations": int(run.activation is not None),
                    "events": len(run.events),
                    "expect_head": run.expect_head,
                    "expect_seq": run.expect_seq,
                    "expect_activation": run.activation.id - 1 if run.activation else None,
                },
                rows=1,
                miss="begin",
            )
        )
        batch += bodies.statements()
        batch += self._append_nodes(run.thread_id, run.id, run.nodes, bodies)
        if run.nodes:
            batch.append(self._set_head(run.thread_id, run.nodes[-1].seq))
        batch += self._append_activation(run.thread_id, run.id, run.activation, bodies)
        if run.reserve is not None:
            batch.append(self._spend(root, reserve=run.reserve, below=root != run.id))
        batch += self._append_events(run.thread_id, run.id, run.events)
        batch += await self._index_new(run.thread_id, run.nodes)
        lease = Lease(run.id, run.thread_id, root, 1)
        try:
            rows = await self._batch(batch, thread=run.thread_id, tree=root)
        except StoreInDoubt:
            # Nobody else has the run's id.
            if not await self._read("run_exists", run_id=run.id):
                raise
            return lease, await self._last_event(run.thread_id)
        except BatchMissed as error:
            raise await self._why_not_begun(run, root, error.label) from error
        except Conflict as error:
            # A missing thread breaks the run's foreign key before its own statement can miss.
            await self._require_thread(run.thread_id)
            raise error
        self._announce(run.thread_id)
        return lease, int(rows[thread_at][0][0])

    async def commit(self, lease: Lease, commit: Commit) -> int:
        if commit.nodes:
            _check_seqs(commit.nodes, commit.nodes[0].seq)
        bodies = await self._pack(
            lease.thread_id,
            commit.nodes,
            commit.activation,
            [done.body for done in commit.done]
            + ([commit.observation.body] if commit.observation else [])
            + ([commit.plan.body] if commit.plan else []),
            commit.finish,
        )
        own = secrets.token_hex(8)
        guard, *batch = self._commit_batch(lease, commit, bodies, own)
        batch += await self._index_new(lease.thread_id, commit.nodes, commit.done)
        try:
            try:
                rows = await self._commit_once(lease, commit, [guard, *batch])
                last_event = int(rows[1][0][0])
            except StoreInDoubt:
                last_event = await self._recommit(lease, commit, own, guard, batch)
        except BatchMissed as error:
            raise await self._why_not_committed(lease, commit, error.label) from error
        self._announce(lease.thread_id)
        return last_event

    async def commit_late(self, lease: Lease, commit: LateObservation) -> int:
        thread_id, written = lease.thread_id, commit.observation
        if commit.job.thread_id != thread_id:
            raise Conflict(f"Job {commit.job.id} is not of thread {thread_id}.", cure=_READ_AGAIN)
        bodies = await self._pack(thread_id, (), None, [written.body])
        plain = Commit(observation=written, usage=commit.usage, events=commit.events)
        # The job comes first: its claim stands for the lease.
        batch = [
            self._count(lease, plain),
            *self._append_observation(lease, None, commit.job, bodies),
            *bodies.statements(),
            *self._append_observation(lease, written, None, bodies),
            *self._append_usage(thread_id, commit.usage),
            *self._append_events(thread_id, lease.run_id, commit.events),
        ]
        try:
            rows = await self._batch(batch, thread=thread_id)
        except (BatchMissed, Conflict) as error:
            await self._require_run(lease.run_id)
            await self._require_thread(thread_id)
            if not isinstance(error, BatchMissed):
                raise
            miss = f"Thread {thread_id}: {_MISSES[error.label]}"
            raise Conflict(miss, cure=_READ_AGAIN) from error
        self._announce(thread_id)
        return int(rows[0][0][0])

    async def book_late(self, lease: Lease, usage: Sequence[Usage]) -> None:
        thread_id = lease.thread_id
        await self._require_run(lease.run_id)
        plain = Commit(usage=tuple(usage))
        batch = [self._count(lease, plain), *self._append_usage(thread_id, usage)]
        try:
            await self._batch(batch, thread=thread_id)
        except (BatchMissed, Conflict) as error:
            await self._require_thread(thread_id)
            await self._require_run(lease.run_id)
            if not isinstance(error, BatchMissed):
                raise
            miss = f"Thread {thread_id}: {_MISSES[error.label]}"
            raise Conflict(miss, cure=_READ_AGAIN) from error

    async def _commit_once(
        self, lease: Lease, commit: Commit, batch: Sequence[Statement]
    ) -> list[list[Row]]:
        tree, spends = lease.root_run_id, takes_lock(commit)
        return await self._batch(batch, thread=lease.thread_id, tree=tree, spending=spends)

    async def _recommit(
        self, lease: Lease, commit: Commit, own: str, guard: Statement, rest: Sequence[Statement]
    ) -> int:
        """Return the last event id of a commit whose fate is unknown, written now if it was not.

        Only the holder of the lease commits, so the run names either this commit or the one
        before it; the one before it, if a server that is slow to notice a lost connection may
        still write this one.
        """
        before = await self._newest_commit(lease)
        if before != own:
            again = replace(guard, params={**guard.params, "after_commit": before})
            try:
                await self._commit_once(lease, commit, [again, *rest])
            except BatchMissed:
                if await self._newest_commit(lease) != own:
                    raise
        return await self._last_event(lease.thread_id)

    async def _newest_commit(self, lease: Lease) -> str:
        rows = await self._read("newest_commit", run_id=lease.run_id)
        return str(rows[0][0]) if rows else ""

    async def _last_event(self, thread_id: str) -> int:
        rows = await self._read("thread", thread_id=thread_id)
        if not rows:
            raise not_found("thread", thread_id)
        return to_thread(rows[0]).last_event

    def _commit_batch(
        self, lease: Lease, commit: Commit, bodies: BodyWriter, own: str
    ) -> list[Statement]:
        batch = [self._guard(lease, commit, own), self._count(lease, commit)]
        batch += bodies.statements()
        batch += self._update_calls(lease, commit, bodies)
        batch += self._append_nodes(lease.thread_id, lease.run_id, commit.nodes, bodies)
        if commit.head is not None:
            batch.append(self._set_head(lease.thread_id, commit.head))
        batch += self._append_activation(lease.thread_id, lease.run_id, commit.activation, bodies)
        batch += self._append_observation(lease, commit.observation, commit.job, bodies)
        batch += self._append_plan(lease, commit.plan, bodies)
        for item in commit.drained:
            key = {"thread_id": lease.thread_id, "id": item}
            batch.append(self._statement("drain_inbox", key, rows=1, miss="inbox"))
        if commit.quiet_inbox:
            key = {"thread_id": lease.thread_id}
            batch.append(self._statement("require_quiet_inbox", key, rows=1, miss="quiet"))
        batch += self._append_usage(lease.thread_id, commit.usage)
        if commit.release or commit.settle or commit.unsettle or commit.reserve or commit.keep:
            batch.append(
                self._spend(
                    lease.root_run_id,
                    release=commit.release,
                    settle=commit.settle,
                    unsettle=commit.unsettle,
                    reserve=commit.reserve,
                    keep=commit.keep,
                    below=is_below(lease) or commit.limits.spare,
                )
            )
        if commit.finish is not None:
            batch += self._finish(lease.run_id, commit.finish, bodies)
        batch += self._ask(lease, commit.questions)
        batch += self._append_events(lease.thread_id, lease.run_id, commit.events)
        # Last: the day's row is shared by all runs of the owner.
        batch += self._book(commit)
        batch += self._room(lease, commit)
        return batch

    async def _root_of_new(self, run: NewRun) -> str:
        if run.parent_run_id is None:
            return run.id
        rows = await self._read("run_place", run_id=run.parent_run_id)
        if not rows:
            raise not_found("run", run.parent_run_id)
        [(_, root)] = rows
        return str(root)

    # Telling why a batch missed

    async def _why_not_begun(self, run: NewRun, root: str, label: str) -> Exception:
        if label == "parent":
            await self._require_run(run.parent_run_id or "")
            return RunCancelled(
                f"Run {run.parent_run_id} is over or being cancelled; it starts no child runs.",
                cure="Resume it first.",
            )
        if label == "budget":
            return await self._over_budget(root, run.reserve or Amount(), below=root != run.id)
        if label == "begin":
            rows = await self._read("thread", thread_id=run.thread_id)
            if not rows:
                return not_found("thread", run.thread_id)
            thread = to_thread(rows[0])
            if thread.active_run is not None:
                return await self._busy(run.thread_id, thread.active_run)
            return Conflict(
                f"Thread {run.thread_id} has moved on: its head is {thread.head}, its last node "
                f"{thread.last_seq}, its last activation {thread.last_activation}.",
                cure=_READ_AGAIN,
            )
        return Conflict(_MISSES[label], cure=_READ_AGAIN)

    async def _busy(self, thread_id: str, run_id: str) -> Exception:
        rows = await self._read("run", run_id=run_id)
        asked = await self.questions(run_id=run_id, status="open")
        run = to_run(rows[0]) if rows else None
        return thread_busy(
            thread_id,
            run_id,
            waits_for=asked[0].id if asked else None,
            stands=run.detail if run is not None and run.status == "suspended" else None,
        )

    async def _why_not_committed(self, lease: Lease, commit: Commit, label: str) -> Exception:
        if label == "lease":
            return await self._lost(lease)
        if label == "budget":
            below = is_below(lease) or commit.limits.spare
            wanted = commit.reserve or Amount()
            return await self._over_budget(lease.root_run_id, wanted, below=below)
        if label in OVER_LIMIT:
            return await self._over_limit(lease, commit, label)
        if label == "quiet":
            return InboxWaiting(f"Something waits in the inbox of thread {lease.thread_id}.")
        return Conflict(f"Thread {lease.thread_id}: {_MISSES[label]}", cure=_READ_AGAIN)

    async def _lost(self, lease: Lease) -> Exception:
        rows = await self._read("run", run_id=lease.run_id)
        if not rows:
            return not_found("run", lease.run_id)
        run = to_run(rows[0])
        return LeaseLost(
            f"The lease of run {lease.run_id} (epoch {lease.epoch}) is void: the run is "
            f"{run.status} and its epoch is {run.epoch}.",
            cure="Whoever holds the run now goes on with it; take it over only if they are dead.",
        )

    async def _over_budget(self, root: str, wanted: Amount, *, below: bool) -> Exception:
        rows = await self._read("run", run_id=root)
        if not rows:
            return not_found("run", root)
        run = to_run(rows[0])
        spending = Spending(run.settled, run.unsettled, run.reserved)
        return over_budget("run", run.budget, spending, wanted, run.kept if below else None)


_MISSES = {
    "thread": "a node or activation is not the next one; somebody else has written.",
    "call": "a call is not in the state that it has to leave.",
    "close": "an exchange is not the run's open one, or its calls are not all done.",
    "parent_node": "a node's parent is not there or not closed.",
    "open_node": "the run has an open exchange already.",
    "head": "the new head is not there or not closed.",
    "observation": "an observation is not the next one; somebody else has written.",
    "plan": "a plan is not the next version, or its node is not the run's open exchange.",
    "job": "the claim on the job is void, or the job is over.",
    "node": "an event or a usage belongs to a node that is not there.",
    "inbox": "an inbox item is not there any more.",
}


def _check_seqs(nodes: Sequence[NewNode], first: int) -> None:
    for place, node in enumerate(nodes):
        if node.seq != first + place:
            raise Conflict(
                f"Node {node.seq} is out of order: the next one would be {first + place}.",
                cure="Number the nodes upwards from the thread's last one.",
            )
        if node.tools and node.status == "closed":
            raise Conflict(
                f"Node {node.seq} cannot be closed while its calls are pending.",
                cure="Append it as open.",
            )
