"""Where a message is in the prompt of any step; the newest agrees with `memory explain`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

import orjson

from agent_runtime.errors import NotFound
from agent_runtime.log.branch import read_branch, view_from
from agent_runtime.memory.observational.explain import NodeExplanation, explain_in
from agent_runtime.server.inspector.branches import Branch, branch_of
from agent_runtime_storage.contract.store import UserStore

Kind = Literal["raw", "observed", "state", "gone", "future", "elsewhere"]
_KINDS: dict[str, Kind] = {
    "raw": "raw",
    "shortened": "raw",
    "task": "state",
    "context": "state",
    "observed": "observed",
    "archived": "observed",
    "condensed": "observed",
    "unobserved": "gone",
    "elsewhere": "elsewhere",
    "open": "future",
}


async def place_of(
    store: UserStore,
    thread_id: str,
    node: int,
    at: int | None = None,
    head: int | None = None,
) -> dict[str, Any]:
    """Return where a node is in the prompt that another one answers.

    Args:
        at: the answer; None for the next prompt.
        head: the branch's last closed node; None for the thread's own.

    Raises:
        NotFound: there is no such thread or node, or `at` is no answer on the branch.
    """
    branch = await branch_of(store, thread_id, head)
    here = {one.seq: one for one in branch.nodes}
    end, activation = branch.head, None
    if at is not None:
        answer = here.get(at)
        if answer is None or answer.role != "assistant":
            raise NotFound(
                f"Node {at} of thread {thread_id} is no answer on this branch.",
                cure="Take the node of one of its steps.",
            )
        end, activation = answer.parent_id, answer.activation_id
    if activation:
        rows = await store.inspection.activations(thread_id, [activation])
        row = rows[0] if rows else None
    else:
        row = await store.log.activation(thread_id, end)
    found = None
    if at is None or node < at or node not in here:
        view = row and view_from(await read_branch(store, thread_id, row, end))
        found = await explain_in(store, thread_id, node, end, view)
    last = await _last_raw(store, branch, node, at)
    if found is None:
        await store.log.node(thread_id, node)
        return _future(node, at, row.id if row else 0, last)
    return _json(found, at, row.id if row else 0, last)


async def _last_raw(store: UserStore, branch: Branch, node: int, at: int | None) -> int | None:
    """Return the last answer, up to `at`, whose prompt had the node as a message."""
    answers = [
        one
        for one in branch.nodes
        if one.role == "assistant" and one.seq > node and (at is None or one.seq <= at)
    ]
    ids = sorted({one.activation_id for one in answers}, reverse=True)
    # From the newest on: of those that are read, most do not have it any more.
    for start in range(0, len(ids), 50):
        rows = await store.inspection.activations(branch.thread_id, ids[start : start + 50])
        raw = {row.id for row in rows if (orjson.loads(row.body).get("first") or 0) <= node}
        if raw:
            return max(one.seq for one in answers if one.activation_id in raw)
    return None


def _future(node: int, at: int | None, activation: int, last: int | None) -> dict[str, Any]:
    same = node == at
    said = "what the model answered at this step" if same else "not said yet at this step"
    return {
        "node": node,
        "at": at,
        "activation": activation,
        "kind": "future",
        "form": "future",
        "summary": said,
        "path": (),
        "lines": (),
        "replaced": (),
        "cut": (),
        "constraint": "",
        "last_raw": last,
        "forks_from": None,
    }


def _json(
    found: NodeExplanation, at: int | None, activation: int, last: int | None
) -> dict[str, Any]:
    top = found.observations[0].id if found.observations else 0
    bottom = found.observations[-1].id if found.observations else 0
    return {
        "node": found.node,
        "at": at,
        "activation": activation,
        "kind": _KINDS[found.form],
        "form": found.form,
        "summary": found.summary,
        "path": [one.id for one in found.observations] if found.active else (),
        "prepared": [] if found.active else [one.id for one in found.observations],
        "lines": [asdict(line) | {"of": top} for line in found.lines],
        "replaced": [asdict(line) | {"of": bottom} for line in found.replaced],
        "cut": [asdict(one) for one in found.shortened],
        "constraint": found.constraint,
        "last_raw": last,
        "forks_from": found.forks_from,
    }
