"""`agent-runtime usage`: what was spent today and on a thread, and what is left to spend."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from .options import json_object_option
from .terminal import write_json, write_output

if TYPE_CHECKING:
    from agent_runtime.allowance import Allowance
    from agent_runtime_config import Settings
    from agent_runtime_storage.spending_records import Amount


@click.command()
@click.option("--thread", help="Show what the runs of this thread have spent as well.")
@json_object_option
def usage(thread: str | None, as_json: bool) -> None:
    """Show what was spent today (by UTC) and what is left, for all processes together.

    What is unsettled was perhaps billed: calls that died before their usage was reported count as
    spent at their bound.
    """
    import anyio

    from agent_runtime_config import load_settings

    found = anyio.run(_read, load_settings(), thread)
    if as_json:
        write_json({one.whose: _json(one) for one in found})
        return
    for one in found:
        write_output(_line(one, thread))


async def _read(settings: Settings, thread: str | None) -> list[Allowance]:
    from agent_runtime.allowance import spending_of
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        if thread is not None:
            await store.thread(thread)
        return await spending_of(store, settings, thread)


def _line(one: Allowance, thread: str | None) -> str:
    spending, limit = one.spending, one.limit
    if one.whose == "thread":
        name = f"Thread {thread}"
    else:
        ends = datetime.fromtimestamp(spending.ends_at or 0, UTC)
        name = f"Today, until {ends:%Y-%m-%dT%H:%MZ}"
    said = [f"{name}: {_amount(spending.spent)} spent"]
    if spending.unsettled.tokens or spending.unsettled.cost:
        said.append(f"{_amount(spending.unsettled)} of it unsettled")
    if spending.reserved.tokens or spending.reserved.cost:
        said.append(f"{_amount(spending.reserved)} reserved")
    if limit.tokens is not None:
        said.append(f"{max(one.left.tokens, 0):,} of {limit.tokens:,} tokens left")
    if limit.cost is not None:
        said.append(f"${max(one.left.cost, 0) / 1e9:.4f} of ${limit.cost / 1e9:.4f} left")
    if limit.tokens is None and limit.cost is None:
        said.append("no limit")
    return ", ".join(said) + "."


def _json(one: Allowance) -> dict[str, Any]:
    spending, limit = one.spending, one.limit
    return {
        "spent": _figures(spending.spent),
        "unsettled": _figures(spending.unsettled),
        "reserved": _figures(spending.reserved),
        "limit": {
            "tokens": limit.tokens,
            "cost_usd": None if limit.cost is None else limit.cost / 1e9,
        },
        "left": {
            "tokens": None if limit.tokens is None else max(one.left.tokens, 0),
            "cost_usd": None if limit.cost is None else max(one.left.cost, 0) / 1e9,
        },
        "ends_at": spending.ends_at,
    }


def _figures(amount: Amount) -> dict[str, float]:
    return {"tokens": amount.tokens, "cost_usd": amount.cost / 1e9}


def _amount(amount: Amount) -> str:
    return f"{amount.tokens:,} tokens (${amount.cost / 1e9:.4f})"
