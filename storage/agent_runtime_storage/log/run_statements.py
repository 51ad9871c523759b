"""The statements of the batches that begin a run and commit its steps.

Each `miss` names the reason for which a statement may affect no row; `missed_error` and `RunMisses`
turn it into the error that the writer gets.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from agent_runtime_storage.contract.errors import Conflict
from agent_runtime_storage.contract.records.log import (
    CallDone,
    Commit,
    EventRow,
    Finish,
    Job,
    Lease,
    NewActivation,
    NewEvent,
    NewNode,
    NewRun,
)
from agent_runtime_storage.contract.records.observations import NewObservation
from agent_runtime_storage.contract.records.plans import NewPlan
from agent_runtime_storage.contract.records.questions import NewQuestion
from agent_runtime_storage.contract.records.search import NodeText
from agent_runtime_storage.contract.records.spending import Amount, Budget
from agent_runtime_storage.contract.records.usage import Usage
from agent_runtime_storage.drivers.protocol import Row, Statement, Value
from agent_runtime_storage.objects.bodies import BodyWriter
from agent_runtime_storage.queries.owner import OwnerScope, encode_json
from agent_runtime_storage.queries.row_decoding import to_appended_event
from agent_runtime_storage.queries.run_spec import whole_spec
from agent_runtime_storage.search.full_text import TextIndexer


class RunStatements:
    """Builds the statements for the parts of a commit and of a new run."""

    def __init__(self, scope: OwnerScope, indexer: TextIndexer) -> None:
        self._scope = scope
        self._indexer = indexer

    async def pack(
        self,
        thread_id: str,
        nodes: Sequence[NewNode],
        activation: NewActivation | None,
        results: Sequence[bytes] = (),
        finish: Finish | None = None,
    ) -> BodyWriter:
        inline = [node.body for node in nodes] + list(results)
        prefixes: list[bytes] = []
        if activation is not None:
            inline.append(activation.body)
            prefixes.append(activation.prefix)
        if finish is not None:
            inline.append(finish.output)
        bodies = self._scope.bodies(thread_id)
        await bodies.pack(inline, blobs=prefixes)
        return bodies

    async def index_new(
        self, thread_id: str, nodes: Sequence[NewNode], done: Sequence[CallDone] = ()
    ) -> list[Statement]:
        texts = [NodeText(node.seq, None, node.text) for node in nodes if node.text]
        texts += [NodeText(call.node_id, call.index, call.text) for call in done if call.text]
        return await self._indexer.statements(thread_id, texts)

    def begin_row(self, run: NewRun, root: str) -> Statement:
        reserve = run.reserve or Amount()
        if run.epoch is not None:
            return self._begin_queued(run, reserve)
        return self._scope.statement(
            "begin_run",
            {
                "run_id": run.id,
                "thread_id": run.thread_id,
                "parent_run_id": run.parent_run_id,
                "root_run_id": root,
                "agent": run.agent,
                "task_id": run.task_id,
                "max_steps": run.max_steps,
                "spec": encode_json(whole_spec(run.spec, run.internal), "run's spec"),
                "host": run.owner.host,
                "boot": run.owner.boot,
                "pid": run.owner.pid,
                "started": run.owner.started,
                "machine": run.owner.machine,
                "instance": run.owner.instance,
                "seconds": run.lease_seconds,
                "budget_tokens": run.budget.tokens,
                "budget_cost": run.budget.cost,
                "own_tokens": reserve.tokens,
                "own_cost": reserve.cost,
            },
        )

    def _begin_queued(self, run: NewRun, reserve: Amount) -> Statement:
        values: dict[str, Value] = {
            "run_id": run.id,
            "epoch": run.epoch,
            "agent": run.agent,
            "task_id": run.task_id,
            "max_steps": run.max_steps,
            "spec": encode_json(whole_spec(run.spec, run.internal), "run's spec"),
            "own_tokens": reserve.tokens,
            "own_cost": reserve.cost,
            "seconds": run.lease_seconds,
        }
        return self._scope.statement("begin_queued", values, rows=1, miss="picked")

    def guard(self, lease: Lease, commit: Commit, own: str) -> Statement:
        reserve, release = commit.reserve or Amount(), commit.release or Amount()
        return self._scope.statement(
            "commit_guard",
            {
                "run_id": lease.run_id,
                "thread_id": lease.thread_id,
                "root_run_id": lease.root_run_id,
                "epoch": lease.epoch,
                "commit_id": own,
                "after_commit": None,
                "steps": commit.steps,
                "own_tokens": reserve.tokens - release.tokens,
                "own_cost": reserve.cost - release.cost,
            },
            rows=1,
            miss="lease",
        )

    def count(self, lease: Lease, commit: Commit) -> Statement:
        return self._scope.statement(
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

    def update_calls(self, lease: Lease, commit: Commit, bodies: BodyWriter) -> list[Statement]:
        batch: list[Statement] = []
        moves = [("start_call", one) for one in commit.start]
        for name, (node_id, index) in [*moves, *(("wait_call", one) for one in commit.wait)]:
            key = {"thread_id": lease.thread_id, "node_id": node_id, "position": index}
            batch.append(self._scope.statement(name, key, rows=1, miss="call"))
        # In this order: only a done call can be shown, and only done calls let a node be closed.
        batch += [self._finish_call(lease.thread_id, done, bodies) for done in commit.done]
        for shown in commit.shown:
            values: dict[str, Value] = {
                "thread_id": lease.thread_id,
                "node_id": shown.node_id,
                "position": shown.index,
                "shown": shown.shown,
                "tokens": shown.tokens,
            }
            batch.append(self._scope.statement("show_call", values, rows=1, miss="call"))
        for seq in commit.close:
            node = {"thread_id": lease.thread_id, "id": seq}
            batch.append(self._scope.statement("close_node", node, rows=1, miss="close"))
            own = {"run_id": lease.run_id, "id": seq}
            batch.append(self._scope.statement("clear_open_node", own, rows=1, miss="close"))
        return batch

    def _finish_call(self, thread_id: str, done: CallDone, bodies: BodyWriter) -> Statement:
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
        return self._scope.statement("finish_call", values, rows=1, miss="call")

    def append_nodes(
        self, thread_id: str, run_id: str, nodes: Sequence[NewNode], bodies: BodyWriter
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
            batch.append(self._scope.statement("append_node", values, rows=1, miss="parent_node"))
            status = "started" if node.started else "pending"
            for index, tool in enumerate(node.tools):
                call = {"thread_id": thread_id, "node_id": node.seq, "position": index}
                batch.append(
                    self._scope.statement("append_call", {**call, "tool": tool, "status": status})
                )
            if node.status == "open":
                own = {"run_id": run_id, "id": node.seq}
                batch.append(self._scope.statement("set_open_node", own, rows=1, miss="open_node"))
        return batch

    def set_head(self, thread_id: str, head: int) -> Statement:
        values = {"thread_id": thread_id, "head": head}
        return self._scope.statement("set_head", values, rows=1, miss="head")

    def append_activation(
        self, thread_id: str, run_id: str, activation: NewActivation | None, bodies: BodyWriter
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
            "parts": orjson.dumps(activation.parts).decode() if activation.parts else None,
        }
        return [self._scope.statement("append_activation", values)]

    def append_observation(
        self, lease: Lease, observation: NewObservation | None, job: Job | None, bodies: BodyWriter
    ) -> list[Statement]:
        batch: list[Statement] = []
        if observation is not None:
            packed = bodies.get(observation.body)
            values = {
                "thread_id": lease.thread_id,
                "id": observation.id,
                "level": observation.level,
                "parent_id": observation.parent_id,
                "first_id": observation.first,
                "last_id": observation.last,
                "parts": orjson.dumps(observation.parts).decode(),
                "provisional": int(observation.provisional),
                "run_id": lease.run_id,
                "body": packed.inline,
                "blob": packed.hash,
                "tokens": observation.tokens,
            }
            statement = self._scope.statement(
                "append_observation", values, rows=1, miss="observation"
            )
            batch.append(statement)
        if job is not None:
            key = {"id": job.id, "token": job.token}
            batch.append(self._scope.statement("end_job", key, rows=1, miss="job"))
        return batch

    def append_plan(
        self, lease: Lease, plan: NewPlan | None, bodies: BodyWriter
    ) -> list[Statement]:
        if plan is None:
            return []
        packed = bodies.get(plan.body)
        values = {
            "thread_id": lease.thread_id,
            "id": plan.id,
            "node_id": plan.node_id,
            "call_id": plan.call_id,
            "run_id": lease.run_id,
            "body": packed.inline,
            "blob": packed.hash,
        }
        return [self._scope.statement("append_plan", values, rows=1, miss="plan")]

    def append_usage(self, thread_id: str, usage: Sequence[Usage]) -> list[Statement]:
        return [
            self._scope.statement(
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
                rows=1,
                miss="node",
            )
            for place, item in enumerate(usage)
        ]

    def spend(
        self,
        root: str,
        *,
        release: Amount | None = None,
        settle: Amount | None = None,
        unsettle: Amount | None = None,
        reserve: Amount | None = None,
        keep: Amount | None = None,
        below: bool,
        unplanned: bool = False,
    ) -> Statement:
        values: dict[str, Value] = {
            "root_run_id": root,
            "reserving": int(reserve is not None),
            "below": int(below),
            "unplanned": int(unplanned),
            "keep_tokens": keep.tokens if keep else None,
            "keep_cost": keep.cost if keep else None,
        }
        for name, amount in (
            ("release", release),
            ("settle", settle),
            ("unsettle", unsettle),
            ("reserve", reserve),
        ):
            values[f"{name}_tokens"] = amount.tokens if amount else 0
            values[f"{name}_cost"] = amount.cost if amount else 0
        return self._scope.statement("spend", values, rows=1, miss="budget")

    def finish(self, run_id: str, finish: Finish, bodies: BodyWriter) -> list[Statement]:
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
        batch = [self._scope.statement("finish_run", values, rows=1), *self.unsettle_own(run_id)]
        # A suspended run keeps its thread, so that the head stays where it will resume.
        if finish.status != "suspended":
            batch.append(self._scope.statement("free_thread", run))
            batch.append(self._scope.statement("withdraw", run))
        return batch

    def leave_queue(self, run_id: str, thread_id: str, finish: Finish) -> list[Statement]:
        """Return what becomes of a run in the queue, if it is there, when it stops."""
        values: dict[str, Value] = {"run_id": run_id, "status": finish.status}
        settled = {**values, "stop_reason": finish.stop_reason, "detail": finish.detail}
        behind = {"thread_id": thread_id}
        return [
            self._scope.statement("queue_settle", settled),
            self._scope.statement("queue_forget", values),
            self._scope.statement("queue_child_ended", values),
            self._scope.statement("queue_advance", behind),
        ]

    def unsettle_own(self, run_id: str) -> list[Statement]:
        """Return what counts a run's open reservation as spent, on its root and on the day."""
        run = {"run_id": run_id}
        # `clear` last: the others read what it sets to zero.
        return [self._scope.statement(f"{what}_own", run) for what in ("unsettle", "book", "clear")]

    def append_events(
        self, thread_id: str, run_id: str, events: Sequence[NewEvent]
    ) -> list[Statement]:
        return [
            self._scope.statement(
                "append_event",
                {
                    "thread_id": thread_id,
                    "back": len(events) - 1 - place,
                    "run_id": run_id,
                    "kind": event.kind,
                    "node_id": event.node_id,
                    "data": encode_json(event.data, "event's data", lossy=True),
                },
                rows=1,
                miss="node",
            )
            for place, event in enumerate(events)
        ]

    def appended(
        self, thread_id: str, batch: Sequence[Statement], rows: Sequence[Sequence[Row]]
    ) -> list[tuple[str, EventRow]]:
        """Return the events that a batch has appended to a thread, from the rows it returned."""
        sql = self._scope.sql["append_event"]
        return [
            (thread_id, to_appended_event(one.params, found[0]))
            for one, found in zip(batch, rows, strict=True)
            if one.sql == sql
        ]

    def ask(self, lease: Lease, questions: Sequence[NewQuestion]) -> list[Statement]:
        return [
            self._scope.statement(
                "ask",
                {
                    "id": question.id,
                    "thread_id": lease.thread_id,
                    "run_id": lease.run_id,
                    "node_id": question.node_id,
                    "position": question.position,
                    "kind": question.kind,
                    "body": encode_json(question.body, "question", lossy=True),
                    "seconds": question.seconds,
                },
            )
            for question in questions
        ]

    def room(self, lease: Lease, commit: Commit) -> list[Statement]:
        """Return statements that miss if the commit's reservation exceeds its limits."""
        limits = commit.limits
        if commit.reserve is None:
            return []
        root = {"root_run_id": lease.root_run_id, "below": int(lease.is_child or limits.spare)}
        batch: list[Statement] = []
        for name, limit in (("thread", limits.thread), ("day", limits.day)):
            if limit != Budget():
                values = {**root, "tokens": limit.tokens, "cost": limit.cost}
                batch.append(
                    self._scope.statement(f"room_of_{name}", values, rows=1, miss=f"{name}_budget")
                )
        if limits.steps is not None:
            # The steps are kept for the root, which may use them itself.
            kept = limits.kept_steps if lease.is_child else 0
            values = {"root_run_id": lease.root_run_id, "most": limits.steps, "kept": kept}
            batch.append(
                self._scope.statement("room_of_steps", values, rows=1, miss="steps_budget")
            )
        return batch

    def book(self, commit: Commit) -> list[Statement]:
        """Return the statement that books a commit's spending on the day."""
        settle, unsettle = commit.settle or Amount(), commit.unsettle or Amount()
        # Most commits spend nothing; the day's row is a lock that all runs of the owner share.
        if settle == unsettle == Amount():
            return []
        values = {
            "settle_tokens": settle.tokens,
            "settle_cost": settle.cost,
            "unsettle_tokens": unsettle.tokens,
            "unsettle_cost": unsettle.cost,
        }
        return [self._scope.statement("book_day", values)]


READ_AGAIN = "Read the thread again and decide again."
_MISSES = {
    "thread": "a node or activation is not the next one; another writer was faster.",
    "call": "a call is not in the status that the commit expects.",
    "close": "an exchange is not the run's open one, or its calls are not all done.",
    "parent_node": "a node's parent does not exist or is not closed.",
    "open_node": "the run has an open exchange already.",
    "head": "the new head does not exist or is not closed.",
    "observation": "an observation is not the next one; another writer was faster.",
    "plan": "a plan is not the next version, or its node is not the run's open exchange.",
    "job": "the claim on the job is void, or the job is over.",
    "node": "an event or a usage record refers to a node that does not exist.",
    "inbox": "an inbox item was drained or deleted before.",
}


def missed_error(label: str, thread_id: str) -> Conflict:
    """Return the error for a statement that missed because the thread has changed."""
    return Conflict(f"Thread {thread_id}: {_MISSES[label]}", cure=READ_AGAIN)
