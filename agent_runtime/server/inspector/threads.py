"""A thread as a whole: its runs, what waits for a person, its plan, budgets and memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agent_runtime.messages import Plan
from agent_runtime.plan.planner import plan_at
from agent_runtime.server.inspector.runs import question_card, run_line, way_on_of
from agent_runtime.server.streams import CursorWriter
from agent_runtime_storage.contract.records.log import Run, Thread, ThreadPlace
from agent_runtime_storage.contract.records.questions import QuestionRow
from agent_runtime_storage.contract.store import UserStore

MOST_RUNS = 1000
MOST_QUESTIONS = 100


async def thread_of(store: UserStore, thread_id: str) -> dict[str, Any]:
    """Return what the page shows of a thread, without its log. Raises `NotFound`."""
    thread = await store.threads.get(thread_id)
    newest = await store.runs.list(thread_id=thread_id, limit=1)
    tree = await _tree(store, newest[0]) if newest else []
    started = await store.inspection.last_start(thread_id)
    run = next((one for one in tree if newest and one.id == newest[0].id), None)
    root = tree[0] if tree else None
    usage = await store.spending.usage_by_run(root.id) if root else {}
    children = _counts(tree)
    model = str(started.get("model", ""))
    lines = [
        run_line(
            one,
            usage.get(one.id),
            children=children.get(one.id, 0),
            title=thread.title,
            model=model if one.thread_id == thread_id else "",
            way_on=await way_on_of(store, one),
        )
        for one in tree
    ]
    return {
        "thread": thread.id,
        "title": thread.title,
        "created_at": thread.created_at,
        "updated_at": thread.updated_at,
        "head": thread.head,
        "open_node": run and run.open_node,
        "last_event": thread.last_event,
        # Where the page begins to follow: what was before stands in this answer already.
        "cursor": _cursor(thread),
        "active_run": thread.active_run,
        "run": next((line for line in lines if run and line["run"] == run.id), None),
        "tree": lines,
        "questions": await _questions(store, tree, root),
        "plan": await _plan(store, thread, run),
        "memory": {
            "on": "observe_at" in started,
            "observe_at": started.get("observe_at"),
            "reflect_at": started.get("reflect_at"),
        },
        "window": started.get("window"),
        "budgets": await _budgets(store, tree, root),
        "at": time.time(),
    }


def _cursor(thread: Thread) -> str:
    place = ThreadPlace(thread.last_event, thread.created_at)
    return CursorWriter(threads={thread.id: place}).after(thread.id, thread.last_event)


async def _tree(store: UserStore, run: Run) -> list[Run]:
    """Return the runs of a run's tree, each before those below it, as far as they were read."""
    runs = await store.runs.list(root_run_id=run.root_run_id, limit=MOST_RUNS)
    if all(one.id != run.root_run_id for one in runs):
        runs = [*runs, await store.runs.get(run.root_run_id)]
    below: dict[str | None, list[Run]] = {}
    for one in sorted(runs, key=lambda one: (one.created_at, one.id)):
        below.setdefault(one.parent_run_id, []).append(one)
    ordered: list[Run] = []
    waiting = list(reversed(below.get(None, [])))
    while waiting:
        one = waiting.pop()
        ordered.append(one)
        waiting += reversed(below.get(one.id, []))
    return ordered


def _counts(tree: Sequence[Run]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for one in tree:
        if one.parent_run_id is not None:
            counts[one.parent_run_id] = counts.get(one.parent_run_id, 0) + 1
    return counts


async def _questions(
    store: UserStore, tree: Sequence[Run], root: Run | None
) -> list[dict[str, Any]]:
    rows: list[QuestionRow] = []
    for thread_id in dict.fromkeys(one.thread_id for one in tree):
        rows += await store.questions.list(thread_id=thread_id, limit=MOST_QUESTIONS)
    still = [row for row in rows if row.status == "open"]
    closed = [row for row in rows if row.status != "open"]
    closed.sort(key=lambda row: row.asked_at)
    ids = {one.id for one in tree}
    shown = [*still, *closed[-MOST_QUESTIONS:]]
    # Earlier runs of the thread have questions, too, which are not of this tree.
    return [question_card(row, root if row.run_id in ids else None) for row in shown]


async def _plan(store: UserStore, thread: Thread, run: Run | None) -> dict[str, Any] | None:
    tip = (run and run.open_node) or thread.head
    plan = None if tip is None else await plan_at(store, thread.id, tip)
    return None if plan is None else plan_json(plan)


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as the page shows it."""
    return {
        "version": plan.version,
        "node": plan.node_id,
        "goal": plan.goal,
        "phase": plan.phase,
        "iteration": plan.iteration,
        "at": plan.created_at,
        "items": [
            {
                "id": one.id,
                "description": one.description,
                "status": one.status,
                "result": one.result,
                "phase": one.phase,
                "depends_on": one.depends_on,
            }
            for one in plan.items
        ],
    }


async def _budgets(
    store: UserStore, tree: Sequence[Run], root: Run | None
) -> dict[str, Any] | None:
    if root is None:
        return None
    spent = (
        root.settled.tokens + root.unsettled.tokens,
        root.settled.cost + root.unsettled.cost,
    )
    return {
        "steps": [sum(one.steps for one in tree), root.max_steps],
        "tokens": [spent[0], root.budget.tokens],
        "cost": [spent[1], root.budget.cost],
        "reserved": asdict(root.reserved),
        "unsettled": asdict(root.unsettled),
        "worked": await store.runs.active_seconds(root.id),
    }
