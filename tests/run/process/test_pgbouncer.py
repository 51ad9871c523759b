"""Postgres through PgBouncer: session mode carries everything, transaction mode is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psycopg
import pytest

from agent_runtime import Agent, App, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import StoreError
from agent_runtime.models.scripted import call, say
from agent_runtime.run.queue import worker as workers
from agent_runtime_storage import open_store
from agent_runtime_storage.drivers.postgres.driver import PostgresDriver
from tests.run.process.test_queue import over, until, working
from tests.run.process.test_tokens import ALIVE, tokens, until_counted
from tests.services.fixtures import starting
from tests.services.pgbouncer import PgBouncer

pytestmark = pytest.mark.backends("postgres")
COUNT = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid()"
)
LISTENING = COUNT + " AND query LIKE 'LISTEN agent_runtime%'"

StartBouncer = Callable[..., PgBouncer]


@pytest.fixture
def start_bouncer(database_url: str, logs: Path) -> Iterator[StartBouncer]:
    """Return a function that starts a PgBouncer in front of the test's database."""
    with starting(partial(PgBouncer, logs, database_url)) as start:
        yield start


@asynccontextmanager
async def counting(url: str) -> AsyncGenerator[Callable[[str], Any]]:
    """Yield a function that returns what a query counts, asked of the server itself."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:

        async def count(query: str) -> int:
            row = await (await connection.execute(query.encode())).fetchone()
            assert row is not None
            return int(row[0])

        yield count


@pytest.mark.slow
async def test_workers_with_tokens_and_services_work_through_session_pooling(
    start_bouncer: StartBouncer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a token can bring the word in time.
    monkeypatch.setattr(workers, "TOKEN_POLL_SECONDS", 600.0)
    bouncer = start_bouncer()
    settings = Settings(
        database_url=bouncer.url, observational_memory=False, database_connections=3
    )
    app = App(agents={"helper": Agent(ScriptedModel([say("Done.")] * 40))})
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(Runtime.open(settings))
        for _ in range(3):
            runtime = await stack.enter_async_context(Runtime.open(settings))
            await stack.enter_async_context(working(runtime, app, concurrency=2))
        rows = await stack.enter_async_context(tokens(database_url))
        await until_counted(rows, ALIVE, 3)
        helper = app.named("helper")
        queued = [await caller.enqueue(helper, "Go.", app=app) for _ in range(20)]
        for one in queued:
            run = await until(caller, one.run_id, over)
            assert (run.status, run.epoch) == ("succeeded", 1)
        async with counting(database_url) as count:
            # Each of four processes: three connections and one that listens; each of three
            # workers: three for tokens; and the one of this test.
            assert await count(COUNT) <= 4 * (3 + 1) + 3 * 3 + 1


@pytest.mark.slow
async def test_runs_outlive_a_pooler_that_is_killed_and_started_again(
    start_bouncer: StartBouncer,
) -> None:
    bouncer = start_bouncer()
    settings = Settings(
        database_url=bouncer.url, observational_memory=False, database_connections=3
    )
    done = list[str]()

    @tool
    async def restart() -> str:
        """Restart the pooler."""
        await anyio.to_thread.run_sync(bouncer.kill)
        await anyio.to_thread.run_sync(bouncer.start)
        done.append("restarted")
        return "It is there again."

    model = ScriptedModel([call("restart"), say("Done."), say("Done, too.")])
    app = App(agents={"helper": Agent(model, tools=[restart])})
    helper = app.named("helper")
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(Runtime.open(settings))
        # Before the pooler is killed: a write that is on its way then would be in doubt.
        first = await caller.enqueue(helper, "Restart it.", app=app)
        second = await caller.enqueue(helper, "Go.", app=app)
        runtime = await stack.enter_async_context(Runtime.open(settings))
        await stack.enter_async_context(working(runtime, app, concurrency=1))
        for one in (first, second):
            run = await until(caller, one.run_id, over)
            assert (run.status, run.epoch) == ("succeeded", 1)
    assert done == ["restarted"]


async def test_transaction_pooling_is_noticed_and_named(
    start_bouncer: StartBouncer, database_url: str
) -> None:
    for mode in ("transaction", "statement"):
        bouncer = start_bouncer(mode=mode)
        with pytest.raises(StoreError, match="pooler in transaction mode") as raised:
            await open_store(bouncer.url)
        assert "pool_mode = session" in raised.value.cure
        assert "secret" not in str(raised.value)


async def test_transaction_pooling_is_noticed_in_turns_of_the_servers_connections_too(
    start_bouncer: StartBouncer, database_url: str
) -> None:
    bouncer = start_bouncer(mode="transaction", round_robin=True)
    # The pool has connections in stock, which are lent out in turns.
    held = [psycopg.connect(bouncer.url) for _ in range(4)]
    for connection in held:
        connection.execute("SELECT 1")
    for connection in held:
        connection.close()
    with pytest.raises(StoreError, match="pooler in transaction mode"):
        await open_store(bouncer.url)


async def test_a_session_of_a_pooler_hears_others_and_itself_once(
    start_bouncer: StartBouncer, database_url: str
) -> None:
    bouncer = start_bouncer()
    first = await PostgresDriver.open(bouncer.url, connections=2)
    second = await PostgresDriver.open(bouncer.url, connections=2)
    try:
        heard: list[str] = []
        real = first.signals.hear

        def hear(topic: str) -> None:
            heard.append(topic)
            real(topic)

        first.signals.hear = hear  # pyright: ignore[reportAttributeAccessIssue]
        with first.signals.listen("topic") as listener, anyio.fail_after(30):
            await listener.wait(30)
            async with counting(database_url) as count:
                while not await count(LISTENING):  # noqa: ASYNC110
                    await anyio.sleep(0.02)
            first.signals.announce("own")
            second.signals.announce("topic")
            await listener.wait(30)
            while "topic" not in heard:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        # Its own words have gone round within the process; the server's echo is not taken for
        # another's, although the pooler gives other process ids.
        assert heard == ["own", "topic"]
    finally:
        await first.close()
        await second.close()


async def test_many_runs_share_the_connections_of_their_process(database_url: str) -> None:
    settings = Settings(
        database_url=database_url, observational_memory=False, database_connections=2, max_runs=30
    )
    gate = anyio.Event()
    at_work = 0

    @tool
    async def hold() -> str:
        """Wait until all are here."""
        nonlocal at_work
        at_work += 1
        await gate.wait()
        return "Go on."

    model = ScriptedModel(lambda request: say("Done.") if gate.is_set() else call("hold"))
    async with Runtime.open(settings) as runtime, counting(database_url) as count:
        agent = Agent(model, tools=[hold])
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(runtime.run, agent, f"Task {number}.")
            with anyio.fail_after(60):
                while at_work < 20:  # noqa: ASYNC110
                    await anyio.sleep(0.02)
            # All are waited for by one listener, and written by two connections.
            assert await count(COUNT) <= 3
            assert await count(LISTENING) <= 1
            gate.set()
