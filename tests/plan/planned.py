"""A run with a plan in another process, which kills itself at a chosen event.

It creates a plan of two steps. One message then completes the first, adds a third and lets the
second follow `work`; the next one answers.
"""

from __future__ import annotations

import os
import signal
import sys

import anyio

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say

SCRIPT: tuple[Scripted, ...] = (
    call("plan", action="create", goal="Go", steps=[{"description": "a"}, {"description": "b"}]),
    calls(
        raw_call(
            "plan",
            action="update",
            steps=[{"id": 1, "status": "completed"}],
            add=[{"description": "c"}],
        ),
        raw_call("work"),
        raw_call("plan", action="update", steps=[{"id": 2, "follow": True}]),
    ),
    say("done"),
)


@tool
async def work() -> str:
    """Work."""
    return "worked"


def agent(answered: int = 0) -> Agent:
    """Return the agent; its model has already given `answered` answers."""
    return Agent(ScriptedModel(SCRIPT[answered:]), tools=[work], planning=True)


async def main(database_url: str, kind: str, tool: str, number: int) -> None:
    """Run the agent on the thread `t`; kill this process at the n-th event of a kind and a tool."""
    seen = 0

    def kill_at_event(event: Event) -> None:
        nonlocal seen
        seen += event.kind == kind and event.data.get("tool", "") == tool
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(agent(), "Go.", thread="t", on_event=kill_at_event)


if __name__ == "__main__":
    _, database_url, kind, tool_name, number = sys.argv
    anyio.run(main, database_url, kind, tool_name, int(number))
