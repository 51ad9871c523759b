"""The service below a path: mounted in another application, or behind a proxy."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp

from agent_runtime import Agent, App, Runtime, ScriptedModel, Settings
from agent_runtime.models.scripted import say
from agent_runtime.server import create_app
from tests.server.serving import FREE, stream


@asynccontextmanager
async def sent_to(outer: ASGIApp) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client of an application, through a proxy that calls it by http."""
    transport = httpx.ASGITransport(outer)
    async with httpx.AsyncClient(transport=transport, base_url="http://inner:8000") as client:
        yield client


@pytest.mark.parametrize("way", ["mounted", "kept", "stripped"])
async def test_below_a_path_everything_is_found(database_url: str, way: str) -> None:
    settings = Settings(database_url=database_url, **FREE)
    if way != "mounted":
        settings = settings.model_copy(update={"service_prefix": "/agents"})
    model = ScriptedModel(lambda request: say("Done."))
    app = App(agents={"worker": Agent(model)})
    async with Runtime.open(settings, program=app.program, agents=app.of_run) as runtime:
        outer: ASGIApp = create_app(app, runtime=runtime, authenticate=_ann, a2a=True)
        if way == "mounted":
            inner, outer = outer, Starlette()
            outer.mount("/agents", inner)
        # The proxy removes the prefix from what it passes on; all that clients see has it.
        to = "" if way == "stripped" else "/agents"
        async with sent_to(outer) as client:
            page = await client.get(f"{to}/")
            assert 'src="static/main.js"' in page.text
            assert (await client.get(f"{to}/static/main.js")).status_code == 200
            assert (await client.get(f"{to}/health")).json() == {"status": "ok"}
            described = (await client.get(f"{to}/api/openapi.json")).json()
            assert described["servers"] == [{"url": "/agents"}]
            card = (await client.get(f"{to}/.well-known/agent-card.json")).json()
            (interface,) = card["supportedInterfaces"]
            assert interface["url"] == "http://inner:8000/agents/a2a/worker"
            signed = await client.post(f"{to}/api/session", json={"token": "ann"})
            assert "Path=/agents/;" in signed.headers["set-cookie"]
            client.cookies.clear()
            started = await client.post(f"{to}/api/runs", json={"task": "Go.", "thread_id": "a/b"})
            path = f"{to}/api/runs/{started.json()['run_id']}/events"
            kinds = [event["kind"] async for _, event in stream(client, path)]
            assert (kinds[0], kinds[-1]) == ("run-start", "run-finish")
            summary = await client.get(f"{to}/api/inspector/threads/a/b")
            assert summary.json()["run"]["status"] == "succeeded"
            # No redirect: it would lead to the host and the scheme that the proxy used.
            slash = await client.get(f"{to}/health/")
            assert slash.status_code == 404
            assert slash.json()["cure"].startswith("/agents/api/openapi.json")
            bare = await client.get("/agents")
            assert bare.headers["location"].removeprefix("http://inner:8000") == "/agents/"


async def test_a_prefix_is_a_path() -> None:
    for wrong in ("agents", "/a b", "https://x/agents", "/a//b", "/a?x"):
        with pytest.raises(ValueError, match="must be a path such as /agents"):
            Settings(service_prefix=wrong)
    assert Settings(service_prefix="/a/b/").service_prefix == "/a/b"


async def test_a_mounted_service_without_a_runtime_says_so() -> None:
    outer = Starlette()
    outer.mount("/agents", create_app(App(agents={"worker": Agent()}), authenticate=_ann))
    async with sent_to(outer) as client:
        answer = await client.get("/agents/api/threads")
        assert "has no open runtime" in answer.json()["detail"]
        assert "create_app(app, runtime=runtime)" in answer.json()["cure"]


async def _ann(connection: Any) -> str:
    return "ann"
