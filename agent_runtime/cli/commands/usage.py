"""`agent-runtime usage` and `budget`: what was spent, what is left, what a run may spend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli.display.figures import cost_text, cost_usd
from agent_runtime.cli.options import Positive, json_object_option
from agent_runtime.cli.parameters.ids import RUN, THREAD
from agent_runtime.cli.runtime_calls import user_store, with_runtime
from agent_runtime.cli.terminal import write_json, write_row
from agent_runtime_config.limits import MAX_DOLLARS, MAX_TOKENS

if TYPE_CHECKING:
    from typing import TypeAlias

    from agent_runtime.run.budget import BudgetState
    from agent_runtime.runtime import Runtime
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records.spending import Amount

    _Spent: TypeAlias = tuple[BudgetState, int]


@click.command()
@click.option("--thread", type=THREAD, help="Include what the runs of this thread spent.")
@click.option("--run", "run_id", type=RUN, help="Include what this run and its run tree spent.")
@json_object_option
def usage(thread: str | None, run_id: str | None, as_json: bool) -> None:
    """Show what all processes together spent today (UTC) and what is left.

    Unsettled amounts may have been billed: a call that died before its usage was reported counts
    at its upper bound.
    """
    from agent_runtime.run.budget import spending_of

    async def read(runtime: Runtime) -> list[_Spent]:
        store = user_store(runtime)
        if thread is not None:
            await store.threads.get(thread)
        states = await spending_of(store, runtime.settings, thread, run_id)
        return [await _with_unpriced(store, one, thread, run_id) for one in states]

    found = with_runtime(read)
    if as_json:
        write_json({state.whose: _json(state, unpriced) for state, unpriced in found})
        return
    for state, unpriced in found:
        write_row(_line(state, unpriced, thread, run_id))


async def _with_unpriced(
    store: UserStore, state: BudgetState, thread: str | None, run_id: str | None
) -> _Spent:
    """Return what was spent, with the number of calls whose price is unknown."""
    if state.whose == "thread":
        return state, await store.spending.unpriced_calls(thread_id=thread)
    if state.whose == "run" and run_id is not None:
        root = (await store.runs.get(run_id)).root_run_id
        return state, await store.spending.unpriced_calls(root_run_id=root)
    return state, await store.spending.unpriced_calls()


@click.command()
@click.argument("run_id", metavar="RUN", type=RUN)
@click.option("--usd", type=Positive(MAX_DOLLARS), help="The most dollars.")
@click.option("--tokens", type=click.IntRange(1, MAX_TOKENS), help="The most tokens.")
@click.option(
    "--unlimited",
    "lifted",
    type=click.Choice(["usd", "tokens"]),
    multiple=True,
    help="Lift this limit.",
)
@json_object_option
def budget(
    run_id: str, usd: float | None, tokens: int | None, lifted: Sequence[str], as_json: bool
) -> None:
    """Set what RUN and its sub-agents may spend in total, including what they already spent.

    A limit that is not named stays. An active run obeys a new one from its next call, in any
    process, and gets a note if it has room again. Continue a run that its budget ended with
    `resume`.
    """
    from agent_runtime.run.budget import spending_of_tree

    async def change(runtime: Runtime) -> _Spent:
        await runtime.set_budget(run_id, **limits)
        store = user_store(runtime)
        return await _with_unpriced(store, await spending_of_tree(store, run_id), None, run_id)

    given = {"usd": usd, "tokens": tokens}
    limits: dict[str, Any] = {name: most for name, most in given.items() if most is not None}
    if both := limits.keys() & set(lifted):
        raise click.UsageError(f"Give --{min(both)} or --unlimited {min(both)}, not both.")
    limits |= dict.fromkeys(lifted)
    if not limits:
        raise click.UsageError(
            "Give --usd, --tokens or --unlimited; `agent-runtime usage --run` shows the limits."
        )
    found, unpriced = with_runtime(change)
    if as_json:
        write_json(_json(found, unpriced))
    else:
        write_row(_line(found, unpriced, None, run_id))


def _line(one: BudgetState, unpriced: int, thread: str | None, run_id: str | None) -> str:
    spending, limit = one.spending, one.limit
    if one.whose == "thread":
        name = f"Thread {thread}"
    elif one.whose == "run":
        name = f"Run tree of {run_id}"
    else:
        # The day ends by the database's clock, not by this machine's.
        ends = datetime.fromtimestamp(spending.ends_at or 0, UTC)
        name = f"Today, until {ends:%Y-%m-%dT%H:%MZ}"
    said = [f"{name}: {_amount(spending.spent, unpriced)} spent"]
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


def _json(one: BudgetState, unpriced: int) -> dict[str, Any]:
    spending, limit = one.spending, one.limit
    return {
        "spent": {
            "tokens": spending.spent.tokens,
            "cost_usd": cost_usd(spending.spent.cost, unpriced),
            "unpriced_calls": unpriced,
        },
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


def _amount(amount: Amount, unpriced: int = 0) -> str:
    return f"{amount.tokens:,} tokens ({cost_text(amount.cost, unpriced)})"
