"""A process that a case of `faults` runs, and then kills, stops or deceives.

    python -m benchmarks.proof.fault_cases.worker MODE DATABASE [ARGUMENT]

It writes one line for each thing that the case waits for.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio

from agent_runtime import Agent, Runtime, Settings, tool, workspace_tools
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, ScriptedModel, call, say

THREAD = "t"
CHILDREN = (
    "sleep 600 & echo $! >> pids; "
    "setsid sleep 600 & echo $! >> pids; "
    "(setsid nohup sleep 600 > /dev/null 2>&1 & echo $! >> pids); "
    "touch ready; sleep 600"
)
"""A command whose children leave its process group, each writing its process id."""


@tool
async def hold(seconds: float) -> str:
    """Wait without blocking the event loop."""
    print("working", flush=True)
    await anyio.sleep(seconds)
    return "held"


@tool
async def block(seconds: float) -> str:
    """Block the event loop, as careless tools do."""
    print("working", flush=True)
    time.sleep(seconds)  # noqa: ASYNC251
    return "blocked"


@tool
async def count(number: int) -> int:
    """Return the next number."""
    print(f"step {number}", flush=True)
    await anyio.sleep(0.02)
    return number + 1


def _settings(database: str) -> Settings:
    return Settings(database_url=database, loop_limit=0)


async def _run(database: str, agent: Agent) -> None:
    async with Runtime.open(_settings(database)) as runtime:
        result = await runtime.run(agent, "Work.", thread=THREAD)
    print(f"ended {result.status}", flush=True)


async def _steps(database: str, steps: int) -> None:
    def script(request: ModelRequest) -> Scripted:
        made = sum(message.role == "tool" for message in request.messages)
        return call("count", number=made) if made < steps else say("Done.")

    # All messages stay raw, so the script can count its steps.
    agent = Agent(ScriptedModel(script), tools=[count], max_steps=10_000, last_messages=10_000)
    await _run(database, agent)


async def _sweep(database: str) -> None:
    async with Runtime.open(_settings(database)) as runtime:
        swept = await runtime.sweep()
        print(f"swept {len(swept.interrupted)}", flush=True)


def main() -> None:
    """Do what the command line asks for."""
    mode, database, *rest = sys.argv[1:]
    if mode == "sweep":
        anyio.run(_sweep, database)
    elif mode == "steps":
        anyio.run(_steps, database, int(rest[0]))
    elif mode in ("command", "background"):
        kept = mode == "background"
        script = [call("bash", command=CHILDREN, background=kept), call("hold", seconds=600.0)]
        tools = [*workspace_tools(Path(rest[0]), shell=True), hold]
        anyio.run(_run, database, Agent(ScriptedModel(script), tools=tools))
    else:
        script = [call(mode, seconds=float(rest[0])), say("Done.")]
        anyio.run(_run, database, Agent(ScriptedModel(script), tools=[hold, block]))


if __name__ == "__main__":
    main()
