"""The two writes that a run is made of: beginning it, and committing a step's boundary."""

from __future__ import annotations

from collections.abc import Sequence

from .bodies import Bodies
from .driver import BatchMissed, Statement, Value
from .errors import BudgetExceeded, Conflict, InboxWaiting, LeaseLost, RunCancelled
from .owner import Owner, encode_json, not_found
from .records import (
    Amount,
    CallDone,
    Commit,
    Finish,
    Lease,
    NewActivation,
    NewEvent,
    NewNode,
    NewRun,
    Usage,
)
from .rows import to_run, to_thread
from .threads import thread_busy

_READ_AGAIN = "Read the thread again and decide anew."


class Commits(Owner):
    """The methods of `UserStore` that begin a run and write its steps."""

    async def begin_run(self, run: NewRun) -> tuple[Lease, int]:
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
            batch.append(self._spend(root, reserve=run.reserve))
        batch += self._append_events(run.thread_id, run.id, run.events)
        try:
            rows = await self._batch(batch)
        except BatchMissed as error:
            raise await self._why_not_begun(run, root, error.label) from error
        except Conflict as error:
            # A missing thread breaks the run's foreign key before its own statement can miss.
            await self._require_thread(run.thread_id)
            raise error
        return Lease(run.id, run.thread_id, root, 1), int(rows[thread_at][0][0])

    async def commit(self, lease: Lease, commit: Commit) -> int:
        if commit.nodes:
            _check_seqs(commit.nodes, commit.nodes[0].seq)
        bodies = await self._pack(
            lease.thread_id,
            commit.nodes,
            commit.activation,
            [done.body for done in commit.done],
            commit.finish,
        )
        batch = [self._guard(lease, commit), self._count(lease, commit), *bodies.statements()]
        batch += self._update_calls(lease, commit, bodies)
        batch += self._append_nodes(lease.thread_id, lease.run_id, commit.nodes, bodies)
        if commit.head is not None:
            batch.append(self._set_head(lease.thread_id, commit.head))
        batch += self._append_activation(lease.thread_id, lease.run_id, commit.activation, bodies)
        for item in commit.drained:
            key = {"thread_id": lease.thread_id, "id": item}
            batch.append(self._statement("drain_inbox", key, rows=1, miss="inbox"))
        if commit.quiet_inbox:
            key = {"thread_id": lease.thread_id}
            batch.append(self._statement("require_quiet_inbox", key, rows=1, miss="quiet"))
        batch += self._append_usage(lease.thread_id, commit.usage)
        if commit.release or commit.settle or commit.unsettle or commit.reserve:
            batch.append(
                self._spend(
                    lease.root_run_id,
                    release=commit.release,
                    settle=commit.settle,
                    unsettle=commit.unsettle,
                    reserve=commit.reserve,
                )
            )
        if commit.finish is not None:
            batch += self._finish(lease.run_id, commit.finish, bodies)
        batch += self._append_events(lease.thread_id, lease.run_id, commit.events)
        try:
            rows = await self._batch(batch)
        except BatchMissed as error:
            raise await self._why_not_committed(lease, commit, error.label) from error
        return int(rows[1][0][0])

    # Preparing

    async def _root_of_new(self, run: NewRun) -> str:
        if run.parent_run_id is None:
            return run.id
        rows = await self._read("run_root", run_id=run.parent_run_id)
        if not rows:
            raise not_found("run", run.parent_run_id)
        return str(rows[0][0])

    async def _pack(
        self,
        thread_id: str,
        nodes: Sequence[NewNode],
        activation: NewActivation | None,
        results: Sequence[bytes] = (),
        finish: Finish | None = None,
    ) -> Bodies:
        inline = [node.body for node in nodes] + list(results)
        prefixes: list[bytes] = []
        if activation is not None:
            inline.append(activation.body)
            prefixes.append(activation.prefix)
        if finish is not None:
            inline.append(finish.output)
        bodies = Bodies(self._sql["put_blob"], self.user_id, thread_id)
        await bodies.pack(inline, blobs=prefixes)
        return bodies

    # The statements, in the order of a batch

    def _begin_row(self, run: NewRun, root: str) -> Statement:
        reserve = run.reserve or Amount()
        return self._statement(
            "begin_run",
            {
                "run_id": run.id,
                "thread_id": run.thread_id,
                "parent_run_id": run.parent_run_id,
                "root_run_id": root,
                "agent": run.agent,
                "task_id": run.task_id,
                "max_steps": run.max_steps,
                "spec": encode_json(run.spec, "run's spec"),
                "host": run.owner.host,
                "boot": run.owner.boot,
                "pid": run.owner.pid,
                "started": run.owner.started,
                "seconds": run.lease_seconds,
                "budget_tokens": run.budget.tokens,
                "budget_cost": run.budget.cost,
                "own_tokens": reserve.tokens,
                "own_cost": reserve.cost,
            },
        )

    def _guard(self, lease: Lease, commit: Commit) -> Statement:
        reserve, release = commit.reserve or Amount(), commit.release or Amount()
        return self._statement(
            "commit_guard",
            {
                "run_id": lease.run_id,
                "thread_id": lease.thread_id,
                "root_run_id": lease.root_run_id,
                "epoch": lease.epoch,
                "steps": commit.steps,
                "own_tokens": reserve.tokens - release.tokens,
                "own_cost": reserve.cost - release.cost,
            },
            rows=1,
            miss="lease",
        )

    def _count(self, lease: Lease, commit: Commit) -> Statement:
        return self._statement(
            "commit_thread",
            {
                "thread_id": lease.thread_id,
                "nodes": len(commit.nodes),
                "activations": int(commit.activation is not None),
                "events": len(commit.events),
                "usage": len(commit.usage),
                "expect_seq": commit.nodes[0].seq - 1 if commit.nodes else None,
                "expect_activation": commit.activation.id - 1 if commit.activation else None,
            },
            rows=1,
            miss="thread",
        )

    def _update_calls(self, lease: Lease, commit: Commit, bodies: Bodies) -> list[Statement]:
        batch: list[Statement] = []
        for node_id, index in commit.start:
            key = {"thread_id": lease.thread_id, "node_id": node_id, "position": index}
            batch.append(self._statement("start_call", key, rows=1, miss="call"))
        batch += [self._finish_call(lease.thread_id, done, bodies) for done in commit.done]
        for shown in commit.shown:
            values: dict[str, Value] = {
                "thread_id": lease.thread_id,
                "node_id": shown.node_id,
                "position": shown.index,
                "shown": shown.shown,
                "tokens": shown.tokens,
            }
            batch.append(self._statement("show_call", values, rows=1, miss="call"))
        for seq in commit.close:
            node = {"thread_id": lease.thread_id, "id": seq}
            batch.append(self._statement("close_node", node, rows=1, miss="close"))
            own = {"run_id": lease.run_id, "id": seq}
            batch.append(self._statement("clear_open_node", own, rows=1, miss="close"))
        return batch

    def _finish_call(self, thread_id: str, done: CallDone, bodies: Bodies) -> Statement:
        packed = bodies.get(done.body)
        values = {
            "thread_id": thread_id,
            "node_id": done.node_id,
            "position": done.index,
            "outcome": done.outcome,
            "body": packed.inline,
            "blob": packed.hash,
            "shown": done.shown,
            "tokens": done.tokens,
        }
        return self._statement("finish_call", values, rows=1, miss="call")

    def _append_nodes(
        self, thread_id: str, run_id: str, nodes: Sequence[NewNode], bodies: Bodies
    ) -> list[Statement]:
        batch: list[Statement] = []
        for node in nodes:
            packed = bodies.get(node.body)
            values: dict[str, Value] = {
                "thread_id": thread_id,
                "id": node.seq,
                "parent_id": node.parent_id,
                "kind": node.kind,
                "status": node.status,
                "role": node.role,
                "run_id": run_id,
                "activation_id": node.activation_id,
                "body": packed.inline,
                "blob": packed.hash,
                "tokens": node.tokens,
            }
            batch.append(self._statement("append_node", values, rows=1, miss="parent_node"))
            for index, tool in enumerate(node.tools):
                call = {"thread_id": thread_id, "node_id": node.seq, "position": index}
                batch.append(self._statement("append_call", {**call, "tool": tool}))
            if node.status == "open":
                own = {"run_id": run_id, "id": node.seq}
                batch.append(self._statement("set_open_node", own, rows=1, miss="open_node"))
        return batch

    def _set_head(self, thread_id: str, head: int) -> Statement:
        values = {"thread_id": thread_id, "head": head}
        return self._statement("set_head", values, rows=1, miss="head")

    def _append_activation(
        self, thread_id: str, run_id: str, activation: NewActivation | None, bodies: Bodies
    ) -> list[Statement]:
        if activation is None:
            return []
        packed = bodies.get(activation.body)
        values = {
            "thread_id": thread_id,
            "id": activation.id,
            "anchor": activation.anchor,
            "run_id": run_id,
            "cause": activation.cause,
            "body": packed.inline,
            "blob": packed.hash,
            "prefix_blob": bodies.blob(activation.prefix).hash,
        }
        return [self._statement("append_activation", values)]

    def _append_usage(self, thread_id: str, usage: Sequence[Usage]) -> list[Statement]:
        return [
            self._statement(
                "append_usage",
                {
                    "thread_id": thread_id,
                    "back": len(usage) - 1 - place,
                    "run_id": item.run_id,
                    "root_run_id": item.root_run_id,
                    "node_id": item.node_id,
                    "purpose": item.purpose,
                    "model": item.model,
                    "prompt_tokens": item.prompt_tokens,
                    "cached_tokens": item.cached_tokens,
                    "cache_write_tokens": item.cache_write_tokens,
                    "completion_tokens": item.completion_tokens,
                    "counted_tokens": item.counted_tokens,
                    "cost": item.cost,
                    "reported": int(item.reported),
                },
            )
            for place, item in enumerate(usage)
        ]

    def _spend(
        self,
        root: str,
        *,
        release: Amount | None = None,
        settle: Amount | None = None,
        unsettle: Amount | None = None,
        reserve: Amount | None = None,
    ) -> Statement:
        values: dict[str, Value] = {"root_run_id": root, "reserving": int(reserve is not None)}
        for name, amount in (
            ("release", release),
            ("settle", settle),
            ("unsettle", unsettle),
            ("reserve", reserve),
        ):
            values[f"{name}_tokens"] = amount.tokens if amount else 0
            values[f"{name}_cost"] = amount.cost if amount else 0
        return self._statement("spend", values, rows=1, miss="budget")

    def _finish(self, run_id: str, finish: Finish, bodies: Bodies) -> list[Statement]:
        if finish.status in ("queued", "running"):
            raise Conflict(
                f"A run cannot finish as {finish.status}.",
                cure="Finish it as suspended, succeeded, failed or cancelled.",
            )
        packed = bodies.get(finish.output)
        run = {"run_id": run_id}
        values = {
            **run,
            "status": finish.status,
            "stop_reason": finish.stop_reason,
            "detail": finish.detail,
            "output": packed.inline,
            "output_blob": packed.hash,
        }
        batch = [self._statement("finish_run", values, rows=1), *self._unsettle_own(run_id)]
        if finish.status != "suspended":
            batch.append(self._statement("free_thread", run))
        return batch

    def _unsettle_own(self, run_id: str) -> list[Statement]:
        run = {"run_id": run_id}
        return [self._statement("unsettle_own", run), self._statement("clear_own", run)]

    def _append_events(
        self, thread_id: str, run_id: str, events: Sequence[NewEvent]
    ) -> list[Statement]:
        return [
            self._statement(
                "append_event",
                {
                    "thread_id": thread_id,
                    "back": len(events) - 1 - place,
                    "run_id": run_id,
                    "kind": event.kind,
                    "node_id": event.node_id,
                    "data": encode_json(event.data, "event's data"),
                },
            )
            for place, event in enumerate(events)
        ]

    # Telling why a batch missed

    async def _why_not_begun(self, run: NewRun, root: str, label: str) -> Exception:
        if label == "parent":
            await self._require_run(run.parent_run_id or "")
            return RunCancelled(
                f"Run {run.parent_run_id} is over or being cancelled; it starts no child runs.",
                cure="Resume it first.",
            )
        if label == "budget":
            return await self._over_budget(root, run.reserve or Amount())
        if label == "begin":
            rows = await self._read("thread", thread_id=run.thread_id)
            if not rows:
                return not_found("thread", run.thread_id)
            thread = to_thread(rows[0])
            if thread.active_run is not None:
                return thread_busy(run.thread_id, thread.active_run)
            return Conflict(
                f"Thread {run.thread_id} has moved on: its head is {thread.head}, its last node "
                f"{thread.last_seq}, its last activation {thread.last_activation}.",
                cure=_READ_AGAIN,
            )
        return Conflict(_MISSES[label], cure=_READ_AGAIN)

    async def _why_not_committed(self, lease: Lease, commit: Commit, label: str) -> Exception:
        if label == "lease":
            return await self._lost(lease)
        if label == "budget":
            return await self._over_budget(lease.root_run_id, commit.reserve or Amount())
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

    async def _over_budget(self, root: str, wanted: Amount) -> Exception:
        rows = await self._read("run", run_id=root)
        if not rows:
            return not_found("run", root)
        run = to_run(rows[0])
        return BudgetExceeded(
            f"A reservation of {wanted.tokens} tokens and {wanted.cost} nanodollars does not fit "
            f"the budget of run {root}: of {_limit(run.budget.tokens)} tokens and "
            f"{_limit(run.budget.cost)} nanodollars, "
            f"{run.settled.tokens + run.unsettled.tokens} tokens and "
            f"{run.settled.cost + run.unsettled.cost} nanodollars are spent, "
            f"{run.reserved.tokens} tokens and {run.reserved.cost} nanodollars reserved.",
            cure="Start a run with a larger budget, or let what is reserved finish first.",
        )


_MISSES = {
    "thread": "a node or activation is not the next one; somebody else has written.",
    "call": "a call is not in the state that it has to leave.",
    "close": "an exchange is not the run's open one, or its calls are not all done.",
    "parent_node": "a node's parent is not there or not closed.",
    "open_node": "the run has an open exchange already.",
    "head": "the new head is not there or not closed.",
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


def _limit(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)
