"""Other owners of the same store: their rows, their index, their questions."""

from __future__ import annotations

import psycopg

from agent_runtime.errors import AgentRuntimeError
from agent_runtime.models.scripted import say
from agent_runtime_storage import Job, StoreError, open_store
from agent_runtime_storage.urls import open_driver
from benchmarks.proof.attack_cases.world import SECRET, World, play
from benchmarks.proof.verdicts import Case
from tests.storage.attacks import ATTACKS, outcome
from tests.storage.owners import Target, fill_other, fill_own

SHARED = ("schema_migrations", "rooms")
"""Tables without rows of owners."""
_NO_JOB = Job("018f0000-0000-7000-8000-000000000000", "t1", "other", "a", b"", 1, "0" * 32)


async def no_method_reaches_other_owners(world: World) -> list[str]:
    """No method of an owner's store reads, changes, counts or reveals another owner's rows."""
    faults: list[str] = []
    attempts = [(name, what, one) for name, ones in ATTACKS.items() for what, one in ones.items()]
    for backend in ("file", "postgres"):
        store = await open_store(world.make(backend))
        try:
            before = [
                await outcome(one, store.of(name), Target(_NO_JOB, await fill_own(store.of(name))))
                for name, one in ((f"before {name} {what}", one) for name, what, one in attempts)
            ]
            job = await fill_other(store.of("ann"))
            for (name, what, one), expected in zip(attempts, before, strict=True):
                stranger = store.of(f"after! {name} {what}")
                found = await outcome(one, stranger, Target(job, await fill_own(stranger)))
                if found != expected:
                    faults.append(f"{backend}: {name} {what}: {expected} became {found}")
        finally:
            await store.close()
    return faults


async def no_sql_of_an_owner_reaches_others(world: World) -> list[str]:
    """On Postgres, statements that forget the owner see and change only that owner's rows."""
    url, faults = world.make("postgres"), list[str]()
    async with world.runtime(database_url=url) as runtime:
        await play(runtime, [say(f"The word is {SECRET}.")], task=f"Remember {SECRET}.")
    driver = await open_driver(url)
    try:
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'agent_runtime'"
        tables = [str(name) for (name,) in await driver.read(listed, {}, owner=None)]
        for table in tables:
            if table in SHARED:
                continue
            for verb in ("SELECT * FROM {}", "DELETE FROM {} RETURNING 1", "TABLE {}"):
                try:
                    rows = await driver.read(verb.format(table), {}, owner="ann")
                except StoreError:
                    continue
                if rows:
                    faults.append(f"{verb.format(table)} gave {len(rows)} rows")
    finally:
        await driver.close()
    return faults


async def a_login_without_an_owner_sees_nothing(world: World) -> list[str]:
    """The role of the runtime's own statements sees no row before an owner is named."""
    url, faults = world.make("postgres"), list[str]()
    async with world.runtime(database_url=url) as runtime:
        await play(runtime, [say("Done.")], task=f"Remember {SECRET}.")
    connected = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with connected as connection:
        await connection.execute("SET ROLE agent_runtime_app")
        await connection.execute("SET search_path TO agent_runtime")
        for query in ("SELECT * FROM threads", "SELECT * FROM blobs", "SELECT * FROM search_index"):
            try:
                rows = await (await connection.execute(query)).fetchall()
            except psycopg.Error:
                continue
            if rows:
                faults.append(f"{query} gave {len(rows)} rows")
    return faults


async def no_call_of_the_runtime_reaches_other_owners(world: World) -> list[str]:
    """Threads, runs, files and questions of another owner do not exist for this one."""
    faults: list[str] = []
    async with world.runtime() as runtime:
        result, _, _ = await play(runtime, [say("Done.")], task=f"Remember {SECRET}.")
        attempts = {
            "read the thread": lambda: runtime.threads.messages("t", user="ann"),
            "rename the thread": lambda: runtime.threads.rename("t", "x", user="ann"),
            "fork the thread": lambda: runtime.threads.fork("t", 1, user="ann"),
            "delete the thread": lambda: runtime.threads.delete("t", force=True, user="ann"),
            "read its events": lambda: runtime.threads.events("t", user="ann"),
            "read its tree": lambda: runtime.tree(result.run_id, user="ann"),
            "cancel the run": lambda: runtime.cancel(result.run_id, user="ann"),
            "steer the run": lambda: runtime.steer(result.run_id, "x", user="ann"),
        }
        for name, attempt in attempts.items():
            try:
                if await attempt():
                    faults.append(f"another owner could {name}")
            except AgentRuntimeError as error:
                if SECRET in str(error):
                    faults.append(f"the error says the secret: {name}")
        faults += [] if await runtime.threads.messages("t") else ["the thread is empty"]
    return faults


CASES: tuple[Case[World], ...] = (
    no_method_reaches_other_owners,
    no_sql_of_an_owner_reaches_others,
    a_login_without_an_owner_sees_nothing,
    no_call_of_the_runtime_reaches_other_owners,
)
