"""Serve an application on loopback in the test's own process, and read its streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import orjson
import uvicorn

from agent_runtime import Agent, App, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.scripted import Scripted, ScriptFunction
from agent_runtime.server import create_app
from agent_runtime.server.process import ServiceServer
from agent_runtime.server.state import ServiceState
from agent_runtime.server.users import new_token

FREE: dict[str, Any] = {"service_rate": 0.0, "loop_limit": 0, "model_outage": 0.0}


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@dataclass
class Gate:
    """Holds a tool until the test opens it."""

    entered: anyio.Event = field(default_factory=anyio.Event)
    opened: anyio.Event = field(default_factory=anyio.Event)

    def tool(self) -> Any:
        """Return a tool that waits for the gate."""

        @tool
        async def wait() -> str:
            """Wait."""
            self.entered.set()
            await self.opened.wait()
            return "open"

        return wait


@dataclass
class Service:
    """A service on loopback, with a client of one user."""

    client: httpx.AsyncClient
    runtime: Runtime
    server: ServiceServer
    url: str
    tokens: dict[str, str]

    @property
    def app(self) -> App:
        """What it serves."""
        registry: Any = self.state.registry
        return registry

    @property
    def state(self) -> ServiceState:
        """The service's own state."""
        app: Any = self.server.config.app
        return app.state.service

    def to(self, user: str) -> dict[str, str]:
        """Return the headers of a user."""
        return {"Authorization": f"Bearer {self.tokens[user]}"}

    async def start(self, **body: Any) -> dict[str, Any]:
        """Start a run; return its ids."""
        response = await self.client.post("/api/runs", json={"task": "Work."} | body)
        assert response.status_code == 201, response.text
        return response.json()

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Wait until a run is over or suspended; return it."""
        while True:
            run = (await self.client.get(f"/api/runs/{run_id}")).json()
            if run["status"] not in ("queued", "running"):
                return run
            await anyio.sleep(0.01)

    async def events(self, path: str, cursor: str | None = None) -> list[tuple[str, Any]]:
        """Return the events of a stream up to its end, each with its cursor."""
        return [one async for one in stream(self.client, path, cursor)]


async def until(reached: Callable[[], Awaitable[bool] | bool]) -> None:
    """Wait until something is so; the test's own limit of time ends what never is."""
    while True:
        found = reached()
        if found if isinstance(found, bool) else await found:
            return
        await anyio.sleep(0.01)


async def stream(
    client: httpx.AsyncClient, path: str, cursor: str | None = None
) -> AsyncIterator[tuple[str, Any]]:
    """Yield the events of a stream, each with its cursor, until the stream ends."""
    headers = {} if cursor is None else {"Last-Event-ID": cursor}
    async with client.stream("GET", path, headers=headers) as response:
        assert response.status_code in (200, 204), await response.aread()
        cursor = ""
        kind = "message"
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                cursor = value
            elif name == "event":
                kind = value
            elif name == "data" and kind == "message":
                yield cursor, orjson.loads(value)
            elif not line:
                kind = "message"


@asynccontextmanager
async def serving(
    database_url: str,
    script: Iterable[Scripted] | ScriptFunction = (),
    *,
    agents: dict[str, Agent] | None = None,
    users: Iterable[str] = ("ann",),
    local: bool = False,
    a2a: bool = False,
    settings: dict[str, Any] | None = None,
) -> AsyncGenerator[Service]:
    """Serve agents whose model answers by a script; the client is the first user's."""
    opened_with = Settings(database_url=database_url, **(FREE | (settings or {})))
    app = App(agents=agents or {"worker": Agent(tools=[double])})
    model = ScriptedModel(script)
    async with Runtime.open(
        opened_with, model=model, program=app.program, agents=app.of_run
    ) as runtime:
        tokens = {user: new_token() for user in users}
        for user, token in tokens.items():
            await runtime.store.service.make_token(user, token)
        made = create_app(
            app, runtime=runtime, authenticate="local" if local else "tokens", a2a=a2a
        )
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        config = uvicorn.Config(
            made, port=0, log_level="error", h11_max_incomplete_event_size=65_536, ws="none"
        )
        server = ServiceServer(config, made, listening.set_result)
        server.install_signal_handlers = lambda: None  # pyright: ignore
        task = asyncio.create_task(server._serve())  # pyright: ignore[reportPrivateUsage]
        url = await listening
        first = {} if local else {"Authorization": f"Bearer {next(iter(tokens.values()))}"}
        try:
            async with httpx.AsyncClient(base_url=url, headers=first, timeout=30) as client:
                yield Service(client, runtime, server, url, tokens)
        finally:
            server.should_exit = True
            await task
