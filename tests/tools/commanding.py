"""Run an agent that runs a shell command, in another process; see `tests.support.processes`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.models.scripted import calls, raw_call, say
from agent_runtime.tools.workspace.files import workspace_tools


def agent(folder: Path, commands: Sequence[str]) -> Agent:
    """Return an agent that runs the commands at the same time, then answers."""
    tools = workspace_tools(folder, shell=True)
    wanted = calls(*(raw_call("run_command", command=one) for one in commands))
    return Agent(ScriptedModel([wanted, say("done")]), tools=tools)


async def main(database_url: str, folder: str, *commands: str) -> None:
    """Run the agent."""
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(agent(Path(folder), commands), "Go.", thread="t")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], *sys.argv[3:])
