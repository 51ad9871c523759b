"""Ids by their beginning or end, for people who type them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

IdKind = Literal["thread", "run", "question"]
"""The kinds of rows that a person names."""


@dataclass(frozen=True, slots=True)
class IdMatch:
    """A row whose id begins or ends as asked.

    Attributes:
        title: of its thread.
        updated_at: when the thread was updated, the run began or the question was asked.
    """

    id: str
    title: str
    updated_at: float


class IdStore(Protocol):
    """The ids of one owner."""

    async def find(self, kind: IdKind, text: str, *, limit: int = 10) -> list[IdMatch]:
        """Return the rows whose id begins or ends with the text, in any case, the newest first."""
        ...
