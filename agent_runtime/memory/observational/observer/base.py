"""What an Observer is: it reads an interval of the log and writes notes of what happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agent_runtime.models.base import ModelAnswer
from agent_runtime.prompt.observation import Observation, ObservationNotes, Origin
from agent_runtime.prompt.view import Entry


@dataclass(frozen=True, slots=True)
class ObserverInput:
    """What to observe.

    Attributes:
        entries: the nodes, oldest first.
        earlier: the observations before them, oldest first; only the newest are read.
        early: whether notes are made ahead of need, so that a slower call will do.
    """

    entries: tuple[Entry, ...]
    earlier: tuple[Observation, ...] = ()
    early: bool = False


@dataclass(frozen=True, slots=True)
class MemoryCall:
    """A model call that memory made: its answer, and our own count of its prompt."""

    answer: ModelAnswer
    counted: int


@dataclass(frozen=True, slots=True)
class ObserverResult:
    """What an Observer wrote.

    Attributes:
        notes: None if there is nothing to observe.
        calls: the calls to pay for, including rejected answers.
    """

    notes: ObservationNotes | None
    calls: tuple[MemoryCall, ...] = ()
    origin: Origin = "model"
    model: str = ""


class ObserverFailed(Exception):
    """An Observer or Reflector gave no usable notes; never raised out of memory.

    Attributes:
        message: why.
        calls: the calls to pay for all the same.
    """

    def __init__(self, message: str, *, calls: tuple[MemoryCall, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.calls = calls


@runtime_checkable
class Observer(Protocol):
    """Writes notes of an interval.

    `observe` raises only `ObserverFailed`.  It may be cancelled at any time.
    """

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        """Return notes of the interval, or that there is nothing to observe."""
        ...

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        """Return upper bounds of the cost: tokens and nanodollars."""
        ...
