"""A small application with the routes of the protocols, served by a real uvicorn."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.server.protocols.routes import protocol_routes
from tests.services.npm import npm_packages
from tests.services.process import free_port

PACKAGES = ("@ag-ui/client@1.0.0", "ai@7.0.173", "@modelcontextprotocol/sdk@1.32.2")
CLIENTS = Path(__file__).parent / "clients"
USER = "x-user"


class Users:
    """Takes the user from a header, where an application would check a token."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            request.state.user = request.headers.get(USER, "ada")
        await self.app(scope, receive, send)


@dataclass
class Desk:
    """What the agent works with.

    Attributes:
        gate: what the tool `hold` waits for.
        erased: what was erased.
    """

    url: str
    runtime: Runtime
    model: ScriptedModel
    gate: anyio.Event = field(default_factory=anyio.Event)
    erased: list[str] = field(default_factory=list[str])


def scripted(request: ModelRequest) -> Scripted:
    """Double a number, wait at the gate, ask to erase a file, and say what was done.

    A task of `say ...` is answered at once, `fail` is an error, `ask` asks the user.
    """
    task = next(one.text for one in reversed(request.messages) if one.role == "user")
    done = [one for one in request.messages if one.role == "tool"]
    after = request.messages[-1].role == "tool"
    if task.startswith("say "):
        return say(task.removeprefix("say "))
    if task.startswith("ask"):
        asked = call("ask_user", question="Which colour?", kind="single", choices=["red", "blue"])
        return say(f"You chose {done[-1].text}.") if after else asked
    match request.messages[-1].name if after else "":
        case "":
            return calls(raw_call("double", number=4), text="I begin.\nFirst I double.")
        case "double":
            return call("hold")
        case "hold":
            return call("erase", path="notes.md")
        case _:
            return say("Done: 8.\nThe notes are gone." if "erased" in done[-1].text else "Kept.")


class Served(uvicorn.Server):
    """A server that tells when it takes requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@asynccontextmanager
async def desk(folder: Path) -> AsyncGenerator[Desk]:
    """Serve the application on loopback."""
    settings = Settings(database_url=f"file:{folder / 'store.db'}", sweep=0)
    async with Runtime.open(settings, model=ScriptedModel(scripted)) as runtime:
        port = free_port()
        assert isinstance(runtime.model, ScriptedModel)
        world = Desk(f"http://127.0.0.1:{port}", runtime, runtime.model)

        @tool
        def double(number: int) -> int:
            """Double a number."""
            return 2 * number

        @tool
        async def hold() -> str:
            """Wait at the gate."""
            await world.gate.wait()
            return "held"

        @tool(needs_approval=True)
        def erase(path: str) -> str:
            """Erase a file."""
            world.erased.append(path)
            return f"erased {path}"

        async def open_gate(_request: Request) -> Response:
            world.gate.set()
            return Response()

        agent = Agent(tools=[double, hold, erase], instructions="Work.", asking=True)
        app = Starlette(
            routes=[
                Route("/gate", open_gate, methods=["POST"]),
                *protocol_routes({"desk": agent}, a2a=True),
            ],
            middleware=[Middleware(Users)],
        )
        async with served(app, runtime, port):
            try:
                yield world
            finally:
                world.gate.set()


@asynccontextmanager
async def served(app: Starlette, runtime: Runtime, port: int) -> AsyncGenerator[None]:
    """Serve an application of a runtime on loopback."""
    app.state.runtime = runtime
    server = Served(uvicorn.Config(app, port=port, log_level="warning", lifespan="off"))
    async with anyio.create_task_group() as group:
        group.start_soon(_serve, server)
        await server.up.wait()
        try:
            yield
        finally:
            server.should_exit = server.force_exit = True


async def _serve(server: uvicorn.Server) -> None:
    # Also after a failed test it has to close its sockets.
    with anyio.CancelScope(shield=True):
        await server.serve()


async def run_client(name: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a client in node; return the JSON that it prints.

    Raises:
        MissingPart: its packages cannot be installed.
    """
    modules = await anyio.to_thread.run_sync(lambda: npm_packages("front-ends-1", *PACKAGES))
    shutil.copy(CLIENTS / name, folder / name)
    (folder / "node_modules").symlink_to(modules / "node_modules")
    done = await anyio.run_process(["node", str(folder / name), *arguments], check=False)
    assert not done.returncode, done.stderr.decode()
    return json.loads(done.stdout)
