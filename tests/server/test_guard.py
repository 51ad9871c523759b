"""What the service refuses from outside, on the routes of its API and of the protocols alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest

from agent_runtime import Agent, App, Runtime, ScriptedModel, Settings
from agent_runtime.models.scripted import call, say
from agent_runtime.server import create_app, guard
from tests.server.serving import FREE, Gate, serving

pytestmark = pytest.mark.backends("file")
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
PROTOCOLS = ("/v1/chat/completions", "/ai-sdk/worker", "/ag-ui/worker", "/mcp")


def asked(text: str = "Go", thread: str = "", **more: Any) -> dict[str, Any]:
    """Return the body of a completion."""
    named = {"metadata": {"thread": thread}} if thread else {}
    message = {"role": "user", "content": text}
    return {"model": "worker", "messages": [message], **named, **more}


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        ("127.0.0.1", {"Host": "127.0.0.1:80"}, 200),
        ("::1", {"Host": "[::1]:80"}, 200),
        ("203.0.113.9", {"Host": "127.0.0.1"}, 403),
        # A published port of a container: everybody comes from the gateway.
        ("172.17.0.1", {"Host": "127.0.0.1:8420"}, 403),
        ("127.0.0.1", {"Host": "127.0.0.1", "X-Forwarded-For": "203.0.113.9"}, 403),
        ("127.0.0.1", {"Host": "127.0.0.1", "Via": "1.1 proxy"}, 403),
        # Names that no URL may have, but browsers and name servers do.
        ("127.0.0.1", {"Host": "a_b.evil.example"}, 421),
        ("127.0.0.1", {"Host": "127.0.0.1:80@evil.example"}, 421),
        ("127.0.0.1", {"Host": ""}, 421),
    ],
)
async def test_without_tokens_only_this_machine_is_served(
    database_url: str, client: str, headers: dict[str, str], status: int
) -> None:
    app = App(agents={"worker": Agent()})
    settings = Settings(database_url=database_url, **FREE)
    async with Runtime.open(settings, program=app.program, agents=app.of_run) as runtime:
        made = create_app(app, runtime=runtime, authenticate="local")
        transport = httpx.ASGITransport(made, client=(client, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as sender:
            response = await sender.get("/api/threads", headers=headers)
            assert response.status_code == status, response.text


async def test_a_path_is_public_only_as_the_router_sees_it(database_url: str) -> None:
    app = App(agents={"worker": Agent()})
    settings = Settings(database_url=database_url, **FREE)
    async with Runtime.open(settings, program=app.program, agents=app.of_run) as runtime:
        made = create_app(app, runtime=runtime)
        for root in ("", "/svc", "/api"):
            transport = httpx.ASGITransport(made, root_path=root)
            async with httpx.AsyncClient(transport=transport, base_url="http://a") as sender:
                assert (await sender.get(f"{root}/health")).status_code == 200
                private = ("/api/agents", "/health/x", "/static", "/%2e/health")
                for path in private:
                    for host in ("a", "a/health?", "a/health#"):
                        response = await sender.get(root + path, headers={"Host": host})
                        assert response.status_code == 401, (root, path, host)


async def test_a_body_may_not_pause_for_long(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await answered.wait()

    async with serving(database_url) as service:
        for path in ("/api/threads", "/v1/chat/completions", "/mcp"):
            answered = anyio.Event()
            sent = service.client.stream("POST", path, content=slow(), headers=JSON)
            async with anyio.create_task_group() as group:

                async def send(sent: Any = sent, group: Any = group) -> None:
                    async with sent as response:
                        assert response.status_code == 408
                    group.cancel_scope.cancel()

                group.start_soon(send)
                with anyio.move_on_after(5):
                    await anyio.sleep_forever()
                answered.set()


async def test_bodies_of_protocols_and_of_strangers_have_a_limit(database_url: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 400_000

    async with serving(database_url) as service:
        for path in PROTOCOLS:
            response = await service.client.post(path, content=pieces(), headers=JSON)
            assert response.status_code == 413, (path, response.text)
        async with httpx.AsyncClient(base_url=service.url, timeout=None) as stranger:
            large = await stranger.post("/api/session", json={"token": "x" * 20_000})
            assert large.status_code == 413


async def test_a_client_cannot_listen_where_nothing_comes(database_url: str) -> None:
    async with serving(database_url) as service:
        response = await service.client.get("/mcp", headers={"Accept": "text/event-stream"})
        assert response.status_code == 405


async def test_runs_and_streams_of_protocols_count(database_url: str) -> None:
    gate = Gate()
    agents = {"worker": Agent(tools=[gate.tool()])}
    limits = {"service_max_runs": 1, "service_max_streams": 1}

    def script(request: Any) -> Any:
        return call("wait") if len(request.messages) < 3 else say("Done.")

    async with serving(database_url, script, agents=agents, settings=limits) as service:
        first = await service.start()
        await gate.entered.wait()
        path = "/v1/chat/completions"
        refused = await service.client.post(path, json=asked())
        assert (refused.status_code, "runs at work" in refused.text) == (429, True)
        assert refused.headers["Retry-After"]
        async with service.client.stream("GET", f"/api/runs/{first['run_id']}/events") as events:
            # Held: when the iterator goes, the client leaves.
            lines = events.aiter_lines()
            await anext(lines)
            for way in (path, "/ai-sdk/worker", "/ag-ui/worker"):
                body: dict[str, Any] = asked() | {
                    "id": "t", "messages": [{"id": "m", "role": "user", "content": "Go",
                                             "parts": [{"type": "text", "text": "Go"}]}],
                    "threadId": "t", "runId": "r", "tools": [], "context": [], "state": {},
                    "forwardedProps": {},
                }  # fmt: skip
                refused = await service.client.post(way, json=body)
                assert refused.status_code == 429 and "streams" in refused.text, refused.text
        gate.opened.set()
        assert (await service.ended(first["run_id"]))["status"] == "succeeded"


async def test_a_stream_of_a_protocol_ends_when_the_service_closes(database_url: str) -> None:
    gate = Gate()
    agents = {"worker": Agent(tools=[gate.tool()])}
    async with serving(database_url, [call("wait"), say("Done.")], agents=agents) as service:
        body = asked(stream=True)
        async with service.client.stream("POST", "/v1/chat/completions", json=body) as response:
            await gate.entered.wait()
            service.state.closing.set()
            lines = [line async for line in response.aiter_lines()]
        assert "The service closes" in "".join(lines)
        assert service.state.limits.open_streams == 0
        gate.opened.set()


async def test_a_protocol_continues_no_run_of_another_program(database_url: str) -> None:
    settings = Settings(database_url=database_url, **FREE)
    asks = call("ask_user", question="Which?", kind="single", choices=["a", "b"])
    model = ScriptedModel([asks])
    async with Runtime.open(settings, model=model, program="other") as other:
        agent = Agent(asking=True, name="worker")
        await other.run(agent, "Go", thread="t", user="ann")
        [question] = await other.questions(thread="t", user="ann")
    agents = {"worker": Agent(asking=True)}
    async with serving(database_url, [say("Done.")], agents=agents) as service:
        answer = {"role": "tool", "tool_call_id": question.id, "content": "a"}
        body = asked(thread="t") | {"messages": [{"role": "assistant"}, answer]}
        refused = await service.client.post("/v1/chat/completions", json=body)
        assert (refused.status_code, "another program" in refused.text) == (409, True)
        open_ones = (await service.client.get("/api/questions")).json()["questions"]
        assert [one["id"] for one in open_ones] == [question.id]
