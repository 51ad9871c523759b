"""LoCoMo: what a reader knows of two people's talks, with memory, without, and with all of them.

`--data DIR` names the folder of the official file (`locomo10.json`, downloaded if missing) or of
its conversations as JSON lines (`locomo/locomo.jsonl.zst`).  One speaker is the thread's user and
the other its assistant; each message names its speaker.  See `benchmarks.memory.measure` for the
method.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import cast

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

FILE = "locomo10.json"
HOME = "https://raw.githubusercontent.com/snap-research/locomo/main/data"
KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
THRESHOLDS = (5_000, 6_000)
"""A conversation has about 20,000 tokens, so the default thresholds would never be reached."""

_TURN = re.compile(r"D\d+:\d+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    qa.add_arguments(parser, thresholds=THRESHOLDS)


def run(args: argparse.Namespace) -> Report:
    """Ask every question with every context. Blocks until it is done."""
    return qa.measure("locomo", read(qa.folder_of(args)), args)


def read(folder: Path) -> list[Conversation]:
    """Return the conversations.

    Raises:
        ConfigError: the file is missing and cannot be downloaded, or has another format.
    """
    path = find_file(folder, FILE, f"locomo/{FILE}", "locomo/locomo.jsonl.zst", "locomo.jsonl.zst")
    path = path or fetch(folder / FILE, f"{HOME}/{FILE}")
    try:
        return [_conversation(raw) for raw in read_rows(path)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise malformed(path, error) from error


def _conversation(raw: Raw) -> Conversation:
    talks = cast("Raw", raw["conversation"])
    first = talks["speaker_a"]
    numbers = sorted(
        int(name.removeprefix("session_"))
        for name, turns in talks.items()
        if isinstance(turns, list)
    )
    sessions = [
        Session(
            talks[f"session_{number}_date_time"],
            tuple(_turn(turn, first) for turn in talks[f"session_{number}"]),
        )
        for number in numbers
    ]
    name = str(raw["sample_id"])
    questions = [_question(f"{name}:{place}", one) for place, one in enumerate(raw["qa"])]
    return Conversation(name, tuple(sessions), tuple(questions))


def _turn(raw: Raw, first: str) -> Turn:
    seen = raw.get("blip_caption")
    text = f"{raw['speaker']}: {raw.get('text') or ''}"
    text = f"{text} [shares {seen}]" if seen else text
    return Turn(raw["dia_id"], "user" if raw["speaker"] == first else "assistant", text)


def _question(name: str, raw: Raw) -> Question:
    kind = int(raw["category"])
    # An adversarial question asks one speaker about the other's statements.
    abstains = kind == 5
    named = " ".join(map(str, raw["evidence"]))
    return Question(
        id=name,
        kind=KINDS[kind],
        text=raw["question"],
        answers=() if abstains else (str(raw["answer"]),),
        evidence=tuple(_TURN.findall(named)),
        abstains=abstains,
    )
