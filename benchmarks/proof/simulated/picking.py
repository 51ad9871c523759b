"""What a pick may take, computed in Python from the rows before it, to compare the SQL with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

SUSPECT = 2
"""The takeovers from which on a process tries one run of that kind at a time."""


class Candidate(NamedTuple):
    """A row of the queue, with its run and its thread."""

    user: str
    run: str
    thread: str
    program: str
    agent: str
    version: str
    model: str
    state: str
    tag: float
    enqueued_at: float
    due_at: float | None
    status: str
    lease_until: float | None
    active_run: str | None
    takeovers: int
    instance: str | None
    stepped: int


@dataclass(slots=True)
class Picks:
    """The picks that are right.

    Attributes:
        by_thread: of each thread the runs of which one, and only one, has to be picked.
    """

    by_thread: dict[tuple[str, str], set[tuple[str, str]]] = field(
        default_factory=dict[tuple[str, str], set[tuple[str, str]]]
    )

    def fault_of(self, picked: Set[tuple[str, str]]) -> str:
        """Return what is wrong with a pick; empty if nothing is."""
        known = {run for runs in self.by_thread.values() for run in runs}
        if extra := picked - known:
            return f"{sorted(extra)} were picked, and only {sorted(known)} may be"
        for thread, runs in self.by_thread.items():
            if len(runs & picked) != 1:
                return f"of {sorted(runs)} on {thread} {sorted(runs & picked)} were picked"
        return ""


def possible_picks(rows: Sequence[Candidate], claim: Mapping[str, Any], now: float) -> Picks:
    """Return what a pick may take.

    Args:
        claim: the parameters of the statement that claims.
        now: by the database's clock.
    """
    waiting: list[Candidate] = []
    working: list[Candidate] = []
    first = min((row.tag for row in rows if row.state == "waiting"), default=0.0)
    for row in rows:
        due = row.due_at is not None and row.due_at <= now
        if row.state in ("delayed", "parked") and due:
            waiting.append(row._replace(tag=max(row.tag, first)))
        elif row.state == "waiting":
            waiting.append(row)
        elif row.state == "working" and _is_lost(row, now):
            waiting.append(row._replace(takeovers=1 if row.stepped else row.takeovers + 1))
        elif row.state == "working":
            working.append(row)
    known = {tuple(one) for one in orjson.loads(claim["known"])}
    limits = (claim["per_user"], claim["per_agent"], claim["per_model"])
    at_work = [Counter(column) for column in zip(*map(_limited, working), strict=True)]
    at_work = at_work or [Counter[Any]() for _ in limits]

    def is_free(row: Candidate, counts: Sequence[Counter[Any]]) -> bool:
        return all(
            limit is None or count[what] < limit
            for limit, count, what in zip(limits, counts, _limited(row), strict=True)
        )

    due = sorted(
        (row for row in waiting if _is_due(row, known, now) and is_free(row, at_work)),
        key=_turn,
    )
    suspects = [row for row in due if row.takeovers >= SUSPECT][:1]
    if any(_is_tried(row, claim["instance"]) for row in working):
        suspects = []
    counts = [Counter(count) for count in at_work]
    for row in suspects:
        _count(counts, row)
    others = [row for row in due if row.takeovers < SUSPECT and is_free(row, counts)]
    found = Picks()
    for row in sorted([*suspects, *others[: claim["slots"] - len(suspects)]], key=_turn):
        if is_free(row, at_work):
            found.by_thread.setdefault((row.user, row.thread), set()).add((row.user, row.run))
        # One that is let go again counts for those behind it all the same.
        _count(at_work, row)
    return found


def _turn(row: Candidate) -> tuple[float, float, str]:
    return row.tag, row.enqueued_at, row.run


def _count(counts: Sequence[Counter[Any]], row: Candidate) -> None:
    for count, what in zip(counts, _limited(row), strict=True):
        count[what] += 1


def _is_tried(row: Candidate, instance: str) -> bool:
    """Return whether a process has a suspect at work that has not made a step yet."""
    tried = row.takeovers >= SUSPECT and not row.stepped and row.status == "running"
    return tried and row.instance == instance


def _limited(row: Candidate) -> tuple[str, tuple[str, str], str]:
    return row.user, (row.program, row.agent), row.model


def _is_lost(row: Candidate, now: float) -> bool:
    return row.status == "running" and row.lease_until is not None and row.lease_until <= now


def _is_due(row: Candidate, known: Set[tuple[Any, ...]], now: float) -> bool:
    if (row.program, row.agent, row.version) not in known:
        return False
    if row.status not in ("queued", "suspended", "failed") and not _is_lost(row, now):
        return False
    return row.active_run is None or row.active_run == row.run
