"""Texts that an earlier version indexed: found before and after they are indexed again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent_runtime_storage import Commit, UserStore
from agent_runtime_storage.contract.records.log import CallDone, NewNode
from agent_runtime_storage.drivers.protocol import Driver, Statement
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.queries.owner import OwnerScope
from agent_runtime_storage.search.full_text import TextIndexer
from agent_runtime_storage.search.tokenizer import Terms, hash_term, owner_key, split_words
from agent_runtime_storage.store import SqlStore
from agent_runtime_storage.urls import open_driver
from tests.storage.helpers import begin

GERMAN = "Die Rechnungen liegen seit gestern bei der Buchhaltung und sind noch nicht bezahlt."
ENGLISH = "The invoices have been with the accountants since yesterday."
RESULT = "Es wurden drei Kartuschen für den Drucker gekauft."


@pytest.fixture
async def driver(database_url: str) -> AsyncIterator[Driver]:
    """A driver of the database, which has the schema."""
    opened = await open_driver(database_url)
    await apply_migrations(opened)
    yield opened
    await opened.close()


async def take_secret_away(driver: Driver) -> None:
    """Make the database one that had texts before there was a secret."""
    none = "UPDATE search_secrets SET secret = :none"
    await driver.batch([Statement(none, {"none": b""}, rows=1)], owner=None)


def text_of(kind: str, body: bytes) -> str:
    """Return the searchable text of a body: in these tests, all of it."""
    if body == b"broken":
        raise ValueError(kind)
    return body.decode()


async def write(user: UserStore, *texts: str) -> None:
    """Write messages, and a call with a German result."""
    nodes = [
        NewNode(seq, seq - 1 or None, "message", "user", text.encode(), 1, 0, text=text)
        for seq, text in enumerate(texts, 1)
    ]
    call = NewNode(len(nodes) + 1, len(nodes), "exchange", "assistant", b"x", 1, 0, "open", ("t",))
    lease = await begin(user, nodes=tuple(nodes))
    await user.runs.commit(lease, Commit(nodes=(call,)))
    done = CallDone(call.seq, 0, "ok", RESULT.encode(), 1, text=RESULT)
    await user.runs.commit(lease, Commit(done=(done,), close=(call.seq,), head=call.seq))


async def index_as_version_1(driver: Driver, user_id: str) -> None:
    """Give all texts of an owner the index of version 1: words, without keys."""
    scope, key = OwnerScope(driver, user_id), owner_key(user_id)
    indexer = TextIndexer(scope)
    mark = "UPDATE search_texts SET version = 1 WHERE user_id = :user_id"
    await driver.batch([Statement(mark, {"user_id": user_id})], owner=user_id)
    for thread_id, node_id, call in await scope.read("outdated_texts", limit=100):
        store = SqlStore(driver).of(user_id)
        node = await store.log.node(str(thread_id), int(node_id))
        text = (node.body if call < 0 else node.calls[int(call)].body).decode()
        words = {word for part in split_words(text) for word in part.plain + part.wholes}
        terms = Terms(len(words), {hash_term(word, key): 1 for word in sorted(words)})
        values = {"thread_id": thread_id, "node_id": node_id, "call": call, "version": 1}
        encoded = indexer.encode(terms)
        await scope.batch([scope.statement("reindex_text", {**values, "terms": encoded})])


async def found(user: UserStore, query: str) -> list[tuple[int, int | None]]:
    """Return the nodes and calls that a search finds, in their order."""
    hits = await user.search.find(query)
    return sorted(((hit.node_id, hit.call) for hit in hits), key=str)


async def test_outdated_texts_are_indexed_again_a_few_at_a_time(driver: Driver) -> None:
    await take_secret_away(driver)
    store = SqlStore(driver)
    ann, bob = store.of("ann"), store.of("bob")
    for user in (ann, bob):
        await write(user, GERMAN, ENGLISH)
    new = {query: await ann.search.find(query) for query in ("Rechnung", "invoice", "Kartusche")}
    await index_as_version_1(driver, "ann")

    assert (await store.maintenance.status()).outdated_texts == 3
    assert await store.maintenance.outdated() == ["ann"]
    assert await found(ann, "Rechnungen bezahlt") == [(1, None)]
    assert await found(ann, "invoice") == [(2, None)]
    assert await found(ann, "Kartusche") == []

    assert await ann.upkeep.reindex(text_of, limit=1) == 1
    assert await found(ann, "Rechnung") == [(1, None)]
    assert await found(ann, "Kartusche") == []
    assert await ann.upkeep.reindex(text_of) == 2
    assert await ann.upkeep.reindex(text_of) == 0
    assert await bob.upkeep.reindex(text_of) == 0
    assert {query: await ann.search.find(query) for query in new} == new
    assert (await store.maintenance.status()).outdated_texts == 0


async def test_a_text_that_cannot_be_read_keeps_its_index(driver: Driver) -> None:
    user = SqlStore(driver).of("ann")
    broken = NewNode(1, None, "message", "user", b"broken", 1, 0, text=GERMAN)
    await begin(user, nodes=(broken,))
    mark = Statement("UPDATE search_texts SET version = 1", {})
    await driver.batch([mark], owner="ann")

    assert await user.upkeep.reindex(text_of) == 1
    assert await user.upkeep.reindex(text_of) == 0
    assert await found(user, "Rechnung") == [(1, None)]


async def test_words_that_an_older_process_hashed_without_the_secret_are_found(
    driver: Driver,
) -> None:
    user = SqlStore(driver).of("ann")
    await write(user, ENGLISH)
    # It had opened the database before a newer process chose the secret.
    await index_as_version_1(driver, "ann")
    assert await found(user, "invoices") == []

    await user.upkeep.reindex(text_of)

    assert await found(user, "invoices") == [(1, None)]
