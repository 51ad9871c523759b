"""The object store's contract, in a folder and in a bucket; URLs, and errors of buckets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from agent_runtime_storage import (
    ObjectLost,
    ObjectsUnavailable,
    StoreError,
    StoreUnavailable,
    UnknownScheme,
)
from agent_runtime_storage.objects.object_store import Objects
from tests.services.process import free_port
from tests.services.s3 import SECRET, S3Server, s3_server, s3_url

__all__ = ["s3_server", "s3_url"]


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty object store."""
    if request.param == "folder":
        return f"file:{tmp_path}/the%20objects"
    return str(request.getfixturevalue("s3_url"))


@pytest.fixture
def objects(url: str) -> Objects:
    """A room in an empty object store."""
    return Objects.open(url, room="room")


async def keys(objects: Objects, prefix: str = "") -> list[str]:
    """Return all keys below a prefix, in order."""
    return sorted([info.key async for chunk in objects.list(prefix) for info in chunk])


@pytest.mark.parametrize("size", [0, 1, 6_000_000])
async def test_an_object_is_read_as_it_was_put(objects: Objects, size: int) -> None:
    data = os.urandom(size)

    await objects.put("a/b/c.raw", data)

    assert await objects.get("a/b/c.raw") == data
    info = await objects.info("a/b/c.raw")
    assert info is not None and (info.key, info.bytes) == ("a/b/c.raw", size)
    assert info.modified > (await anyio.Path(__file__).stat()).st_mtime
    assert [listed async for chunk in objects.list() for listed in chunk] == [info]


async def test_putting_again_replaces(objects: Objects) -> None:
    for data in (b"one", b"one", b"two"):
        await objects.put("a/b/c.raw", data)
        assert await objects.get("a/b/c.raw") == data
    assert await keys(objects) == ["a/b/c.raw"]


async def test_a_missing_object_is_an_error_with_a_cure(objects: Objects) -> None:
    assert await keys(objects) == []
    assert await objects.info("a/b/c.raw") is None
    await objects.delete(["a/b/c.raw"])
    await objects.delete_prefix("a")
    with pytest.raises(ObjectLost) as caught:
        await objects.get("a/b/c.raw")
    assert "a/b/c.raw" in caught.value.message and objects.shown in caught.value.message
    assert "AGENT_RUNTIME_OBJECT_STORE_URL" in caught.value.cure


async def test_a_prefix_matches_whole_segments(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime_storage.objects.backends._LIST_CHUNK", 5)
    expected = [f"ann/t1/{number:02}.raw" for number in range(12)]
    others = ["ann/t10/x.raw", "ann/t2/x.raw", "ann2/t1/x.raw"]
    for key in (*expected, *others):
        await objects.put(key, b"x")

    assert await keys(objects, "ann/t1") == expected
    assert await keys(objects) == sorted((*expected, *others))
    await objects.delete(["ann/t1/00.raw", "ann/t1/none.raw", "ann/t1/01.raw"])
    assert await keys(objects, "ann/t1") == expected[2:]
    await objects.delete_prefix("ann/t1")
    assert await keys(objects) == others


async def test_rooms_are_separate(url: str) -> None:
    here, there = Objects.open(url, room="here"), Objects.open(url, room="there")
    await here.put("a/b/c.raw", b"here")
    await there.put("a/b/c.raw", b"there")

    await there.delete_prefix("a")

    assert await keys(there) == []
    assert await here.get("a/b/c.raw") == b"here"


async def test_many_objects_can_be_put_concurrently(objects: Objects) -> None:
    names = [f"a/b/{number}.raw" for number in range(50)]

    async def put_and_get(name: str) -> None:
        await objects.put(name, name.encode() * 1000)
        assert await objects.get(name) == name.encode() * 1000

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(put_and_get, name)
    assert await keys(objects) == sorted(names)


async def test_a_probe_leaves_nothing(objects: Objects) -> None:
    await objects.probe()
    assert await keys(objects) == []


# URLs


@pytest.mark.parametrize(
    ("url", "kind", "what"),
    [
        ("", StoreError, "empty"),
        ("ftp://host/x", UnknownScheme, "'ftp'"),
        ("https://host/x", UnknownScheme, "'https'"),
        ("file://elsewhere/x", StoreError, "more than a path"),
        ("file:x?mode=ro", StoreError, "more than a path"),
        ("file:", StoreError, "names no folder"),
        ("s3://", StoreError, "names no bucket"),
        ("s3:///prefix", StoreError, "names no bucket"),
        ("gs://bucket?key=hunter2", StoreError, "parameters"),
        ("s3://ada:hunter2@bucket/x", StoreError, "credentials"),
        ("s3://hunter2@bucket/x", StoreError, "credentials"),
        ("abfss://container:hunter2@account.dfs.core.windows.net/x", StoreError, "credentials"),
    ],
)
def test_a_bad_url_is_refused_with_a_cure(url: str, kind: type[StoreError], what: str) -> None:
    with pytest.raises(kind) as caught:
        Objects.open(url)
    assert what in caught.value.message and caught.value.cure
    assert "hunter2" not in str(caught.value)


def test_azure_without_an_account_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("AZURE_"):
            monkeypatch.delenv(name)
    with pytest.raises(ObjectsUnavailable, match="Account must be specified") as caught:
        Objects.open("az://container/prefix")
    assert "AZURE_STORAGE_ACCOUNT_NAME" in caught.value.cure


@pytest.mark.parametrize("url", ["gs://bucket/x", "abfss://container@account.dfs.core.windows.net"])
def test_other_clouds_open_without_a_connection(url: str) -> None:
    assert Objects.open(url).shown == url


# Errors of buckets


async def test_a_missing_bucket_is_not_a_lost_object(s3_url: str) -> None:
    objects = Objects.open("s3://nobody/x")
    for attempt in (objects.put("a/b.raw", b"x"), objects.get("a/b.raw"), objects.probe()):
        with pytest.raises(ObjectsUnavailable, match="NoSuchBucket") as caught:
            await attempt
        assert "bucket is there" in caught.value.cure


class ReceivedRequests(list[bytes]):
    """The requests that a server received, and an event for the first."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncGenerator[tuple[int, ReceivedRequests]]:
    """Serve these answers, one a request and the last one repeatedly; yield port and requests.

    Empty bytes stand for no answer at all.
    """
    requests = ReceivedRequests()
    silent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        requests.append(head)
        requests.arrived.set()
        answer = answers[min(len(requests), len(answers)) - 1]
        if answer:
            writer.write(answer)
            await writer.drain()
        else:
            await silent.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], requests
    finally:
        silent.set()
        server.close()


def http(status: str, body: str = "", headers: str = "") -> bytes:
    """Return an HTTP answer."""
    return (
        f"HTTP/1.1 {status}\r\nConnection: close\r\n{headers}"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


BUSY = http("503 Slow Down", "<Error><Code>SlowDown</Code></Error>")
GOOD = http("200 OK", headers='ETag: "x"\r\n')
FORBIDDEN = http(
    "403 Forbidden",
    "<Error><Code>AccessDenied</Code><AWSAccessKeyId>an-access-key</AWSAccessKeyId></Error>",
)


async def test_a_request_to_a_busy_bucket_is_repeated(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(BUSY, BUSY, GOOD) as (port, requests):
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{port}")
        await Objects.open(s3_url).put("a/b.raw", b"x")
    assert len(requests) == 3


async def test_missing_rights_are_an_error_with_a_cure(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(FORBIDDEN) as (port, _):
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{port}")
        with pytest.raises(ObjectsUnavailable, match="AccessDenied") as caught:
            await Objects.open(s3_url).put("a/b.raw", b"x")
    assert "AWS_ACCESS_KEY_ID" in caught.value.cure
    assert "an-access-key" not in str(caught.value)


async def test_a_silent_bucket_runs_into_the_deadline(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(b"") as (port, requests):
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{port}")
        with pytest.raises(ObjectsUnavailable) as caught:
            await Objects.open(s3_url, seconds=0.5).get("a/b.raw")
    assert requests
    assert isinstance(caught.value, StoreUnavailable) and "reached" in caught.value.cure


async def test_a_cancelled_read_is_abandoned(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(b"") as (port, requests):
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{port}")
        objects = Objects.open(s3_url)
        async with anyio.create_task_group() as group:
            group.start_soon(objects.get, "a/b.raw")
            await requests.arrived.wait()
            group.cancel_scope.cancel()
        # The server has not answered yet.
        assert len(requests) == 1


async def test_secrets_are_in_no_error(monkeypatch: pytest.MonkeyPatch, s3_url: str) -> None:
    port = free_port()
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2024&sig=hunter2")
    for url in (s3_url, "az://container/x"):
        objects = Objects.open(url, seconds=0.5)
        with pytest.raises(ObjectsUnavailable) as caught:
            await objects.get("a/b.raw")
        texts = f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {objects!r}"
        assert SECRET not in texts and "hunter2" not in texts
        assert caught.value.__suppress_context__


async def test_a_server_that_restarts_is_waited_for(
    s3_url: str, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = S3Server(logs)
    server.start()
    try:
        monkeypatch.setenv("AWS_ENDPOINT", server.endpoint)
        objects = Objects.open(s3_url)
        await objects.put("a/b.raw", b"x")
        server.kill()
        async with anyio.create_task_group() as group:
            group.start_soon(objects.put, "a/c.raw", b"y")
            await anyio.to_thread.run_sync(server.start)
        assert await objects.get("a/c.raw") == b"y"
    finally:
        server.stop()
