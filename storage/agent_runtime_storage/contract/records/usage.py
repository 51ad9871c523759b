"""Usage of models: one record for each call, and sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """One model call: what the provider reported, and what we counted."""

    run_id: str
    root_run_id: str
    node_id: int | None
    purpose: str
    """`step`, `observe`, `reflect` or `embed`."""
    model: str
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int
    counted_tokens: int
    """Our own uncalibrated count of the prompt as it was sent."""
    cost: int | None
    """In nanodollars; None if the price is unknown."""
    reported: bool = True
    """False if the provider reported nothing, and the figures are our own upper bound."""
    id: int = 0
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """Sums over a run tree or a thread."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int
    cost: int
    unpriced_calls: int
    unreported_calls: int

    @classmethod
    def of(cls, parts: Iterable[UsageTotal]) -> UsageTotal:
        """Return the sum of several."""
        rows = [astuple(cls(0, 0, 0, 0, 0, 0, 0, 0)), *map(astuple, parts)]
        return cls(*map(sum, zip(*rows, strict=True)))
