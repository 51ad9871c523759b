"""Read a price from an entry of litellm's table of models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from agent_runtime.models.pricing.price import Price, Rates, Tier, nanodollars

_Entry: TypeAlias = Mapping[str, Any]

_KEYS = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cache_read": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_hour": "cache_creation_input_token_cost_above_1hr",
    "reasoning": "output_cost_per_reasoning_token",
    "audio": "input_cost_per_audio_token",
    "cached_audio": "cache_read_input_audio_token_cost",
    "image": "input_cost_per_image_token",
    "audio_output": "output_cost_per_audio_token",
    "image_output": "output_cost_per_image_token",
}
_FOLLOWS = {
    "cache_write_hour": "input",
    "audio": "input",
    "image": "input",
    "reasoning": "output",
    "audio_output": "output",
    "image_output": "output",
}
"""The prices that another tier may leave out although it changes the price that they follow."""
_SCALED = ("cache_write_hour", "reasoning")
"""Those that change with it.  Audio and images often have one price in all tiers."""
_SERVICES = ("flex", "balanced", "priority", "ultrafast")
"""The service tiers whose prices the table has; batches are another API."""
_SAME = {"fast": "priority"}
"""Other words for them."""
_CACHED = {"fireworks_ai": 0.5}
"""The price of cached tokens as a share of the input's, at providers that name none by model."""
_BORDER = re.compile(r"_above_(\d+)(k?)_tokens(?:_([a-z]+))?$")
# xAI charges a prompt by the higher tier as soon as it has that many tokens, others above that.
_INCLUSIVE = ("xai",)


def price_of(entry: _Entry) -> Price | None:
    """Return the price in an entry; None if it has none for tokens on both sides.

    A missing price does not mean free.  Of a price that depends on the hour, the dearer one counts:
    a call may begin in one hour and be charged by another.
    """
    entry = _at_any_hour(entry)
    # Such entries, of Qwen's models, have no price outside of the ranges.
    if ranges := _ranges(entry):
        base, *tiers = ranges
        return _price(base.rates, tiers, entry)
    if entry.get(_KEYS["input"]) is None or entry.get(_KEYS["output"]) is None:
        return None
    plain = _of_service(entry, "")
    services = [(name, _of_service(entry, name)) for name in _SERVICES if _has(entry, name)]
    services += [
        (other, one) for other, name in _SAME.items() for at, one in services if at == name
    ]
    return replace(_price(plain, plain.tiers, entry, tuple(services)), factors=_factors(entry))


def _factors(entry: _Entry) -> tuple[tuple[str, float], ...]:
    """Return Anthropic's factors; other providers have other things under this key."""
    given: object = entry.get("provider_specific_entry")
    if entry.get("litellm_provider") != "anthropic" or not isinstance(given, dict):
        return ()
    named = cast("dict[str, Any]", given)
    return tuple((word, float(one)) for word, one in named.items() if isinstance(one, int | float))


def _at_any_hour(entry: _Entry) -> _Entry:
    """Return an entry with the dearer of its prices by the hour."""
    other = cast("_Entry", entry.get("off_peak_pricing") or {})
    dearer = {
        key: other[key]
        for key in _KEYS.values()
        if entry.get(key) is not None and (other.get(key) or 0) > entry[key]
    }
    return {**entry, **dearer} if dearer else entry


def _price(
    rates: Rates,
    tiers: Sequence[Tier],
    entry: _Entry,
    services: tuple[tuple[str, Price], ...] = (),
) -> Price:
    values = {name: getattr(rates, name) for name in _KEYS}
    return Price(**values, per_call=_per_call(entry, rates), tiers=tuple(tiers), services=services)


def _per_call(entry: _Entry, rates: Rates) -> float:
    fixed = nanodollars(entry.get("input_cost_per_request") or 0)
    if not rates.output and not rates.image_output:
        # Music models charge for each piece, and nothing for tokens.
        fixed += nanodollars(entry.get("output_cost_per_image") or 0)
    return fixed


def _of_service(entry: _Entry, service: str) -> Price:
    """Return the prices of a service tier; what it leaves out is as by default."""
    found = {name: entry.get(key) for name, key in _KEYS.items()}
    if service:
        found = _over(found, entry, f"_{service}")
    base, tiers = _rates(found, entry), list[Tier]()
    inclusive = entry.get("litellm_provider") in _INCLUSIVE
    for border in _borders(entry):
        suffix = f"_above_{border}_tokens"
        found = _over(found, entry, suffix)
        if service:
            found = _over(found, entry, f"{suffix}_{service}")
        tiers.append(Tier(_tokens(border) - inclusive, _rates(found, entry)))
    return _price(base, tiers, entry)


def _over(found: Mapping[str, Any], entry: _Entry, suffix: str) -> dict[str, Any]:
    """Return the prices with those that the entry has under a suffix."""
    given = {name: entry.get(f"{key}{suffix}") for name, key in _KEYS.items()}
    joined = {name: found[name] if one is None else one for name, one in given.items()}
    for name, other in _FOLLOWS.items():
        changed = given[name] is None and given[other] not in (None, found[other])
        if changed and (name in _SCALED or found[name] == found[other]):
            joined[name] = None
    return joined


def _rates(found: Mapping[str, Any], entry: _Entry) -> Rates:
    known = {name: None if one is None else nanodollars(one) for name, one in found.items()}
    plain = cast("float", known["input"])
    # The table has a write price of 0 where a provider does not charge writing apart.
    known["cache_write"] = known["cache_write"] or plain
    if known["cache_read"] is None:
        known["cache_read"] = plain * _CACHED.get(entry.get("litellm_provider", ""), 1)
    return Rates(**cast("dict[str, Any]", known))


def _ranges(entry: _Entry) -> list[Tier]:
    """Return the tiers of a list of ranges, in rising order; the first is for short prompts."""
    listed = cast("list[_Entry]", entry.get("tiered_pricing") or [])
    tiers = [
        Tier(
            int(one["range"][0]), _rates({name: one.get(key) for name, key in _KEYS.items()}, entry)
        )
        for one in listed
        if one.get(_KEYS["input"]) is not None and one.get(_KEYS["output"]) is not None
    ]
    return sorted(tiers, key=lambda one: one.above)


def _has(entry: _Entry, service: str) -> bool:
    return any(f"{key}_{service}" in entry for key in _KEYS.values())


def _borders(entry: _Entry) -> list[str]:
    """Return the borders between the tiers, as the entry spells them (`200k`), in rising order."""
    found = {
        f"{match[1]}{match[2]}"
        for key in entry
        if key.startswith(tuple(_KEYS.values()))
        and (match := _BORDER.search(key))
        and match[3] in (None, *_SERVICES)
    }
    return sorted(found, key=_tokens)


def _tokens(border: str) -> int:
    return int(border.removesuffix("k")) * (1000 if border.endswith("k") else 1)
