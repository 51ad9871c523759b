"""Runs and questions as the page lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_runtime.human.questions import Question
from agent_runtime.log import leases
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.run.sweep import ContinuationWay, continuation_of
from agent_runtime.server.inspector.nodes import arguments_of
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.contract.records.questions import QuestionRow
from agent_runtime_storage.contract.records.usage import UsageTotal
from agent_runtime_storage.contract.store import UserStore

ARGUMENT_CHARS = 100_000
_NOTHING = UsageTotal.of(())


def run_line(
    run: Run,
    usage: UsageTotal | None,
    *,
    title: str = "",
    model: str = "",
    children: int = 0,
    plan: Mapping[str, int] | None = None,
    spark: Sequence[int] = (),
    way_on: ContinuationWay | None = None,
) -> dict[str, Any]:
    """Return a run with what it alone used; `way_on` as `way_on_of` finds it."""
    used = usage or _NOTHING
    record = delegation_record(run)
    return {
        "run": run.id,
        "thread": run.thread_id,
        "parent": run.parent_run_id,
        "root": run.root_run_id,
        "agent": run.agent,
        "model": model,
        "title": title,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "detail": run.detail,
        "alive": run.status == "running" and not leases.is_dead(run),
        "steps": run.steps,
        "max_steps": run.max_steps,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "finished_at": run.finished_at,
        "tokens": used.prompt_tokens + used.completion_tokens,
        "cached": used.cached_tokens,
        "prompt": used.prompt_tokens,
        "cost": None if used.unpriced_calls and not used.cost else used.cost,
        "unpriced": used.unpriced_calls,
        "task_key": record.key if record else "",
        "children": children,
        "plan": plan,
        "spark": spark,
        "way_on": way_on,
    }


async def way_on_of(store: UserStore, run: Run) -> ContinuationWay | None:
    """Return how a suspended run continues; None for any other run."""
    return await continuation_of(store, run) if run.status == "suspended" else None


def question_card(row: QuestionRow, root: Run | None) -> dict[str, Any]:
    """Return a question with all that a person decides by."""
    one = Question.of(row)
    return {
        "id": one.id,
        "thread": one.thread_id,
        "run": one.run_id,
        "root": root.id if root else one.run_id,
        "root_thread": root.thread_id if root else one.thread_id,
        "node": row.node_id,
        "index": row.position,
        "kind": one.kind,
        "status": one.status,
        "text": one.text,
        "choices": one.choices,
        "tool": one.tool,
        "agent": str(row.body.get("agent", "")) or one.role,
        "why": one.why,
        "call_id": one.call_id,
        "arguments": arguments_of(one.arguments, ARGUMENT_CHARS),
        "digest": one.digest,
        "default_pattern": one.pattern,
        "answer": one.answer,
        "asked_at": one.asked_at,
        "expires_at": one.expires_at,
        "answered_at": row.answered_at,
    }
