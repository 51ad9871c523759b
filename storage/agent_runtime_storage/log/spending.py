"""Usage of models and spending, by run, thread and day."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime_storage.contract.errors import Conflict, StoreError
from agent_runtime_storage.contract.records.log import Commit, Lease, Run
from agent_runtime_storage.contract.records.spending import (
    UNCHANGED,
    Amount,
    Spending,
    Unchanged,
)
from agent_runtime_storage.contract.records.usage import Usage, UsageTotal
from agent_runtime_storage.drivers.protocol import BatchMissed, Row, Value
from agent_runtime_storage.log.run_statements import RunStatements, missed_error
from agent_runtime_storage.queries.owner import OwnerScope, not_found
from agent_runtime_storage.queries.row_decoding import to_run, to_usage, to_usage_total


class SqlSpending:
    """`SpendingStore` over SQL."""

    def __init__(self, scope: OwnerScope, statements: RunStatements) -> None:
        self._scope = scope
        self._statements = statements

    async def record_late(self, lease: Lease, usage: Sequence[Usage]) -> None:
        thread_id = lease.thread_id
        # The usage does not ask for the lease, as its run may be over or with another process.
        await self._scope.require_run(lease.run_id)
        plain = Commit(usage=tuple(usage))
        batch = [
            self._statements.count(lease, plain),
            *self._statements.append_usage(thread_id, usage),
        ]
        try:
            await self._scope.batch(batch, thread=thread_id)
        except (BatchMissed, Conflict) as error:
            await self._scope.require_thread(thread_id)
            await self._scope.require_run(lease.run_id)
            if not isinstance(error, BatchMissed):
                raise
            raise missed_error(error.label, thread_id) from error

    async def usage_total(
        self,
        *,
        root_run_id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> UsageTotal:
        by_purpose = await self.usage_by_purpose(
            root_run_id=root_run_id, run_id=run_id, thread_id=thread_id
        )
        return UsageTotal.of(by_purpose.values())

    async def usage_by_purpose(
        self,
        *,
        root_run_id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> dict[str, UsageTotal]:
        queries = [
            (name, identity)
            for name, identity in (
                ("usage_of_tree", root_run_id),
                ("usage_of_run", run_id),
                ("usage_of_thread", thread_id),
            )
            if identity is not None
        ]
        if len(queries) != 1:
            raise StoreError(
                f"Usage is summed over one run, run tree or thread; {len(queries)} were given.",
                cure="Give exactly one of root_run_id, run_id and thread_id.",
            )
        [(name, identity)] = queries
        rows = await self._scope.read(name, id=identity)
        if not rows:
            if thread_id is not None:
                await self._scope.require_thread(identity)
            else:
                await self._scope.require_run(identity)
        return {str(row[0]): to_usage_total(row[1:]) for row in rows}

    async def usage_by_run(self, root_run_id: str) -> dict[str, UsageTotal]:
        rows = await self._scope.read("usage_of_runs", id=root_run_id)
        if not rows:
            await self._scope.require_run(root_run_id)
        return {str(row[0]): to_usage_total(row[1:]) for row in rows}

    async def recent_usage(self, model: str, *, limit: int = 20) -> list[Usage]:
        rows = await self._scope.read("recent_usage", model=model, limit=max(limit, 0))
        return [to_usage(row) for row in rows]

    async def unpriced_calls(
        self, *, root_run_id: str | None = None, thread_id: str | None = None
    ) -> int:
        if root_run_id is not None:
            rows = await self._scope.read("unpriced_of_tree", root_run_id=root_run_id)
        elif thread_id is not None:
            rows = await self._scope.read("unpriced_of_thread", thread_id=thread_id)
        else:
            rows = await self._scope.read("unpriced_of_day")
        return int(rows[0][0])

    async def of_day(self) -> Spending:
        return _spending(await self._scope.read("spending_of_day"))

    async def of_thread(self, thread_id: str) -> Spending:
        return _spending(await self._scope.read("spending_of_thread", thread_id=thread_id))

    async def set_budget(
        self,
        run_id: str,
        *,
        tokens: int | Unchanged | None = UNCHANGED,
        cost: int | Unchanged | None = UNCHANGED,
    ) -> None:
        values: dict[str, Value] = {"run_id": run_id}
        for name, limit in (("tokens", tokens), ("cost", cost)):
            changes = not isinstance(limit, Unchanged)
            values |= {f"set_{name}": int(changes), name: limit if changes else None}
        try:
            update = self._scope.statement("set_budget", values, rows=1)
            await self._scope.batch([update], tree=run_id, repeatable=True)
        except BatchMissed as error:
            rows = await self._scope.read("run", run_id=run_id)
            raise _why_not_set(to_run(rows[0]) if rows else None, run_id) from error

    async def reserving_runs(self) -> list[str]:
        return [str(run_id) for (run_id,) in await self._scope.read("holders")]


def _why_not_set(run: Run | None, run_id: str) -> StoreError:
    if run is None:
        return not_found("run", run_id)
    if run.root_run_id != run_id:
        return Conflict(
            f"Run {run_id} spends from the budget of run {run.root_run_id}, which it works for.",
            cure=f"Change the budget of run {run.root_run_id}.",
        )
    return Conflict(f"Run {run_id} is over: succeeded.", cure="Start a new run on its thread.")


def _spending(rows: list[Row]) -> Spending:
    [(settled, settled_cost, unsettled, unsettled_cost, reserved, reserved_cost, ends_at)] = rows
    return Spending(
        Amount(settled, settled_cost),
        Amount(unsettled, unsettled_cost),
        Amount(reserved, reserved_cost),
        ends_at,
    )
