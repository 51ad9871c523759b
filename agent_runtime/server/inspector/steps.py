"""The steps of a branch in figures: what each prompt was made of, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import anyio.to_thread
import orjson

from agent_runtime.delegation.tool import NAME as DELEGATE
from agent_runtime.prompt.parts import FrontParts
from agent_runtime.server.inspector.branches import Branch, branch_of
from agent_runtime.server.inspector.columns import encode_tables
from agent_runtime.server.inspector.front_parts import missing_parts
from agent_runtime_storage.contract.records.inspection import (
    Skeleton,
    SkeletonUsage,
)
from agent_runtime_storage.contract.store import UserStore

ERROR, QUESTION, STEERED, DELEGATED, OPEN, INTERRUPTED, RETRIED, PLANNED = (
    1,
    2,
    4,
    8,
    32,
    64,
    128,
    256,
)
"""Flags of steps and nodes."""
ROLES = {"user": 0, "assistant": 1, "note": 2}
BANDS = ("system", "observed", "constraints", "state", "raw")
Ends: TypeAlias = tuple[int, int, int, int]
_NO_ENDS = (0, 0, 0, 0)
_CALL_FLAGS = {
    "error": ERROR,
    "refused": ERROR,
    "interrupted": INTERRUPTED,
    "cancelled": INTERRUPTED,
}
_TOOL_FLAGS = {DELEGATE: DELEGATED, "plan": PLANNED}


async def steps_of(
    store: UserStore, thread_id: str, head: int | None = None, *, after: int = 0
) -> bytes:
    """Return the steps and nodes of a branch as tables; see `encode_tables`.

    Of a step: its node, its activation, the tokens of its bands, its figures and when it was;
    unknown ones are -1.  Times are in milliseconds.

    Args:
        head: the branch's last closed node; None for the thread's own.
        after: leave out this node and those before it.

    Raises:
        NotFound: there is no such thread or closed node.
        CorruptThread: the branch is broken.
    """
    branch = await branch_of(store, thread_id, head, after=after)
    # Nodes first: what is read later belongs to at least these.
    skeleton = await store.inspection.skeleton(thread_id, after=0 if branch.reset else after)
    stored = {
        one: FrontParts.from_row(orjson.loads(parts))
        for one, parts in skeleton.parts.items()
        if parts
    }
    used = {node.activation_id for node in branch.nodes if node.activation_id}
    parts = stored | await missing_parts(store, thread_id, used - stored.keys())
    return await anyio.to_thread.run_sync(_tables, branch, skeleton, parts)


def _tables(branch: Branch, skeleton: Skeleton, parts: Mapping[int, FrontParts]) -> bytes:
    # By columns: a tuple for each row takes twice as long.
    known, usage = _flags(skeleton), {one.node_id: one for one in skeleton.usage}
    calls = Counter(node for node, _, _ in skeleton.calls)
    flags = [known.get(one.seq, 0) | OPEN * (one.status == "open") for one in branch.nodes]
    places: list[int] = []
    steered: list[int] = []
    before = 0
    for place, node in enumerate(branch.nodes):
        if node.seq in usage:
            places.append(place)
            steered.append(flags[place] | before)
            before = 0
        else:
            before |= flags[place] & STEERED
    nodes = {
        "node": [one.seq for one in branch.nodes],
        "role": [ROLES.get(one.role, 2) for one in branch.nodes],
        "tokens": [one.tokens for one in branch.nodes],
        "calls": [calls[one.seq] for one in branch.nodes],
        "at": [round(one.created_at * 1000) for one in branch.nodes],
        "flags": flags,
        "activation": [one.activation_id for one in branch.nodes],
    }
    used = [usage[nodes["node"][place]] for place in places]
    models = {name: number for number, name in enumerate(dict.fromkeys(one.model for one in used))}
    steps = {
        **{name: [nodes[name][place] for place in places] for name in ("node", "activation")},
        **_bands(used, [branch.nodes[place].activation_id for place in places], parts),
        **_figures(used),
        "at": [nodes["at"][place] for place in places],
        **_timing(used, skeleton),
        "model": [models[one.model] for one in used],
        "flags": steered,
    }
    header = {
        "version": 1,
        "thread": branch.thread_id,
        "head": branch.head,
        "reset": branch.reset,
        "models": list(models),
    }
    return encode_tables(header, {"steps": steps, "nodes": nodes})


def _flags(skeleton: Skeleton) -> dict[int, int]:
    """Return the flags of the nodes that have any."""
    flags: dict[int, int] = dict.fromkeys(skeleton.asked, QUESTION)
    for node, tool, outcome in skeleton.calls:
        flag = _TOOL_FLAGS.get(tool, 0) | _CALL_FLAGS.get(outcome or "", 0)
        if flag:
            flags[node] = flags.get(node, 0) | flag
    for node, data in skeleton.notes:
        if orjson.loads(data).get("source") == "steer":
            flags[node] = flags.get(node, 0) | STEERED
    for node, data in skeleton.answers:
        # Few have it, and decoding all of them takes much longer.
        if '"retries"' in data and orjson.loads(data).get("retries"):
            flags[node] = flags.get(node, 0) | RETRIED
    return flags


def _bands(
    used: Sequence[SkeletonUsage], activations: Sequence[int], parts: Mapping[int, FrontParts]
) -> dict[str, Sequence[int]]:
    ends = {one: ends_of(front) for one, front in parts.items()}
    rows = [
        bands(ends.get(activation, _NO_ENDS), one.counted_tokens, _reported(one))
        for one, activation in zip(used, activations, strict=True)
    ]
    return dict(zip(BANDS, zip(*rows, strict=True) if rows else [()] * len(BANDS), strict=True))


def _figures(used: Sequence[SkeletonUsage]) -> dict[str, Sequence[int]]:
    return {
        "prompt": [_reported(one) for one in used],
        "counted": [one.counted_tokens for one in used],
        "cached": [one.cached_tokens for one in used],
        "answer": [one.completion_tokens for one in used],
        "cost": [-1 if one.cost is None else one.cost for one in used],
    }


def _reported(one: SkeletonUsage) -> int:
    return one.prompt_tokens if one.reported else -1


def _timing(used: Sequence[SkeletonUsage], skeleton: Skeleton) -> dict[str, Sequence[int]]:
    # One document, because decoding thousands of small ones takes several times as long.
    read = orjson.loads(f"[{','.join(data for _, data in skeleton.answers)}]")
    known = dict(zip((node for node, _ in skeleton.answers), read, strict=True))
    datas: list[Mapping[str, Any]] = [known.get(one.node_id, {}) for one in used]
    return {
        "ms": [_milliseconds(data.get("seconds")) for data in datas],
        "first": [
            _milliseconds(max(data["first_token_at"] - data["began_at"], 0))
            if data.get("first_token_at") is not None and data.get("began_at") is not None
            else -1
            for data in datas
        ],
        "retries": [data.get("retries", 0) for data in datas],
    }


def _milliseconds(seconds: float | None) -> int:
    return -1 if seconds is None else round(seconds * 1000)


def ends_of(front: FrontParts) -> Ends:
    """Return where the bands before the raw messages end: system, observed, constraints, state."""
    system = front.system + front.tools + front.context
    observed = system + front.observed
    constraints = observed + front.constraints
    return system, observed, constraints, constraints + front.state


def bands(ends: Ends, counted: int, reported: int) -> tuple[int, int, int, int, int]:
    """Return the tokens of a prompt's five bands: system, observed, constraints, state, raw.

    Our count is stretched or shrunk to what the provider reported, so that the bands add up to it
    exactly; to our count if it reported nothing (-1).
    """
    a, b, c, d = ends
    whole = max(counted, d)
    total = whole if reported < 0 else reported
    if whole and whole != total:
        # The ends are rounded, not the sizes, so the sum is exact.
        twice = 2 * whole
        a = (2 * a * total + whole) // twice
        b = (2 * b * total + whole) // twice
        c = (2 * c * total + whole) // twice
        d = (2 * d * total + whole) // twice
    return a, b - a, c - b, d - c, total - d
