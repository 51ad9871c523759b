"""Observations: what stands for which messages, and what a reflection left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import anyio.to_thread

from agent_runtime.log.branch import observation_of
from agent_runtime.prompt.observation import Observation, ObservationLine
from agent_runtime.server.inspector.branches import Branch, branch_of
from agent_runtime_storage.contract.records.observations import ObservationRow
from agent_runtime_storage.contract.store import UserStore

MOST = 5000
MOST_WHOLE = 200
LEFT_OUT = 500
_WEIGHTS = {"critical": 0, "important": 1, "done": 2, "info": 3}


async def observations_of(
    store: UserStore, thread_id: str, head: int | None = None, *, after: int = 0
) -> dict[str, Any]:
    """Return the outlines of a branch's observations, in the order of their ids."""
    branch = await branch_of(store, thread_id, head)
    rows = await store.log.observations(thread_id, ending_from=0)
    return await anyio.to_thread.run_sync(_outlines, branch, rows, after)


async def whole_observations(
    store: UserStore, thread_id: str, ids: Sequence[int]
) -> dict[str, Any]:
    """Return these observations with their lines, and those of their parts that they lack."""
    rows = await store.log.observations(thread_id, ids=ids)
    below = sorted({part for row in rows for part in row.parts} - {row.id for row in rows})
    parts = await store.log.observations(thread_id, ids=below) if below else []
    sizes = await store.inspection.nodes(thread_id)
    tokens = {node.seq: node.tokens for node in sizes}
    return await anyio.to_thread.run_sync(_whole, rows, (*rows, *parts), tokens)


def _outlines(branch: Branch, rows: Sequence[ObservationRow], after: int) -> dict[str, Any]:
    tokens = {node.seq: node.tokens for node in branch.nodes}
    found = [row for row in rows if row.id > after and row.last in tokens]
    sums = _sums(tokens)
    return {
        "observations": [_outline(row, sums) for row in found[:MOST]],
        "next": found[MOST - 1].id if len(found) > MOST else None,
    }


def _sums(tokens: Mapping[int, int]) -> dict[int, int]:
    """Return, for each node, the tokens of all nodes up to it."""
    total, sums = 0, {0: 0}
    for seq in sorted(tokens):
        total += tokens[seq]
        sums[seq] = total
    return sums


def _outline(row: ObservationRow, sums: Mapping[int, int]) -> dict[str, Any]:
    origin = observation_of(row).origin
    return {
        "id": row.id,
        "level": row.level,
        "first": row.first,
        "last": row.last,
        "parts": row.parts,
        "tokens": row.tokens,
        "of": sums.get(row.last, 0) - sums.get(row.parent_id or 0, 0),
        "origin": origin,
        "provisional": row.provisional,
        "at": row.created_at,
    }


def _whole(
    rows: Sequence[ObservationRow],
    known_rows: Sequence[ObservationRow],
    tokens: Mapping[int, int],
) -> dict[str, Any]:
    known = {row.id: observation_of(row) for row in known_rows}
    sums = _sums(tokens)
    whole: list[dict[str, Any]] = []
    for row in rows:
        one = known[row.id]
        lost = left_out(one, [known[part] for part in one.parts if part in known])
        whole.append(
            _outline(row, sums)
            | {
                "model": one.model,
                "lines": [_line(line, one.id) for line in one.notes.lines],
                "left_out": lost[:LEFT_OUT],
                "left_out_count": len(lost),
                "archive": one.archive and asdict(one.archive),
                "task": one.notes.task,
                "next_step": one.notes.next_step,
                "ledger": one.ledger,
                "text": one.text,
            }
        )
    return {"observations": whole, "next": None}


def left_out(one: Observation, parts: Sequence[Observation]) -> list[dict[str, Any]]:
    """Return the lines of an observation's parts that it does not have, the weightiest first."""
    kept = {line.text for line in one.notes.lines}
    lost = [
        _line(line, part.id) for part in parts for line in part.notes.lines if line.text not in kept
    ]
    return sorted(lost, key=lambda line: _WEIGHTS[line["priority"]])


def _line(line: ObservationLine, observation: int) -> dict[str, Any]:
    return {
        "at": line.at,
        "priority": line.priority,
        "text": line.text,
        "node": line.node,
        "by_user": line.by_user,
        "of": observation,
    }
