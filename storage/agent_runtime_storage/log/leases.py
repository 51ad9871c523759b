"""The leases of a process and its shares of rate limits over SQL: one batch for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson

from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.rate_shares import RateShare
from agent_runtime_storage.drivers.protocol import Driver, Statement, Value
from agent_runtime_storage.sql.loader import load_queries


class SqlLeases:
    """`LeaseStore` over SQL.  It works over all owners; each lease names its own."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sql = load_queries(driver.dialect)

    async def renew(self, leases: Iterable[HeldLease], *, seconds: float) -> set[HeldLease]:
        params = {"leases": _encoded(leases), "seconds": seconds}
        renew = Statement(self._sql["renew_leases"], params)
        [rows] = await self._driver.batch([renew], owner=None, repeatable=True)
        return {HeldLease(str(user), str(run), int(epoch)) for user, run, epoch in rows}

    async def poll(self, leases: Iterable[HeldLease]) -> Mapping[HeldLease, bool]:
        params = {"leases": _encoded(leases)}
        rows = await self._driver.read(self._sql["poll_leases"], params, owner=None)
        return {HeldLease(str(u), str(run), int(e)): bool(stop) for u, run, e, stop in rows}

    async def owners_at_work(self) -> list[str]:
        rows = await self._driver.read(self._sql["owners_at_work"], {}, owner=None)
        return [str(owner) for (owner,) in rows]


def _encoded(leases: Iterable[HeldLease]) -> str:
    return orjson.dumps([list(lease) for lease in leases]).decode()


class SqlRateShares:
    """`RateShareStore` over SQL."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sql = load_queries(driver.dialect)

    async def renew(
        self, process: str, figures: Mapping[str, str], *, seconds: float
    ) -> Sequence[RateShare]:
        rows: dict[str, Value] = {"rows": orjson.dumps(list(figures.items())).decode()}
        batch = [
            Statement(self._sql["rate_forget"], {**rows, "seconds": seconds}),
            Statement(self._sql["rate_renew"], {**rows, "process": process}),
            Statement(self._sql["rate_rows"], rows),
        ]
        # In one order in every process, so that two that share several places do not block each
        # other.
        locks = sorted(f"rate {place}" for place in figures)
        *_, found = await self._driver.batch(batch, owner=None, locks=locks, repeatable=True)
        return [RateShare(row[0], row[1], float(row[2]), float(row[3]), row[4]) for row in found]

    async def leave(self, process: str) -> None:
        leave = Statement(self._sql["rate_leave"], {"process": process})
        await self._driver.batch([leave], owner=None, repeatable=True)
