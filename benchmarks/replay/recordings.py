"""Recorded runs of real agents, in the form in which the runtime would have seen them.

A trace is a dialogue in OpenAI's format.  `read_traces` turns it into turns: the user's task, the
answers with their calls and results, and messages that came in between.  Nothing is invented, and
only one thing is dropped, and counted: empty answers, which the runtime never logs.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import orjson
import zstandard

SOURCES = ("claude_code_traces", "swebench_mini_traces", "tau2_traces")
NO_TASK = "(No message of the user precedes this answer.)"
"""The task of a turn that the recording begins with an answer."""

_LEAST_CHARS = 200
"""A shorter exchange is no measure of the provider's tokens per character."""
_RATES = (0.2, 0.7)
"""Tokens per character outside of this come from parts that the recording lacks."""

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A tool call; `result` is None if none was recorded."""

    name: str
    arguments: str
    result: str | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """A message from outside the dialogue: from the user, or from elsewhere."""

    kind: Literal["steer", "background"]
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """An answer, its calls with their results, and messages before the next answer.

    Attributes:
        rate: the provider's tokens per character of this exchange; None if unknown.
        asked: when the model was called, in seconds since the epoch; 0 if unknown.
        reported: the prompt tokens that the provider reported.
    """

    text: str
    reasoning: str
    calls: tuple[RecordedCall, ...]
    said: tuple[Said, ...]
    rate: float | None
    asked: float = 0.0
    reported: int | None = None

    @property
    def complete(self) -> bool:
        """Whether every call has its result."""
        return all(call.result is not None for call in self.calls)


@dataclass(frozen=True, slots=True)
class Turn:
    """A user's message and the answers to it.

    It ends with an answer without calls, or was interrupted.

    Attributes:
        said: messages that came in before it began.
    """

    task: str
    said: tuple[Said, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run.

    Attributes:
        rate: the provider's tokens per character over the whole trace.
        empty: how many empty answers were dropped.
    """

    id: str
    source: str
    system: str
    turns: tuple[Turn, ...]
    rate: float
    empty: int

    @property
    def steps(self) -> int:
        """The number of answers."""
        return sum(len(turn.steps) for turn in self.turns)


def default_folder() -> Path | None:
    """Return the folder of recorded runs, `TEST_DATA_DIR`; None if it lacks one."""
    folder = Path(os.environ.get("TEST_DATA_DIR") or os.devnull)
    return folder if all((folder / source).is_dir() for source in SOURCES) else None


def read_traces(folder: Path, source: str) -> Iterator[Trace]:
    """Yield the traces of one source, in the order of its file."""
    with (folder / source / "traces.jsonl.zst").open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        # Only "\n" ends a line: the texts contain other line separators.
        for line in io.TextIOWrapper(stream, encoding="utf-8", newline="\n"):
            yield _trace(source, orjson.loads(line))


def _trace(source: str, raw: Raw) -> Trace:
    messages = cast("list[Raw]", raw["messages"])
    system = ""
    if messages and messages[0]["role"] == "system":
        system, messages = messages[0]["content"], messages[1:]
    reader = _Reader()
    for message in messages:
        reader.read(message)
    reader.end_user_chain()
    rate = reader.learn_rates()
    turns = _turns(reader.items)
    return Trace(str(raw["id"]), source, system, turns, rate, reader.empty)


# Reading message by message


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: str
    result: str | None = None
    failed: bool = False


@dataclass(slots=True)
class _Answer:
    text: str
    reasoning: str
    calls: list[_Call]
    reported: int | None
    before: int
    """Characters of the recording before it."""
    asked: float
    rate: float | None = None


@dataclass(slots=True)
class _Reader:
    """The parts read so far: answers, user messages (`str`), and other messages (`Said`)."""

    items: list[_Answer | str | Said] = field(default_factory=list[_Answer | str | Said])
    now: float = 0.0
    """The time of the last message read, as far as known."""
    chars: int = 0
    empty: int = 0
    open: dict[str, _Call] = field(default_factory=dict[str, _Call])
    chain: list[str] = field(default_factory=list[str])
    """The user's texts and own tool calls, until they address the agent."""
    epochs: list[list[_Answer]] = field(default_factory=lambda: [[]])
    """The answers between two compactions of the recorded prompt."""

    def read(self, message: Raw) -> None:
        text = message.get("content") or ""
        match message["role"]:
            case "event":
                self.epochs.append([])
            case "assistant":
                self._answer(message, text)
            case "tool":
                self._result(message, text)
            case "user":
                self._user(message, text)
            case _:
                self.items.append(Said("background", text))
        self.now = max(self.now, _seconds(message.get("ts")))
        self.chars += len(text)

    def _answer(self, message: Raw, text: str) -> None:
        self.end_user_chain()
        calls = [_Call(*_named(raw)) for raw in message.get("tool_calls") or ()]
        if not calls and not text.strip():
            self.empty += 1
            return
        reasoning = message.get("reasoning") or ""
        reported = _reported(message.get("usage"))
        # Its inputs have arrived by then; for the first answer only its own time is known.
        called_at = self.now or _seconds(message.get("ts"))
        answer = _Answer(text, reasoning, calls, reported, self.chars, called_at)
        self.open |= {call.id: call for call in calls}
        self.epochs[-1].append(answer)
        self.items.append(answer)
        self.chars += len(reasoning) + sum(len(call.name + call.arguments) for call in calls)

    def _result(self, message: Raw, text: str) -> None:
        if message.get("requestor") == "user" and self.chain:
            self.chain.append(text)
            return
        call = self.open.pop(message["tool_call_id"], None)
        if call is None:
            self.items.append(Said("background", text))
            return
        call.result, call.failed = text, bool(message.get("is_error"))

    def _user(self, message: Raw, text: str) -> None:
        calls = [_named(raw) for raw in message.get("tool_calls") or ()]
        self.chain += [text] if text.strip() else []
        self.chain += [f"(The user's own tool: {name} {arguments})" for _, name, arguments in calls]
        if not calls:
            self.end_user_chain()

    def end_user_chain(self) -> None:
        if self.chain:
            self.items.append("\n\n".join(self.chain))
        self.chain = []

    def learn_rates(self) -> float:
        """Set each exchange's rate by the reported prompt's growth; return the trace's rate."""
        grown = chars = 0
        for epoch in self.epochs:
            known = [answer for answer in epoch if answer.reported is not None]
            for one, after in pairwise(known):
                more = (after.reported or 0) - (one.reported or 0)
                size = after.before - one.before
                if more > 0 and size >= _LEAST_CHARS:
                    one.rate = min(max(more / size, _RATES[0]), _RATES[1])
                    grown, chars = grown + more, chars + size
        return grown / chars if chars else 0.25


def _named(raw: Raw) -> tuple[str, str, str]:
    return raw["id"], raw["function"]["name"], raw["function"]["arguments"]


def _seconds(stamp: str | float | None) -> float:
    """Return a recorded time in seconds since the epoch; 0 if there is none."""
    if isinstance(stamp, str):
        return datetime.fromisoformat(stamp).timestamp()
    return stamp or 0.0


def _reported(usage: Mapping[str, int] | None) -> int | None:
    """Return the prompt tokens that the provider reported, in any format."""
    if usage is None:
        return None
    if "input" in usage:
        return usage["input"] + usage["cache_read"] + usage["cache_write"]
    return usage.get("prompt", usage.get("prompt_tokens"))


# Turns


@dataclass(slots=True)
class _Turn:
    task: str
    said: list[Said]
    steps: list[tuple[_Answer, list[Said]]] = field(
        default_factory=list[tuple[_Answer, list[Said]]]
    )

    @property
    def under_way(self) -> bool:
        """Whether the agent has all results and is about to answer again."""
        if not self.steps:
            return False
        calls = self.steps[-1][0].calls
        return bool(calls) and all(call.result is not None for call in calls)


def _turns(items: Sequence[_Answer | str | Said]) -> tuple[Turn, ...]:
    turns: list[_Turn] = []
    waiting: list[Said] = []

    def begin(task: str) -> _Turn:
        turns.append(_Turn(task, list(waiting)))
        waiting.clear()
        return turns[-1]

    for item in items:
        current = turns[-1] if turns else None
        match item:
            case str() if current is not None and current.under_way:
                current.steps[-1][1].append(Said("steer", item))
            case str():
                begin(item)
            case Said() if current is not None and current.under_way:
                current.steps[-1][1].append(item)
            case Said() if current is not None and not current.steps:
                current.said.append(item)
            case Said():
                waiting.append(item)
            case _Answer():
                if waiting or current is None or not (current.under_way or not current.steps):
                    current = begin(NO_TASK)
                current.steps.append((item, []))
    if waiting:
        begin(NO_TASK)
    return tuple(_frozen(turn) for turn in turns)


def _frozen(turn: _Turn) -> Turn:
    steps = [
        Step(
            text=answer.text,
            reasoning=answer.reasoning,
            calls=tuple(
                RecordedCall(call.name, call.arguments, call.result, call.failed)
                for call in answer.calls
            ),
            said=tuple(said),
            rate=answer.rate,
            asked=answer.asked,
            reported=answer.reported,
        )
        for answer, said in turn.steps
    ]
    return Turn(turn.task, tuple(turn.said), tuple(steps))
