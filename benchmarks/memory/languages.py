"""Rules, fidelity and parsing in many languages, on sentences that people wrote for it.

    python -m benchmarks.memory.languages --data FOLDER

`FOLDER/languages` holds a file `rules_LANG.jsonl` for each language.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_runtime.memory.observational.observer.notes_format import parse_notes
from agent_runtime.memory.observational.observer.sentences import binding
from agent_runtime.memory.observational.reflector.retention import lost_critical_lines
from agent_runtime.prompt.observation import Observation, ObservationLine, ObservationNotes

RULES = frozenset(("binds", "forbids", "prefers", "corrects"))
COLUMNS = ("rules found", "false alarms", "faithful kept", "inverted caught", "notes read")


@dataclass(slots=True)
class Tally:
    """What was right of how many, by column."""

    right: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLUMNS, 0))
    total: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLUMNS, 0))

    def add(self, column: str, right: bool) -> None:
        """Count one case."""
        self.right[column] += right
        self.total[column] += 1

    def row(self, name: str) -> str:
        """Return a row of a table."""
        cells = (f"{self.right[one]}/{self.total[one]}" for one in COLUMNS)
        return f"| {name} | {' | '.join(cells)} |"


def tallies(folder: Path) -> Iterator[tuple[str, Tally]]:
    """Yield the figures of each language."""
    for path in sorted(folder.glob("rules_*.jsonl")):
        tally = Tally()
        for line in path.read_text("utf-8").splitlines():
            _count(json.loads(line), tally)
        yield path.stem.removeprefix("rules_"), tally


def _count(row: dict[str, Any], tally: Tally) -> None:
    if row["type"] == "sentence" and row["speaker"] == "user":
        rule = not RULES.isdisjoint(row["labels"])
        tally.add("rules found" if rule else "false alarms", binding(row["text"]))
    elif row["type"] == "pair":
        tally.add("faithful kept", _kept(row["original"], row["keeps"]))
        tally.add("inverted caught", not _kept(row["original"], row["inverts"]))
    elif row["type"] == "observer":
        parsed = parse_notes(row["raw"])
        notes, intended = parsed.notes, row["intended"]
        lines = [{"at": one.at, "priority": one.priority, "text": one.text} for one in notes.lines]
        read = (lines, notes.task, notes.next_step, parsed.nothing)
        wanted = ("lines", "task", "next_step", "nothing")
        tally.add("notes read", read == tuple(intended[name] for name in wanted))


def _kept(original: str, reworded: str) -> bool:
    part = Observation(
        id=1,
        level=0,
        parent_id=None,
        first=1,
        last=1,
        notes=ObservationNotes((ObservationLine("", "critical", original),)),
    )
    notes = ObservationNotes((ObservationLine("", "critical", reworded),))
    return not lost_critical_lines(notes, [part])


def main(arguments: list[str]) -> int:
    """Print the figures of each language and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of recorded data")
    folder = parser.parse_args(arguments).data / "languages"
    total = Tally()
    print(f"| | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
    for code, tally in tallies(folder):
        print(tally.row(code))
        for column in COLUMNS:
            total.right[column] += tally.right[column]
            total.total[column] += tally.total[column]
    print(total.row("all"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
