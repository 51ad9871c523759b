"""The steps of a branch in figures: what each prompt was made of, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
import orjson

from agent_runtime.delegation.tool import NAME as DELEGATE
from agent_runtime.prompt.parts import FrontParts
from agent_runtime.server.inspector.branches import Branch, branch_of
from agent_runtime.server.inspector.columns import encode_tables
from agent_runtime.server.inspector.front_parts import missing_parts
from agent_runtime_storage.contract.records.inspection import (
    Skeleton,
    SkeletonNode,
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
STEP_COLUMNS = [
    "node",
    "activation",
    "system",
    "observed",
    "constraints",
    "state",
    "raw",
    "prompt",
    "counted",
    "cached",
    "answer",
    "cost",
    "at",
    "ms",
    "first",
    "retries",
    "model",
    "flags",
]
NODE_COLUMNS = ["node", "role", "tokens", "calls", "at", "flags", "activation"]
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

    Args:
        head: the branch's last closed node; None for the thread's own.
        after: leave out this node and those before it.

    Raises:
        NotFound: there is no such thread or closed node.
        CorruptThread: the branch is broken.
    """
    branch = await branch_of(store, thread_id, head, after=after)
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
    known = _Known.of(skeleton, parts)
    models: dict[str, int] = {}
    steps: list[tuple[int, ...]] = []
    nodes: list[tuple[int, ...]] = []
    steered = 0
    for node in branch.nodes:
        flags = known.flags.get(node.seq, 0) | (OPEN if node.status == "open" else 0)
        at = round(node.created_at * 1000)
        nodes.append(
            (
                node.seq,
                ROLES.get(node.role, 2),
                node.tokens,
                known.calls.get(node.seq, 0),
                at,
                flags,
                node.activation_id,
            )
        )
        usage = known.usage.get(node.seq)
        if usage is None:
            steered |= flags & STEERED
            continue
        model = models.setdefault(usage.model, len(models))
        steps.append(known.step(node, usage, at, flags | steered, model))
        steered = 0
    header = {
        "version": 1,
        "thread": branch.thread_id,
        "head": branch.head,
        "reset": branch.reset,
        "models": list(models),
    }
    tables = {"steps": _columns(STEP_COLUMNS, steps), "nodes": _columns(NODE_COLUMNS, nodes)}
    return encode_tables(header, tables)


def _columns(names: Sequence[str], rows: Sequence[tuple[int, ...]]) -> dict[str, Sequence[int]]:
    values = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return dict(zip(names, values, strict=True))


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a thread's nodes, by node."""

    usage: Mapping[int, SkeletonUsage]
    timing: Mapping[int, Mapping[str, Any]]
    calls: Mapping[int, int]
    flags: Mapping[int, int]
    parts: Mapping[int, FrontParts] = field(default_factory=dict[int, FrontParts])

    @classmethod
    def of(cls, skeleton: Skeleton, parts: Mapping[int, FrontParts]) -> _Known:
        calls: dict[int, int] = {}
        flags: dict[int, int] = dict.fromkeys(skeleton.asked, QUESTION)
        for node, tool, outcome in skeleton.calls:
            calls[node] = calls.get(node, 0) + 1
            flag = _TOOL_FLAGS.get(tool, 0) | _CALL_FLAGS.get(outcome or "", 0)
            if flag:
                flags[node] = flags.get(node, 0) | flag
        # One document, because decoding thousands of small ones takes several times as long.
        datas = orjson.loads(f"[{','.join(data for _, data in skeleton.answers)}]")
        timing = dict(zip((node for node, _ in skeleton.answers), datas, strict=True))
        for node, data in timing.items():
            if data.get("retries"):
                flags[node] = flags.get(node, 0) | RETRIED
        for node, data in skeleton.notes:
            if orjson.loads(data).get("source") == "steer":
                flags[node] = flags.get(node, 0) | STEERED
        usage = {one.node_id: one for one in skeleton.usage}
        return cls(usage, timing, calls, flags, parts)

    def step(
        self, node: SkeletonNode, usage: SkeletonUsage, at: int, flags: int, model: int
    ) -> tuple[int, ...]:
        """Return the row of a step, in the order of `STEP_COLUMNS`."""
        data = self.timing.get(node.seq, {})
        front = self.parts.get(node.activation_id, FrontParts())
        reported = usage.prompt_tokens if usage.reported else -1
        began, first, seconds = (
            data.get(name) for name in ("began_at", "first_token_at", "seconds")
        )
        return (
            node.seq,
            node.activation_id,
            *bands(front, usage.counted_tokens, reported),
            reported,
            usage.counted_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            -1 if usage.cost is None else usage.cost,
            at,
            -1 if seconds is None else round(seconds * 1000),
            -1 if first is None or began is None else max(round((first - began) * 1000), 0),
            data.get("retries", 0),
            model,
            flags,
        )


def bands(front: FrontParts, counted: int, reported: int) -> tuple[int, int, int, int, int]:
    """Return the tokens of a prompt's five bands: system, observed, constraints, state, raw.

    Our count is stretched or shrunk to what the provider reported, so that the bands add up to it
    exactly; to our count if it reported nothing (-1).
    """
    system = front.system + front.tools + front.context
    ends = [system]
    for size in (front.observed, front.constraints, front.state):
        ends.append(ends[-1] + size)
    whole = max(counted, ends[-1])
    total = whole if reported < 0 else reported
    if not whole:
        return 0, 0, 0, 0, total
    # The ends are rounded, not the sizes, so the sum is exact.
    a, b, c, d = ((2 * end * total + whole) // (2 * whole) for end in ends)
    return a, b - a, c - b, d - c, total - d
