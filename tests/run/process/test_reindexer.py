"""Texts of earlier versions are indexed again while a runtime is open."""

from __future__ import annotations

import logging
from typing import Literal

import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.messages import searchable_body
from agent_runtime.models.scripted import say
from agent_runtime.run.process import reindexer
from agent_runtime.run.process.reindexer import reindex_outdated
from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.store import SqlStore
from agent_runtime_storage.urls import open_driver

# Nothing of it depends on the database.
pytestmark = pytest.mark.backends("file")


async def test_outdated_texts_of_all_owners_are_indexed_again(database_url: str) -> None:
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        for user in ("ann", "bob"):
            agent = Agent(ScriptedModel([say("Die Rechnungen sind noch nicht bezahlt.")]))
            await runtime.run(agent, "Sind die Rechnungen bezahlt?", user=user)
    driver = await open_driver(database_url)
    store = SqlStore(driver)
    await driver.batch([Statement("UPDATE search_texts SET version = 1", {})], owner=None)
    assert (await store.maintenance.status()).outdated_texts == 4

    await reindex_outdated(store, start=0)

    assert (await store.maintenance.status()).outdated_texts == 0
    for user in ("ann", "bob"):
        assert len(await store.of(user).search.find("Rechnung")) == 2
    await driver.close()


async def test_a_text_that_fails_does_not_stop_other_owners(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        for user, said in (("ann", "broken"), ("bob", "Die Rechnungen sind bezahlt.")):
            await runtime.run(Agent(ScriptedModel([say(said)])), "Los.", user=user)
    driver = await open_driver(database_url)
    store = SqlStore(driver)
    await driver.batch([Statement("UPDATE search_texts SET version = 1", {})], owner=None)

    def text_of(kind: Literal["node", "call"], body: bytes) -> str:
        if b"broken" in body:
            raise TypeError("a bug")
        return searchable_body(kind, body)

    monkeypatch.setattr(reindexer, "searchable_body", text_of)
    await reindex_outdated(store, start=0)

    assert await store.maintenance.outdated() == ["ann"]
    assert "Indexing older texts again failed." in caplog.text
    await driver.close()


async def test_a_failure_is_logged_and_left_to_the_next_process(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    driver = await open_driver(database_url)
    await driver.batch([Statement("DROP INDEX search_texts_outdated", {})], owner=None)
    await driver.batch([Statement("DROP TRIGGER search_delete", {})], owner=None)
    await driver.batch([Statement("DROP TABLE search_texts", {})], owner=None)

    with caplog.at_level(logging.WARNING):
        await reindex_outdated(SqlStore(driver), start=0)

    assert "continued by the next process" in caplog.text
    await driver.close()
