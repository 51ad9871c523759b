"""The full-text index: its words are not readable, and deleted texts leave no trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime_storage import Store, UserStore
from agent_runtime_storage.contract.records.log import NewNode
from agent_runtime_storage.drivers.postgres.driver import PostgresDriver
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.search.full_text import index_key
from agent_runtime_storage.search.tokenizer import owner_key, query_terms, terms_of
from agent_runtime_storage.sql.loader import load_migrations, load_queries
from agent_runtime_storage.store import SqlStore
from agent_runtime_storage.urls import open_driver
from tests.storage.helpers import begin

MARKER = "xylophonequartz"


def indexed_message(seq: int, text: str) -> NewNode:
    """Return a message below the previous one, whose body does not contain the text."""
    return NewNode(seq, seq - 1 or None, "message", "user", b"", 1, 0, text=text)


async def test_no_indexed_word_is_readable_in_the_database(
    user: UserStore, database_contents: Callable[[], bytes]
) -> None:
    await begin(user, nodes=(indexed_message(1, f"the {MARKER} is here"),))
    assert len(await user.search.find(MARKER)) == 1
    assert MARKER.encode() not in database_contents()


async def test_deleted_texts_are_not_found_and_do_not_affect_ranks(
    store: Store, user: UserStore
) -> None:
    other = store.of("eve")
    texts = [
        indexed_message(1, "one heron"),
        indexed_message(2, "two herons and one pelican"),
        indexed_message(3, "a heron"),
    ]
    await begin(other, nodes=tuple(texts))
    await begin(user, "r1", "t1", nodes=tuple(texts))
    deleted = tuple(
        indexed_message(seq, "a heron, a pelican, a crane " * seq) for seq in range(1, 60)
    )
    await begin(user, "r2", "t2", nodes=deleted, lease_seconds=-1.0)
    assert len(await user.search.find("crane", limit=100)) == 59
    await user.upkeep.delete_thread("t2")
    assert await user.search.find("crane") == []
    # Deleted texts affect neither the ranks of the others nor the ids of new ones.
    hits = await user.search.find("heron pelican")
    assert hits == await other.search.find("heron pelican")
    await begin(user, "r3", "t3", nodes=(indexed_message(1, "an emu"),))
    await begin(other, "r4", "t3", nodes=(indexed_message(1, "an emu"),))
    for query in ("emu", "heron pelican", "crane"):
        assert await user.search.find(query) == await other.search.find(query)


async def test_what_a_search_knows_of_all_texts_takes_no_row_a_thread(
    store: Store, user: UserStore, database_url: str
) -> None:
    driver = await open_driver(database_url)
    figures = load_queries(driver.dialect)["search_figures"]
    values = {"user_id": user.user_id, "terms": "[]", "most": 10}

    async def known() -> tuple[int, int]:
        [(_, texts, length)] = await driver.read(figures, values, owner=user.user_id)
        return int(texts), int(length)

    try:
        empty = await known()
        for number in range(24):
            texts = tuple(indexed_message(seq, "a heron " * seq) for seq in range(1, 4))
            await begin(user, f"r{number}", f"t{number}", nodes=texts, lease_seconds=-1.0)
        await begin(store.of("eve"), "r", "t", nodes=(indexed_message(1, "a heron"),))
        whole = await known()
        rows = await driver.read("SELECT user_id FROM search_sums", {}, owner=None)
        for number in range(8):
            await user.upkeep.delete_thread(f"t{number}")
        fewer = await known()
        for number in range(8, 24):
            await user.upkeep.delete_thread(f"t{number}")
        left = await driver.read("SELECT user_id FROM search_sums", {}, owner=None)

        assert (empty, await known()) == ((0, 0), (0, 0))
        assert whole[0] == 72
        assert fewer == (48, whole[1] * 2 // 3)
        assert (len(rows) <= 65, [row[0] for row in left]) == (True, ["eve"])
    finally:
        await driver.close()


async def _term(driver: PostgresDriver, owner: str) -> str:
    return query_terms("rare", await index_key(OwnerScope(driver, owner)), plain=True)[0]


async def _fill(driver: PostgresDriver) -> None:
    """Write 4,000 texts for each of two owners; 40 of each have a word in common."""
    rare = {owner: await _term(driver, owner) for owner in ("ann", "bob")}
    for owner in rare:
        texts = """
            WITH t AS (
                INSERT INTO threads (user_id, id, title, metadata, created_at, updated_at)
                VALUES (:owner::text, 't', '', '{}', 0, 0)
            ), n AS (
                INSERT INTO nodes (user_id, thread_id, id, kind, status, role, activation_id,
                                   body, tokens, created_at)
                SELECT :owner::text, 't', number, 'message', 'closed', 'user', 0, '', 0, 0
                FROM generate_series(1, 4000) AS number
            ), s AS (
                INSERT INTO search_texts (user_id, thread_id, node_id, call, length)
                SELECT :owner::text, 't', number, -1, 3 FROM generate_series(1, 4000) AS number
                RETURNING id, node_id
            ), i AS (
                INSERT INTO search_index (id, terms)
                SELECT id, (CASE WHEN node_id % 100 = 0 THEN :rare::text ELSE 'ffff00000000' END
                            || ' ' || left(md5(node_id::text), 12))::tsvector FROM s
            )
            INSERT INTO search_totals (user_id, thread_id, texts, length)
            VALUES (:owner::text, 't', 4000, 12000)
        """
        fill = Statement(texts, {"owner": owner, "rare": rare[owner]})
        # Apart from the words, as the index reads them from their table.
        entries = """
            INSERT INTO search_entries (id, owner, length, repeats)
            SELECT id, user_id, 3, '' FROM search_texts WHERE user_id = :owner
        """
        await driver.batch([fill, Statement(entries, {"owner": owner})], owner=None)
    for table in ("search_index", "search_entries", "search_texts"):
        await driver.batch([Statement(f"ANALYZE {table}", {})], owner=None)


async def test_queries_use_the_index_despite_row_level_security(postgres_url: str) -> None:
    driver = await PostgresDriver.open(postgres_url)
    await apply_migrations(driver)
    await _fill(driver)
    assert (await driver.isolation()).wall == "role", await driver.isolation()
    sql = load_queries("postgres")
    term = await _term(driver, "ann")
    for block in ("search_any", "search_all", "search_figures"):
        values = {
            "user_id": "ann",
            "thread_id": None,
            "words": f'[["{term}", 4.5]]',
            "terms": term if block == "search_all" else f'["{term}"]',
            "per_word": 0.3,
            "limit": 10,
            "most": 100,
        }
        rows = await driver.read(sql[block], values, owner="ann")
        if block != "search_figures":
            assert [row[1] for row in rows] == [*range(100, 1001, 100)]
        plan = await driver.read(f"EXPLAIN {sql[block]}", values, owner="ann")
        assert not any("Seq Scan on search_" in str(line) for (line,) in plan), plan
    for function, body in await driver.read(
        "SELECT proname, prosrc FROM pg_proc WHERE proname IN ('search_count', 'search_matches')"
        " AND pronamespace = 'agent_runtime'::regnamespace",
        {},
        owner=None,
    ):
        # As the function runs it: `EXPLAIN` does not look into functions.
        inside = str(body).replace("$1", f"'{term}'").replace("$2", "100")
        plan = await driver.read(f"EXPLAIN {inside}", {}, owner=None)
        text = "\n".join(str(line) for (line,) in plan)
        assert "Bitmap Index Scan on search_entries_by_term" in text, (function, text)
        assert "Seq Scan on search_entries" not in text, (function, text)
    [(login,)] = await driver.read("SELECT current_user::text", {}, owner="ann")
    assert login == "agent_runtime_app"
    # A query without the owner is limited by row-level security.
    owners = await driver.read("SELECT DISTINCT user_id FROM search_texts", {}, owner="ann")
    assert owners == [("ann",)]
    await driver.close()


SECRET_SINCE = 22
"""The migration that brought the secret of the index."""
OLD_TEXT = (
    "INSERT INTO threads (user_id, id, title, metadata, created_at, updated_at) "
    "VALUES ('ann', 't', '', '{}', 0, 0)",
    # An empty body, as both dialects have it: SQLite takes no text for bytes.
    "INSERT INTO nodes (user_id, thread_id, id, kind, status, role, activation_id, body, tokens, "
    "created_at) SELECT 'ann', 't', 1, 'message', 'closed', 'user', 0, {no_bytes}, 0, 0",
    "INSERT INTO search_texts (user_id, thread_id, node_id, call, length) "
    "VALUES ('ann', 't', 1, -1, 3)",
)


@pytest.mark.parametrize("old", [True, False])
async def test_a_new_database_has_a_secret_and_one_with_words_keeps_to_none(
    empty_url: str, old: bool
) -> None:
    driver = await open_driver(empty_url)
    try:
        known = load_migrations(driver.dialect)
        await apply_migrations(driver, [one for one in known if one.version < SECRET_SINCE])
        if old:
            no_bytes = load_queries(driver.dialect)["no_bytes"]
            texts = [text.replace("{no_bytes}", no_bytes) for text in OLD_TEXT]
            await driver.batch([Statement(text, {}) for text in texts], owner=None)
        await apply_migrations(driver)
        keys = {await index_key(OwnerScope(driver, name)) for name in ("ann", "bob")}
        plain = {owner_key(name) for name in ("ann", "bob")}
        assert keys == plain if old else not keys & plain
        user = SqlStore(driver).of("bob")
        await begin(user, nodes=(indexed_message(1, "a heron"),))
        assert len(await user.search.find("heron")) == 1
    finally:
        await driver.close()


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without a schema."""
    if request.param == "file":
        return f"file:{tmp_path / 'empty.db'}"
    return request.getfixturevalue("empty_postgres_url")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test with the databases whose migrations differ."""
    if "empty_url" in metafunc.fixturenames:
        metafunc.parametrize("empty_url", ["file", "postgres"], indirect=True)


async def test_words_that_replace_others_are_found_instead(postgres_url: str) -> None:
    driver = await PostgresDriver.open(postgres_url)
    await apply_migrations(driver)
    user = SqlStore(driver).of("ann")
    await begin(user, nodes=(indexed_message(1, "heron heron"), indexed_message(2, "a pelican")))
    await user.search.find("heron")
    terms = (
        await terms_of("pelican pelican pelican", await index_key(OwnerScope(driver, "ann")))
    ).by_place()
    sql = "SELECT search_rewrite(id, :terms::tsvector) FROM search_texts WHERE node_id = 1"
    await driver.batch([Statement(sql, {"terms": terms})], owner="ann")

    assert await user.search.find("heron") == []
    assert [hit.node_id for hit in await user.search.find("pelican")] == [1, 2]
    await driver.close()
