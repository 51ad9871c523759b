"""Bounds for the cost of a model call, and its actual cost."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent_runtime.errors import ConfigError
from agent_runtime.models.base import ModelAnswer, ModelInfo, TokenUsage
from agent_runtime.models.pricing.charge import PLAIN, CallTerms, affordable_completion, most_cost
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import Amount
from agent_runtime_storage.contract.records.usage import Usage

_log = logging.getLogger(__name__)

NANO = 1_000_000_000
"""Nanodollars in a dollar."""


def max_call_cost(
    info: ModelInfo, prompt_tokens: int, max_output: int, terms: CallTerms = PLAIN
) -> Amount:
    """Return the most that a call can cost: each token at the dearest price that it may have."""
    cost = 0
    if info.price is not None:
        cost = most_cost(info.price, prompt_tokens, max_output, terms)
    return Amount(prompt_tokens + max_output, cost)


def add_amounts(one: Amount, other: Amount) -> Amount:
    """Return the sum of two amounts."""
    return Amount(one.tokens + other.tokens, one.cost + other.cost)


def negate_amount(amount: Amount) -> Amount:
    """Return the negative of an amount."""
    return scale_amount(amount, -1)


def scale_amount(amount: Amount, count: int) -> Amount:
    """Return a multiple of an amount."""
    return Amount(amount.tokens * count, amount.cost * count)


def affordable_output(
    info: ModelInfo, prompt_tokens: int, left: Amount | None, terms: CallTerms = PLAIN
) -> int:
    """Return how many output tokens the remaining budget pays for; None means no limit."""
    if left is None:
        return info.max_output
    output = left.tokens - prompt_tokens
    if info.price is not None:
        paid = affordable_completion(info.price, left.cost, prompt_tokens, terms)
        output = output if paid is None else min(output, paid)
    return output


def usage_of(
    answer: ModelAnswer,
    *,
    run_id: str,
    root_run_id: str,
    node_id: int | None,
    counted: int,
    bound: Amount,
) -> Usage:
    """Return the usage row of an answer; the bound if the provider reported no usage."""
    reported = answer.usage
    figures = reported or TokenUsage(prompt=bound.tokens, completion=0)
    return Usage(
        run_id=run_id,
        root_run_id=root_run_id,
        node_id=node_id,
        purpose="step",
        model=answer.model,
        prompt_tokens=figures.prompt,
        cached_tokens=figures.cached,
        cache_write_tokens=figures.cache_write,
        completion_tokens=figures.completion,
        counted_tokens=counted,
        cost=answer.cost if reported or answer.cost is None else bound.cost,
        reported=reported is not None,
    )


def spent_by(usage: Sequence[Usage]) -> Amount:
    """Return the sum of all reported usage."""
    known = [one for one in usage if one.reported]
    return Amount(
        sum(one.prompt_tokens + one.completion_tokens for one in known),
        sum(one.cost or 0 for one in known),
    )


def usage_data(usage: Sequence[Usage]) -> dict[str, int | None]:
    """Return the usage fields of an event."""
    costs = [one.cost for one in usage]
    return {
        "calls": len(usage),
        "prompt_tokens": sum(one.prompt_tokens for one in usage),
        "cached_tokens": sum(one.cached_tokens for one in usage),
        "completion_tokens": sum(one.completion_tokens for one in usage),
        "cost": None if None in costs else sum(cost or 0 for cost in costs),
    }


def require_price(info: ModelInfo, in_money: bool, settings: Settings) -> None:
    """Refuse a budget in money for a model of unknown price, or warn, by the settings.

    Args:
        in_money: whether there is such a budget.

    Raises:
        ConfigError: the budget could not be enforced.
    """
    if not in_money or info.price is not None:
        return
    if settings.unknown_price == "tokens":
        _log.warning(
            "The price of %s is unknown: the budget in dollars does not count it.", info.name
        )
        return
    raise unknown_price(info.name)


def unknown_price(model: str) -> ConfigError:
    """Return the error for a limit in dollars on a model whose price is not known."""
    return ConfigError(
        f"The price of {model!r} is unknown, so a budget in dollars cannot be kept.",
        cure="Set AGENT_RUNTIME_PRICE_INPUT and AGENT_RUNTIME_PRICE_OUTPUT ($ per million "
        "tokens), or limit tokens by AGENT_RUNTIME_BUDGET_TOKENS and set "
        "AGENT_RUNTIME_UNKNOWN_PRICE=tokens.",
    )
