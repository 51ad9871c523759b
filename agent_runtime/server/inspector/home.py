"""What needs a person now, what runs, and what ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from agent_runtime.plan.planner import plan_at
from agent_runtime.server.inspector.runs import question_card, run_line, way_on_of
from agent_runtime_storage.contract.records.log import Run
from agent_runtime_storage.contract.store import UserStore

MOST_ACTIVE = 200
MOST_RECENT = 100
MOST_NEEDS = 200
SPARK = 60


async def home_of(
    store: UserStore, *, limit: int = 50, before: tuple[float, str] | None = None
) -> dict[str, Any]:
    """Return what the home page shows of the owner's runs.

    Args:
        limit: how many ended runs.
        before: the cursor of the previous page of these.
    """
    active = await store.inspection.active_roots(limit=MOST_ACTIVE)
    ended = await store.inspection.ended_roots(before=before, limit=limit + 1)
    shown = ended[:limit]
    needs = await _needs(store)
    lines = {run.id: await _line(store, run) for run in (*active, *shown)}
    day = await store.spending.of_day()
    last = shown[-1] if len(ended) > limit else None
    return {
        "needs": needs,
        "active": [lines[run.id] for run in active],
        "recent": [lines[run.id] for run in shown],
        "next": last and f"{last.created_at!r}:{last.id}",
        "figures": {
            "running": sum(run.status in ("running", "queued") for run in active),
            "waiting": len(needs),
            "failed": sum(run.status == "failed" for run in shown),
            "spent": day.settled.cost + day.unsettled.cost,
            "cached": sum(line["cached"] for line in lines.values()),
            "prompt": sum(line["prompt"] for line in lines.values()),
            "unpriced": sum(line["unpriced"] for line in lines.values()),
        },
        "at": time.time(),
    }


async def _needs(store: UserStore) -> list[dict[str, Any]]:
    cards: list[dict[str, Any]] = []
    roots: dict[str, Run] = {}
    for row in await store.questions.list(status="open", limit=MOST_NEEDS):
        run = await store.runs.get(row.run_id)
        if run.root_run_id not in roots:
            roots[run.root_run_id] = await store.runs.get(run.root_run_id)
        cards.append(question_card(row, roots[run.root_run_id]))
    return cards


async def _line(store: UserStore, run: Run) -> dict[str, Any]:
    thread = await store.threads.get(run.thread_id)
    usage = await store.spending.usage_total(run_id=run.id)
    children = await store.runs.list(parent_run_id=run.id, limit=1000)
    plan = None if thread.head is None else await plan_at(store, thread.id, thread.head)
    spark: Sequence[int] = await store.inspection.last_prompts(thread.id, run.id, limit=SPARK)
    done = None if plan is None else {"done": plan.settled, "total": len(plan.items)}
    return run_line(
        run,
        usage,
        title=thread.title,
        model=await store.inspection.last_model(thread.id, run.id),
        children=len(children),
        plan=done,
        spark=spark,
        way_on=await way_on_of(store, run),
    )
