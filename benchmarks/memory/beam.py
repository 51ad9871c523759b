"""BEAM: what a reader knows of chats of 100K to 1M tokens, with memory, without, and with all.

`--data DIR` names the folder of the official files (`chats/SIZE/NUMBER/...`, downloaded if missing)
or of the chats of a size as JSON lines (`beam/beam_100k.jsonl.zst`).  See
`benchmarks.memory.measure` for the method.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

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

HOME = "https://raw.githubusercontent.com/mohammadtavakoli78/BEAM/main/chats"
CHATS = {"100K": 20, "500K": 35, "1M": 35}
"""The number of chats of each size in the official set."""
FULL, SHORT, ASKED = (
    "chat.json",
    "chat_trunecated.json",
    "probing_questions/probing_questions.json",
)
"""The files of a chat.  If there is a shortened one (so spelt), the questions are about that."""

_MARK = re.compile(r"\s*->->\s*[\d,. ]+\s*$")
"""A leftover of the makers' own plan at the end of messages."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    qa.add_arguments(parser)
    parser.add_argument("--size", choices=CHATS, default="100K", help="of the chats, in tokens")


def run(args: argparse.Namespace) -> Report:
    """Ask every question with every context. Blocks until it is done."""
    return qa.measure("beam", read(qa.folder_of(args), args.size), args)


def read(folder: Path, size: str = "100K") -> list[Conversation]:
    """Return the chats of a size.

    Raises:
        ConfigError: a file is missing and cannot be downloaded, or has another format.
    """
    name = f"beam_{size.lower()}.jsonl.zst"
    path = find_file(folder, f"beam/{name}", name)
    if path is None:
        return [
            _official(folder / "chats" / size / str(number), f"{size}/{number}")
            for number in range(1, CHATS[size] + 1)
        ]
    try:
        rows = read_rows(path)
        return [_conversation(raw["id"], raw["messages"], raw["questions"]) for raw in rows]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise malformed(path, error) from error


def _official(folder: Path, name: str) -> Conversation:
    questions_file = fetch(folder / ASKED, f"{HOME}/{name}/{ASKED}")
    chat = find_file(folder, SHORT, FULL)
    chat = chat or fetch(folder / FULL, f"{HOME}/{name}/{SHORT}", f"{HOME}/{name}/{FULL}")
    try:
        messages = [
            message
            for batch in read_rows(chat)
            for turn in batch["turns"]
            for message in cast("list[Raw]", turn)
        ]
        questions: list[Raw] = [
            {
                "ability": ability,
                **question,
                "source_chat_ids": list(_flat(question.get("source_chat_ids"))),
            }
            for ability, of_ability in read_rows(questions_file)[0].items()
            for question in cast("list[Raw]", of_ability)
        ]
        return _conversation(name, messages, questions)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise malformed(chat, error) from error


def _flat(ids: Any) -> Iterator[int]:
    """Yield the numbers anywhere in nested lists and objects."""
    match ids:
        case dict():
            for nested in cast("dict[str, Any]", ids).values():
                yield from _flat(nested)
        case list():
            for nested in cast("list[Any]", ids):
                yield from _flat(nested)
        case int():
            yield ids
        case _:
            return


def _conversation(name: str, messages: list[Raw], questions: list[Raw]) -> Conversation:
    sessions: list[tuple[str, list[Turn]]] = []
    for message in messages:
        date = message.get("time_anchor")
        if date or not sessions:
            sessions.append((str(date or ""), []))
        text = _MARK.sub("", message["content"])
        sessions[-1][1].append(Turn(str(message["id"]), message["role"], text))
    parsed = [_question(f"{name}:{place}", raw) for place, raw in enumerate(questions)]
    return Conversation(
        name, tuple(Session(date, tuple(turns)) for date, turns in sessions), tuple(parsed)
    )


def _question(name: str, raw: Raw) -> Question:
    forms = ("answer", "ideal_answer", "ideal_response", "ideal_summary", "expected_compliance")
    answer = next((str(raw[form]) for form in forms if raw.get(form)), "")
    evidence = dict.fromkeys(str(chat_id) for chat_id in raw["source_chat_ids"])
    return Question(
        id=name,
        kind=raw["ability"],
        text=raw["question"],
        answers=(answer,) if answer else (),
        rubric=tuple(map(str, raw["rubric"])),
        evidence=tuple(evidence),
        abstains=raw["ability"] == "abstention",
    )
