"""Gaps: nodes that left the prompt unobserved, and the observations that fill them.

With observational memory off, messages leave unobserved.  Once it is on again, the thread's stored
observations are shown again, the prompt names the gaps between them, and the worker observes these
in chunks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import anyio.to_thread

from agent_runtime.memory.observational.thresholds import CHUNK
from agent_runtime.prompt.build import entry_of, view_of
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.view import ActivationContent, Entry, Gap, PromptPrefix, View
from agent_runtime_storage.contract.records.log import Node
from agent_runtime_storage.contract.store import UserStore

MOST_NODES = 200
"""Nodes per read."""
OFF_LOOP = 200_000
"""Above this many characters nodes are counted in a thread."""


@dataclass(frozen=True, slots=True)
class PastNodes:
    """The nodes of a branch from its root to its first raw node.

    Attributes:
        nodes: their seqs, rising.
        messages: for each, the unobserved messages up to and including it.
    """

    nodes: tuple[int, ...]
    messages: tuple[int, ...]

    def uncovered(self, observations: Sequence[Observation]) -> list[tuple[int, int]]:
        """Return index ranges of `nodes` that none of the observations covers."""
        ranges: list[tuple[int, int]] = []
        reached = 0
        for one in sorted(observations, key=lambda one: one.first):
            begin = bisect_left(self.nodes, one.first)
            if begin > reached:
                ranges.append((reached, begin))
            # A reflection may reach further than the observations that begin after it.
            reached = max(reached, bisect_right(self.nodes, one.last))
        if reached < len(self.nodes):
            ranges.append((reached, len(self.nodes)))
        return ranges

    def gaps(self, observations: Sequence[Observation]) -> tuple[Gap, ...]:
        """Return these ranges in the form in which prompts name them."""
        return tuple(
            Gap(
                parent_id=self.nodes[begin - 1] if begin else None,
                first=self.nodes[begin],
                last=self.nodes[end - 1],
                size=self.messages[end - 1] - (self.messages[begin - 1] if begin else 0),
            )
            for begin, end in self.uncovered(observations)
        )

    def filling(
        self, standing: Sequence[Observation], stored: Sequence[Observation]
    ) -> list[Observation]:
        """Return stored observations of this branch that fill the gaps, without overlaps.

        Of several that begin at a node the longest is taken; of equal ones the oldest, because
        reflections name that one as their part.
        """
        # The end is negated, so that the longest comes first.
        known = sorted((one.first, -one.last, one.id, one) for one in stored if not one.level)
        filling: list[Observation] = []
        for begin, end in self.uncovered(standing):
            reached = begin
            for first, last, _, one in known:
                place = bisect_left(self.nodes, first, reached, end)
                until = bisect_left(self.nodes, -last, place, end)
                # Both ends have to be nodes of this branch, or the observation is of another one.
                if until < end and (self.nodes[place], self.nodes[until]) == (first, -last):
                    filling.append(one)
                    reached = until + 1
        return filling

    def next(self, present: Sequence[Observation]) -> tuple[int, ...]:
        """Return the oldest unobserved nodes, at most `MOST_NODES`."""
        for begin, end in self.uncovered(present):
            # Only of the first gap: an observation stands for an unbroken interval.
            return self.nodes[begin : min(end, begin + MOST_NODES)]
        return ()


def observed_throughout(view: View) -> bool:
    """Return whether the view's observations cover every node before its raw ones."""
    reached: int | None = None
    for one in view.observations:
        if one.parent_id != reached:
            return False
        reached = one.last
    return not view.entries or view.entries[0].parent_id == reached


async def read_past(store: UserStore, thread_id: str, view: View) -> PastNodes:
    """Read the nodes before a view's raw ones, and the sizes of the unobserved ones."""
    before = view.entries[0].parent_id
    nodes = tuple(await store.log.lineage(thread_id, before)) if before is not None else ()
    sizes = [0] * len(nodes)
    for begin, end in PastNodes(nodes, ()).uncovered(view.observations):
        # In pages, because a gap may have any length and all its bodies are read.
        for at in range(begin, end, MOST_NODES):
            until = min(end, at + MOST_NODES)
            unobserved = await store.log.branch(thread_id, nodes[until - 1], first=nodes[at])
            sizes[at:until] = [1 + len(node.calls) for node in unobserved]
    return PastNodes(nodes, tuple(accumulate(sizes)))


async def stretch_to_observe(
    nodes: Sequence[Node], start: ActivationContent, tokens: float
) -> tuple[Entry, ...]:
    """Return as many of the nodes as one observation covers.

    Args:
        tokens: T, in our count.
    """

    def measured() -> tuple[Entry, ...]:
        # Measured as first sent: later truncation belonged to another prompt.
        shown = ActivationContent(nonce=start.nonce)
        entries = view_of(
            0, None, shown, PromptPrefix(""), None, list(map(entry_of, nodes))
        ).entries
        size = 0.0
        for place, entry in enumerate(entries[:-1], 1):
            size += entry.tokens
            # A note inside an exchange's last result stays with that exchange.
            if size >= tokens * CHUNK and entries[place].prompt:
                return entries[:place]
        return entries

    size = sum(len(node.body) + sum(len(call.body) for call in node.calls) for node in nodes)
    if size > OFF_LOOP:
        return await anyio.to_thread.run_sync(measured)
    return measured()


def unbroken_rows(observations: Sequence[Observation]) -> list[list[Observation]]:
    """Group observations into rows without a gap."""
    rows: list[list[Observation]] = []
    for one in observations:
        if rows and one.parent_id == rows[-1][-1].last:
            rows[-1].append(one)
        else:
            rows.append([one])
    return rows
