"""Activations: where each prompt's beginning comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread
import orjson

from agent_runtime.models.tokens import count_tools
from agent_runtime.prompt.build import decode_activation
from agent_runtime.prompt.parts import FrontParts
from agent_runtime.server.inspector.branches import branch_of
from agent_runtime.server.inspector.front_parts import missing_parts
from agent_runtime_storage.contract.records.log import Activation
from agent_runtime_storage.contract.store import UserStore

# Activations of an answer, without and with all that they hold.
MOST = 5000
MOST_WHOLE = 50
TEXT_CHARS = 100_000
# Rows of one read; each has a body, which is unpacked on the event loop.
_BATCH = 500


async def activations_of(
    store: UserStore, thread_id: str, head: int | None = None, *, after: int = 0
) -> dict[str, Any]:
    """Return the outlines of a branch's activations, in the order of their ids."""
    branch = await branch_of(store, thread_id, head)
    parts = (await store.inspection.parts(thread_id)).items()
    stored = {one: FrontParts.from_row(orjson.loads(text)) for one, text in parts if text}
    wanted = sorted(one for one, _ in parts if one > after)
    on_branch = {None, *(node.seq for node in branch.nodes)}
    found: list[Activation] = []
    for start in range(0, len(wanted), _BATCH):
        rows = await store.inspection.activations(thread_id, wanted[start : start + _BATCH])
        found += [row for row in rows if row.anchor in on_branch]
        if len(found) > MOST:
            break
    shown = found[:MOST]
    known = stored | await missing_parts(
        store, thread_id, {row.id for row in shown} - stored.keys()
    )
    outlines = await anyio.to_thread.run_sync(_outlines, shown, known)
    return {
        "activations": outlines,
        "next": shown[-1].id if len(found) > MOST else None,
    }


async def whole_activations(store: UserStore, thread_id: str, ids: Sequence[int]) -> dict[str, Any]:
    """Return these activations with all that they hold."""
    rows = await store.inspection.activations(thread_id, ids)
    texts = await store.inspection.parts(thread_id)
    known = {
        row.id: FrontParts.from_row(orjson.loads(text))
        for row in rows
        if (text := texts.get(row.id))
    }
    known |= await missing_parts(store, thread_id, {row.id for row in rows} - known.keys())
    return {"activations": await anyio.to_thread.run_sync(_whole, rows, known), "next": None}


def _outlines(rows: Sequence[Activation], parts: Mapping[int, FrontParts]) -> list[dict[str, Any]]:
    return [_outline(row, parts[row.id]) for row in rows]


def _outline(row: Activation, parts: FrontParts) -> dict[str, Any]:
    # Not decoded as the engine does, which validates every part and takes many times as long.
    start = orjson.loads(row.body)
    return {
        "id": row.id,
        "anchor": row.anchor,
        "cause": row.cause,
        "at": row.created_at,
        "first": start.get("first"),
        "task": start.get("task"),
        "left": start.get("left_out", 0),
        "observed": start.get("observed", ()),
        "context": start.get("context", ()),
        "cut": len(start.get("cuts", ())),
        "parts": parts.to_row(),
        "model": start.get("model", ""),
        "last_messages": start.get("last_messages", 0),
    }


def _whole(rows: Sequence[Activation], parts: Mapping[int, FrontParts]) -> list[dict[str, Any]]:
    whole: list[dict[str, Any]] = []
    for row in rows:
        start, prefix = decode_activation(row)
        tools = [
            {
                "name": one.name,
                "description": one.description[:TEXT_CHARS],
                "tokens": count_tools((one,)),
            }
            for one in prefix.tools
        ]
        whole.append(
            _outline(row, parts[row.id])
            | {
                "cuts": {handle: cut.chars for handle, cut in start.cuts.items()},
                "state": start.state[:TEXT_CHARS],
                "constraints": [
                    {"node": one.node, "text": one.text, "whole": one.whole}
                    for one in start.constraints.items
                ],
                "gaps": [
                    {"first": gap.first, "last": gap.last, "size": gap.size} for gap in start.gaps
                ],
                "system": prefix.system[:TEXT_CHARS],
                "tools": tools,
                "zone": start.today.zone,
            }
        )
    return whole
