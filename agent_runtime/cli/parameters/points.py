"""Points in time as people type them, and a run's turn in the queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import click


@dataclass(frozen=True, slots=True)
class QueueTurn:
    """When a queued run may begin, None for now, and how many turns it is worth."""

    at: datetime | None
    priority: float


class _Point(click.ParamType[datetime]):
    name = "TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the time with its zone; one without a zone is by this machine's clock."""
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(str(value)).astimezone()
        except (ValueError, OverflowError):
            self.fail("Write a time such as 2030-01-31T09:00 or 2030-01-31T09:00+01:00.")


POINT = _Point()
