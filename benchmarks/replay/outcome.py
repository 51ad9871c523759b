"""The expected form of a recorded run in prompts and in the log, and the outcome of its replay."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from agent_runtime.messages import AssistantMessage, Note, PromptMessage, ToolResult, UserMessage
from agent_runtime.prompt.view import Entry
from benchmarks.replay.recordings import RecordedCall, Said, Step

HIDDEN = re.compile(r"(\d+) earlier messages of this thread are not shown[.;]")
STEER = "The user says, while you work: "
"""How the runtime introduces what a user says to a run at work."""
_OBSERVED = re.compile(r"<observed \w+ nodes (\d+) to (\d+)>\n")
_CUT = "characters are left out here"
_LONG = re.compile(
    r"\n\[\.\.\. (?P<all>[\d,]+) characters in all, of which the first (?P<part>[\d,]+) stand "
    r'here; recall\("upload:[0-9a-f-]{36}"\) opens the whole text \.\.\.\]'
)


@dataclass(frozen=True, slots=True)
class Piece:
    """The next expected part of the log: a message, or an answer with the results of its calls."""

    role: Literal["user", "assistant", "note"]
    text: str
    step: Step | None = None

    @property
    def size(self) -> int:
        """The number of its messages."""
        return 1 + (len(self.step.calls) if self.step else 0)


@dataclass(slots=True)
class Outcome:
    """The outcome of a trace.

    Attributes:
        steps: answers.
        activations: how many, by cause.
        hidden: messages that the last prompt did not show.
        capped: results that were shown truncated from the start.
        cut: results that were truncated later.
        shrunk: activations without all of the guaranteed recent messages.
        fullest: the largest prompt by the provider's count, as a share of its limit.
        above: prompts above the runtime's limit by the provider's count.
        refused: prompts above the provider's window.
        faults: descriptions of what was wrong; empty if nothing was.
        too_large: the runtime's message that something does not fit the window, if there was one.
        unavoidable: the part of that prompt that could not be truncated, as a share of its limit.
    """

    trace: str
    window: int
    steps: int = 0
    prompts: int = 0
    nodes: int = 0
    activations: Counter[str] = field(default_factory=Counter[str])
    hidden: int = 0
    capped: int = 0
    cut: int = 0
    shrunk: int = 0
    interrupted: int = 0
    fullest: float = 0.0
    above: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    too_large: str = ""
    unavoidable: float = 0.0
    faults: list[str] = field(default_factory=list[str])


def note(said: Said) -> Piece:
    """Return the log's form of a message that came in."""
    steer = STEER if said.kind == "steer" else ""
    return Piece("note", steer + said.text)


def note_within(shown: str, text: str) -> str:
    """Return the form in which a message that came in stands in a text; empty if it does not.

    Of a message that would fill the window, the beginning and its length stand there.
    """
    if text in shown:
        return text
    said = text.removeprefix(STEER)
    intro = text[: len(text) - len(said)]
    for long in _LONG.finditer(shown):
        part, whole = (int(long[name].replace(",", "")) for name in ("part", "all"))
        # One that is posted is cut without what introduces it, one for a small window with it.
        for before, rest in ((intro, said), ("", text)):
            form = before + rest[:part] + long[0]
            if whole == len(rest) and shown[: long.end()].endswith(form):
                return form
    return ""


def stands_for(block: Sequence[PromptMessage], piece: Piece, notes: Sequence[str]) -> bool:
    """Return whether messages of a prompt show a piece and the notes that ride in it."""
    first = block[0]
    if first.role != piece.role or first.text != piece.text:
        return False
    calls = piece.step.calls if piece.step else ()
    if [call.name for call in first.calls] != [call.name for call in calls]:
        return False
    for call, shown in zip(calls, block[1:], strict=True):
        known = call.result is None or shown.text.startswith(call.result)
        if not known and _CUT not in shown.text:
            return False
    rides = bool(calls) or not notes
    return rides and all(note_within(block[-1].text, note) for note in notes)


def observed_nodes(front: Sequence[PromptMessage]) -> list[tuple[int, int]]:
    """Return the intervals of nodes that the observations at the start of a prompt cover."""
    matches = itertools.takewhile(bool, (_OBSERVED.match(message.text) for message in front))
    return [(int(match[1]), int(match[2])) for match in matches if match]


def tiled(intervals: Sequence[tuple[int, int]]) -> int:
    """Return how many nodes, from the first on, the intervals cover; -1 if not each just once."""
    reached = 0
    for first, last in intervals:
        if first != reached + 1 or last < first:
            return -1
        reached = last
    return reached


def same(entry: Entry, piece: Piece) -> bool:
    """Return whether a node of the log equals a piece, byte for byte."""
    match entry.message:
        case UserMessage(text):
            return piece.role == "user" and text == piece.text
        case Note(text):
            return piece.role == "note" and note_within(text, piece.text) == text
        case AssistantMessage() as answer:
            if piece.role != "assistant" or answer.text != piece.text:
                return False
            step = piece.step
            if step is None:
                return not answer.calls
            made = [(call.name, call.arguments) for call in answer.calls]
            recorded = [(call.name, _object(call.arguments)) for call in step.calls]
            return (
                answer.reasoning == step.reasoning
                and made == recorded
                and all(map(_same_result, entry.results, step.calls))
            )


def _same_result(result: ToolResult, call: RecordedCall) -> bool:
    if call.result is None:
        return result.outcome == "interrupted"
    return (result.text, result.outcome) == (call.result, "error" if call.failed else "ok")


def _object(text: str) -> Mapping[str, Any]:
    return orjson.loads(text) if text.strip() else {}
