"""Reach behind a store: read and change rows past it, and wrap its driver."""

from __future__ import annotations

import copy
from typing import Any, cast

from agent_runtime_storage import Store
from agent_runtime_storage.drivers.protocol import Driver, Statement, Value
from agent_runtime_storage.urls import open_driver


def driver_of(store: Store) -> Driver:
    """Return the driver of an open store."""
    opened: Any = store
    return cast("Driver", opened._driver)


def over(store: Store, driver: Any) -> Store:
    """Return the same store over another driver."""
    view: Any = copy.copy(store)
    view._driver = driver
    return cast("Store", view)


async def execute(url: str, sql: str, *, owner: str | None = None, **values: Value) -> None:
    """Run a statement on a database, past any store."""
    driver = await open_driver(url)
    try:
        await driver.batch([Statement(sql, values)], owner=owner)
    finally:
        await driver.close()


async def expire(store: Store, owner: str, *, claims: bool = True) -> None:
    """End every lease of an owner's runs and every claim of a job.

    The leases become another machine's, because a process that is seen to be alive keeps its runs.
    """
    statements = [
        "UPDATE runs SET lease_until = 0, lease_host = 'elsewhere', lease_machine = 'another', "
        "lease_boot = 'another', lease_instance = 'another' "
        "WHERE user_id = :user_id AND status = 'running'"
    ]
    if claims:
        statements.append(
            "UPDATE jobs SET due_at = 0 WHERE user_id = :user_id AND finished_at IS NULL"
        )
    batch = [Statement(sql, {"user_id": owner}) for sql in statements]
    await driver_of(store).batch(batch, owner=owner)
