"""Two servers on one database, as real processes: either may end at any moment."""

from __future__ import annotations

import random
import signal

import anyio
import httpx
import pytest

from agent_runtime_storage import open_store
from tests.server.served import Pair, server_process

pytestmark = [pytest.mark.slow, pytest.mark.backends("file", "postgres")]


@pytest.mark.timeout(240)
async def test_logs_of_clients_equal_the_stores_whatever_ends(database_url: str) -> None:
    chance, breaks = random.Random(3), 0
    store = await open_store(database_url)
    async with Pair.open(database_url, chance) as pair, anyio.create_task_group() as group:

        def after() -> int:
            nonlocal breaks
            breaks += 1
            if breaks % 12 == 0:
                group.start_soon(pair.replace)
            return chance.randint(1, 6)

        async def client() -> None:
            for _ in range(2):
                started = await pair.start_run()
                got = await pair.log_of(started["run_id"], after)
                rows = await store.of("ann").events.list(started["thread_id"])
                assert got == [row.id for row in rows]

        async with anyio.create_task_group() as clients:
            for _ in range(4):
                clients.start_soon(client)
    await store.close()
    assert pair.ended >= 2 and breaks > 50


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
async def test_another_server_continues_the_run_and_its_stream(
    database_url: str, sent: signal.Signals
) -> None:
    async with server_process(database_url, steps=10, delay=0.1) as first:
        async with httpx.AsyncClient(
            base_url=first.url, headers=first.headers, timeout=None
        ) as client:
            started = (await client.post("/api/runs", json={"task": "Work."})).json()
        path = f"/api/runs/{started['run_id']}"
        async with server_process(database_url, steps=10, delay=0.1) as second:
            code = await first.end(sent)
            assert code == (-sent if sent == signal.SIGKILL else 0)
            pair = Pair(database_url, [first, second], random.Random(1))
            got = await pair.log_of(started["run_id"], lambda: 1000)
            async with httpx.AsyncClient(
                base_url=second.url, headers=second.headers, timeout=None
            ) as client:
                run = (await client.get(path)).json()
    assert run["status"] == "succeeded"
    assert got == list(range(1, got[-1] + 1))
