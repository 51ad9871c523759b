"""What is known of an interleaving: who did what and when, and what each side believes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent_runtime_storage import Commit, Job, Lease, Run, Thread

MAIN = "main"
LIMIT = 100
"""Tokens of a run tree that has a budget; its money is twice that."""
COMMITS = ("begin", "child", "think", "start", "result", "close", "say", "drain", "activate", "end")
"""The actions that write events."""


@dataclass(slots=True)
class Op:
    """One action: what it meant to do, when, and what came of it.

    Attributes:
        start, end: nanoseconds of the machine's monotonic clock; no end if its process was killed.
        outcome: `ok`, `refused`, `cancelled`, `doubt`, or `open` while nothing is known.
        error: the name of the error's class.
        facts: what it wrote or learned, by name.
    """

    id: str
    what: str
    side: str
    start: int
    end: int | None = None
    outcome: str = "open"
    error: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Side:
    """What one store's user knows of the thread; it may be out of date."""

    name: str
    leases: dict[str, Lease] = field(default_factory=dict[str, Lease])
    own: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens that each run has reserved, as its holder believes."""
    threads: dict[str, Thread] = field(default_factory=dict[str, Thread])
    runs: list[Run] = field(default_factory=list[Run])
    jobs: list[Job] = field(default_factory=list[Job])
    last: tuple[str, Lease, Commit] | None = None
    """The id of the last commit that states what it appends, and the commit."""
    following: bool = False
    cursor: int = 0
    followed: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
