"""Observations to condense, for the tests of reflection."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.memory.observational.reflector.base import Reflection
from agent_runtime.prompt.observation import (
    Observation,
    ObservationLine,
    ObservationNotes,
    Priority,
)

PRIORITIES: list[Priority] = ["critical", "important", "info", "info", "done", "done"]


def chain(
    notes: Sequence[ObservationNotes], ledgers: Sequence[tuple[str, ...]] = ()
) -> list[Observation]:
    """Return consecutive observations of ten nodes each."""
    return [
        Observation(
            id=place + 1,
            level=0,
            parent_id=place * 10 or None,
            first=place * 10 + 1,
            last=place * 10 + 10,
            notes=one,
            ledger=ledgers[place] if ledgers else (f"src/file_{place}.py",),
        )
        for place, one in enumerate(notes)
    ]


def work(place: int, lines: int = 20) -> ObservationNotes:
    """Return notes of ordinary work, with one critical line, a rule of the user."""
    at = f"2026-11-{place % 28 + 1:02} 10:00"
    looks = [
        ObservationLine(
            at, "info", f"Looked at module {place}.{number} and what it imports from elsewhere"
        )
        for number in range(lines)
    ]
    rule = ObservationLine(at, "critical", f"User: never touch the table legacy_{place}")
    done = ObservationLine(
        at, "done", f"Changed the parser of part {place}, all of its tests pass now"
    )
    return ObservationNotes((rule, *looks, done), task=f"Port part {place} to the new schema")


def of(parts: Sequence[Observation], share: float = 0.4) -> Reflection:
    tokens = sum(part.tokens for part in parts)
    return Reflection(tuple(parts), int(tokens * share))
