"""One price that bounds several models' prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agent_runtime.models.pricing.price import Price, Rates, Tier

_RATES: Mapping[str, Callable[[Rates], float]] = {
    "input": lambda rates: rates.input,
    "output": lambda rates: rates.output,
    "cache_read": lambda rates: rates.cache_read,
    "cache_write": lambda rates: rates.cache_write,
    "cache_write_hour": lambda rates: rates.hour,
    "reasoning": lambda rates: _or(rates.reasoning, rates.output),
    "audio": lambda rates: _or(rates.audio, rates.input),
    "cached_audio": lambda rates: _or(rates.cached_audio, rates.cache_read),
    "image": lambda rates: _or(rates.image, rates.input),
    "audio_output": lambda rates: _or(rates.audio_output, rates.output),
    "image_output": lambda rates: _or(rates.image_output, rates.output),
}
"""What each kind of token costs: a rate that is not given is that of its side."""


def dearest(prices: Sequence[Price | None]) -> Price | None:
    """Return a price that is below none of these, whatever a call uses; None if one is unknown."""
    known = [price for price in prices if price is not None]
    if not known or len(known) < len(prices):
        return None
    borders = sorted({tier.above for price in known for tier in price.tiers})
    words = sorted({word for price in known for word, _ in price.services})
    services: list[tuple[str, Price]] = []
    for word in words:
        of_word = dearest([replace(price.of_service(word), services=()) for price in known])
        assert of_word is not None
        services.append((word, of_word))
    return Price(
        **_highest(known),
        per_call=max(price.per_call for price in known),
        tiers=tuple(
            Tier(border, Rates(**_highest([price.rates_of(border + 1) for price in known])))
            for border in borders
        ),
        services=tuple(services),
        factors=_highest_factors(known),
    )


def _highest_factors(prices: Sequence[Price]) -> tuple[tuple[str, float], ...]:
    """Return the highest factor of each word; a price without it counts as 1."""
    words = sorted({word for price in prices for word, _ in price.factors})
    return tuple((word, max(price.factor_of((word,)) for price in prices)) for word in words)


def _highest(rates: Sequence[Rates]) -> dict[str, float]:
    """Return the highest rate of each kind of token."""
    return {name: max(map(rate, rates)) for name, rate in _RATES.items()}


def _or(rate: float | None, plain: float) -> float:
    return plain if rate is None else rate
