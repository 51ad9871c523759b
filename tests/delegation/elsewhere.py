"""An agent that delegates, in another process that a test can watch and kill.

Sub-agents write a line to a file at each model call, and stop where the test wants them to.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson

from agent_runtime import (
    Agent,
    Event,
    Runtime,
    ScriptedModel,
    Settings,
    ToolContext,
    ToolError,
    tool,
)
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from tests.delegation.helpers import is_child, step
from tests.support.processes import Program, program

PARTS = ("one", "two", "three")


@tool(idempotent=True)
async def look(part: str) -> str:
    """Look at a part."""
    return f"seen {part}"


def tell(kind: str) -> None:
    """Write a line to stdout for the test that watches this process."""
    sys.stdout.buffer.write(orjson.dumps({"kind": kind}) + b"\n")
    sys.stdout.buffer.flush()


@tool
async def hold(context: ToolContext) -> str:
    """Wait until a message has arrived."""
    for _ in range(3000):
        if await context.store.inbox.pending(context.thread_id):
            return "held"
        await anyio.sleep(0.01)
    raise ToolError("No message came.")


class Worker:
    """The scripts of the parent, whose plan has the parts as its items, and of its sub-agents.

    Args:
        path: a file with one line per model call of a sub-agent.
        waits: the parts whose second step waits forever; `parent` for its own.
        background: whether the parent waits for messages instead of for its calls.
        leaves: whether it does not wait for what it left in the background.
    """

    def __init__(
        self,
        path: Path,
        waits: frozenset[str] = frozenset(),
        *,
        background: bool = False,
        leaves: bool = False,
    ) -> None:
        self.path = path
        self.waits = waits
        self.background = background or leaves
        self.leaves = leaves

    def agent(self) -> Agent:
        """Return the agent that delegates all parts at once."""
        model = ScriptedModel(self.respond)
        return Agent(model, tools=[look, hold], planning=True, delegation=True, name="parent")

    async def respond(self, request: ModelRequest) -> Scripted:
        """Answer for the parent, or for a sub-agent."""
        number = step(request)
        if not is_child(request):
            return await self._parent(request, number)
        part = request.messages[1].text.split("\n")[1]
        with self.path.open("a") as file:
            file.write(f"{part} {number}\n")
        if number and part in self.waits:
            tell("waiting")
            await anyio.sleep_forever()
        return call("look", part=part) if number == 0 else say(f"read {part}")

    async def _parent(self, request: ModelRequest, number: int) -> Scripted:
        if number == 0:
            items = [{"id": part, "description": "Read.", "phase": "execute"} for part in PARTS]
            return call("plan", action="create", goal="Read all.", steps=items)
        if number == 1:
            return self._orders(PARTS)
        if "parent" in self.waits:
            tell("waiting")
            await anyio.sleep_forever()
        if not self.background or self.leaves:
            return say("Done.")
        last = request.messages[-1].text
        if again := re.findall(r"task '(\w+)' \(run \S+\) was interrupted", last):
            return self._orders(again)
        text = "\n".join(message.text for message in request.messages)
        missing = [part for part in PARTS if f"read {part}" not in text]
        return call("hold") if missing else say("Done.")

    def _orders(self, parts: Sequence[str]) -> Scripted:
        order: dict[str, Any] = {"role": "reader", "instructions": "Read.", "tools": ["look"]}
        if self.background:
            order["background"] = True
        return calls(
            *(raw_call("delegate", **order, briefing=part, task_key=part) for part in parts)
        )

    def asked(self) -> list[str]:
        """Return how often each sub-agent's step was called."""
        return self.path.read_text().splitlines()


async def main(database_url: str, path: str, waits: str, how: str) -> None:
    """Run the agent; it stays until it is killed."""

    def tell_event(event: Event) -> None:
        tell(event.kind)

    modes = {"background": how == "background", "leaves": how == "leaves"}
    worker = Worker(Path(path), frozenset(waits.split(",")), **modes)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(worker.agent(), "Read all.", thread="t", on_event=tell_event)
        if worker.leaves:
            tell("left")
            await anyio.sleep_forever()


@asynccontextmanager
async def elsewhere(
    database_url: str, path: Path, *waits: str, background: bool = False, leaves: bool = False
) -> AsyncGenerator[Program]:
    """Start the run in another process; it is killed at the end if it still runs."""
    how = "leaves" if leaves else "background" if background else ""
    arguments = (database_url, str(path), ",".join(waits), how)
    async with program("tests.delegation.elsewhere", *arguments) as other:
        yield other


if __name__ == "__main__":
    _, database_url, path, waits, how = sys.argv
    anyio.run(main, database_url, path, waits, how)
