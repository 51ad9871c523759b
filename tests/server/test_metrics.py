"""`/metrics`: its figures after real runs, and who may read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from starlette.applications import Starlette

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.scripted import call, say
from agent_runtime.server.metrics import metrics_routes

TOKEN = "0123456789abcdef"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def client_of(runtime: Runtime, host: str = "127.0.0.1") -> httpx.AsyncClient:
    """Return a client that seems to come from a host."""
    app = Starlette(routes=metrics_routes())
    app.state.runtime = runtime
    transport = httpx.ASGITransport(app, client=(host, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://service")


def client_app(client: httpx.AsyncClient) -> Starlette:
    """Return the application behind a client."""
    transport: Any = client._transport  # pyright: ignore[reportPrivateUsage]
    return transport.app


def samples(text: str) -> Samples:
    """Return the values of a scrape by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def test_the_figures_follow_the_runs(tmp_path: Path) -> None:
    settings = Settings(database_url=f"file:{tmp_path / 'run.db'}", user="someone")
    async with Runtime.open(settings) as runtime, client_of(runtime) as client:
        before = samples((await client.get("/metrics")).text)
        agent = Agent(ScriptedModel([call("look"), say("Done.")]), tools=[look])
        result = await runtime.run(agent, "Look.", thread="a-thread")
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    after = samples(answer.text)

    def rise(name: str, **labels: str) -> float:
        key = f"agent_runtime_{name}", frozenset(labels.items())
        return after[key] - before.get(key, 0.0)

    usage = result.usage
    assert rise("steps_total") == 2
    assert rise("runs_ended_total", status="succeeded", stop_reason="completed") == 1
    assert rise("tokens_total", purpose="step", kind="input") == usage.prompt_tokens > 0
    assert rise("tokens_total", purpose="step", kind="output") == usage.completion_tokens
    assert rise("model_calls_total", purpose="step") == 2
    assert after["agent_runtime_runs", frozenset({("state", "running")})] == 0
    assert 0 <= after["agent_runtime_cache_share", frozenset()] <= 1
    assert "someone" not in answer.text and "a-thread" not in answer.text


@pytest.mark.parametrize(
    ("token", "host", "headers", "status"),
    [
        (None, "127.0.0.1", {}, 200),
        (None, "::1", {}, 200),
        (None, "10.0.0.7", {}, 403),
        (None, "127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}, 403),
        (None, "a-socket", {}, 403),
        (TOKEN, "10.0.0.7", {"Authorization": f"Bearer {TOKEN}"}, 200),
        (TOKEN, "127.0.0.1", {}, 401),
        (TOKEN, "127.0.0.1", {"Authorization": "Bearer 0123456789abcdeX"}, 401),
        (TOKEN, "127.0.0.1", {"Authorization": TOKEN}, 401),
    ],
)
async def test_who_may_read_it(
    tmp_path: Path, token: str | None, host: str, headers: dict[str, str], status: int
) -> None:
    settings = Settings(
        database_url=f"file:{tmp_path / 'run.db'}",
        metrics_token=SecretStr(token) if token else None,
    )
    async with Runtime.open(settings) as runtime, client_of(runtime, host) as client:
        answer = await client.get("/metrics", headers=headers)
    assert answer.status_code == status
    assert TOKEN not in answer.text


async def test_what_waits_in_the_database_is_counted(tmp_path: Path) -> None:
    settings = Settings(database_url=f"file:{tmp_path / 'run.db'}")
    async with Runtime.open(settings) as runtime, client_of(runtime) as client:
        asking = ScriptedModel([call("ask_user", question="Which?", kind="text")])
        await runtime.run(Agent(asking, asking=True), "Ask.", user="someone else")
        found = samples((await client.get("/metrics")).text)
        assert found["agent_runtime_open_questions", frozenset()] == 1
        counts = {
            state: found["agent_runtime_stored_runs", frozenset({("status", state)})]
            for state in ("queued", "running", "suspended")
        }
        assert counts == {"queued": 0, "running": 0, "suspended": 1}
        await runtime.store.close()
        # What the process itself knows is shown although the database does not answer.
        client_app(client).state.backlog.at = -1e9
        answer = await client.get("/metrics")
        assert answer.status_code == 200 and "open_questions" not in answer.text
