"""The agents of the cluster, whose tools write their effects into a journal."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import anyio

from agent_runtime import Agent, App, Delegation, ToolContext, tool
from agent_runtime.models.native import NativeModel
from agent_runtime.tools.base import Tool
from benchmarks.proof.cluster.journal import Journal


@dataclass(frozen=True, slots=True)
class Effects:
    """The tools of a process.

    Attributes:
        member: the process.
        pause: seconds between the beginning and the effect of a call, so that faults meet tools.
    """

    journal: Journal
    member: str
    pause: float

    def tools(self) -> list[Tool]:
        """Return two tools of which nothing may happen twice, and two of which it may."""

        @tool
        async def send(context: ToolContext, item: str) -> str:
            """Send a message: it must not be sent twice."""
            return await self._on_the_loop(context, item)

        @tool(idempotent=True)
        async def put(context: ToolContext, item: str) -> str:
            """Put a value; putting it again does no harm."""
            return await self._on_the_loop(context, item)

        @tool
        def press(context: ToolContext, item: str) -> str:
            """Press a button, in a thread; it must not be pressed twice."""
            return self._in_a_thread(context, item)

        @tool(idempotent=True)
        def fetch(context: ToolContext, item: str) -> str:
            """Fetch a page, in a thread; fetching it again does no harm."""
            return self._in_a_thread(context, item)

        return [send, put, press, fetch]

    def _note(self, what: str, context: ToolContext, item: str) -> None:
        self.journal.note(
            what, item=item, tool=item.rpartition("/")[2], user=context.user_id,
            thread=context.thread_id, run=context.run_id, call=context.call_id,
            member=self.member, cpu=time.process_time(),
        )  # fmt: skip

    async def _on_the_loop(self, context: ToolContext, item: str) -> str:
        self._note("begin", context, item)
        await anyio.sleep(self.pause)
        self._note("effect", context, item)
        return f"{item} is done."

    def _in_a_thread(self, context: ToolContext, item: str) -> str:
        self._note("begin", context, item)
        # Not `time.sleep`, which fails where libfaketime deceives the process.
        threading.Event().wait(self.pause)
        self._note("effect", context, item)
        return f"{item} is done."


def application(effects: Effects, model_url: str) -> App:
    """Return the application, whose model is at an address."""
    tools = effects.tools()
    placements: dict[str, Delegation | bool] = {
        "alone": False,
        "tick": False,
        "inside": Delegation(placement="process"),
        "placed": Delegation(placement="queue"),
    }
    agents = {
        name: Agent(
            NativeModel("openai/scripted", base_url=model_url, api_key="unused", rate_limits="off"),
            tools=tools,
            instructions="Be exact.",
            delegation=delegation,
            name=name,
        )
        for name, delegation in placements.items()
    }
    return App(agents=agents, name="cluster")
