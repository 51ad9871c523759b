"""A served agent whose sub-agents ask: in the background, or while it waits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.human.questions import Question
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.server.protocols.routes import protocol_routes
from tests.delegation.helpers import is_child
from tests.server.protocols.serving import Users, served
from tests.services.process import free_port

ERASED: list[str] = []
"""What was erased; outside of the tool, whose approval is bound to what it holds."""


@tool(needs_approval=True)
async def erase(path: str) -> str:
    """Erase a file."""
    ERASED.append(path)
    return f"erased {path}"


@dataclass
class Boss:
    """The agent and what it is served by.

    Attributes:
        gate: what the agent waits for while its sub-agents work, if its task says so.
    """

    url: str
    runtime: Runtime
    agent: Agent[Any] | None = None
    gate: anyio.Event = field(default_factory=anyio.Event)

    async def asked(self, thread: str) -> Question:
        """Wait until one question is open on a thread, and its run suspended; return it."""
        store, found = self.runtime.store_of("ada"), list[Question]()

        async def is_asked() -> bool:
            found[:] = await self.runtime.questions(thread=thread, user="ada")
            runs = [await store.runs.get(one.run_id) for one in found]
            return len(runs) == 1 and runs[0].status == "suspended"

        await until(is_asked)
        return found[0]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    with anyio.fail_after(60):
        while not await condition():  # noqa: ASYNC110 - another task and thread
            await anyio.sleep(0.01)


async def erased(path: str = "/a") -> None:
    """Wait until a file was erased, once."""

    async def is_erased() -> bool:
        return path in ERASED

    await until(is_erased)
    assert [path] == ERASED


@asynccontextmanager
async def boss(folder: Path) -> AsyncGenerator[Boss]:
    """Serve the agent on loopback; a task names what it does.

    `background` leaves a task in the background, which wants to erase `/a`; `hold` waits at the
    gate meanwhile; `wait` waits for its sub-agent, which wants the same.
    """
    ERASED.clear()
    settings = Settings(database_url=f"file:{folder / 'store.db'}", sweep=0)
    port = free_port()

    async with Runtime.open(settings) as runtime:
        world = Boss(f"http://127.0.0.1:{port}", runtime)

        @tool
        async def hold() -> str:
            """Wait at the gate."""
            await world.gate.wait()
            return "held"

        agent = Agent(ScriptedModel(_respond), tools=[erase, hold], delegation=True, name="boss")
        world.agent = agent

        async def open_gate(_request: Request) -> Response:
            world.gate.set()
            return Response()

        gate = Route("/gate", open_gate, methods=["POST"])
        routes = [gate, *protocol_routes({"boss": agent}, a2a=True)]
        app = Starlette(routes=routes, middleware=[Middleware(Users)])
        async with served(app, runtime, port):
            try:
                yield world
            finally:
                world.gate.set()


def _respond(request: ModelRequest) -> Scripted:
    after = request.messages[-1].role == "tool"
    if is_child(request):
        return say(f"I report: {request.messages[-1].text}") if after else call("erase", path="/a")
    task = next(one.text for one in reversed(request.messages) if one.role == "user")
    if after:
        return say("It is on its way." if "background" in task else "Done.")
    order = {"role": "worker", "instructions": "Work.", "tools": ["erase"], "task_key": "k"}
    if "wait" in task:
        return call("delegate", **order)
    if "background" not in task:
        return say("Yes.")
    begin = raw_call("delegate", **order, background=True)
    return calls(begin, raw_call("hold")) if "hold" in task else calls(begin)
