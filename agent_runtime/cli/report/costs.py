"""The one text of a cost."""

from __future__ import annotations

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
