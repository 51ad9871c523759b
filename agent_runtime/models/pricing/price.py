"""`Price`: what a model's tokens cost, by the size of the prompt and the service tier."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace

SCALE = 1000
"""Prices are exact to a thousandth of a nanodollar; some tokens cost a fraction of one."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Nanodollars per token (a price of 3 $ per million tokens is 3000).

    Attributes:
        cache_write: of tokens that the provider's cache keeps for some minutes.
        cache_write_hour: of tokens that it keeps for an hour; None for twice the input.
        reasoning: None for the output's price; so for the others below, by their side.
        audio: of audio in the prompt; None for the input's price.
        cached_audio: of audio that was read from the cache; None for `cache_read`.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_hour: float | None = None
    reasoning: float | None = None
    audio: float | None = None
    cached_audio: float | None = None
    image: float | None = None
    audio_output: float | None = None
    image_output: float | None = None

    @property
    def hour(self) -> float:
        """The price of tokens that the cache keeps for an hour.

        Anthropic charges 1.25 times the input's price for 5 minutes, and twice for an hour.
        """
        known = self.cache_write_hour
        return max(self.cache_write, 2 * self.input) if known is None else known


@dataclass(frozen=True, slots=True)
class Tier:
    """The rates of a call whose whole prompt has more tokens than `above`."""

    above: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Price(Rates):
    """What a model's calls cost; the rates are those of short prompts.

    Attributes:
        per_call: nanodollars for each call, whatever its tokens.
        tiers: for longer prompts, in rising order.
        services: the prices by service tier, where they differ.
        factors: by what all rates of a call are multiplied, by a word of its usage: Anthropic's
            `us` for where it was computed, and `fast` for its speed.
    """

    per_call: float = 0
    tiers: tuple[Tier, ...] = ()
    services: tuple[tuple[str, Price], ...] = ()
    factors: tuple[tuple[str, float], ...] = ()

    def times(self, factor: float) -> Price:
        """Return the price with all rates multiplied; what a call costs by itself stays."""
        if factor == 1:
            return self
        return replace(
            self,
            **_multiplied(self, factor),
            tiers=tuple(Tier(one.above, _rates_times(one.rates, factor)) for one in self.tiers),
            services=tuple((name, one.times(factor)) for name, one in self.services),
        )

    def of_service(self, service: str) -> Price:
        """Return the price of a service tier, in the provider's own word."""
        return next((one for name, one in self.services if name == service.lower()), self)

    def factor_of(self, words: Collection[str]) -> float:
        """Return by what the rates of a call are multiplied whose usage has these words."""
        return math.prod(factor for word, factor in self.factors if word in words)

    def rates_of(self, prompt: int) -> Rates:
        """Return the rates of a call by the tokens of its whole prompt."""
        rates: Rates = self
        for tier in self.tiers:
            if prompt > tier.above:
                rates = tier.rates
        return rates


def _rates_times(rates: Rates, factor: float) -> Rates:
    return replace(rates, **_multiplied(rates, factor))


def _multiplied(rates: Rates, factor: float) -> dict[str, float]:
    given = {one.name: getattr(rates, one.name) for one in fields(Rates)}
    return {name: round(rate * factor, 3) for name, rate in given.items() if rate is not None}


def nanodollars(dollars: float, per: int = 1) -> float:
    """Return dollars per this many tokens in nanodollars per token, as exact as prices are."""
    nano = round(float(dollars) / per * 1e9, 3)
    return int(nano) if nano.is_integer() else nano


def scaled(rate: float) -> int:
    """Return a rate in thousandths of a nanodollar, so that sums are exact."""
    return round(rate * SCALE)


def rounded_up(amount: int) -> int:
    """Return nanodollars of an amount in thousandths of them."""
    return -(-amount // SCALE)


def raised(amount: int, factor: float) -> int:
    """Return an amount times a factor, which counts to the thousandth, rounded up."""
    return rounded_up(amount * round(factor * SCALE))
