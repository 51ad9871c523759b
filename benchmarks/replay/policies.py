"""The prompts and costs of a recorded run under policies without a memory, by arithmetic.

A prompt is the front (system prompt and tools) followed by nodes of the recording: messages, and
answers together with their results.  The common prefix of a prompt and the one before comes from
the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import orjson

from agent_runtime.run.start import UNANSWERED
from benchmarks.replay.bill import CACHE_SECONDS, Bill, output_of
from benchmarks.replay.outcome import note
from benchmarks.replay.recordings import Step, Trace

WINDOW_TOKENS = 30_000
LAST_MESSAGES = 40
COMPACT_FROM = 150_000
COMPACTED = 30
"""Tokens summarized per token of a summary, as in the median recorded summary."""

Keep = Callable[[Sequence["Node"], int], int]
"""Takes the nodes so far and the first node of the prompt before; returns the first of this one."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a recording, with its tokens by the provider's count."""

    messages: int
    tokens: float


@dataclass(frozen=True, slots=True)
class Call:
    """A model call of a recording.

    Attributes:
        nodes: the number of nodes before it.
        cold: whether the provider's cache had expired.
        unrecorded: tokens of the recorded agent's own system prompt and tool schemas, which are not
            in the recording.
    """

    step: Step
    nodes: int
    cold: bool
    unrecorded: int


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run as nodes and calls.

    Attributes:
        front: tokens of the system prompt.
    """

    trace: Trace
    front: float
    nodes: tuple[Node, ...]
    calls: tuple[Call, ...]

    @property
    def tokens(self) -> int:
        """Tokens of the whole recording."""
        return round(self.front + sum(node.tokens for node in self.nodes))


def recording_of(trace: Trace) -> Recording:
    """Return a recorded run as nodes and calls."""
    nodes: list[Node] = []
    calls: list[Call] = []
    front = len(trace.system) * trace.rate
    in_exchange, asked, unrecorded = False, None, None

    def add(text: str) -> None:
        nodes.append(Node(1, len(text) * trace.rate))

    for turn in trace.turns:
        if in_exchange:
            add(UNANSWERED)
        for text in (turn.task, *(note(said).text for said in turn.said)):
            add(text)
        in_exchange = False
        for step in turn.steps:
            before = front + sum(node.tokens for node in nodes)
            if unrecorded is None:
                unrecorded = max(0, (step.reported or 0) - round(before))
            cold = asked is None or step.asked - asked > CACHE_SECONDS
            calls.append(Call(step, len(nodes), cold, unrecorded))
            asked, in_exchange = step.asked, bool(step.calls)
            nodes.append(_exchange(step, trace))
            for said in step.said:
                add(note(said).text)
    return Recording(trace, front, tuple(nodes), tuple(calls))


def _exchange(step: Step, trace: Trace) -> Node:
    chars = len(step.text)
    for call in step.calls:
        arguments: object = orjson.loads(call.arguments) if call.arguments.strip() else {}
        chars += len(call.name) + len(orjson.dumps(arguments)) + len(call.result or "")
    return Node(1 + len(step.calls), chars * (step.rate or trace.rate))


# Policies


def everything(nodes: Sequence[Node], first: int) -> int:
    """Send the full history."""
    del nodes, first
    return 0


def last_messages(nodes: Sequence[Node], first: int) -> int:
    """Send the last 40 messages."""
    return max(first, _first_of(nodes, LAST_MESSAGES, lambda node: node.messages))


def window_by_one(nodes: Sequence[Node], first: int) -> int:
    """Send what fits into 30K tokens, dropping as little as possible each time."""
    return max(first, _first_of(nodes, WINDOW_TOKENS, lambda node: node.tokens))


def window_to_half(nodes: Sequence[Node], first: int) -> int:
    """Send up to 30K tokens; above that, drop the oldest until half is left."""
    if sum(node.tokens for node in nodes[first:]) <= WINDOW_TOKENS:
        return first
    return max(first, _first_of(nodes, WINDOW_TOKENS / 2, lambda node: node.tokens))


def _first_of(nodes: Sequence[Node], most: float, size: Callable[[Node], float]) -> int:
    """Return the first of the newest nodes that sum up to at most `most`; at least the newest."""
    total = 0.0
    for place in reversed(range(len(nodes))):
        total += size(nodes[place])
        if total > most:
            return min(place + 1, len(nodes) - 1)
    return 0


SLIDING: dict[str, Keep] = {
    "full history": everything,
    "last 40, each step": last_messages,
    "30K, each step": window_by_one,
    "30K, to half": window_to_half,
}
COMPACTION = "compacted at 150K"


def bills_of(recording: Recording, window: int) -> Iterator[tuple[str, Bill]]:
    """Yield the cost of each policy without a memory."""
    for name, keep in SLIDING.items():
        yield name, slid(recording, keep, window)
    yield COMPACTION, compacted(recording, window)


def slid(recording: Recording, keep: Keep, window: int) -> Bill:
    """Return the bill of a policy that drops the oldest nodes."""
    bill = Bill()
    first, sent = 0, 0.0
    for call in recording.calls:
        before, first = first, keep(recording.nodes[: call.nodes], first)
        shared = sent if first == before else recording.front
        sent = recording.front + sum(node.tokens for node in recording.nodes[first : call.nodes])
        _charge(bill, recording, call, sent, shared if bill.prompts else 0, window)
    return bill


def compacted(recording: Recording, window: int) -> Bill:
    """Return the bill of a model that summarizes once the prompt has 150K tokens.

    The newest node stays; the same model writes the summary, reading everything else once more,
    mostly from the cache.
    """
    bill = Bill()
    first, summary, sent = 0, 0.0, 0.0
    for call in recording.calls:
        shared = sent
        sent = _held(recording, first, call.nodes) + summary
        if sent > COMPACT_FROM:
            written = (sent - recording.front) / COMPACTED
            cached = 0 if call.cold else round(shared)
            bill.call(round(sent), cached, cold=call.cold, output=round(written))
            first, summary, shared = call.nodes - 1, written, recording.front
            sent = _held(recording, first, call.nodes) + summary
        _charge(bill, recording, call, sent, shared, window)
    return bill


def _held(recording: Recording, first: int, end: int) -> float:
    return recording.front + sum(node.tokens for node in recording.nodes[first:end])


def _charge(
    bill: Bill, recording: Recording, call: Call, sent: float, shared: float, window: int
) -> None:
    output = output_of(call.step, recording.trace)
    bill.call(round(sent), round(shared), cold=call.cold, output=output)
    bill.add_front(call.unrecorded, window)
