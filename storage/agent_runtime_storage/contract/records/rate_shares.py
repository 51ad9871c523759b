"""Rows of rate limits that processes share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateShare:
    """What a process knows of a rate limit.

    Attributes:
        place: a digest of model, host and key.
        process: a name of its own.
        now: when it was read, in seconds since the epoch, by the database's clock.
        age: seconds since the process renewed it.
        figures: what it has heard and may still send; the store does not interpret it.
    """

    place: str
    process: str
    now: float
    age: float
    figures: str
