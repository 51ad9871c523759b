"""The agents of `soak`, which any process can continue, and what a client sees of their runs."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Literal, get_args

import anyio

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, ToolContext, tool
from agent_runtime.human.questions import Answer, Question
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime_storage.contract.records.log import Run

Kind = Literal["steps", "asks", "delegates", "cancelled", "steered"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STEPS = 12
PAGE = "The page says a lot about the parser of file_{0}.py and its {0} callers. " * 20


def settings(url: str, *, sweep: float = 0) -> Settings:
    """Return settings under which memory takes effect within a few steps."""
    return Settings(
        database_url=url,
        observer_message_tokens=3_000,
        reflector_observation_tokens=3_000,
        last_messages=4,
        sweep=sweep,
        loop_limit=0,
        drain_timeout=1,
    )


@tool(idempotent=True)
async def read(number: int) -> str:
    """Read a page."""
    await anyio.sleep(0.01)
    return f"page {number}: {PAGE.format(number)}"


@tool(idempotent=True)
async def hand_over(context: ToolContext) -> str:
    """Let another agent read."""
    result = await context.run_agent(agent("steps"), "Read.")
    return f"page {STEPS}: {result.status}"


def agent(kind: str) -> Agent:
    """Return the agent of a kind; its model answers from the prompt alone."""

    def script(request: ModelRequest) -> Scripted:
        number = _last_page(request)
        if number >= STEPS:
            return say("All is read.")
        if kind == "asks" and not number and not _asked(request):
            return call("ask_user", question="May I read?")
        if kind == "delegates" and not number:
            return call("hand_over")
        return call("read", number=number + 1)

    tools = [read, hand_over] if kind == "delegates" else [read]
    return Agent(ScriptedModel(script), name=kind, tools=tools, asking=kind == "asks")


def agent_of(run: Run) -> Agent | None:
    """Return the agent that continues a run which its process left."""
    return agent(run.agent) if run.parent_run_id is None else None


def _last_page(request: ModelRequest) -> int:
    for message in reversed(request.messages):
        if message.role == "tool" and (found := re.match(r"page (\d+):", message.text)):
            return int(found[1])
    return 0


def _asked(request: ModelRequest) -> bool:
    return any(message.role == "tool" for message in request.messages)


class Seen:
    """What a client sees: the recorded events of each thread that it runs agents on.

    Attributes:
        events: by thread, the id and kind of each.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._cancelled: set[str] = set()
        self.events: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)

    def expected(self, thread: str) -> str:
        """Return how a thread's run has to end."""
        return "cancelled" if thread in self._cancelled else "succeeded"

    async def run(self, kind: Kind, thread: str) -> None:
        """Run an agent of a kind on a new thread."""
        self.events[thread] = []
        with anyio.CancelScope() as scope:

            async def listen(event: Event) -> None:
                if event.thread_id == thread and event.id:
                    self.events[thread].append((event.id, event.kind))
                if event.kind == "answer" and event.data["step"] == 3:
                    if kind == "cancelled":
                        self._cancelled.add(thread)
                        scope.cancel()
                    elif kind == "steered":
                        await self._runtime.steer(event.run_id, "Read with care.")

            await self._runtime.run(
                agent(kind), "Read.", thread=thread, on_event=listen, on_question=_allow
            )


async def _allow(question: Question) -> Answer:
    del question
    return "yes"
