"""Run an agent that runs one shell command, in another process; see `tests.support.processes`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.models.scripted import call, say
from agent_runtime.tools.workspace.files import workspace_tools


def agent(folder: Path, command: str) -> Agent:
    """Return an agent that runs the command, then answers."""
    tools = workspace_tools(folder, shell=True)
    return Agent(ScriptedModel([call("run_command", command=command), say("done")]), tools=tools)


async def main(database_url: str, folder: str, command: str) -> None:
    """Run the agent."""
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(agent(Path(folder), command), "Go.", thread="t")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
