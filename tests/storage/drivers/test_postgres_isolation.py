"""Row-level security on Postgres: a query without the owner sees only the owner's rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg
import pytest

from agent_runtime_storage import MigrationError, NodeText, StoreError, UserStore
from agent_runtime_storage.drivers.postgres.driver import PostgresDriver
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.search.full_text import index_key
from agent_runtime_storage.search.tokenizer import owner_key, query_terms
from agent_runtime_storage.store import SqlStore
from tests.services.fixtures import StartPostgres
from tests.services.postgres import PLAIN, Logins, PostgresServer
from tests.storage.helpers import begin


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[PostgresDriver]:
    driver = await PostgresDriver.open(url)
    try:
        await apply_migrations(driver)
        yield driver
    finally:
        await driver.close()


@pytest.fixture
def server(start_postgres: StartPostgres) -> PostgresServer:
    """A server without the runtime's roles, which belong to a whole cluster."""
    return start_postgres()


@pytest.fixture
def logins(server: PostgresServer) -> Logins:
    return server.logins(server.create())


def user(driver: PostgresDriver, name: str) -> UserStore:
    return SqlStore(driver).of(name)


async def check_isolation(driver: PostgresDriver) -> None:
    """Write as two owners, then check queries that name no owner."""
    for name in ("ann", "bob"):
        await begin(user(driver, name), f"run of {name}", f"thread of {name}")
    tables = [
        str(name)
        for (name,) in await driver.read(
            "SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'agent_runtime'::regnamespace AND c.relkind = 'r'"
            " AND a.attname = 'user_id'",
            {},
            owner=None,
        )
    ]
    assert {"threads", "runs", "nodes", "blobs", "events", "jobs"} <= set(tables)
    for table in tables:
        query = f"SELECT DISTINCT user_id FROM {table}"
        all_owners = await driver.read(query, {}, owner=None)
        own = await driver.read(query, {}, owner="ann")
        assert own == [row for row in all_owners if row == ("ann",)], table
        assert await driver.read(query, {}, owner="carl") == []
        assert await driver.read(query, {}, owner="") == []

    rename = "UPDATE threads SET title = 'taken'"
    await driver.batch([Statement(rename, {}, rows=1)], owner="ann")
    await driver.batch([Statement("DELETE FROM inbox", {}, rows=0)], owner="ann")
    titles = "SELECT user_id, title FROM threads ORDER BY user_id"
    assert await driver.read(titles, {}, owner=None) == [("ann", "taken"), ("bob", "")]
    give_away = "UPDATE threads SET user_id = 'bob', head = NULL, active_run = NULL"
    with pytest.raises(StoreError, match="row-level security"):
        await driver.batch([Statement(give_away, {})], owner="ann")
    # The connection's next transaction has no owner.
    assert await driver.read("SELECT count(*) FROM threads", {}, owner=None) == [(2,)]


async def test_a_superuser_is_isolated_by_a_role(server: PostgresServer, logins: Logins) -> None:
    async with opened(logins.superuser) as driver:
        await check_isolation(driver)

        assert (await driver.isolation()).wall == "role"


async def test_a_login_that_may_create_roles_is_isolated_by_a_role(logins: Logins) -> None:
    async with opened(logins.creator) as driver:
        await check_isolation(driver)

        assert (await driver.isolation()).wall == "role"
        [(name,)] = await driver.read("SELECT current_user::text", {}, owner="ann")
        assert name == "agent_runtime_app"


async def test_a_login_without_createrole_is_isolated_by_force_until_there_are_roles(
    server: PostgresServer, logins: Logins
) -> None:
    async with opened(logins.plain) as driver:
        await check_isolation(driver)
        isolation = await driver.isolation()
        assert isolation.wall == "forced" and "except the full-text index" in isolation.detail

    cure = isolation.cure.partition(": ")[2].rpartition("; then")[0]
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(cure.encode())

    async with opened(logins.plain) as driver:
        assert (await driver.isolation()).wall == "role"
        all_rows = await driver.read("SELECT count(*) FROM threads", {}, owner=None)
        own = await driver.read("SELECT count(*) FROM threads", {}, owner="ann")
        assert (all_rows, own) == ([(2,)], [(1,)])


async def test_the_error_for_a_login_without_membership_has_the_grant(
    server: PostgresServer, logins: Logins
) -> None:
    async with opened(logins.creator):
        pass

    with pytest.raises(MigrationError, match=PLAIN) as raised:
        await PostgresDriver.open(logins.plain)

    grant = raised.value.cure.partition(": ")[2]
    with psycopg.connect(logins.superuser, autocommit=True) as connection:
        connection.execute(grant.encode())
    async with opened(logins.plain) as driver:
        await check_isolation(driver)
        assert (await driver.isolation()).wall == "role"


async def test_incomplete_isolation_is_reported(logins: Logins) -> None:
    async with opened(logins.creator) as driver:
        with psycopg.connect(logins.superuser, autocommit=True) as connection:
            connection.execute("ALTER ROLE agent_runtime_app BYPASSRLS")
        isolation = await driver.isolation()
        assert isolation.wall == "none" and "ALTER ROLE" in isolation.cure

        await driver.batch(
            [Statement("ALTER TABLE nodes NO FORCE ROW LEVEL SECURITY", {})], owner=None
        )
        isolation = await driver.isolation()
        assert isolation.wall == "none" and "nodes" in isolation.detail


async def test_an_owners_role_reaches_no_words_of_others(logins: Logins) -> None:
    async with opened(logins.creator) as driver:
        for name in ("ann", "bob"):
            await begin(user(driver, name), f"run of {name}", "t")
            await user(driver, name).search.index("t", [NodeText(1, None, "salamander")])
        assert len(await user(driver, "bob").search.find("salamander")) == 1
        key = await index_key(OwnerScope(driver, "bob"))
        # With the secret of the database one could test for the words of others.
        assert key not in (owner_key("bob"), await index_key(OwnerScope(driver, "ann")))
        [word] = query_terms("salamander", key, plain=True)
        for statement in (
            "SELECT * FROM search_secrets",
            "UPDATE search_secrets SET secret = ''",
            "SELECT * FROM search_index",
            "DELETE FROM search_index",
            "UPDATE search_index SET terms = NULL",
            "INSERT INTO search_index (id, terms) VALUES (99, '')",
            "SELECT * FROM search_entries",
            "DELETE FROM search_entries",
            "INSERT INTO search_entries (id, owner, length, repeats) VALUES (99, 'ann', 1, '')",
        ):
            with pytest.raises(StoreError, match="permission denied"):
                await driver.batch([Statement(statement, {})], owner="ann")
        counts = "SELECT search_count(:word, 10)"
        matches = "SELECT count(*) FROM search_matches(:word)"
        for query in (counts, matches):
            assert await driver.read(query, {"word": word}, owner="ann") == [(0,)]
            assert await driver.read(query, {"word": word}, owner="bob") == [(1,)]
        # Words cannot be added to the text of another owner either.
        [(text,)] = await driver.read(
            "SELECT id FROM search_texts WHERE user_id = 'bob'", {}, owner=None
        )
        for forge in ("search_add", "search_rewrite"):
            sql = f"SELECT {forge}(:id, 'forged'::tsvector)"
            await driver.batch([Statement(sql, {"id": text})], owner="ann")
        assert await driver.read(matches, {"word": word}, owner="bob") == [(1,)]
        total = "SELECT count(*) FROM search_entries WHERE search_terms(id) @@ 'forged'::tsquery"
        assert await driver.read(total, {}, owner=None) == [(0,)]


async def test_a_table_that_is_open_to_all_is_named(logins: Logins) -> None:
    async with opened(logins.creator) as driver:
        grant = "GRANT SELECT ON search_index TO PUBLIC"
        await driver.batch([Statement(grant, {})], owner=None)
        isolation = await driver.isolation()
        assert isolation.wall == "none" and "search_index" in isolation.detail
        assert "REVOKE ALL" in isolation.cure
