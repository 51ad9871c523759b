"""A workflow whose nodes ask a person, in another process that a test can watch and kill.

As a program it runs `flow` over a database and writes each event as a line of JSON.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson

from agent_runtime import (
    Agent,
    Assignment,
    Event,
    Runtime,
    ScriptedModel,
    Settings,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from tests.support.processes import Program, program


def effect_tool(path: Path) -> Any:
    """Return a tool that needs an approval and writes a line to a file."""

    @tool(needs_approval=True)
    def effect(name: str) -> str:
        """Do something that needs approval."""
        with path.open("a") as file:
            file.write(f"{name}\n")
        return f"{name} is done"

    return effect


def asker(path: Path, name: str) -> Agent:
    """Return an agent that acts once and repeats its result."""

    def respond(request: ModelRequest) -> Scripted:
        results = [message.text for message in request.messages if message.role == "tool"]
        return say(results[-1]) if results else call("effect", name=name)

    return Agent(ScriptedModel(respond), tools=[effect_tool(path)], name=name)


def flow(path: Path, way: str, *, holds: bool = False) -> Workflow:
    """Return a workflow with a node that asks, and a sibling.

    Args:
        way: `agent`, `workflow` (with a function that asks) or `delegate`.
        holds: whether the sibling waits forever.
    """
    agent = asker(path, "a")

    @tool(idempotent=True)
    async def sibling() -> str:
        if holds:
            await anyio.sleep_forever()
        return "sibling"

    async def inner(w: WorkflowContext) -> str:
        return await w.call("effect", effect_tool(path), "a")

    async def outer(w: WorkflowContext) -> list[Any]:
        if way == "agent":
            work: Any = w.agent("ask", agent, "Do it.")
        elif way == "workflow":
            work = w.workflow("ask", Workflow(inner, name="inner"), "Go.")
        else:
            order = Assignment(
                role="doer", instructions="Do it.", tools=agent.tools, model=agent.model
            )
            work = w.delegate("ask", order)
        return await w.gather(work, w.call("sibling", sibling))

    return Workflow(outer, name="outer")


async def main(database_url: str, path: str, way: str) -> None:
    """Run the workflow."""

    def tell(event: Event) -> None:
        line = {"kind": event.kind, "run_id": event.run_id}
        sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
        sys.stdout.buffer.flush()

    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(flow(Path(path), way, holds=True), "Go.", thread="t", on_event=tell)


@asynccontextmanager
async def asking(database_url: str, path: Path, way: str) -> AsyncGenerator[Program]:
    """Start the workflow in another process; it is killed at the end if it still runs."""
    module = "tests.workflow.asking_elsewhere"
    async with program(module, database_url, str(path), way) as other:
        yield other


if __name__ == "__main__":
    _, database_url, path, way = sys.argv
    anyio.run(main, database_url, path, way)
