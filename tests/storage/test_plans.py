"""Statements on a file are found by an index, and planned once."""

from __future__ import annotations

from pathlib import Path

import apsw

from agent_runtime_storage import open_store
from agent_runtime_storage.drivers.sqlite.connection import open_connection
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from agent_runtime_storage.sql.loader import load_queries
from tests.storage.helpers import begin


async def test_the_start_of_the_newest_run_comes_from_an_index(tmp_path: Path) -> None:
    store = await open_store(f"file:{tmp_path}/store.db")
    await begin(store.of("ann"))
    await store.close()
    driver = await SqliteDriver.open(tmp_path / "store.db")
    sql = load_queries(driver.dialect)["last_start"]
    values = {"user_id": "ann", "thread_id": "t1"}
    rows = await driver.read(f"EXPLAIN QUERY PLAN {sql}", values)
    plan = "\n".join(str(row[-1]) for row in rows)
    assert "COVERING INDEX run_starts" in plan
    await driver.close()


async def test_a_statement_is_not_planned_again_for_other_values(tmp_path: Path) -> None:
    await (await open_store(f"file:{tmp_path}/store.db")).close()
    path = tmp_path / "store.db"
    connection = open_connection(path, write=True, synchronous="normal", busy_seconds=1)
    asked: list[int] = []

    def authorize(*_: object) -> int:
        asked.append(1)
        return apsw.SQLITE_OK

    setattr(connection, "authorizer", authorize)  # noqa: B010 - not part of the protocol
    sql = load_queries("sqlite")["queue_claim"]
    values = {"instance": "a", "known": "[]", "slots": 1}
    limits = dict.fromkeys(("per_user", "per_agent", "per_model"))
    connection.execute(sql, {**values, **limits, "claim": "first"}).fetchall()
    planned = len(asked)
    connection.execute(sql, {**values, **limits, "claim": "second"}).fetchall()
    assert len(asked) == planned > 0
    connection.close()


async def test_a_pick_that_finds_nobody_lost_does_not_look_at_what_works(tmp_path: Path) -> None:
    await (await open_store(f"file:{tmp_path}/store.db")).close()
    driver = await SqliteDriver.open(tmp_path / "store.db")
    sql = load_queries(driver.dialect)["queue_blame"]
    rows = await driver.read(f"EXPLAIN QUERY PLAN {sql}", {"claim": "c"})
    plan = [str(row[-1]) for row in rows]
    await driver.close()
    [first] = [place for place, line in enumerate(plan) if "SCAN anybody" in line]
    [every] = [place for place, line in enumerate(plan) if "queue_working_turn" in line]
    assert first < every
