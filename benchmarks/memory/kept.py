"""What a measurement has done so far, in a folder: the same command continues there after a kill.

`answers.jsonl` has a line for each conversation that was remembered, and for each answer with its
question, the right answers and the verdict.  Each line also holds what its conversation has cost so
far.  The databases of conversations in progress are in `databases`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from agent_runtime.errors import ConfigError
from benchmarks.memory.data import Question
from benchmarks.memory.score import Answered, Spent, Tally

ANSWERS, SETUP, DATABASES = "answers.jsonl", "setup.json", "databases"


@dataclass(slots=True)
class KeptUnit:
    """What is known of a conversation with a context.

    Attributes:
        fed: whether its database is complete.
        tally: what it has cost.
        answers: by the question's id.
    """

    fed: bool = False
    tally: Tally = field(default_factory=Tally)
    answers: dict[str, Answered] = field(default_factory=dict[str, Answered])


class Kept:
    """The folder of a measurement, held by one process at a time.

    Args:
        setup: what decides the answers; a folder of another setup is refused.

    Raises:
        ConfigError: the folder is in use, of another measurement, or damaged.
    """

    def __init__(self, folder: Path, setup: Mapping[str, Any]) -> None:
        self.folder = folder
        self._units: dict[str, KeptUnit] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._file = self._opened()
        try:
            self._check(setup)
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def unit(self, name: str) -> KeptUnit:
        """Return what is known of a unit."""
        return self._units.setdefault(name, KeptUnit())

    def databases(self, name: str) -> Path:
        """Return the folder of a unit's databases; empty unless it is fed."""
        folder = self.folder / DATABASES / re.sub(r"[^\w.-]+", "-", name)
        if not self.unit(name).fed:
            # A kill may have left a part of the conversation.
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def fed(self, name: str, tally: Tally) -> None:
        """Record that a unit's database is complete."""
        self.unit(name).fed = True
        self._write({"unit": name, "fed": True, "tally": _tally_json(tally)})

    def answered(self, name: str, question: Question, answered: Answered, tally: Tally) -> None:
        """Record an answer with its question."""
        self.unit(name).answers[question.id] = answered
        asked = {"asked": question.text, "right": question.answers, "rubric": question.rubric}
        line = {"unit": name, **asdict(answered), **asked, "tally": _tally_json(tally)}
        self._write(line)

    def ended(self, name: str) -> None:
        """Delete the databases of a unit of which all questions are answered."""
        shutil.rmtree(self.databases(name), ignore_errors=True)

    def _opened(self) -> BinaryIO:
        file = (self.folder / ANSWERS).open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise ConfigError(
                f"Another process measures in {self.folder}.",
                cure="Wait for it, or name another folder: --keep DIR.",
            ) from error
        return file

    def _check(self, setup: Mapping[str, Any]) -> None:
        path, wanted = self.folder / SETUP, orjson.loads(orjson.dumps(dict(setup)))
        try:
            found: Any = orjson.loads(path.read_bytes()) if path.exists() else None
        except ValueError:
            found = {}
        if found is None:
            path.write_bytes(orjson.dumps(wanted, option=orjson.OPT_INDENT_2))
        elif found != wanted:
            changed = sorted(one for one in wanted if found.get(one) != wanted[one])
            raise ConfigError(
                f"{self.folder} holds another measurement: {', '.join(changed) or SETUP} differs.",
                cure="Repeat its command to continue it, or name another folder: --keep DIR.",
            )

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        for line in self._file:
            # A kill may leave the last line unfinished; it is written again.
            if not line.endswith(b"\n"):
                break
            try:
                self._take(orjson.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{self.folder / ANSWERS} is damaged.",
                    cure="Repair or move it, or name another folder: --keep DIR.",
                ) from error
            whole += len(line)
        self._file.truncate(whole)

    def _take(self, row: dict[str, Any]) -> None:
        unit = self.unit(row["unit"])
        unit.tally = _tally_of(row["tally"])
        if row.get("fed"):
            unit.fed = True
            return
        known = {name: row[name] for name in Answered.__slots__}
        unit.answers[row["question"]] = Answered(**known)

    def _write(self, row: dict[str, Any]) -> None:
        self._file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        self._file.flush()
        # Answers of models cost money: a machine that stops must not lose them either.
        os.fsync(self._file.fileno())


def _tally_json(tally: Tally) -> dict[str, Any]:
    return {**asdict(tally), "why": sorted(tally.why)}


def _tally_of(row: dict[str, Any]) -> Tally:
    reader, observer, judge = (Spent(**row[name]) for name in ("reader", "observer", "judge"))
    return Tally(
        reader=reader,
        observer=observer,
        judge=judge,
        seconds=row["seconds"],
        observations=row["observations"],
        provisional=row["provisional"],
        late=row["late"],
        why=set(row["why"]),
    )
