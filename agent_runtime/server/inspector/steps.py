"""The steps of a branch in figures: what each prompt was made of, and what it cost."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import sub
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
import orjson

from agent_runtime.concurrency import single_error
from agent_runtime.delegation.tool import NAME as DELEGATE
from agent_runtime.prompt.parts import FrontParts
from agent_runtime.server.inspector.branches import Branch, BranchLine, branch_of
from agent_runtime.server.inspector.columns import EncodedTables, encode_tables
from agent_runtime.server.inspector.front_parts import missing_parts
from agent_runtime_storage.contract.records.inspection import (
    Skeleton,
    SkeletonNode,
    SkeletonUsage,
)
from agent_runtime_storage.contract.store import UserStore

ERROR, QUESTION, STEERED, DELEGATED, OPEN, INTERRUPTED = 1, 2, 4, 8, 32, 64
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


async def steps_of(
    store: UserStore,
    thread_id: str,
    head: int | None = None,
    *,
    after: int = 0,
    more: Callable[[Branch], Awaitable[Mapping[str, Any]]] | None = None,
) -> bytes:
    """Return the steps and nodes of a branch as tables; see `encode_tables`.

    Of a step: its node, its activation, the tokens of its bands, its figures; unknown ones are -1.
    Times are in milliseconds.

    Args:
        head: the branch's last closed node; None for the thread's own.
        after: leave out this node and those before it.
        more: returns what else stands in the header.

    Raises:
        NotFound: there is no such thread or closed node.
        CorruptThread: the branch is broken.
    """
    branch = await branch_of(store, thread_id, head, after=after)
    added: dict[str, Any] = {}
    made: list[tuple[EncodedTables, Sequence[str]]] = []

    async def add() -> None:
        added.update({} if more is None else await more(branch))

    async def tables() -> None:
        if after and not branch.reset:
            found = await _made(store, branch, branch.nodes, after, {})
            made.append((encode_tables({"steps": found.steps, "nodes": found.nodes}), found.names))
        else:
            made.append(await _whole(store, branch))

    # Nodes first: what is read later belongs to at least these.
    async with single_error(), anyio.create_task_group() as group:
        group.start_soon(add)
        group.start_soon(tables)
    ((encoded, models),) = made
    header = {
        "version": 1,
        "thread": branch.thread_id,
        "head": branch.head,
        "reset": branch.reset,
        "models": models,
        **added,
    }
    return await anyio.to_thread.run_sync(encoded.under, header)


@dataclass(slots=True)
class _Columns:
    """Tables of the nodes of a branch, oldest first, and the names of their models."""

    nodes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    steps: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    models: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def names(self) -> Sequence[str]:
        return list(self.models)

    def joined(self, more: _Columns) -> _Columns:
        """Return these and the rows that come after them."""
        if not self.nodes:
            return more
        nodes = {name: [*known, *more.nodes[name]] for name, known in self.nodes.items()}
        steps = {name: [*known, *more.steps[name]] for name, known in self.steps.items()}
        return _Columns(nodes, steps, more.models)

    def up_to(self, node: int) -> _Columns:
        """Return the rows up to a node, in less memory."""
        cut: list[Mapping[str, Sequence[int]]] = []
        for table in (self.nodes, self.steps):
            end = bisect_right(table["node"], node)
            cut.append({name: array("q", values[:end]) for name, values in table.items()})
        return _Columns(cut[0], cut[1], self.models)


@dataclass(slots=True)
class KeptSteps:
    """What is made of a branch's closed nodes up to its last step, which never changes.

    Attributes:
        whole: how many nodes the branch had when `encoded` was made, if all were closed.
    """

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    columns: _Columns = field(default_factory=_Columns)
    whole: int = 0
    encoded: EncodedTables | None = None


_known: WeakKeyDictionary[BranchLine, KeptSteps] = WeakKeyDictionary()


def kept_steps() -> list[KeptSteps]:
    """Return what is kept of branches."""
    return list(_known.values())


def forget() -> None:
    """Forget what is kept, as a new process has."""
    _known.clear()


async def _whole(store: UserStore, branch: Branch) -> tuple[EncodedTables, Sequence[str]]:
    """Return the tables of a whole branch; only what is new since the last time is read."""
    kept = _known.setdefault(branch.line, KeptSteps())
    # Who asks meanwhile waits for it, and does not read all again.
    async with kept.lock:
        known = kept.columns
        if kept.encoded is not None and _is_closed(branch) and kept.whole == len(branch.nodes):
            return kept.encoded, known.names
        seqs = known.nodes.get("node", ())
        last = seqs[-1] if seqs else 0
        new = branch.nodes[bisect_right(branch.nodes, last, key=lambda node: node.seq) :]
        found = await _made(store, branch, new, last, known.models)
        return await anyio.to_thread.run_sync(_keep, kept, branch, known.joined(found))


def _keep(
    kept: KeptSteps, branch: Branch, columns: _Columns
) -> tuple[EncodedTables, Sequence[str]]:
    encoded = encode_tables({"steps": columns.steps, "nodes": columns.nodes})
    steps = [one for one in columns.steps["node"][-2:] if branch.head and one <= branch.head]
    if steps:
        # What the user says after a step is a mark of the next one, so rows are kept up to a step.
        kept.columns = columns.up_to(steps[-1])
    kept.whole, kept.encoded = (len(branch.nodes), encoded) if _is_closed(branch) else (0, None)
    return encoded, columns.names


def _is_closed(branch: Branch) -> bool:
    return not branch.nodes or branch.nodes[-1].status == "closed"


async def _made(
    store: UserStore,
    branch: Branch,
    nodes: Sequence[SkeletonNode],
    after: int,
    models: Mapping[str, int],
) -> _Columns:
    """Return the rows of a branch's nodes that come after one of them."""
    skeleton = await store.inspection.skeleton(branch.thread_id, after=after)
    used = {node.activation_id for node in nodes if node.activation_id}
    stored = {
        one: FrontParts.from_row(orjson.loads(parts))
        for one in used
        if (parts := skeleton.parts.get(one))
    }
    missing = await missing_parts(store, branch.thread_id, used - stored.keys())
    return await anyio.to_thread.run_sync(_columns, nodes, skeleton, stored | missing, models)


def _columns(
    rows: Sequence[SkeletonNode],
    skeleton: Skeleton,
    parts: Mapping[int, FrontParts],
    models: Mapping[str, int],
) -> _Columns:
    # By whole columns: what is done for each row of ten thousand takes several times as long.
    found = list(zip(*rows, strict=True)) or [()] * 7
    seqs, _, status, role, activation, _, created = found
    calls = Counter(node for node, _, _ in skeleton.calls)
    nodes: dict[str, Sequence[int]] = {
        "node": seqs,
        "role": [ROLES.get(one, 2) for one in role],
        "calls": list(map(calls.__getitem__, seqs)),
        "at": [int(1000 * one) for one in created],
    }
    known = _flags(skeleton)
    flags = list(map(known.get, seqs, repeat(0)))
    if status and status[-1] == "open":
        flags[-1] |= OPEN
    usage = {one.node_id: one for one in skeleton.usage}
    places = [place for place, seq in enumerate(seqs) if seq in usage]
    used = [usage[seqs[place]] for place in places]
    stepped = [flags[place] for place in places]
    for place, flag in enumerate(flags):
        # What the user said meanwhile is a mark of the step that read it.
        if flag & STEERED and (step := bisect_left(places, place)) < len(places):
            stepped[step] |= STEERED
    names = [*models, *(one.model for one in used)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    under = [activation[place] for place in places]
    steps: dict[str, Sequence[int]] = {
        "node": [seqs[place] for place in places],
        "activation": under,
        **_figures(used, under, parts),
        **_timing(used, skeleton),
        "model": [numbers[one.model] for one in used],
        "flags": stepped,
    }
    return _Columns({**nodes, "flags": flags}, steps, numbers)


def _flags(skeleton: Skeleton) -> dict[int, int]:
    """Return the flags of the nodes that have any."""
    flags: dict[int, int] = dict.fromkeys(skeleton.asked, QUESTION)
    for node, tool, outcome in skeleton.calls:
        if tool == DELEGATE or (outcome is not None and outcome in _CALL_FLAGS):
            flag = DELEGATED * (tool == DELEGATE) | _CALL_FLAGS.get(outcome or "", 0)
            flags[node] = flags.get(node, 0) | flag
    for node in skeleton.steered:
        flags[node] = flags.get(node, 0) | STEERED
    return flags


def _figures(
    used: Sequence[SkeletonUsage], under: Sequence[int], parts: Mapping[int, FrontParts]
) -> dict[str, Sequence[int]]:
    found = list(zip(*used, strict=True)) or [()] * 8
    _, _, prompt, cached, answer, counted, cost, reported = found
    known = all(reported)
    sent = (
        prompt
        if known
        else [n if by_provider else -1 for n, by_provider in zip(prompt, reported, strict=True)]
    )
    ends = {one: ends_of(front) for one, front in parts.items()}
    fronts = [ends.get(one, _NO_ENDS) for one in under]
    return {
        **dict(zip(BANDS, bands(fronts, counted, sent), strict=True)),
        "prompt": sent,
        "counted": counted,
        "cached": cached,
        "answer": answer,
        "cost": [-1 if one is None else one for one in cost],
    }


def _timing(used: Sequence[SkeletonUsage], skeleton: Skeleton) -> dict[str, Sequence[int]]:
    took = [skeleton.seconds.get(one.node_id) for one in used]
    return {
        "ms": [-1 if one is None else round(1000 * one) for one in took],
        "retries": [skeleton.retries.get(one.node_id, 0) for one in used],
    }


def ends_of(front: FrontParts) -> Ends:
    """Return where the bands before the raw messages end: system, observed, constraints, state."""
    system = front.system + front.tools + front.context
    observed = system + front.observed
    constraints = observed + front.constraints
    return system, observed, constraints, constraints + front.state


def bands(
    fronts: Sequence[Ends], counted: Sequence[int], reported: Sequence[int]
) -> list[list[int]]:
    """Return the tokens of prompts' five bands, by band: system, observed, constraints, state, raw.

    Our count is stretched or shrunk to what the provider reported, so that the bands of a prompt
    add up to it exactly; to our count if it reported nothing (-1).
    """
    whole = [max(own, front[-1]) for own, front in zip(counted, fronts, strict=True)]
    total = [
        own if sent_count < 0 else sent_count
        for own, sent_count in zip(whole, reported, strict=True)
    ]
    below = [0] * len(whole)
    found: list[list[int]] = []
    # The ends are rounded, not the sizes, so the sum is exact.
    for ends in zip(*fronts, strict=True) if fronts else ((),) * len(_NO_ENDS):
        rounded = [
            (2 * end * sent + own) // (2 * own) if own else 0
            for end, sent, own in zip(ends, total, whole, strict=True)
        ]
        found.append(list(map(sub, rounded, below)))
        below = rounded
    return [*found, list(map(sub, total, below))]
