"""Conversations with questions about them: the common format of the memory benchmarks.

Each benchmark reads its own files into `Conversation`s; `exchanges_of` turns one into the messages
of a thread, with the session's date before each user message.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import orjson
import zstandard

from agent_runtime.errors import ConfigError

GOES_ON = "(The conversation goes on.)"
"""The user's message where a recorded session begins with an answer."""
UNANSWERED = "(No answer was recorded.)"
"""The answer where the recording has none."""

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message; questions refer to its `id`."""

    id: str
    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Session:
    """Consecutive turns; `date` in the benchmark's format, empty if unknown."""

    date: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a conversation.

    Attributes:
        kind: the question type, by which scores are reported.
        date: when it is asked; empty if unknown.
        answers: the right answers; one of them is enough.
        rubric: points that an answer has to contain, each counted separately; `answers` then only
            help the judge.
        evidence: the turns with the answer.
        abstains: whether the right answer is that the conversation does not say.
    """

    id: str
    kind: str
    text: str
    date: str = ""
    answers: tuple[str, ...] = ()
    rubric: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    abstains: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """Sessions in order, and the questions asked afterwards."""

    id: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]

    def text_of(self, turn_ids: Sequence[str]) -> tuple[str, ...]:
        """Return the texts of these turns; unknown ids are skipped."""
        texts = {turn.id: turn.text for session in self.sessions for turn in session.turns}
        return tuple(texts[turn_id] for turn_id in turn_ids if turn_id in texts)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user's message and the answer."""

    said: str
    answer: str


def exchanges_of(conversation: Conversation) -> list[Exchange]:
    """Return the messages of a thread: each user message with its date and the answer to it."""
    exchanges: list[Exchange] = []
    for session in conversation.sessions:
        date = f"[{session.date}] " if session.date else ""
        waiting: str | None = None
        answers: list[str] = []

        def end(waiting: str | None, answers: list[str], date: str = date) -> None:
            if waiting is not None or answers:
                answer = "\n\n".join(answers) or UNANSWERED
                exchanges.append(Exchange(date + (waiting or GOES_ON), answer))

        for turn in session.turns:
            if not turn.text.strip():
                continue
            if turn.role == "assistant":
                answers.append(turn.text)
                continue
            end(waiting, answers)
            waiting, answers = turn.text, []
        end(waiting, answers)
    return exchanges


def sample(conversations: Sequence[Conversation], limit: int | None) -> list[Conversation]:
    """Return the conversations with at most `limit` questions in all, evenly spaced."""
    places = [
        (number, question) for number, one in enumerate(conversations) for question in one.questions
    ]
    if limit is not None and limit < len(places):
        places = [places[index * len(places) // limit] for index in range(limit)]
    chosen: dict[int, list[Question]] = {}
    for number, question in places:
        chosen.setdefault(number, []).append(question)
    return [
        replace(conversations[number], questions=tuple(questions))
        for number, questions in chosen.items()
    ]


# Files


def find_file(folder: Path, *names: str) -> Path | None:
    """Return the first of these files in the folder; None if there is none."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_rows(path: Path) -> list[Raw]:
    """Return the objects of a file: JSON, or JSON lines, plain or compressed by gzip or zstd.

    Raises:
        ConfigError: it is none of these.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        elif path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        if ".jsonl" in path.suffixes:
            return [orjson.loads(line) for line in data.split(b"\n") if line.strip()]
        rows = orjson.loads(data)
    except (OSError, EOFError, ValueError, zstandard.ZstdError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}.", cure="Delete it to fetch it again."
        ) from error
    return cast("list[Raw]", rows if isinstance(rows, list) else [rows])


def malformed(path: Path, error: Exception) -> ConfigError:
    """Return the error for a file that is not in its benchmark's format."""
    what = f"{type(error).__name__}: {error}"
    return ConfigError(
        f"{path} has another form than expected ({what}).",
        cure="Delete it to have the official file fetched, or name another folder: --data DIR.",
    )
