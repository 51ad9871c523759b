"""What the inspector's page asks again and again is found by an index, not by reading a thread."""

from __future__ import annotations

from pathlib import Path

from agent_runtime_storage import open_store
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
