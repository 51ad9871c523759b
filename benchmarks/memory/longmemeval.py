"""LongMemEval: what a reader knows of months of chats, with memory, without, and with all of them.

`--data DIR` names the folder of the official file (`longmemeval_s_cleaned.json`, downloaded if
missing) or of histories in the same format as JSON lines (`longmemeval/haystacks.jsonl.zst`).  See
`benchmarks.memory.measure` for the method.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from agent_runtime.errors import ConfigError
from benchmarks.frame import Report
from benchmarks.memory import measure as qa
from benchmarks.memory.data import (
    Conversation,
    Question,
    Raw,
    Session,
    Turn,
    find_file,
    malformed,
    read_rows,
)
from benchmarks.memory.fetch import fetch

HOME = "https://huggingface.co/datasets/xiaowu0162/longmemeval-cleaned/resolve/main"
FILES = {
    "s": "longmemeval_s_cleaned.json",
    "m": "longmemeval_m_cleaned.json",
    "oracle": "longmemeval_oracle.json",
}
DATES = ("%Y/%m/%d (%a) %H:%M", "%Y-%m-%dT%H:%M:%S")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    qa.add_arguments(parser)
    parser.add_argument("--variant", choices=FILES, default="s", help="of the official files")
    parser.add_argument(
        "--planted",
        action="store_true",
        help="ask about the turns of `longmemeval/evidence` too, put into the histories by date",
    )


def run(args: argparse.Namespace) -> Report:
    """Ask every question with every context. Blocks until it is done."""
    folder = qa.folder_of(args)
    conversations = read(folder, args.variant)
    if args.planted:
        conversations = planted(conversations, folder)
    return qa.measure("longmemeval", conversations, args)


def read(folder: Path, variant: str = "s") -> list[Conversation]:
    """Return a conversation for each question: its history.

    Raises:
        ConfigError: the file is missing and cannot be downloaded, or has another format.
    """
    name = FILES[variant]
    path = find_file(folder, name, f"longmemeval/{name}")
    if path is None and variant == "s":
        path = find_file(folder, "longmemeval/haystacks.jsonl.zst", "haystacks.jsonl.zst")
    path = path or fetch(folder / name, f"{HOME}/{name}")
    try:
        return [_conversation(raw) for raw in read_rows(path)]
    except (KeyError, TypeError, AttributeError) as error:
        raise malformed(path, error) from error


def _conversation(raw: Raw) -> Conversation:
    if "sessions" in raw:
        sessions = [(one["session_id"], one["date"], one["turns"]) for one in raw["sessions"]]
    else:
        sessions = list(
            zip(
                raw["haystack_session_ids"],
                raw["haystack_dates"],
                raw["haystack_sessions"],
                strict=True,
            )
        )
    evidence = [
        f"{session}:{index}"
        for session, _, turns in sessions
        for index, turn in enumerate(turns)
        if turn.get("has_answer")
    ]
    read = [
        Session(_written(date), tuple(_turns(str(session), turns)))
        for session, date, turns in sessions
    ]
    return Conversation(str(raw["question_id"]), tuple(read), (_question(raw, evidence),))


def _turns(session: str, turns: list[Raw]) -> list[Turn]:
    return [
        Turn(f"{session}:{index}", turn["role"], turn["content"])
        for index, turn in enumerate(turns)
    ]


def _question(raw: Raw, evidence: list[str]) -> Question:
    answer: Any = raw["answer"]
    answers = cast("list[Any]", answer if isinstance(answer, list) else [answer])
    abstains = bool(raw.get("abstention", "_abs" in raw["question_id"]))
    return Question(
        id=str(raw["question_id"]),
        kind="abstention" if abstains else raw["question_type"],
        text=raw["question"],
        date=raw["question_date"],
        answers=tuple(map(str, answers)),
        evidence=tuple(evidence),
        abstains=abstains,
    )


def _written(date: str) -> str:
    """Return a session's date in the format of the questions' dates."""
    when = _time(date)
    return date if when == datetime.max else when.strftime(DATES[0])


def _time(date: str) -> datetime:
    for form in DATES:
        try:
            return datetime.strptime(date, form)
        except ValueError:
            continue
    return datetime.max


def planted(conversations: list[Conversation], folder: Path) -> list[Conversation]:
    """Return the histories with the evidence of other questions inserted among their sessions by
    date.

    Of those histories only the turns with an answer are known; the questions are dealt out in turn.

    Raises:
        ConfigError: the folder has no such evidence.
    """
    path = find_file(folder, "longmemeval/evidence.jsonl.zst", "evidence.jsonl.zst")
    if path is None:
        raise ConfigError(
            f"{folder} has no evidence.jsonl.zst to plant.", cure="Leave --planted out."
        )
    taken = {conversation.id for conversation in conversations}
    rows = [raw for raw in read_rows(path) if raw["question_id"] not in taken]
    histories: list[Conversation] = []
    for place, one in enumerate(conversations):
        sessions, questions = list(one.sessions), list(one.questions)
        for raw in rows[place :: len(conversations)]:
            more = _planted_sessions(raw)
            evidence = [turn.id for session in more for turn in session.turns]
            sessions += more
            questions.append(_question(raw, evidence))
        sessions.sort(key=lambda session: _time(session.date))
        histories.append(Conversation(one.id, tuple(sessions), tuple(questions)))
    return histories


def _planted_sessions(raw: Raw) -> list[Session]:
    return [
        Session(
            _written(session["date"]),
            tuple(_turns(f"{raw['question_id']}:{session['session']}", session["turns"])),
        )
        for session in raw["evidence_sessions"]
    ]
