"""Runs: begin them, commit their steps, read them, take their leases, cancel them."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import orjson

from agent_runtime_storage.contract.errors import Conflict, StoreError, StoreInDoubt
from agent_runtime_storage.contract.names import name_problem
from agent_runtime_storage.contract.records.log import (
    ACTIVE,
    Commit,
    LateObservation,
    Lease,
    LeaseOwner,
    NewNode,
    NewRun,
    Run,
    RunStatus,
)
from agent_runtime_storage.contract.records.spending import Budget
from agent_runtime_storage.drivers.protocol import BatchMissed, Row, Statement
from agent_runtime_storage.log.events import tree_topic
from agent_runtime_storage.log.queue import announce_work
from agent_runtime_storage.log.run_misses import RunMisses
from agent_runtime_storage.log.run_statements import READ_AGAIN, RunStatements, missed_error
from agent_runtime_storage.objects.bodies import BodyWriter
from agent_runtime_storage.queries.owner import OwnerScope, encode_json, not_found
from agent_runtime_storage.queries.row_decoding import to_run, to_thread
from agent_runtime_storage.queries.run_spec import whole_spec

_WriteBatch: TypeAlias = Callable[[Sequence[Statement]], Awaitable[list[list[Row]]]]

_DOUBT_SECONDS = 60.0
"""How long a commit is tried again while connections break: as long as drivers wait for a server
that is down."""


class SqlRuns:
    """`RunStore` over SQL."""

    def __init__(self, scope: OwnerScope, statements: RunStatements, misses: RunMisses) -> None:
        self._scope = scope
        self._statements = statements
        self._misses = misses

    async def begin(self, run: NewRun) -> tuple[Lease, int]:
        if problem := name_problem(run.id):
            raise StoreError(f"The run's id {problem}.", cure="Give the run a short id.")
        root = run.root_run_id or await self._root_of_new(run)
        _check_seqs(run.nodes, run.expect_seq + 1)
        bodies = await self._statements.pack(run.thread_id, run.nodes, run.activation)
        batch: list[Statement] = []
        if run.parent_run_id is not None:
            # `cancel` locks the tree as well, so it finds this child, or this the parent cancelled.
            parent = {"parent_run_id": run.parent_run_id, "root_run_id": root}
            batch.append(self._scope.statement("parent_can_spawn", parent, rows=1, miss="parent"))
        # Before the thread's row, whose `active_run` refers to it.
        batch.append(self._statements.begin_row(run, root))
        thread_at = len(batch)
        batch.append(
            self._scope.statement(
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
        # Before the rows that refer to the blobs.
        batch += bodies.statements()
        batch += self._statements.append_nodes(run.thread_id, run.id, run.nodes, bodies)
        if run.nodes:
            batch.append(self._statements.set_head(run.thread_id, run.nodes[-1].seq))
        batch += self._statements.append_activation(run.thread_id, run.id, run.activation, bodies)
        if run.reserve is not None:
            batch.append(self._statements.spend(root, reserve=run.reserve, below=root != run.id))
        batch += self._statements.append_events(run.thread_id, run.id, run.events)
        batch += await self._statements.index_new(run.thread_id, run.nodes)
        lease = Lease(run.id, run.thread_id, root, run.epoch or 1, queued=run.epoch is not None)
        news = functools.partial(self._announce, run.thread_id, batch)
        try:
            rows = await self._scope.batch(batch, thread=run.thread_id, tree=root, announce=news)
        except StoreInDoubt:
            # The run's id is new, or its lease this process's own, so only this batch can have
            # written it.
            if not await self._has_begun(run):
                raise
            return lease, await self._last_event(run.thread_id)
        except BatchMissed as error:
            raise await self._misses.why_not_begun(run, root, error.label) from error
        except Conflict as error:
            # A missing thread breaks the run's foreign key before its own statement can miss.
            await self._scope.require_thread(run.thread_id)
            raise error
        # For whoever follows the tree, and does not know this thread yet.
        self._scope.announce(tree_topic(root))
        return lease, int(rows[thread_at][0][0])

    def _announce(
        self, thread_id: str, batch: Sequence[Statement], rows: Sequence[Sequence[Row]]
    ) -> None:
        news = functools.partial(self._statements.appended, thread_id, batch, rows)
        self._scope.announce(thread_id, news)

    async def _has_begun(self, run: NewRun) -> bool:
        if run.epoch is None:
            return bool(await self._scope.read("run_exists", run_id=run.id))
        found = await self.get(run.id)
        return found.epoch == run.epoch and found.task_id is not None

    async def commit(self, lease: Lease, commit: Commit) -> int:
        if commit.nodes:
            _check_seqs(commit.nodes, commit.nodes[0].seq)
        # Objects are put here, before any row can refer to them.
        bodies = await self._statements.pack(
            lease.thread_id,
            commit.nodes,
            commit.activation,
            [done.body for done in commit.done]
            + ([commit.observation.body] if commit.observation else [])
            + ([commit.plan.body] if commit.plan else []),
            commit.finish,
        )
        # Written to the run's row, to recognise this commit there if its answer is lost.
        own = secrets.token_hex(8)
        guard, *batch = self._commit_batch(lease, commit, bodies, own)
        batch += await self._statements.index_new(lease.thread_id, commit.nodes, commit.done)
        write: _WriteBatch = functools.partial(
            self._scope.batch,
            thread=lease.thread_id,
            tree=lease.root_run_id,
            spending=_needs_spending_lock(commit),
            announce=lambda rows: self._announce(lease.thread_id, batch, rows[1:]),
        )
        try:
            try:
                rows = await write([guard, *batch])
                last_event = int(rows[1][0][0])
            except StoreInDoubt:
                last_event = await self._recommit(lease, own, write, guard, batch)
                self._scope.announce(lease.thread_id)
        except BatchMissed as error:
            raise await self._misses.why_not_committed(lease, commit, error.label) from error
        if commit.finish is not None and lease.queued:
            announce_work(self._scope.driver)
        return last_event

    async def commit_late(self, lease: Lease, commit: LateObservation) -> int:
        thread_id, observation = lease.thread_id, commit.observation
        if commit.job.thread_id != thread_id:
            raise Conflict(f"Job {commit.job.id} is not of thread {thread_id}.", cure=READ_AGAIN)
        bodies = await self._statements.pack(thread_id, (), None, [observation.body])
        plain = Commit(observation=observation, usage=commit.usage, events=commit.events)
        # The run is over, so the claim on the job guards this commit, not the lease.  The job ends
        # first, so that a void claim is reported, and not the observation of the new claimant.
        batch = [
            self._statements.count(lease, plain),
            *self._statements.append_observation(lease, None, commit.job, bodies),
            *bodies.statements(),
            *self._statements.append_observation(lease, observation, None, bodies),
            *self._statements.append_usage(thread_id, commit.usage),
            *self._statements.append_events(thread_id, lease.run_id, commit.events),
        ]
        try:
            rows = await self._scope.batch(batch, thread=thread_id)
        except (BatchMissed, Conflict) as error:
            await self._scope.require_run(lease.run_id)
            await self._scope.require_thread(thread_id)
            if not isinstance(error, BatchMissed):
                raise
            raise missed_error(error.label, thread_id) from error
        self._announce(thread_id, batch, rows)
        return int(rows[0][0][0])

    async def _recommit(
        self,
        lease: Lease,
        own: str,
        write: _WriteBatch,
        guard: Statement,
        rest: Sequence[Statement],
    ) -> int:
        """Return the last event id of a commit in doubt, after writing it if it is not there."""
        # Only the holder of the lease commits, so the run names this commit or the one before it.
        deadline = time.monotonic() + _DOUBT_SECONDS
        while (before := await self._newest_commit(lease)) != own:
            # A server that is slow to notice the lost connection may still write the first try.
            # The run then names it, and the second try, which follows `before` only, misses.
            again = replace(guard, params={**guard.params, "after_commit": before})
            try:
                await write([again, *rest])
                break
            except BatchMissed:
                if await self._newest_commit(lease) != own:
                    raise
            except StoreInDoubt:
                # The server fails again and again; each try is as safe as the first.
                if time.monotonic() >= deadline:
                    raise
        return await self._last_event(lease.thread_id)

    async def _newest_commit(self, lease: Lease) -> str:
        rows = await self._scope.read("newest_commit", run_id=lease.run_id)
        return str(rows[0][0]) if rows else ""

    async def _last_event(self, thread_id: str) -> int:
        rows = await self._scope.read("thread", thread_id=thread_id)
        if not rows:
            raise not_found("thread", thread_id)
        return to_thread(rows[0]).last_event

    def _commit_batch(
        self, lease: Lease, commit: Commit, bodies: BodyWriter, own: str
    ) -> list[Statement]:
        # The guard first, so that without the lease nothing else is tried; `commit` relies on the
        # place of both.
        batch = [self._statements.guard(lease, commit, own), self._statements.count(lease, commit)]
        batch += bodies.statements()
        batch += self._statements.update_calls(lease, commit, bodies)
        batch += self._statements.append_nodes(lease.thread_id, lease.run_id, commit.nodes, bodies)
        if commit.head is not None:
            batch.append(self._statements.set_head(lease.thread_id, commit.head))
        batch += self._statements.append_activation(
            lease.thread_id, lease.run_id, commit.activation, bodies
        )
        batch += self._statements.append_observation(lease, commit.observation, commit.job, bodies)
        batch += self._statements.append_plan(lease, commit.plan, bodies)
        for item in commit.drained:
            key = {"thread_id": lease.thread_id, "id": item}
            batch.append(self._scope.statement("drain_inbox", key, rows=1, miss="inbox"))
        # After the items were drained, so that only newer ones count.
        if commit.quiet_inbox:
            key = {"thread_id": lease.thread_id}
            batch.append(self._scope.statement("require_quiet_inbox", key, rows=1, miss="quiet"))
        if commit.undisturbed:
            key = {"run_id": lease.run_id, "thread_id": lease.thread_id}
            batch.append(
                self._scope.statement("require_undisturbed", key, rows=1, miss="disturbed")
            )
        batch += self._statements.append_usage(lease.thread_id, commit.usage)
        if commit.release or commit.settle or commit.unsettle or commit.reserve or commit.keep:
            batch.append(
                self._statements.spend(
                    lease.root_run_id,
                    release=commit.release,
                    settle=commit.settle,
                    unsettle=commit.unsettle,
                    reserve=commit.reserve,
                    keep=commit.keep,
                    below=lease.is_child or commit.limits.spare,
                    unplanned=commit.unplanned,
                )
            )
        if commit.finish is not None:
            batch += self._statements.finish(lease.run_id, commit.finish, bodies)
        batch += self._statements.ask(lease, commit.questions)
        if commit.finish is not None and lease.queued:
            # After the questions, for which a run is parked.
            batch += self._statements.leave_queue(lease.run_id, lease.thread_id, commit.finish)
        batch += self._statements.append_events(lease.thread_id, lease.run_id, commit.events)
        # Late, because all runs of the owner write the day's row and wait for each other's lock.
        batch += self._statements.book(commit)
        # After all that the sums count: the reservation itself, and the day's booking.
        batch += self._statements.room(lease, commit)
        return batch

    async def _root_of_new(self, run: NewRun) -> str:
        if run.parent_run_id is None:
            return run.id
        rows = await self._scope.read("run_place", run_id=run.parent_run_id)
        if not rows:
            raise not_found("run", run.parent_run_id)
        [(_, root)] = rows
        return str(root)

    async def get(self, run_id: str) -> Run:
        rows = await self._scope.read("run", run_id=run_id)
        if not rows:
            raise not_found("run", run_id)
        return to_run(rows[0])

    async def list(
        self,
        *,
        thread_id: str | None = None,
        root_run_id: str | None = None,
        parent_run_id: str | None = None,
        parent_thread_id: str | None = None,
        task_key: str | None = None,
        status: Sequence[RunStatus] | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Run]:
        # One query for each index, the narrowest first; each applies all the filters.
        if parent_thread_id is not None:
            name = "runs_of_parent_thread"
        elif parent_run_id is not None:
            name = "runs_of_parent"
        elif root_run_id is not None:
            name = "runs_of_root"
        elif thread_id is not None:
            name = "runs_of_thread"
        else:
            name = "runs_not_over" if status and set(status) <= set(ACTIVE) else "runs"
        rows = await self._scope.read(
            name,
            thread_id=thread_id,
            root_run_id=root_run_id,
            parent_run_id=parent_run_id,
            parent_thread_id=parent_thread_id,
            task_key=task_key,
            status=None if status is None else orjson.dumps(list(status)).decode(),
            before=before,
            limit=max(limit, 0),
        )
        return [to_run(row) for row in rows]

    async def take_lease(
        self,
        run_id: str,
        owner: LeaseOwner,
        *,
        seconds: float,
        replaces: int,
        was: RunStatus | None = None,
    ) -> Lease:
        values = {
            "run_id": run_id,
            "replaces": replaces,
            "was": was,
            "host": owner.host,
            "boot": owner.boot,
            "pid": owner.pid,
            "started": owner.started,
            "machine": owner.machine,
            "instance": owner.instance,
            "seconds": seconds,
        }
        thread, root = await self._place(run_id)
        taken = {"run_id": run_id, "instance": owner.instance}
        batch = [
            self._scope.statement("hold_run", {"run_id": run_id}),
            self._scope.statement("queue_blame_taken", taken),
            self._scope.statement("queue_taken_over", taken),
            self._scope.statement("take_run", values, rows=1, miss="run"),
            self._scope.statement("take_thread", {"run_id": run_id}, rows=1, miss="thread"),
            self._scope.statement("queue_working", {"run_id": run_id}),
            *self._statements.unsettle_own(run_id),
        ]
        # In doubt the run counts as queued: settling a place in the queue that does not exist
        # does nothing.
        queued = True
        try:
            rows = await self._scope.batch(batch, thread=thread, tree=root)
            queued = bool(rows[5])
        except StoreInDoubt:
            # Another process would have written its own name to the next epoch.
            run = await self.get(run_id)
            if (run.epoch, run.owner, run.status) != (replaces + 1, owner, "running"):
                raise
        except BatchMissed as error:
            raise await self._misses.why_not_taken(run_id, replaces, error.label) from error
        return Lease(run_id, thread, root, replaces + 1, queued=queued)

    async def _place(self, run_id: str) -> tuple[str, str]:
        """Return the thread and the root of a run; neither ever changes."""
        rows = await self._scope.read("run_place", run_id=run_id)
        if not rows:
            raise not_found("run", run_id)
        [(thread_id, root)] = rows
        return str(thread_id), str(root)

    async def renew_lease(self, lease: Lease, *, seconds: float) -> bool:
        values = {"run_id": lease.run_id, "epoch": lease.epoch, "seconds": seconds}
        try:
            renew = self._scope.statement("renew_lease", values, rows=1)
            [[row]] = await self._scope.batch([renew], repeatable=True)
        except BatchMissed as error:
            raise await self._misses.lost(lease) from error
        return bool(row[0])

    async def cancel(self, run_id: str) -> list[str]:
        _, root = await self._place(run_id)
        cancel = self._scope.statement("cancel_runs", {"run_id": run_id})
        [rows] = await self._scope.batch([cancel], tree=root, repeatable=True)
        for _, thread_id in rows:
            self._scope.announce(str(thread_id))
        return [str(identity) for identity, _ in rows]

    async def adopt(self, run_id: str, budget: Budget) -> None:
        values = {"run_id": run_id, "tokens": budget.tokens, "cost": budget.cost}
        adopt = self._scope.statement("adopt_run", values)
        await self._scope.batch([adopt], tree=run_id, repeatable=True)

    async def replace_spec(
        self, run_id: str, spec: Mapping[str, Any], internal: Mapping[str, Any], *, replaces: int
    ) -> None:
        await self._scope.require_run(run_id)
        whole = encode_json(whole_spec(spec, internal), "run's spec")
        values = {"run_id": run_id, "spec": whole, "epoch": replaces}
        replace = self._scope.statement("replace_spec", values, rows=1)
        try:
            await self._scope.batch([replace], repeatable=True)
        except BatchMissed as error:
            raise await self._misses.lost(Lease(run_id, "", "", replaces)) from error

    async def poll(self, lease: Lease) -> tuple[bool, bool]:
        rows = await self._scope.read("poll", run_id=lease.run_id, epoch=lease.epoch)
        if not rows:
            raise await self._misses.lost(lease)
        [(cancel_requested, posted)] = rows
        return bool(cancel_requested), bool(posted)

    async def active_seconds(self, run_id: str) -> float:
        rows = await self._scope.read("worked", run_id=run_id)
        return float(rows[0][0]) if rows else 0.0

    async def count_tree_steps(self, root_run_id: str) -> int:
        [(steps,)] = await self._scope.read("tree_steps", root_run_id=root_run_id)
        return int(steps)


def _needs_spending_lock(commit: Commit) -> bool:
    """Return whether the commit reserves under a limit on what several run trees spend."""
    # Two trees lock different rows: without the lock each would miss the other's reservation.
    limits = commit.limits
    return commit.reserve is not None and not limits.thread == limits.day == Budget()


def _check_seqs(nodes: Sequence[NewNode], first: int) -> None:
    # The database compares only the first one; the thread's counter rises by their number.
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
