"""Failures of libSQL: servers, networks, tokens, disks, and cancelled tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx
import pytest

from agent_runtime_storage import (
    StoreBusy,
    StoreError,
    StoreFull,
    StoreInDoubt,
    StoreReadOnly,
    StoreUnavailable,
    open_store,
)
from agent_runtime_storage.drivers.libsql.address import parse_address
from agent_runtime_storage.drivers.libsql.remote import RemoteDriver
from agent_runtime_storage.drivers.protocol import BatchMissed, ConstraintFailed, Statement
from tests.services.fixtures import StartLibsql
from tests.services.libsql import Libsql, LibsqlServer
from tests.services.process import free_port
from tests.storage.drivers.libsql_drivers import KINDS, OPEN, Kind, connected, ids, url_of
from tests.storage.drivers.libsql_proxy import Proxy
from tests.storage.items import CREATE, insert

# A key pair made for this test; one token allows everything, the other only reading.
PUBLIC_KEY = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEACtwM/lB16ZvEO5Pw2yEABAm6NVbio7SOz1B+gokmIRI=
-----END PUBLIC KEY-----
"""
_HEAD = "eyJhbGciOiAiRWREU0EiLCAidHlwIjogIkpXVCJ9"
TOKEN = (
    f"{_HEAD}.eyJhIjogInJ3In0.x3NkiFEaC604WZ2RP7EC_w8wHY2WL-qChzx9xEf8c9gdzULRbveaDXZgMJ-V_AeukSnKO"
    "c2Qt3er6uxbUYt8Aw"
)
READER = (
    f"{_HEAD}.eyJhIjogInJvIn0.vFN9Vi7ZWYiQLFCSNd8pFOquSo5V9364swzYuQknfzUyXYbHrgWiexIvHk8c502tUWlew"
    "x5TgtADRA-_O4R3AQ"
)
REPEATABLE = "INSERT INTO items (id, body) VALUES (:id, x'') ON CONFLICT (id) DO NOTHING"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of driver."""
    return request.param


@asynccontextmanager
async def behind_proxy(
    kind: Kind, libsql: Libsql, patience: float = 30.0
) -> AsyncGenerator[tuple[RemoteDriver, Proxy]]:
    """Open a driver that reaches the server, with its table of items, through a proxy."""
    libsql.execute(CREATE)
    async with (
        Proxy(libsql.http_url) as proxy,
        connected(kind, proxy.url, patience=patience) as driver,
    ):
        yield driver, proxy
        proxy.mode = "pass"


async def test_a_lost_answer_leaves_a_batch_in_doubt(kind: Kind, libsql: Libsql) -> None:
    async with (
        behind_proxy(kind, libsql) as (driver, proxy),
        connected(kind, libsql.http_url) as direct,
    ):
        assert await ids(driver) == []
        proxy.mode = "hold"
        async with anyio.create_task_group() as group:

            async def write() -> None:
                with pytest.raises(StoreInDoubt, match="on its way"):
                    await driver.batch([insert(1)])

            group.start_soon(write)
            with anyio.fail_after(30):
                while await ids(direct) != [1]:
                    await anyio.lowlevel.checkpoint()
            proxy.drop()
        proxy.mode = "pass"

        assert await ids(driver) == [1]
        await driver.batch([insert(2)])
        assert await ids(driver) == [1, 2]


async def test_a_repeatable_batch_is_sent_again(kind: Kind, libsql: Libsql) -> None:
    async with behind_proxy(kind, libsql) as (driver, proxy):
        proxy.mode = "cut"
        async with anyio.create_task_group() as group:

            async def write() -> None:
                await driver.batch([Statement(REPEATABLE, {"id": 1})], repeatable=True)

            group.start_soon(write)
            await proxy.delivered.wait()
            proxy.mode = "pass"

        assert await ids(driver) == [1]


async def test_a_query_is_sent_again(kind: Kind, libsql: Libsql) -> None:
    async with behind_proxy(kind, libsql) as (driver, proxy):
        await driver.batch([insert(1)])
        proxy.mode = "cut"
        results: list[list[int]] = []
        async with anyio.create_task_group() as group:

            async def look() -> None:
                results.append(await ids(driver))

            group.start_soon(look)
            await proxy.delivered.wait()
            proxy.mode = "pass"

        assert results == [[1]]


async def test_a_request_to_an_overloaded_server_is_repeated(libsql: Libsql) -> None:
    async with behind_proxy("http", libsql) as (driver, proxy):
        proxy.mode = "unavailable"
        proxy.drop()
        async with anyio.create_task_group() as group:
            group.start_soon(driver.batch, [insert(1)])
            await proxy.refused.wait()
            proxy.mode = "pass"

        assert await ids(driver) == [1]


async def test_a_server_that_stays_overloaded_is_busy(libsql: Libsql) -> None:
    async with behind_proxy("http", libsql, patience=0.3) as (driver, proxy):
        proxy.mode = "unavailable"
        proxy.drop()
        with pytest.raises(StoreBusy, match="503"):
            await driver.batch([insert(1)])
        proxy.mode = "pass"

        assert await ids(driver) == []


async def test_a_sent_batch_is_completed_before_the_cancellation_continues(
    kind: Kind, libsql: Libsql
) -> None:
    async with behind_proxy(kind, libsql) as (driver, proxy):
        proxy.mode = "hold"
        ended = anyio.Event()

        async def write() -> None:
            try:
                await driver.batch([insert(1)])
            finally:
                ended.set()

        async with anyio.create_task_group() as group, anyio.create_task_group() as cancelled:
            cancelled.start_soon(write)
            await proxy.delivered.wait()
            cancelled.cancel_scope.cancel()

            async def release() -> None:
                await anyio.wait_all_tasks_blocked()
                assert not ended.is_set()
                proxy.mode = "pass"

            group.start_soon(release)

        assert await ids(driver) == [1]


async def test_unsent_batches_are_withdrawn(kind: Kind, libsql: Libsql) -> None:
    async with behind_proxy(kind, libsql) as (driver, proxy):
        proxy.mode = "hold"
        async with anyio.create_task_group() as group:
            # Both lanes must be busy before the other batches arrive.
            for number in (1, 2):
                group.start_soon(driver.batch, [insert(number)])
                await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as withdrawn:
                for number in range(10, 40):
                    withdrawn.start_soon(driver.batch, [insert(number)])
                await anyio.wait_all_tasks_blocked()
                assert driver.waiting
                withdrawn.cancel_scope.cancel()
            assert not driver.waiting
            proxy.mode = "pass"

        assert await ids(driver) == [1, 2]


async def test_a_cancelled_query_is_abandoned(kind: Kind, libsql: Libsql) -> None:
    async with behind_proxy(kind, libsql) as (driver, proxy):
        proxy.mode = "hold"
        async with anyio.create_task_group() as group:
            for _ in range(40):
                group.start_soon(ids, driver)
            await proxy.delivered.wait()
            group.cancel_scope.cancel()

        # The answers are still held back, so no task waited for them.
        proxy.mode = "pass"
        assert await ids(driver) == []


async def test_a_batch_that_waits_for_the_server_can_be_cancelled(
    kind: Kind, start_libsql: StartLibsql
) -> None:
    server = start_libsql()
    async with connected(kind, server.http_url) as driver:
        await driver.batch([Statement(CREATE, {})])
        await anyio.to_thread.run_sync(server.kill)
        async with anyio.create_task_group() as group:
            # A batch sent before the loss is noticed would be in doubt; a query notices the loss.
            group.start_soon(ids, driver)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(driver.batch, [insert(1)])
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        server.start()

        assert await ids(driver) == []


async def test_a_killed_server_is_waited_for(kind: Kind, start_libsql: StartLibsql) -> None:
    server = start_libsql()
    acknowledged: list[int] = []
    doubtful: list[int] = []
    killed = anyio.Event()

    async def write(driver: RemoteDriver, first: int) -> None:
        for number in range(first, first + 30):
            try:
                await driver.batch([insert(number)])
            except StoreInDoubt:
                doubtful.append(number)
            else:
                acknowledged.append(number)
            if len(acknowledged) > 40:
                killed.set()

    async def crash() -> None:
        await killed.wait()
        await anyio.to_thread.run_sync(server.kill)
        await anyio.to_thread.run_sync(server.start)

    async with connected(kind, server.http_url) as driver:
        await driver.batch([Statement(CREATE, {})])
        async with anyio.create_task_group() as group:
            group.start_soon(crash)
            for task in range(8):
                group.start_soon(write, driver, task * 100)

        stored = set(await ids(driver))
    assert set(acknowledged) <= stored <= set(acknowledged) | set(doubtful)
    assert len(acknowledged) + len(doubtful) == 240
    # Only batches on their way when the server died: two requests of up to eight batches.
    assert len(doubtful) <= 16


async def test_a_server_that_does_not_return_is_given_up(
    kind: Kind, start_libsql: StartLibsql
) -> None:
    server = start_libsql()
    async with connected(kind, server.http_url, patience=0.3) as driver:
        server.kill()

        with pytest.raises(StoreUnavailable, match="cannot be reached") as raised:
            await driver.read("SELECT 1", {})
        assert raised.value.cure
        with pytest.raises(StoreUnavailable):
            await driver.batch([insert(1)])


async def test_closing_does_not_wait_for_a_killed_server(
    kind: Kind, start_libsql: StartLibsql
) -> None:
    server = start_libsql()
    async with connected(kind, server.http_url, patience=600) as driver:
        server.kill()
        async with anyio.create_task_group() as group:

            async def write() -> None:
                # Which of the two it meets first is a matter of time.
                with pytest.raises(StoreUnavailable, match=r"closed|broke while a write"):
                    await driver.batch([insert(1)])

            group.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            await driver.close()


@pytest.fixture
def guarded(start_libsql: StartLibsql, tmp_path: Path) -> LibsqlServer:
    """A server that requires a token."""
    key = tmp_path / "key.pem"
    key.write_text(PUBLIC_KEY)
    return start_libsql(options=("--auth-jwt-key-file", str(key)))


async def test_the_right_token_opens_the_store(kind: Kind, guarded: LibsqlServer) -> None:
    url = url_of(kind, guarded.http_url)
    for opened in (OPEN[kind](url, auth_token=TOKEN), OPEN[kind](f"{url}?authToken={TOKEN}")):
        driver = await opened
        assert await driver.read("SELECT 1", {}) == [(1,)]
        assert TOKEN not in repr(driver)
        await driver.close()


@pytest.mark.parametrize("token", [None, "hunter2", f"{TOKEN[:-6]}hunter"])
async def test_a_wrong_token_is_an_error_without_its_value(
    kind: Kind, guarded: LibsqlServer, token: str | None
) -> None:
    with pytest.raises(StoreUnavailable, match="token") as raised:
        await OPEN[kind](url_of(kind, guarded.http_url), auth_token=token)

    assert raised.value.cure
    assert "hunter" not in str(raised.value)


async def test_a_read_only_token(kind: Kind, guarded: LibsqlServer) -> None:
    async with connected(kind, guarded.http_url, auth_token=READER) as driver:
        assert await driver.read("SELECT 1", {}) == [(1,)]
        # Over a WebSocket, the server does not say why it closes the connection.
        expected = StoreReadOnly if kind == "http" else StoreInDoubt
        with pytest.raises(expected):
            await driver.batch([Statement(CREATE, {})])


async def test_a_login_with_a_password(start_libsql: StartLibsql) -> None:
    # ann:sesame
    server = start_libsql(options=("--http-auth", "basic:YW5uOnNlc2FtZQ=="))
    url = server.http_url.replace("://", "://ann:{}@")

    async with connected("http", url.format("sesame")) as driver:
        assert await driver.read("SELECT 1", {}) == [(1,)]
    with pytest.raises(StoreUnavailable) as raised:
        async with connected("http", url.format("hunter2")):
            pass
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "302 Found", "405 Not Allowed"])
async def test_another_kind_of_server_is_refused(kind: Kind, status: str) -> None:
    page = b"<html>hello</html>"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + page)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreUnavailable, match="no libSQL server") as raised:
            await OPEN[kind](f"{kind}://127.0.0.1:{port}")
    assert raised.value.cure


async def configure(server: LibsqlServer, admin: int, **settings: object) -> None:
    url = f"http://127.0.0.1:{admin}/v1/namespaces/default/config"
    async with httpx.AsyncClient() as client:
        before = (await client.get(url)).json()
        (await client.post(url, json={**before, **settings})).raise_for_status()


async def test_limits_of_the_server(kind: Kind, start_libsql: StartLibsql) -> None:
    admin = free_port()
    server = start_libsql(options=("--admin-listen-addr", f"127.0.0.1:{admin}"))
    async with connected(kind, server.http_url, patience=0.5) as driver:
        await driver.batch([Statement(CREATE, {}), insert(1)])

        await configure(server, admin, block_writes=True, block_reason="over quota")
        with pytest.raises(StoreReadOnly, match="over quota"):
            await driver.batch([insert(2)])
        assert await ids(driver) == [1]

        await configure(server, admin, block_writes=False, max_db_size="200KB")
        with pytest.raises(StoreFull, match="no space"):
            await driver.batch([insert(3), insert(4, bytes(400_000))])
        await driver.batch([insert(5)])

        assert await ids(driver) == [1, 5]


async def test_a_replica_shows_writes_made_through_it(
    kind: Kind, start_libsql: StartLibsql
) -> None:
    port = free_port()
    start_libsql(options=("--grpc-listen-addr", f"127.0.0.1:{port}"))
    replica = start_libsql(options=("--primary-grpc-url", f"http://127.0.0.1:{port}"))
    async with connected(kind, replica.http_url) as driver:
        await driver.batch([Statement(CREATE, {})])
        for number in range(100):
            await driver.batch([insert(number)])
            assert len(await ids(driver)) == number + 1

        with pytest.raises(ConstraintFailed, match="UNIQUE"):
            await driver.batch([insert(100), insert(1)])
        with pytest.raises(BatchMissed, match="gone"):
            await driver.batch([insert(100), Statement("DELETE FROM items", {}, 1, "gone")])
        assert len(await ids(driver)) == 100


async def test_a_transaction_that_takes_too_long_is_undone(libsql: Libsql) -> None:
    ended = anyio.Event()
    part = Statement("SELECT count(*) FROM generate_series(1, 5000000)", {})
    async with (
        connected("http", libsql.http_url, patience=0.5) as slow,
        connected("http", libsql.http_url) as other,
        anyio.create_task_group() as group,
    ):
        await other.batch([Statement(CREATE, {})])

        async def take_long() -> None:
            with pytest.raises(StoreBusy, match="timed out"):
                await slow.batch([insert(1), *[part] * 100, insert(2)])
            ended.set()

        group.start_soon(take_long)
        # The server ends the transaction only when another one wants to write.
        while not ended.is_set():
            await other.batch([Statement(REPEATABLE, {"id": 3})])

    async with connected("http", libsql.http_url) as driver:
        assert await ids(driver) == [3]


async def test_without_libsql_client_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "libsql_client.hrana.conn", None)

    with pytest.raises(StoreError, match=r"agent-runtime-om\[libsql\]"):
        await open_store("ws://127.0.0.1:1")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("libsql://db.example", "https://db.example"),
        ("libsql://db.example?tls=1", "https://db.example"),
        ("libsql://127.0.0.1:8080?tls=0", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/dev/other/", "http://[::1]:8080/dev/other"),
        ("https://db.example?authToken=hunter2", "https://db.example"),
        ("https://ann:hunter2@db.example", "https://db.example"),
        ("ws://db.example:8080", "ws://db.example:8080"),
        ("wss://db.example", "wss://db.example"),
    ],
)
def test_valid_urls_are_parsed(url: str, expected: str) -> None:
    address = parse_address(url, auth_token="other")

    assert address.url == expected
    assert address.token == ("hunter2" if "authToken" in url else "other")
    assert "hunter2" not in repr(address)


@pytest.mark.parametrize(
    "url",
    [
        "libsql://",
        "http://",
        "http://host:port",
        "libsql://host?tls=0",
        "libsql://host?tls=2",
        "http://host?tls=1",
        "wss://host?tls=0",
        "http://host?jwt=hunter2",
        "http://host#hunter2",
        "libsql://[host",
    ],
)
def test_invalid_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError) as raised:
        parse_address(url, auth_token=None)

    assert raised.value.cure
    assert "hunter2" not in str(raised.value)


async def test_a_websocket_url_with_a_user_name_is_refused() -> None:
    with pytest.raises(StoreError, match="user name"):
        await OPEN["ws"]("ws://ann:hunter2@127.0.0.1:1")


async def test_a_malformed_token_is_refused_before_it_is_sent() -> None:
    with pytest.raises(StoreError, match="malformed") as raised:
        await OPEN["http"]("http://127.0.0.1:1", auth_token="hunter\u20ac2")
    assert "hunter" not in str(raised.value)
