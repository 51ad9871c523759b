"""What approvals are bound to in another process: as a program it prints it, by tool."""

from __future__ import annotations

import sys

import orjson

from agent_runtime import Agent
from agent_runtime.tools.base import Toolset
from agent_runtime.tools.delegate import delegate_tool
from agent_runtime.tools.plan import plan_tool
from agent_runtime.tools.recall import recall
from agent_runtime.tools.workspace import workspace_tools


def bindings(folder: str) -> dict[str, str]:
    """Return what the approvals of the runtime's own tools are bound to, by their names."""
    tools = workspace_tools(folder, shell=True)
    agent = Agent(tools=tools, delegation=True)
    tools = [*tools, delegate_tool(agent, Toolset(tools), levels=2), plan_tool(), recall]
    return {one.name: one.binding() for one in tools}


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(bindings(sys.argv[1])) + b"\n")
    sys.stdout.buffer.flush()
