"""Activation by price: old messages leave once carrying them has cost what removing them costs.

Each call pays again for what the prompt carries, at the price of a cache read.  An activation pays
once: for observing, for the observations, and for writing anew what follows them.  When to stop
paying the small price for the large one is the ski-rental problem: whoever stops when both sums
are equal pays at most twice what he would have paid knowing how long the run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.models.base import Price
from agent_runtime.prompt.view import Entry

OBSERVED_SHARE = 0.125
"""What observations and their ledgers are expected to have, of what they stand for."""
AHEAD = 0.5
"""Observations are prepared when so much of what removing costs has been paid for carrying."""


@dataclass(frozen=True, slots=True)
class ActivationPrices:
    """What decides when old messages leave.

    Attributes:
        actor: of the run's own model.
        observer: of the Observer's model; None where rules observe, for nothing.
    """

    actor: Price
    observer: Price | None = None

    def carried(self, tokens: Sequence[int], calls: Sequence[int], end: int) -> int:
        """Return what was paid for carrying the entries before `end`, in nanodollars.

        Args:
            tokens: of each entry, as the provider counts them.
            calls: how many calls have carried each.
        """
        carried = sum(t * n for t, n in zip(tokens[:end], calls[:end], strict=True))
        return carried * self.actor.cache_read

    def removing(self, tokens: Sequence[int], end: int) -> int:
        """Return what it costs to have observations stand for the entries before `end`."""
        gone, rest = sum(tokens[:end]), sum(tokens[end:])
        written = int(gone * OBSERVED_SHARE)
        cost = rest * max(0, self.actor.cache_write - self.actor.cache_read)
        cost += written * self.actor.cache_write
        if self.observer is not None:
            cost += gone * self.observer.input + written * self.observer.output
        return cost

    def pays(self, tokens: Sequence[int], calls: Sequence[int], end: int, share: float) -> bool:
        """Return whether carrying has cost so large a share of what removing costs."""
        carried = self.carried(tokens, calls, end)
        return carried > 0 and carried >= share * self.removing(tokens, end)


def carrying_calls(entries: Sequence[Entry], anchor: int | None) -> tuple[int, ...]:
    """Return how many calls since the activation at `anchor` have carried each entry.

    Each answer after the activation is a call, which carried what stands before it.
    """
    calls: list[int] = []
    after = 0
    for entry in reversed(entries):
        calls.append(after)
        after += entry.message.type == "assistant" and entry.seq > (anchor or 0)
    return tuple(reversed(calls))
