"""Tokens, costs and times as people read them; the same figure looks the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_runtime.cli.terminal import short_number

if TYPE_CHECKING:
    from agent_runtime_storage.contract.records.usage import UsageTotal

NANO = 1_000_000_000


def cost_text(nanodollars: int, unpriced_calls: int) -> str:
    """Return a cost, as far as it is known.

    Args:
        unpriced_calls: how many calls are in it whose price is unknown; any number means at least
            one.
    """
    dollars = f"${nanodollars / NANO:.4f}"
    if not unpriced_calls:
        return dollars
    # "$0.0000" would say that it was free.
    return f"at least {dollars}" if nanodollars else "cost unknown"


def cost_usd(nanodollars: int, unpriced_calls: int) -> float | None:
    """Return a cost for JSON: None if a price is unknown."""
    return None if unpriced_calls else nanodollars / NANO


def seconds_text(seconds: float) -> str:
    """Return a duration: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@dataclass(slots=True)
class Spent:
    """Tokens and cost of model calls.

    Attributes:
        cost: in nanodollars, as far as prices are known.
        unpriced: how many calls have no known price.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: int = 0
    unpriced: int = 0

    @classmethod
    def of(cls, total: UsageTotal) -> Spent:
        """Return what the store has of a run or a thread."""
        return cls(
            total.prompt_tokens,
            total.cached_tokens,
            total.completion_tokens,
            total.cost,
            total.unpriced_calls,
        )

    def add(self, data: dict[str, Any]) -> None:
        """Add the usage of an event."""
        self.prompt_tokens += data.get("prompt_tokens") or 0
        self.cached_tokens += data.get("cached_tokens") or 0
        self.completion_tokens += data.get("completion_tokens") or 0
        cost = data.get("cost")
        self.cost += cost or 0
        self.unpriced += cost is None

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.prompt_tokens + self.completion_tokens

    def cached(self) -> str:
        """Return the cache's share of the input; empty without input."""
        if not self.prompt_tokens:
            return ""
        return f"{self.cached_tokens / self.prompt_tokens:.0%} of input cached"

    def text(self) -> str:
        """Return tokens, cache share and cost on one line."""
        parts = [f"{self.tokens:,} tokens", self.cached(), cost_text(self.cost, self.unpriced)]
        return ", ".join(filter(None, parts))

    def facts(self) -> tuple[str, ...]:
        """Return cost, tokens and cache share, the most important first; nothing before a call."""
        if not self.tokens:
            return ()
        parts = [
            cost_text(self.cost, self.unpriced),
            f"{short_number(self.tokens)} tokens",
            self.cached(),
        ]
        return tuple(filter(None, parts))
