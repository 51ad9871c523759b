"""Texts of earlier versions are indexed again while a runtime is open."""

from __future__ import annotations

import logging

import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.models.scripted import say
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
