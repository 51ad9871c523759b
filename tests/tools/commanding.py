"""Run an agent that runs a shell command, in another process; see `tests.support.processes`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.scripted import calls, raw_call, say
from agent_runtime.tools.workspace.files import workspace_tools


def agent(folder: Path, commands: Sequence[str]) -> Agent:
    """Return an agent that runs the commands at the same time, then answers."""
    tools = workspace_tools(folder, shell=True)
    wanted = calls(*(raw_call("bash", command=one) for one in commands))
    return Agent(ScriptedModel([wanted, say("done")]), tools=tools)


@tool
async def hold() -> None:
    """Say so, and wait for the end of the process."""
    print('{"waiting": true}', flush=True)
    await anyio.sleep_forever()


def keeping(folder: Path, command: str) -> Agent:
    """Return an agent that keeps a command in the background."""
    script = [raw_call("bash", command=command, background=True), raw_call("hold")]
    tools = [*workspace_tools(folder, shell=True), hold]
    return Agent(ScriptedModel([calls(one) for one in script]), tools=tools)


async def main(database_url: str, folder: str, *commands: str) -> None:
    """Run the agent; a first command `background` puts the second there."""
    chosen = agent(Path(folder), commands)
    if commands[0] == "background":
        chosen = keeping(Path(folder), commands[1])
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(chosen, "Go.", thread="t")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], *sys.argv[3:])
