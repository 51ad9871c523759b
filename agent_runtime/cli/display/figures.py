"""Tokens, costs and times as people read them; the same figure looks the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_runtime.cli.terminal import short_number

if TYPE_CHECKING:
    from agent_runtime_storage.contract.records.usage import UsageTotal

NANO = 1e9
UNKNOWN = "cost unknown"


def cost_text(nanodollars: int | None) -> str:
    """Return a cost; None means that a price is unknown."""
    return UNKNOWN if nanodollars is None else f"${nanodollars / NANO:.4f}"


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
        cost: in nanodollars; None if a price is unknown.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: int | None = 0

    @classmethod
    def of(cls, total: UsageTotal) -> Spent:
        """Return what the store has of a run or a thread."""
        return cls(
            total.prompt_tokens,
            total.cached_tokens,
            total.completion_tokens,
            None if total.unpriced_calls else total.cost,
        )

    def add(self, data: dict[str, Any]) -> None:
        """Add the usage of an event."""
        self.prompt_tokens += data.get("prompt_tokens") or 0
        self.cached_tokens += data.get("cached_tokens") or 0
        self.completion_tokens += data.get("completion_tokens") or 0
        cost = data.get("cost")
        self.cost = None if cost is None or self.cost is None else self.cost + cost

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
        parts = [f"{self.tokens:,} tokens", self.cached(), cost_text(self.cost)]
        return ", ".join(filter(None, parts))

    def facts(self) -> tuple[str, ...]:
        """Return cost, tokens and cache share, the most important first; nothing before a call."""
        if not self.tokens:
            return ()
        parts = [cost_text(self.cost), f"{short_number(self.tokens)} tokens", self.cached()]
        return tuple(filter(None, parts))
