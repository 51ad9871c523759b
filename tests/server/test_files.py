"""Files by HTTP: uploaded, attached to a run, and only ever saved by browsers."""

from __future__ import annotations

import pytest

from agent_runtime.models.scripted import say
from tests.server.serving import serving

pytestmark = pytest.mark.backends("file")
PAGE = b"<html><script>alert(1)</script></html>"


async def test_a_file_goes_with_a_task(database_url: str) -> None:
    async with serving(database_url, [say("Read.")]) as service:
        files = "/api/threads/t/files"
        made = await service.client.post(f"{files}?name=notes.txt", content=b"Some notes.")
        assert (made.status_code, made.json()["size"]) == (201, 11)
        started = await service.start(thread_id="t", files=[made.json()["uri"]])
        await service.ended(started["run_id"])
        messages = (await service.client.get("/api/threads/t/messages")).json()["messages"]
        [task] = [one for one in messages if one["role"] == "user"]
        assert task["files"] == [made.json()["uri"]]


async def test_a_page_is_saved_and_never_shown(database_url: str) -> None:
    async with serving(database_url) as service:
        files = "/api/threads/t/files"
        made = await service.client.post(
            f"{files}?name=a%22%0d%0ab.html", content=PAGE, headers={"Content-Type": "text/html"}
        )
        got = await service.client.get(f"{files}/{made.json()['id']}")
        assert got.content == PAGE
        assert got.headers["content-type"] == "application/octet-stream"
        assert got.headers["content-disposition"].startswith("attachment; filename*=UTF-8''a%22")
        assert got.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in got.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=8-", 206, b"89"),
        ("bytes=-3", 206, b"789"),
        ("bytes=5-99", 206, b"56789"),
        ("bytes=-99", 206, b"0123456789"),
        ("bytes=10-", 416, None),
        ("bytes=5-3", 416, None),
        ("bytes=0-1,4-5", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
        ("bytes=-", 200, b"0123456789"),
    ],
)
async def test_parts_of_a_file(
    database_url: str, asked: str, status: int, content: bytes | None
) -> None:
    async with serving(database_url) as service:
        files = "/api/threads/t/files"
        made = await service.client.post(f"{files}?name=a", content=b"0123456789")
        path = f"{files}/{made.json()['id']}"
        got = await service.client.get(path, headers={"Range": asked})
        assert got.status_code == status
        assert content is None or got.content == content
