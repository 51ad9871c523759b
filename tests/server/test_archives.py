"""Archived threads by HTTP: moved away, listed in pages, and moved back, by their owner only."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from agent_runtime.models.scripted import say
from tests.server.serving import serving

pytestmark = pytest.mark.backends("file")


async def test_a_thread_is_archived_listed_and_restored(database_url: str) -> None:
    async with serving(database_url, [say("1998.")]) as service:
        client = service.client
        started = await service.start(task="When?", thread_id="bridge")
        await service.ended(started["run_id"])
        messages = (await client.get("/api/threads/bridge/messages")).json()

        archived = await client.post("/api/threads/bridge/archive")
        listed = (await client.get("/api/archives")).json()
        gone = await client.get("/api/threads/bridge")
        restored = await client.post("/api/threads/bridge/restore")
        again = await client.post("/api/threads/bridge/restore")

        assert archived.json()["records"] > 0
        assert listed == {"archives": [archived.json()], "next_cursor": None}
        assert (gone.status_code, gone.json()["type"]) == (404, "urn:agent-runtime:thread-archived")
        assert (restored.status_code, restored.json()) == (200, {"threads": ["bridge"]})
        assert (await client.get("/api/threads/bridge/messages")).json() == messages
        assert (again.status_code, again.json()["type"]) == (409, "urn:agent-runtime:conflict")
        assert (await client.get("/api/archives")).json()["archives"] == []


async def test_archives_come_in_pages_and_belong_to_their_owner(database_url: str) -> None:
    async with serving(database_url, users=("ann", "ben")) as service:
        for number in range(3):
            await service.client.post("/api/threads", json={"id": f"t{number}"})
            await service.client.post(f"/api/threads/t{number}/archive")

        found, page = list[str](), dict[str, Any](next_cursor="")
        while (cursor := page["next_cursor"]) is not None:
            query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
            page = (await service.client.get("/api/archives", params=query)).json()
            found += [one["thread_id"] for one in page["archives"]]
        bad = await service.client.get("/api/archives", params={"cursor": "WzEsMl0="})
        async with httpx.AsyncClient(
            base_url=service.url, headers=service.to("ben"), timeout=None
        ) as ben:
            theirs = (await ben.get("/api/archives")).json()["archives"]
            stolen = await ben.post("/api/threads/t0/restore")

        assert found == ["t2", "t1", "t0"]
        assert (bad.status_code, bad.json()["type"]) == (422, "urn:agent-runtime:invalid-cursor")
        assert (theirs, stolen.status_code) == ([], 404)
