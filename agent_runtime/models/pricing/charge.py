"""The cost of a call by its usage, and bounds of it before the call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent_runtime.messages import FileKind
from agent_runtime.models.pricing.price import Price, Rates, raised, rounded_up, scaled
from agent_runtime.models.pricing.usage import TokenUsage

FAST = "fast"
"""The word of Anthropic's faster and dearer answers."""

_NO_FILES: frozenset[FileKind] = frozenset()
_HEARD: frozenset[FileKind] = frozenset({"audio", "video"})
_SEEN: frozenset[FileKind] = frozenset({"image", "document", "video"})


@dataclass(frozen=True, slots=True)
class CallTerms:
    """What is known before a call that sets its price, apart from its sizes.

    Attributes:
        service: the service tier that is asked for; empty for the provider's default.
        cache_hour: whether the cache is asked to keep prompts for an hour.
        files: the kinds of files in the prompt; some cost more than text.
        fast: whether Anthropic's fast mode is asked for.
    """

    service: str = ""
    cache_hour: bool = False
    files: frozenset[FileKind] = _NO_FILES
    fast: bool = False


PLAIN = CallTerms()
"""Text by the provider's default service tier."""


def cost_of(price: Price | None, usage: TokenUsage, service: str = "") -> int | None:
    """Return a call's cost in nanodollars; None if the price is unknown.

    Args:
        service: the service tier that was asked for; the one in the usage wins, because a provider
            may serve a call by another tier than the one it was asked for.
    """
    if price is None:
        return None
    charged = price.of_service(usage.service or service)
    rates = charged.rates_of(usage.prompt)
    tokens = _by_rate(rates, usage)
    amount = sum(scaled(rate) * n for rate, n in tokens)
    amount = raised(amount, price.factor_of(usage.factors))
    return rounded_up(scaled(charged.per_call) + amount)


def _by_rate(rates: Rates, usage: TokenUsage) -> Iterator[tuple[float, int]]:
    """Yield rates with the tokens that they charge; no token is charged twice."""
    fresh = max(0, usage.prompt - usage.cached - usage.cache_write)
    heard = min(fresh, max(0, usage.audio - usage.cached_audio))
    seen = min(fresh - heard, usage.image)
    yield rates.input, fresh - heard - seen
    yield _or(rates.audio, rates.input), heard
    yield _or(rates.image, rates.input), seen
    cached_audio = min(usage.cached, usage.cached_audio)
    yield rates.cache_read, usage.cached - cached_audio
    yield _or(rates.cached_audio, rates.cache_read), cached_audio
    hour = min(usage.cache_write, usage.cache_write_hour)
    yield rates.cache_write, usage.cache_write - hour
    yield rates.hour, hour
    rest = usage.completion
    for rate, count in (
        (rates.reasoning, usage.reasoning),
        (rates.audio_output, usage.audio_output),
        (rates.image_output, usage.image_output),
    ):
        taken = min(rest, count)
        yield _or(rate, rates.output), taken
        # Each kind out of what is left, so that a wrong report charges no token twice.
        rest -= taken
    yield rates.output, rest


def most_cost(price: Price, prompt: int, output: int, terms: CallTerms = PLAIN) -> int:
    """Return the most that a call can cost, in nanodollars.

    A call may be charged by the default service tier instead of the one asked for, and its prompt
    may be shorter: the bound is that of the dearest rates within reach.
    """
    into, out, fixed = _dearest(price, prompt, terms)
    return rounded_up(fixed + prompt * into + output * out)


def affordable_completion(
    price: Price, cost: int, prompt: int, terms: CallTerms = PLAIN
) -> int | None:
    """Return the most output tokens with which a call costs no more; None for no limit.

    It is negative if the call costs more without any.
    """
    into, out, fixed = _dearest(price, prompt, terms)
    rest = scaled(cost) - fixed - prompt * into
    if rest < 0:
        # Even an answer of no token costs more.
        return -1
    return rest // out if out else None


def affordable_prompt(price: Price, cost: int, output: int, terms: CallTerms = PLAIN) -> int | None:
    """Return the longest prompt with which a call costs no more; None for no limit.

    It is negative if the call costs more without any prompt.
    """
    borders = sorted({tier.above for one in _reachable(price, terms) for tier in one.tiers})
    longest = -1
    for border in (*borders, None):
        # A prompt that is longer than the last border has other rates.
        into, out, fixed = _dearest(price, longest + 1, terms)
        rest = scaled(cost) - fixed - output * out
        if rest < 0:
            return longest
        if border is None and not into:
            return None
        room = rest // into if into else border
        if border is None or room is None or room < border:
            return max(longest, room or 0)
        longest = border
    return longest


def _dearest(price: Price, prompt: int, terms: CallTerms) -> tuple[int, int, int]:
    """Return the dearest input and output, and the fixed cost, that a call may be charged."""
    into = out = fixed = 0
    for one in _reachable(price, terms):
        reached = [tier.rates for tier in one.tiers if prompt > tier.above]
        for rates in (one, *reached):
            into = max(into, scaled(_dearest_input(rates, terms)))
            out = max(out, scaled(_dearest_output(rates)))
        fixed = max(fixed, scaled(one.per_call))
    # Where a call is computed is a setting of the account, so the dearest place counts.
    words = [word for word, _ in price.factors if word != FAST or terms.fast]
    factor = price.factor_of(words)
    return raised(into, factor), raised(out, factor), fixed


def _reachable(price: Price, terms: CallTerms) -> tuple[Price, ...]:
    return (price, price.of_service(terms.service)) if terms.service else (price,)


def _dearest_input(rates: Rates, terms: CallTerms) -> float:
    rate = max(rates.input, rates.cache_write, rates.cache_read)
    if terms.cache_hour:
        rate = max(rate, rates.hour)
    if terms.files & _HEARD:
        rate = max(rate, rates.audio or 0, rates.cached_audio or 0)
    if terms.files & _SEEN:
        rate = max(rate, rates.image or 0)
    return rate


def _dearest_output(rates: Rates) -> float:
    return max(rates.output, rates.reasoning or 0, rates.audio_output or 0, rates.image_output or 0)


def _or(rate: float | None, plain: float) -> float:
    return plain if rate is None else rate
