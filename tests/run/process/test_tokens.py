"""Workers on Procrastinate: their tokens may be lost, doubled, stalled or late without harm."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import psycopg
import pytest

from agent_runtime import Agent, App, Runtime, ScriptedModel, Settings
from agent_runtime.models.scripted import say
from agent_runtime.run.queue import worker as workers
from agent_runtime.run.queue.tokens import TokenCarrier
from tests.run.process.test_queue import over, until, working

pytestmark = pytest.mark.backends("postgres")
TOKEN = "INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('agent_runtime', 'pick')"


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings with the test's own database."""
    return Settings(database_url=database_url, observational_memory=False)


@asynccontextmanager
async def tokens(url: str) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
    """Connect to the tables of the tokens."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("SET search_path TO agent_runtime_tokens")
        yield connection


async def counted(connection: psycopg.AsyncConnection[Any], sql: str) -> int:
    """Return the number that a query counts; 0 before there are tables."""
    try:
        row = await (await connection.execute(sql.encode())).fetchone()
    except psycopg.errors.UndefinedTable:
        return 0
    return int(row[0]) if row else 0


async def until_counted(connection: psycopg.AsyncConnection[Any], sql: str, number: int) -> None:
    """Wait until a query counts a number."""
    with anyio.fail_after(30):
        while await counted(connection, sql) != number:  # noqa: ASYNC110
            await anyio.sleep(0.02)


ALIVE = "SELECT count(*) FROM procrastinate_workers"
ALL = "SELECT count(*) FROM procrastinate_jobs"


def app_of(answers: int) -> App:
    """Return an application whose agent answers a number of runs."""
    return App(agents={"helper": Agent(ScriptedModel([say("Done.")] * answers))})


async def test_a_token_brings_the_word_and_what_becomes_of_tokens_does_no_harm(
    settings: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a token can bring the word in time; the poll of the last part is set below.
    monkeypatch.setattr(workers, "TOKEN_POLL_SECONDS", 600.0)
    app = app_of(30)
    helper = app.named("helper")
    async with (
        Runtime.open(settings) as runtime,
        Runtime.open(settings) as caller,
        tokens(database_url) as rows,
        working(runtime, app, concurrency=2),
    ):
        await until_counted(rows, ALIVE, 1)
        # More than its slots: each token that fills them leaves another one.
        queued = [await caller.enqueue(helper, "Go.", app=app) for _ in range(7)]
        for one in queued:
            assert (await until(caller, one.run_id, over)).status == "succeeded"

        # Doubled, and late: there is nothing to do any more.
        for _ in range(20):
            await rows.execute(TOKEN)
        await until_counted(rows, ALL, 0)

        # Stalled: taken by a worker that died.
        await rows.execute(
            "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 hour')"
        )
        await rows.execute(
            TOKEN.replace("task_name)", "task_name, status, worker_id)").replace(
                "'pick')", "'pick', 'doing', (SELECT max(id) FROM procrastinate_workers))"
            )
        )
        one = await caller.enqueue(helper, "Go.", app=app)
        run = await until(caller, one.run_id, over)
        assert (run.status, run.epoch) == ("succeeded", 1)

    async with tokens(database_url) as rows:
        assert await counted(rows, f"{ALL} WHERE status = 'doing'") == 1
        monkeypatch.setattr(workers, "TOKEN_POLL_SECONDS", 0.2)
        async with Runtime.open(settings) as runtime, working(runtime, app):
            # The stalled one is cleared; so is the dead worker.
            await until_counted(rows, ALL, 0)
            await until_counted(rows, ALIVE, 1)
            # Lost: each token is deleted as soon as it is there.
            await rows.execute(
                "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql "
                "AS 'BEGIN RETURN NULL; END'"
            )
            await rows.execute(
                "CREATE TRIGGER lose BEFORE INSERT ON procrastinate_jobs "
                "FOR EACH ROW EXECUTE FUNCTION lose()"
            )
            async with Runtime.open(settings) as caller:
                one = await caller.enqueue(helper, "Go.", app=app)
                assert (await until(caller, one.run_id, over)).epoch == 1
            assert await counted(rows, ALL) == 0


async def test_one_worker_gets_the_word_and_all_get_it_where_no_worker_has_tokens(
    settings: Settings, database_url: str
) -> None:
    app = app_of(1)
    async with Runtime.open(settings) as runtime, tokens(database_url) as rows:
        carrier = TokenCarrier(database_url)
        taken = list[int]()
        full = anyio.Event()

        async def take(number: int) -> None:
            taken.append(number)
            await full.wait()

        async def wakes(number: int) -> None:
            await carrier.carry(lambda: take(number), lambda _: None)

        async with anyio.create_task_group() as group:
            for number in range(2):
                group.start_soon(wakes, number)
            await until_counted(rows, ALIVE, 2)
            with runtime.store.queue.listening() as other:
                await runtime.enqueue(app.named("helper"), "Go.", app=app)
                await until_counted(rows, "SELECT count(*) FROM procrastinate_jobs "
                                    "WHERE status = 'doing'", 1)  # fmt: skip
                # The full one leaves the second token to the other.
                runtime.store.queue.wake()
                await until_counted(rows, "SELECT count(*) FROM procrastinate_jobs "
                                    "WHERE status = 'doing'", 2)  # fmt: skip
                other.wake()
                await other.wait(5)
            assert sorted(taken) == [0, 1]
            group.cancel_scope.cancel()
        await until_counted(rows, ALIVE, 0)

        async with Runtime.open(settings) as second:
            with second.store.queue.listening() as listener:
                # LISTEN has begun once a word arrives.
                with anyio.fail_after(30):
                    heard = anyio.Event()

                    async def hear() -> None:
                        await listener.wait(30)
                        heard.set()

                    async with anyio.create_task_group() as group:
                        group.start_soon(hear)
                        while not heard.is_set():
                            runtime.store.queue.wake()
                            await anyio.sleep(0.05)
        assert await counted(rows, ALL) == 0


async def test_a_login_that_may_not_create_the_tokens_polls(
    settings: Settings, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(1)
    async with (
        Runtime.open(settings) as runtime,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
    ):
        # Another program has a schema of this name, of a version that is newer.
        await connection.execute("CREATE SCHEMA agent_runtime_tokens")
        await connection.execute("COMMENT ON SCHEMA agent_runtime_tokens IS '999.0.0'")
        with caplog.at_level(logging.WARNING):
            async with working(runtime, app):
                one = await runtime.enqueue(app.named("helper"), "Go.", app=app)
                assert (await until(runtime, one.run_id, over)).status == "succeeded"
                with anyio.fail_after(30):
                    while "this worker polls" not in caplog.text:  # noqa: ASYNC110
                        await anyio.sleep(0.02)
    assert database_url not in caplog.text
