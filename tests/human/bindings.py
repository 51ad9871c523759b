"""Bindings of approvals in another process: as a program this prints them by tool."""

from __future__ import annotations

import sys
from threading import Lock
from types import SimpleNamespace

import orjson
from httpx import URL
from pydantic import SecretStr

from agent_runtime import Agent, tool
from agent_runtime.delegation.tool import delegate_tool
from agent_runtime.human.approval_rules import call_digest, given_of
from agent_runtime.memory.recall.tool import recall
from agent_runtime.messages import ToolCall
from agent_runtime.plan.tool import plan_tool
from agent_runtime.tools.toolset import Toolset
from agent_runtime.tools.workspace.files import workspace_tools


def _ship(names: set[str]) -> str:
    """Ship to all of them."""
    return f"shipped to {names}"


def bindings(folder: str) -> dict[str, str]:
    """Return the bindings of approvals of the runtime's own tools, by tool."""
    tools = workspace_tools(folder, shell=True)
    agent = Agent(tools=tools, delegation=True)
    tools = [*tools, delegate_tool(agent, Toolset(tools), levels=2), plan_tool(), recall]
    held = SimpleNamespace(token=SecretStr("x"), url=URL("https://x.example"), lock=Lock())

    def look() -> str:
        """Look at a captured value."""
        return str(held)

    ship, tools = tool(_ship), [*tools, tool(look)]
    made = ToolCall("c", "ship", {"names": ["Oslo", "Bergen", "Molde", "Narvik", "Bodo", "Vardo"]})
    shipped = call_digest(ship, made, given_of(ship, made.arguments))
    return {one.name: one.binding() for one in tools} | {"a call with a set": shipped}


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(bindings(sys.argv[1])) + b"\n")
    sys.stdout.buffer.flush()
