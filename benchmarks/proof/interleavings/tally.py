"""What the benchmarks of interleavings have in common: their options, what is counted, a report."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.backends import BACKENDS
from benchmarks.frame import Report, Target, at_least, at_most

SHOWN = 3
"""How many failing seeds are shown with all that is wrong."""
LONGEST = 60.0
"""Seconds after which an interleaving hangs."""


class Action(Protocol):
    """What was done, and what came of it."""

    @property
    def what(self) -> str: ...
    @property
    def outcome(self) -> str: ...


class Judged(Protocol):
    """What came of one interleaving."""

    @property
    def seed(self) -> int: ...
    @property
    def problems(self) -> Sequence[str]: ...
    @property
    def history(self) -> Sequence[Action]: ...


@dataclass(slots=True)
class Tally:
    """What came of all interleavings."""

    verdicts: int = 0
    failed: list[int] = field(default_factory=list[int])
    """The seeds."""
    outcomes: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def add(self, verdict: Judged) -> None:
        """Count a verdict, and say at once what is wrong."""
        self.verdicts += 1
        for op in verdict.history:
            self.outcomes.setdefault(op.what, Counter())[op.outcome] += 1
        if verdict.problems:
            self.failed.append(verdict.seed)
            if len(self.failed) <= SHOWN:
                problems = "\n  ".join(verdict.problems)
                print(f"seed {verdict.seed}:\n  {problems}", file=sys.stderr, flush=True)

    def rows(self) -> list[dict[str, Any]]:
        """Return how often each action ended in which way."""
        return [
            {"action": what, **dict(sorted(outcomes.items()))}
            for what, outcomes in sorted(self.outcomes.items())
        ]


def add_arguments(parser: argparse.ArgumentParser, *, actions: int) -> None:
    """Declare the options."""
    parser.add_argument("--count", type=int, default=1000, help="how many interleavings")
    parser.add_argument("--processes", type=int, default=0, help="how many kills of a process")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--actions", type=int, default=actions, help="of one, on average")
    parser.add_argument("--serial", action="store_true", help="let one call through at a time")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--backend", choices=BACKENDS, default="file")
    where.add_argument("--url", help="a database of your own, in which rows are left")


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds that interleavings and kills took, and how many they were to take at most."""

    interleavings: float
    kills: float
    most: int


def report(
    name: str,
    backend: str,
    args: argparse.Namespace,
    tally: Tally,
    took: Took,
    *,
    rows: Sequence[dict[str, Any]] = (),
    targets: Sequence[Target] = (),
) -> Report:
    """Return the report.

    Args:
        rows: shown after those of the tally.
        targets: judged after the ones that are common to all.
    """
    seeds = ", ".join(map(str, tally.failed[:10])) or "none"
    print(f"failing seeds: {seeds}", file=sys.stderr)
    judged = [
        at_most(f"interleavings on {backend} with a violation", len(tally.failed), 0),
        at_least("interleavings", tally.verdicts, args.count + args.processes),
        at_most("seconds of the interleavings", round(took.interleavings, 1), took.most, "s"),
    ]
    if args.processes:
        judged.append(at_most("seconds of the kills", round(took.kills, 1), took.most, "s"))
    return Report(name, [*tally.rows(), *rows], [*judged, *targets])
