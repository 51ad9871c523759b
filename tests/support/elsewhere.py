"""A run in another process, which a test can watch, release, stop and kill.

As a program, the module runs an agent over a database and writes each event as a line of JSON. The
agent calls `wait`, directly or by a child run; `wait` returns when stdin ends.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import orjson

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, ToolContext, tool
from agent_runtime.models.scripted import call, say
from tests.support.processes import Program, program


@tool
async def wait() -> str:
    """Wait for the end of stdin."""
    await anyio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
    return "waited"


@tool(idempotent=True)
async def look() -> str:
    """Wait as `wait` does; this tool may run again."""
    return await wait()


@tool
async def delegate(context: ToolContext) -> str:
    """Have a child run wait."""
    child = Agent(ScriptedModel([call("wait"), say("waited")]), tools=[wait], name="child")
    return str((await context.run_agent(child, "Wait.")).output)


def agent(name: str) -> Agent:
    """Return an agent that calls one tool of this module, then answers."""
    return Agent(
        ScriptedModel([call(name), say("done")]), tools=[wait, look, delegate], name="elsewhere"
    )


async def main(database_url: str, thread: str, name: str) -> None:
    """Run the agent on the thread."""

    def write_event(event: Event) -> None:
        line = {"kind": event.kind, "run_id": event.run_id, "thread_id": event.thread_id}
        sys.stdout.buffer.write(orjson.dumps({**line, "data": dict(event.data)}) + b"\n")
        sys.stdout.buffer.flush()

    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(agent(name), "Wait.", thread=thread, on_event=write_event)


class Elsewhere:
    """A run in another process."""

    def __init__(self, other: Program) -> None:
        self.process = other.process
        self.kill = other.kill
        self._line = other.line

    async def until(self, kind: str, **data: Any) -> dict[str, Any]:
        """Wait for the next event of this kind (and with these data)."""
        while True:
            event = await self._line()
            if event["kind"] == kind and data.items() <= event["data"].items():
                return event

    async def release(self) -> None:
        """Let the waiting tool return."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()


@asynccontextmanager
async def elsewhere(
    database_url: str, *, thread: str = "t", tool: str = "wait"
) -> AsyncGenerator[Elsewhere]:
    """Start a run in another process; kill it at the end if it is still alive."""
    async with program("tests.support.elsewhere", database_url, thread, tool) as other:
        yield Elsewhere(other)


if __name__ == "__main__":
    _, database_url, thread, name = sys.argv
    anyio.run(main, database_url, thread, name)
