"""A workflow in another process that a test can watch and kill.

As a program it runs `flow` over a database and writes every event and effect as a line of JSON.
Effects are lines of a file as well, so a test can count them.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
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
    ToolContext,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.models.scripted import call, say
from tests.support.processes import Program, program


class Effects:
    """Effects as lines of a file, and where a process that will be killed stops.

    Args:
        stops: the effects after which this process waits forever.
        tell: gets each effect.
    """

    def __init__(
        self,
        path: Path,
        stops: frozenset[str] = frozenset(),
        tell: Callable[[dict[str, Any]], object] = dict,
    ) -> None:
        self.path = path
        self.stops = stops
        self.tell = tell

    async def do(self, name: str) -> str:
        """Write one line, then possibly wait to be killed."""
        async with await anyio.open_file(self.path, "a") as file:
            await file.write(f"{name}\n")
        self.tell({"kind": "effect", "name": name})
        if name in self.stops:
            await anyio.sleep_forever()
        return f"{name} done"

    def done(self) -> list[str]:
        """Return all lines, in order."""
        return self.path.read_text().splitlines() if self.path.exists() else []


@tool
async def work(context: ToolContext, name: str) -> str:
    """Do something once."""
    return await context.deps.do(name)


def worker(name: str) -> Agent:
    """Return an agent that acts twice, in two steps, and answers.

    Its next step follows from its prompt, so it continues where another process stopped.
    """

    def respond(request: Any) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        return call("work", name=f"{name}{done + 1}") if done < 2 else say(f"{name} is done")

    return Agent(ScriptedModel(respond), tools=[work], name=name)


@tool(idempotent=True)
async def look(effects: str) -> str:
    """Look at something; idempotent."""
    return await EFFECTS[effects].do("look")


EFFECTS: dict[str, Effects] = {}


@Workflow
async def inner(w: WorkflowContext) -> str:
    """Do something in a run of its own."""
    return f"{await w.call('deep', w.deps.do, 'deep')}: {w.user_context['name']}"


@Workflow
async def flow(w: WorkflowContext) -> dict[str, Any]:
    """Run every kind of node."""
    first = await w.call("once", w.deps.do, "once")
    agent = await w.agent("agent", worker("agent"))
    loops = [await w.call("loop", w.deps.do, f"loop{n}") for n in range(2)]
    both = await w.gather(
        w.call("left", w.deps.do, "left"), w.agent("right", worker("right"), "Go right.")
    )
    deep = await w.workflow("inner", inner, input_source="none")
    seen = await w.call("look", look, str(w.deps.path))
    return {
        "first": first,
        "agent": agent,
        "loops": loops,
        "both": both,
        "deep": deep,
        "seen": seen,
        "messages": [message.text for message in w.messages],
    }


@tool(idempotent=True)
async def after(effects: str) -> str:
    """Do the last thing; idempotent."""
    return await EFFECTS[effects].do("after")


@Workflow
async def delegating(w: WorkflowContext) -> list[Any]:
    """Delegate to a sub-agent, then do the rest."""
    known = worker("first")
    task = Assignment(
        role="worker", instructions="Work.", task_key="first", tools=known.tools, model=known.model
    )
    outcome = await w.delegate("first", task)
    await w.call("after", after, str(w.deps.path))
    return [outcome.status, outcome.result, outcome.attempt]


FLOWS = {"flow": flow, "delegating": delegating}


async def main(database_url: str, path: str, stops: str, name: str) -> None:
    """Run a workflow."""

    def tell(line: dict[str, Any]) -> None:
        sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
        sys.stdout.buffer.flush()

    def tell_event(event: Event) -> None:
        name = event.data.get("tool", "")
        tell({"kind": event.kind, "name": name, "run_id": event.run_id})

    effects = Effects(Path(path), frozenset(stops.split(",")), tell)
    EFFECTS[path] = effects
    context = {"name": "Ada"}
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(
            FLOWS[name], "Go.", deps=effects, user_context=context, on_event=tell_event
        )


class Elsewhere:
    """The workflow in another process."""

    def __init__(self, other: Program, effects: Effects) -> None:
        self.kill = other.kill
        self.effects = effects
        self.run_id = ""
        self._line = other.line

    async def until(self, *wanted: str) -> None:
        """Wait until all these were reported, such as `effect once` or `tool-finish left`."""
        missing = set(wanted)
        while missing:
            line = await self._line()
            self.run_id = self.run_id or line["run_id"]
            missing.discard(f"{line['kind']} {line['name']}")


@asynccontextmanager
async def elsewhere(
    database_url: str, path: Path, stop: str, name: str = "flow"
) -> AsyncGenerator[Elsewhere]:
    """Start the workflow in another process; it is killed at the end if it still runs."""
    async with program("tests.workflow.elsewhere", database_url, str(path), stop, name) as other:
        yield Elsewhere(other, Effects(path))


if __name__ == "__main__":
    _, database_url, path, stops, name = sys.argv
    anyio.run(main, database_url, path, stops, name)
