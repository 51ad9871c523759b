"""An agent whose sub-agents need approvals, in another process that a test can watch and kill."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import orjson

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from tests.delegation.helpers import is_child, step
from tests.support.processes import Program, program


def tell(kind: str) -> None:
    """Write a line to stdout for the test that watches this process."""
    sys.stdout.buffer.write(orjson.dumps({"kind": kind}) + b"\n")
    sys.stdout.buffer.flush()


class Asker:
    """The scripts of the parent and its sub-agents.

    Args:
        path: a file with one line per effect.
        waits: whether the sub-agent without a question waits forever.
    """

    def __init__(self, path: Path, *, waits: bool = False) -> None:
        self.path = path
        self.waits = waits

    def agent(self) -> Agent:
        """Return the agent that delegates two tasks at once."""

        # An approval is bound to the tool's captured values, so they are the same in every process.
        path = self.path

        @tool(needs_approval=True)
        async def effect() -> str:
            """Do something that needs approval."""
            with path.open("a") as file:
                file.write("effect\n")
            return "done"

        return Agent(ScriptedModel(self.respond), tools=[effect], delegation=True, name="parent")

    async def respond(self, request: ModelRequest) -> Scripted:
        """Answer for the parent, or for a sub-agent."""
        if not is_child(request):
            if step(request):
                return say("Done.")
            order = {"role": "worker", "instructions": "Work."}
            return calls(
                *(
                    raw_call("delegate", **order, briefing=one, task_key=one)
                    for one in ("ask", "wait")
                )
            )
        if "ask" in request.messages[1].text.split("\n")[1]:
            return say("Asked.") if step(request) else call("effect")
        if self.waits:
            tell("waiting")
            await anyio.sleep_forever()
        return say("Waited.")


async def main(database_url: str, path: str) -> None:
    """Run the agent."""

    def tell_event(event: Event) -> None:
        tell(event.kind)

    asker = Asker(Path(path), waits=True)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(asker.agent(), "Go.", thread="t", on_event=tell_event)


@asynccontextmanager
async def asking(database_url: str, path: Path) -> AsyncGenerator[Program]:
    """Start the run in another process; it is killed at the end if it still runs."""
    async with program("tests.delegation.asking_elsewhere", database_url, str(path)) as other:
        yield other


if __name__ == "__main__":
    _, database_url, path = sys.argv
    anyio.run(main, database_url, path)
