"""Attacks on isolation: no call of an owner may depend on another owner's rows.

Each attempt is made twice, by owners with equal rows: before the other owner has written anything,
so that the ids do not exist, and afterwards. Both must return the same, up to the last word of an
error, and leave the other owner's rows unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import get_type_hints

import anyio
import pytest

from agent_runtime_config.errors import AgentRuntimeError, ConfigError
from agent_runtime_storage import (
    Commit,
    Finish,
    Job,
    Lease,
    Store,
    StoreError,
    UserStore,
    open_store,
)
from agent_runtime_storage.contract.upkeep import Upkeep
from agent_runtime_storage.drivers.protocol import Driver
from agent_runtime_storage.sql.loader import load_queries
from agent_runtime_storage.urls import open_driver
from tests.storage.attacks import ATTACKS, outcome
from tests.storage.owners import Target, fill_other, fill_own
from tests.storage.twins import live, look
from tests.support.gate import Gate, GatedDriver, Process
from tests.support.stores import driver_of, over

NO_JOB = Job("018f0000-0000-7000-8000-000000000000", "t1", "other", "a", b"", 1, "0" * 32)
SHARED = {"schema_migrations", "rooms"}
"""Tables without an owner's rows."""


def methods() -> set[str]:
    """Return all public methods of an owner's store, and `documents`."""
    names = {"documents"}
    subjects = get_type_hints(UserStore) | {"upkeep": Upkeep}
    for subject, protocol in subjects.items():
        members = inspect.getmembers(protocol, inspect.isfunction)
        names |= {f"{subject}.{name}" for name, _ in members if not name.startswith("_")}
    return names


def test_every_method_is_attacked() -> None:
    assert methods() == ATTACKS.keys()
    assert all(ATTACKS.values())


@asynccontextmanager
async def rows_of(url: str) -> AsyncGenerator[Driver]:
    """Open a driver that reads rows past the store."""
    driver = await open_driver(url)
    try:
        yield driver
    finally:
        await driver.close()


async def dump(driver: Driver, owner: str) -> dict[str, list[str]]:
    """Return all rows of an owner, by table."""
    tables = await driver.read(load_queries(driver.dialect)["schema_tables"], {}, owner=None)
    dumped: dict[str, list[str]] = {}
    for (table,) in tables:
        try:
            await driver.read(f"SELECT user_id FROM {table} LIMIT 0", {}, owner=owner)
        except StoreError:
            # The full-text index refers to the rows of a table that has owners.
            assert table in SHARED or table.startswith("search_")
            continue
        rows = await driver.read(
            f"SELECT * FROM {table} WHERE user_id = :user_id", {"user_id": owner}, owner=owner
        )
        dumped[table] = sorted(repr(row) for row in rows)
    assert {"threads", "nodes", "calls", "runs", "events", "inbox", "jobs"} <= dumped.keys()
    return dumped


async def test_no_attempt_reads_writes_counts_or_reveals_another_owners_rows(
    store: Store, database_url: str
) -> None:
    attempts = {
        f"{name} {what}": attempt
        for name, variants in ATTACKS.items()
        for what, attempt in variants.items()
    }
    before: dict[str, object] = {}
    for name, attempt in attempts.items():
        stranger = store.of(f"before {name}")
        own = await fill_own(stranger)
        before[name] = await outcome(attempt, stranger, Target(NO_JOB, own))

    job = await fill_other(store.of("ann"))
    problems: list[str] = []
    async with rows_of(database_url) as driver:
        anns = await dump(driver, "ann")
        assert sum(len(rows) for rows in anns.values()) > 20
        for name, attempt in attempts.items():
            stranger = store.of(f"after! {name}")
            own = await fill_own(stranger)
            after = await outcome(attempt, stranger, Target(job, own))
            if after != before[name]:
                problems.append(f"{name}: {before[name]} became {after}")
        assert await dump(driver, "ann") == anns
    assert problems == []


async def test_two_owners_can_use_the_same_ids(store: Store, database_url: str) -> None:
    ann, bob = store.of("ann"), store.of("bob")
    first = await live(ann, "ann")
    async with rows_of(database_url) as driver:
        anns = await dump(driver, "ann")
        second = await live(bob, "bob")

        assert repr(second).replace("bob", "ann") == repr(first)
        assert await dump(driver, "ann") == anns
        ending = Commit(finish=Finish("cancelled", "cancelled"))
        await bob.runs.commit(Lease("r2", "t2", "r1", 1), ending)
        exported = [record async for record in bob.upkeep.export_thread("t1")]
        assert "ann" not in repr(exported)
        assert sorted(await bob.upkeep.delete_thread("t1")) == ["t1", "t2"]
        assert await dump(driver, "ann") == anns
        assert await look(ann, "ann") == first[-len(await look(ann, "ann")) :]
        remaining = {table for table, rows in (await dump(driver, "bob")).items() if rows}
        # Spending of a day remains after its threads are deleted.
        assert remaining <= {"embedders", "spending"}


async def test_two_owners_can_use_the_same_ids_concurrently(store: Store) -> None:
    """In lockstep, call by call: a statement without its owner would meet two equal rows."""
    gate = Gate()
    lives: dict[str, list[object]] = {}

    async def lead(name: str) -> None:
        user = over(store, GatedDriver(driver_of(store), gate, Process(name))).of(name)
        lives[name] = await live(user, name)

    async with anyio.create_task_group() as group:
        for name in ("ann", "bob"):
            group.start_soon(lead, name)
        await gate.still()
        while gate.waiting:
            gate.let_through(gate.waiting[0])
            await gate.still()

    assert repr(lives["bob"]).replace("bob", "ann") == repr(lives["ann"])


# Names of owners

NAMES = (
    "ann",
    "Ann",
    "ANN",
    "ann ",
    " ann",
    "ann\n",
    "ann\t",
    "a\u0430nn",
    "\u0430nn",
    "ann\u200b",
    "\ufeffann",
    "é",
    "e\u0301",
    "ß",
    "ss",
    "%",
    "_",
    "*",
    "' OR ''='",
    "ann'; DROP TABLE threads; --",
    'ann"',
    "ann\\",
    ":user_id",
    "%(user_id)s",
    "$1",
    "{run_select}",
    "\x01",
    "\U0001f600",
    "null",
    "0",
    "x" * 200,
    "x" * 201,
)
REFUSED = ("", "ann\0", "\0", "ann\0bob", "\ud800", "x" * 100_000)


async def test_owners_with_strange_names_are_separate(store: Store, database_url: str) -> None:
    for number, name in enumerate(NAMES):
        user = store.of(name)
        await user.threads.ensure("t1", title=str(number), metadata={"number": number})
        await user.inbox.post("t1", "steer", str(number).encode())
        await user.jobs.enqueue("t1", "observe", "a", str(number).encode())
    for number, name in enumerate(NAMES):
        user = store.of(name)
        [thread] = await user.threads.list()
        assert (thread.title, thread.metadata) == (str(number), {"number": number})
        [item] = await user.inbox.pending("t1")
        assert item.body == str(number).encode()
        job = await user.jobs.claim("observe", seconds=60)
        assert job is not None
        assert job.payload == str(number).encode()
    async with rows_of(database_url) as driver:
        for name in NAMES:
            assert len((await dump(driver, name))["threads"]) == 1


@pytest.mark.parametrize("name", REFUSED, ids=range(len(REFUSED)))
async def test_a_name_that_some_database_cannot_store_is_refused(store: Store, name: str) -> None:
    with pytest.raises(ConfigError, match="owner") as raised:
        store.of(name)

    assert raised.value.cure
    assert len(str(raised.value)) < 400


STRANGE_IDS = ("t\0", "\ud800", "' OR ''='", "x" * 3000, "%s", ":thread_id", "\u202e", "-1")


@pytest.mark.parametrize("name", STRANGE_IDS, ids=range(len(STRANGE_IDS)))
async def test_a_strange_id_is_stored_unchanged_or_refused(store: Store, name: str) -> None:
    user = store.of("ann")
    await user.threads.ensure("t1")
    try:
        created = (await user.threads.ensure(name, title="mine")).id
    except AgentRuntimeError as error:
        assert error.cure  # storing and refusing are both right
        created = None
    expected = {"t1"} if created is None else {"t1", name}
    assert created in (None, name)
    assert {thread.id for thread in await user.threads.list()} == expected


async def test_a_second_store_separates_the_owners_too(store: Store, database_url: str) -> None:
    await fill_other(store.of("ann"))
    other = await open_store(database_url)
    try:
        assert await other.of("bob").threads.list() == []
        assert len(await other.of("ann").threads.list()) == 2
    finally:
        await other.close()
