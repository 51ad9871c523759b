"""Opening a Postgres database: setup by concurrent processes, and errors with their cures."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from urllib.parse import quote

import anyio
import psycopg
import pytest
from psycopg import sql

from agent_runtime_storage import MigrationError, StoreError, StoreUnavailable
from agent_runtime_storage.drivers.postgres.driver import PostgresDriver
from agent_runtime_storage.drivers.postgres.translation import translate, translate_counted
from agent_runtime_storage.drivers.protocol import SqlDialect
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.sql.loader import load_migrations
from agent_runtime_storage.store import SqlStore
from tests.services.fixtures import StartPostgres
from tests.services.postgres import PASSWORD, Logins
from tests.storage.sql_blocks import whole_queries

QUOTED = quote(PASSWORD, safe="")


async def test_processes_that_start_concurrently_all_open_the_store(
    start_postgres: StartPostgres,
) -> None:
    code = (
        "import sys, anyio\n"
        "from agent_runtime_storage.drivers.postgres.driver import PostgresDriver\n"
        "from agent_runtime_storage.queries.migrations import apply_migrations\n"
        "from agent_runtime_storage.store import SqlStore\n"
        "async def open_one(url, name):\n"
        "    driver = await PostgresDriver.open(url)\n"
        "    await apply_migrations(driver)\n"
        "    await SqlStore(driver).of('ann').threads.ensure(name)\n"
        "    await driver.close()\n"
        "async def main():\n"
        "    async with anyio.create_task_group() as group:\n"
        "        for number in range(4):\n"
        "            for url in sys.argv[2:]:\n"
        "                group.start_soon(open_one, url, f'{sys.argv[1]}{number}')\n"
        "anyio.run(main)\n"
    )
    # Roles belong to the cluster: two databases create them at the same time.
    server = start_postgres()
    with psycopg.connect(server.url("template1"), autocommit=True) as connection:
        connection.execute("DROP EXTENSION IF EXISTS vector")
    urls = [server.url(name) for name in ("one", "two")]
    for name in ("one", "two"):
        server.run("CREATE DATABASE {}", name)

    async with anyio.create_task_group() as group:
        for process in "ab":
            command = [sys.executable, "-c", code, process, *urls]
            group.start_soon(anyio.run_process, command)

    for url in urls:
        driver = await PostgresDriver.open(url)
        await apply_migrations(driver)
        threads = await SqlStore(driver).of("ann").threads.list()
        assert (await driver.isolation()).wall == "role"
        await driver.close()
        assert sorted(thread.id for thread in threads) == sorted(
            f"{process}{number}" for process in "ab" for number in range(4)
        )


async def test_tables_of_another_program_are_left_alone(empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.threads (photo text)")

    driver = await PostgresDriver.open(empty_postgres_url)
    await apply_migrations(driver)
    await SqlStore(driver).of("ann").threads.ensure("t1")
    await driver.close()

    with psycopg.connect(empty_postgres_url) as connection:
        assert connection.execute("SELECT * FROM public.threads").fetchall() == []
        count = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert connection.execute(count).fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("part", "instead", "what"),
    [
        (QUOTED, "wrong-secret", "refused the login"),
        (QUOTED, QUOTED + "%", "cannot be read"),
        (QUOTED, PASSWORD, "cannot be read"),
        (QUOTED, "p@ss" + PASSWORD, "cannot be read"),
        (QUOTED, "1/" + PASSWORD, "cannot be read"),
        (r":\d+/", ":1/", "cannot be reached"),
        (r"$", "absent", "no such database"),
    ],
)
async def test_errors_of_opening_do_not_show_the_password(
    empty_postgres_url: str, part: str, instead: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = re.sub(part, instead, empty_postgres_url)
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreError, match=what) as raised:
        await PostgresDriver.open(url, patience=0.1)

    texts = "".join(traceback.format_exception(raised.value)) + repr(raised.value) + caplog.text
    assert raised.value.cure
    for secret in (PASSWORD, QUOTED, "wrong-secret", *PASSWORD.split("/")):
        assert secret not in texts


async def test_a_driver_shows_no_password(
    empty_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        driver = await PostgresDriver.open(empty_postgres_url)
        shown = repr(driver) + str(driver)
        await driver.close()

    assert "postgresql://***@" in shown
    assert PASSWORD not in shown + caplog.text and QUOTED not in shown + caplog.text


async def test_the_error_for_a_login_without_rights_has_the_grant(
    postgres_logins: Logins,
) -> None:
    with psycopg.connect(postgres_logins.superuser, autocommit=True) as connection:
        for statement in (
            "REVOKE ALL ON DATABASE {} FROM agent_plain, PUBLIC",
            "GRANT CONNECT ON DATABASE {} TO agent_plain",
        ):
            database = sql.Identifier(connection.info.dbname)
            connection.execute(sql.SQL(statement).format(database))
    with pytest.raises(MigrationError, match="schema") as raised:
        await PostgresDriver.open(postgres_logins.plain)

    with psycopg.connect(postgres_logins.superuser, autocommit=True) as connection:
        connection.execute(raised.value.cure.partition(": ")[2].encode())
    driver = await PostgresDriver.open(postgres_logins.plain)
    await apply_migrations(driver)
    await driver.close()


async def test_an_old_pgvector_is_an_error(empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")

    with pytest.raises(MigrationError, match=r"pgvector 0\.7\.4") as raised:
        await PostgresDriver.open(empty_postgres_url)

    assert "0.8" in raised.value.cure


DIALECTS: tuple[SqlDialect, ...] = ("sqlite", "postgres")


def test_both_dialects_have_the_same_queries_and_migrations() -> None:
    queries = {dialect: whole_queries(dialect).keys() for dialect in DIALECTS}
    # Postgres has an index of its own for vectors; a file compares signs, which lie in blocks.
    by_signs = {
        "likely_vectors", "likely_vectors_of_thread", "nearest_vectors", "make_vector_blocks",
        "open_vector_blocks", "sources_with_blocks_due",
    }  # fmt: skip
    assert queries["postgres"] | by_signs == queries["sqlite"]
    assert not queries["postgres"] & by_signs
    names = {
        dialect: [(migration.version, migration.name) for migration in load_migrations(dialect)]
        for dialect in DIALECTS
    }
    assert names["postgres"] == names["sqlite"]


def test_every_query_fits_the_schema(postgres_url: str) -> None:
    prepared = 0
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET search_path TO agent_runtime, public")
        for name, text in whole_queries("postgres").items():
            if name == "create_schema_migrations":
                continue
            # Without types, as when every value is NULL.
            forms = [translate(text)]
            if not re.match(r"WITH[^(]*\(\s*(INSERT|UPDATE|DELETE)", text):
                forms.append(translate_counted(text))
            for translated in forms:
                connection.execute(b"PREPARE one AS " + translated.sql)
                connection.execute("DEALLOCATE one")
            prepared += 1
    assert prepared > 40


async def test_a_missing_server_is_given_up_soon(empty_postgres_url: str) -> None:
    url = re.sub(r":\d+/", ":1/", empty_postgres_url)

    with pytest.raises(StoreUnavailable, match="reached"), anyio.fail_after(60):
        await PostgresDriver.open(url, patience=10_000)
