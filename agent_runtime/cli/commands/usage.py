"""`agent-runtime usage`, `budget`: what was spent, what is left, and how much a run may spend."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli.options import Positive, json_object_option
from agent_runtime.cli.terminal import write_json, write_output
from agent_runtime_config.limits import MAX_DOLLARS, MAX_TOKENS

if TYPE_CHECKING:
    from agent_runtime.run.budget import BudgetState
    from agent_runtime_config import Settings
    from agent_runtime_storage.contract.spending_records import Amount


@click.command()
@click.option("--thread", help="Show what the runs of this thread have spent as well.")
@click.option("--run", "run_id", help="Show what the run tree of this run has spent as well.")
@json_object_option
def usage(thread: str | None, run_id: str | None, as_json: bool) -> None:
    """Show what was spent today (by UTC) and what is left, for all processes together.

    What is unsettled was perhaps billed: calls that died before their usage was reported count as
    spent at their bound.
    """
    import anyio

    from agent_runtime_config import load_settings

    found = anyio.run(_read, load_settings(), thread, run_id)
    if as_json:
        write_json({one.whose: _json(one) for one in found})
        return
    for one in found:
        write_output(_line(one, thread, run_id))


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--usd", type=Positive(MAX_DOLLARS), help="The most dollars.")
@click.option("--tokens", type=click.IntRange(1, MAX_TOKENS), help="The most tokens.")
@json_object_option
def budget(run_id: str, usd: float | None, tokens: int | None, as_json: bool) -> None:
    """Let RUN and its sub-agents spend so much in all, with what they have spent already.

    A run at work keeps to it from its next call on, also in another process, and is told if there
    is room again. One that its budget ended goes on with `resume`.
    """
    import anyio

    from agent_runtime_config import load_settings

    if usd is None and tokens is None:
        raise click.UsageError("Give --usd or --tokens; `agent-runtime usage --run` shows them.")
    found = anyio.run(_budget, load_settings(), run_id, usd, tokens)
    if as_json:
        write_json(_json(found))
    else:
        write_output(_line(found, None, run_id))


async def _budget(
    settings: Settings, run_id: str, usd: float | None, tokens: int | None
) -> BudgetState:
    from agent_runtime.run.budget import spending_of_tree
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        await runtime.set_budget(run_id, usd=usd, tokens=tokens)
        return await spending_of_tree(runtime.store.of(settings.user), run_id)


async def _read(settings: Settings, thread: str | None, run_id: str | None) -> list[BudgetState]:
    from agent_runtime.run.budget import spending_of
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        if thread is not None:
            await store.thread(thread)
        return await spending_of(store, settings, thread, run_id)


def _line(one: BudgetState, thread: str | None, run_id: str | None) -> str:
    spending, limit = one.spending, one.limit
    if one.whose == "thread":
        name = f"Thread {thread}"
    elif one.whose == "run":
        name = f"Run tree of {run_id}"
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


def _json(one: BudgetState) -> dict[str, Any]:
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
