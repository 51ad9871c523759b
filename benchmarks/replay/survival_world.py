"""The identifiers that an agent needs again and still has: recorded runs, measured.

Identifiers here are independent of how a ledger finds them: they are matches of three patterns in
the arguments of tool calls (paths, symbols, hashes).  One is needed at an activation if it occurred
before and a later call uses it before it is shown again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson

from agent_runtime.memory.observational.thresholds import (
    MemoryThresholds,
    activation_due,
    measure,
    next_chunk,
)
from agent_runtime.messages import (
    AssistantMessage,
    Note,
    PromptMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    call_id,
)
from agent_runtime.prompt.build import extend_view, view_of
from agent_runtime.prompt.observation import Observation, ObservationNotes
from agent_runtime.prompt.view import ActivationContent, Entry, PromptPrefix, View
from agent_runtime.prompt.window import PromptLimits, plan_activation
from benchmarks.replay.recordings import Step, Trace

WINDOW, RESERVE = 200_000, 8_000
SHORTEST = 4
LONGEST = 200
_PART = r"(?:[\w.@+-]|\[[\w.]+\]|\([\w.]+\))+"
_EXTENSION = (
    r"c|cfg|cpp|css|csv|go|h|hpp|html|ini|ipynb|java|jsx?|json|jsonl|lock|log|md|mjs|php|png|pyi?|"
    r"rb|rs|rst|scss|sh|sql|svg|toml|tsx?|txt|vue|xml|ya?ml"
)
_IDENTIFIER = re.compile(
    rf"(?<![\w/%.])(?:{_PART}|~|\.{{0,2}})(?:/{_PART})+/?"
    rf"|\b[\w-]+(?:\.[\w-]+)*\.(?:{_EXTENSION})\b"
    r"|\b[A-Za-z_]\w*_\w*[A-Za-z0-9]\b|\b[a-z][a-z0-9]*[A-Z]\w*\b|\b[A-Z]+[a-z0-9]+[A-Z]\w*\b"
    r"|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"
)
_URL = re.compile(r"\w+://\S*")
_NAMED = re.compile(r"(?<=\n)\[\.\.\. also named there: .* \.\.\.\]")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Needed:
    """An identifier that the agent needs again after an activation.

    Attributes:
        raw: whether the raw messages or the pinned task still show it; an activation shows only the
            start and end of old results.
        named: whether it is among the names that a truncated result lists.
    """

    name: str
    raw: bool
    named: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """An activation.

    Attributes:
        chunks: how many of the trace's chunks have left the prompt.
    """

    chunks: int
    needed: tuple[Needed, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """A recorded run with the default thresholds.

    Attributes:
        chunks: the intervals of the observations, oldest first.
        moments: its activations.
    """

    id: str
    chunks: tuple[tuple[Entry, ...], ...]
    moments: tuple[Moment, ...]


def live(trace: Trace, bands: MemoryThresholds) -> Life:
    """Return what leaves the prompt when, and what is needed then.

    Observations are ready at once, so each activation happens as early as possible.
    """
    entries = entries_of(trace)
    texts = ["\n".join(texts_of(entry)) for entry in entries]
    tokens = sum(entry.tokens for entry in entries)
    ratio = max(1.0, trace.rate * sum(map(len, texts)) / max(1, tokens))
    chunks, activations = _activations(entries, bands, ratio)
    uses = _Uses(entries, texts, trace.system)
    moments = tuple(
        Moment(count, tuple(uses.needed(view.anchor or 0, view))) for view, count in activations
    )
    # The entries as first sent: an activation may have truncated their results since.
    whole = tuple(tuple(entries[chunk.first - 1 : chunk.last]) for chunk in chunks)
    return Life(trace.id, whole, moments)


def _activations(
    entries: Sequence[Entry], bands: MemoryThresholds, ratio: float
) -> tuple[list[Observation], list[tuple[View, int]]]:
    """Return the chunks' observations, and the view after each activation with their number."""
    room = PromptLimits(WINDOW, RESERVE, bands.last_messages)
    view = view_of(0, None, ActivationContent(), PromptPrefix(""), None, ())
    chunks: list[Observation] = []
    activations: list[tuple[View, int]] = []
    standing = 0
    task: Entry | None = None
    for place, entry in enumerate(entries):
        view = extend_view(view, replace(entry, prompt=(), tokens=0))
        task = entry if isinstance(entry.message, UserMessage) else task
        if place + 1 < len(entries) and isinstance(entries[place + 1].message, Note):
            continue
        while chunk := next_chunk(measure(view.entries, chunks[standing:], ratio), bands):
            chunks.append(_stand_in(chunk, len(chunks) + 1))
        if activation_due(measure(view.entries, chunks[standing:], ratio), bands):
            view = plan_activation(
                view,
                room,
                cause="observed",
                estimate=lambda counted: round(counted * ratio),
                nonce="n",
                task=task,
                remembers=True,
                ready=chunks[standing:],
                standing=chunks,
            )
            standing = len(chunks)
            activations.append((view, standing))
    return chunks, activations


def _stand_in(chunk: Sequence[Entry], identity: int) -> Observation:
    first, last = chunk[0], chunk[-1]
    return Observation(identity, 0, first.parent_id, first.seq, last.seq, ObservationNotes(()))


class _Uses:
    """The places in a run where identifiers of its tool calls occur, and where calls use them."""

    def __init__(self, entries: Sequence[Entry], texts: Sequence[str], system: str) -> None:
        words: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            for word in set(_WORD.findall(text)):
                words.setdefault(word, []).append(place)
        self._used: dict[str, list[int]] = {}
        for place, entry in enumerate(entries):
            for name in dict.fromkeys(_identifiers("\n".join(arguments_of(entry)))):
                self._used.setdefault(name, []).append(place)
        self._shown: dict[str, list[int]] = {}
        for name, used in list(self._used.items()):
            if occurs(name, system):
                del self._used[name]
                continue
            places = min((words[word] for word in _WORD.findall(name)), key=len)
            seen = {place for place in places if occurs(name, texts[place])}
            self._shown[name] = sorted(seen | set(used))

    def needed(self, anchor: int, view: View) -> Iterator[Needed]:
        """Yield what is needed after a node, and whether the view's raw messages show it."""
        at, first = anchor - 1, (view.start.first or 1) - 1
        messages = [message for entry in view.entries for message in entry.prompt]
        sent = "\n".join(text for message in messages for text in _sent(message))
        raw, named = _NAMED.sub("", sent), "\n".join(_NAMED.findall(sent))
        task = view.task.message.text if view.task else ""
        for name, used in self._used.items():
            shown = self._shown[name]
            use, sight = bisect_right(used, at), bisect_right(shown, at)
            # It was not shown again before that use if the use is its first occurrence after the
            # node.
            if not sight or use == len(used) or shown[sight] != used[use]:
                continue
            recent = bisect_left(shown, first) < sight
            in_raw = (recent and occurs(name, raw)) or occurs(name, task)
            yield Needed(name, in_raw, recent and occurs(name, named))


def _sent(message: PromptMessage) -> Iterator[str]:
    yield message.text
    for call in message.calls:
        yield from _leaves(call.arguments)


def _identifiers(text: str) -> Iterator[str]:
    for match in _IDENTIFIER.finditer(_URL.sub(" ", text)):
        name = match[0].rstrip(".-/").removeprefix("./")
        if SHORTEST <= len(name) <= LONGEST and re.search("[A-Za-z]", name):
            yield name


def occurs(name: str, text: str) -> bool:
    """Return whether an identifier occurs in a text other than inside a longer word."""
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        open_before = not (name[0].isalnum() or name[0] == "_")
        clear_before = start == 0 or not (text[start - 1].isalnum() or text[start - 1] == "_")
        clear_after = end == len(text) or not (text[end].isalnum() or text[end] == "_")
        if (open_before or clear_before) and clear_after:
            return True
        start = text.find(name, start + 1)
    return False


# A recorded run as entries


def entries_of(trace: Trace) -> list[Entry]:
    """Return a recorded run as the entries of a prompt."""
    entries: list[Entry] = []

    def add(message: UserMessage | AssistantMessage | Note, *results: ToolResult) -> None:
        seq = len(entries) + 1
        entries.append(Entry(seq, seq - 1 or None, message, results, (None,) * len(results)))

    for turn in trace.turns:
        add(UserMessage(turn.task))
        for said in turn.said:
            add(Note(said.text, "steer" if said.kind == "steer" else "background"))
        for step in turn.steps:
            calls, results = _calls(step, len(entries) + 1)
            add(AssistantMessage(step.text, calls), *results)
            for said in step.said:
                add(Note(said.text, "steer" if said.kind == "steer" else "background"))
    return list(view_of(0, None, ActivationContent(), PromptPrefix(""), None, entries).entries)


def _calls(step: Step, seq: int) -> tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]]:
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    for index, call in enumerate(step.calls):
        arguments = cast("dict[str, Any]", orjson.loads(call.arguments or "{}"))
        calls.append(ToolCall(call_id(seq, index), call.name, arguments))
        outcome = "interrupted" if call.result is None else "error" if call.failed else "ok"
        results.append(ToolResult(call.result or "", outcome))
    return tuple(calls), tuple(results)


def texts_of(entry: Entry) -> Iterator[str]:
    """Yield the texts of an entry that the agent saw."""
    yield entry.message.text
    yield from arguments_of(entry)
    for result in entry.results:
        yield result.text


def arguments_of(entry: Entry) -> Iterator[str]:
    """Yield the texts in the arguments of an entry's calls."""
    if isinstance(entry.message, AssistantMessage):
        for call in entry.message.calls:
            yield from _leaves(call.arguments)


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for nested in cast("dict[str, object]", value).values():
            yield from _leaves(nested)
    elif isinstance(value, list):
        for nested in cast("list[object]", value):
            yield from _leaves(nested)
    elif value is not None:
        yield str(value)
