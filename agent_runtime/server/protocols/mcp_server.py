"""An MCP server whose tools are a long task: start, status, result, steer, cancel, answer."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Container, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from agent_runtime.errors import AgentRuntimeError
from agent_runtime.server.protocols import parts
from agent_runtime.server.protocols.answers import described
from agent_runtime.server.protocols.client_message import Message
from agent_runtime.server.protocols.parts import news_of
from agent_runtime.server.protocols.streams import text_of
from agent_runtime.server.protocols.turns import UserTurns

MAX_WAIT = 3600
"""The most seconds that `task_result` waits."""
MAX_SHOWN = 100_000
"""How many questions a server remembers as shown."""
INSTRUCTIONS = """\
These tools run an autonomous agent on long tasks. `start_task` returns at once with a run's id; \
`task_result` waits for its end and reports progress. Questions in a status are for a person, and \
a run whose status is `suspended` waits for them; those of its sub-agents may come while it works, \
and those of its background tasks after its end. Show them, and give the person's answer by \
`answer_question`. Never approve a call on your own."""

TurnsOf = Callable[["Context[Any, Any]"], UserTurns]
"""Returns the turns of the user who makes a request."""

RunId = Annotated[str, Field(description="The run's id, which start_task returned.")]


def task_server(turns_of: TurnsOf, agents: list[str]) -> MCPServer[Any]:
    """Return the server.

    Args:
        agents: the names of the agents that `start_task` may run, the default first.
    """
    with _own_logging():
        server: MCPServer[Any] = MCPServer("agent-runtime", instructions=INSTRUCTIONS)
    tools = _Tools(turns_of, agents[0])
    about = f"{inspect.getdoc(tools.start_task)} Agents: {', '.join(agents)}."
    server.add_tool(tools.start_task, description=about)
    for tool in (
        tools.task_status,
        tools.task_result,
        tools.steer_task,
        tools.cancel_task,
        tools.answer_question,
    ):
        server.add_tool(tool)
    return server


@dataclass(frozen=True, slots=True)
class _Tools:
    """The tools; their docstrings and fields are what clients read."""

    turns_of: TurnsOf
    default: str
    shown: set[str] = field(default_factory=set[str])
    """Questions that a status showed, which end no further wait."""

    async def start_task(
        self,
        ctx: Context[Any, Any],
        task: Annotated[str, Field(description="What to do, with all that the agent must know.")],
        agent: Annotated[str, Field(description="The agent's name; empty for the default.")] = "",
        thread: Annotated[
            str, Field(description="The thread to continue; empty for a new one.")
        ] = "",
    ) -> dict[str, Any]:
        """Start a task; it goes on whatever becomes of this connection."""
        with _tool_errors():
            turns = self.turns_of(ctx)
            turn = await turns.begin(agent or self.default, Message(task), thread)
            return await self._status(turns, turn.run_id)

    async def task_status(self, ctx: Context[Any, Any], run_id: RunId) -> dict[str, Any]:
        """Return how a task is doing: its status, steps, cost, plan, and open questions."""
        with _tool_errors():
            return await self._status(self.turns_of(ctx), run_id)

    async def task_result(
        self,
        ctx: Context[Any, Any],
        run_id: RunId,
        wait_seconds: Annotated[
            float, Field(ge=0, le=MAX_WAIT, description="How long to wait for the end.")
        ] = 50,
    ) -> dict[str, Any]:
        """Wait until a task ends or asks a person, and return how it is; reports progress."""
        with _tool_errors():
            turns = self.turns_of(ctx)
            # Many clients give up after a minute; the default ends before, and they ask again.
            with anyio.move_on_after(wait_seconds):
                await _ended(turns, run_id, ctx, self.shown)
            return await self._status(turns, run_id)

    async def steer_task(
        self,
        ctx: Context[Any, Any],
        run_id: RunId,
        message: Annotated[str, Field(description="What the agent reads at its next step.")],
    ) -> dict[str, Any]:
        """Send a message to a running task."""
        with _tool_errors():
            turns = self.turns_of(ctx)
            await turns.runtime.steer(run_id, message, user=turns.user)
            return await self._status(turns, run_id)

    async def cancel_task(self, ctx: Context[Any, Any], run_id: RunId) -> dict[str, Any]:
        """Cancel a task and its sub-agents; a running one sees it within half a second."""
        with _tool_errors():
            turns = self.turns_of(ctx)
            await turns.runtime.cancel(run_id, user=turns.user)
            return await self._status(turns, run_id)

    async def answer_question(
        self,
        ctx: Context[Any, Any],
        question_id: Annotated[str, Field(description="The question's id.")],
        answer: Annotated[
            Any, Field(description="The person's answer, by the question's answer_schema.")
        ],
    ) -> dict[str, Any]:
        """Give a person's answer to a question; the task goes on once all are answered."""
        with _tool_errors():
            turns = self.turns_of(ctx)
            # A sub-agent may ask, and the turn is one of the run that the client began.
            root = await turns.root(await turns.question(question_id))
            turn = await turns.answer(root.thread_id, {question_id: answer})
            return await self._status(turns, turn.run_id)

    async def _status(self, turns: UserTurns, run_id: str) -> dict[str, Any]:
        status = await _status(turns, run_id)
        if len(self.shown) > MAX_SHOWN:
            self.shown.clear()
        self.shown.update(one["id"] for one in status["questions"])
        return status


async def _ended(
    turns: UserTurns, run_id: str, ctx: Context[Any, Any], shown: Container[str]
) -> None:
    """Wait until a run ends, is suspended or asks something new, and report its progress."""
    run, turn = await turns.now(run_id)
    if run.status not in ("queued", "running"):
        return
    reports = 1
    step = run.steps
    async with turns.parts(turn) as given:
        await ctx.report_progress(reports, message=f"step {step}: at work")
        async for part in given:
            if isinstance(part, parts.Asked) and part.question.id not in shown:
                # It is the person's turn, though others still work.
                return
            if isinstance(part, parts.StepBegun):
                step = part.step
            if message := news_of(part):
                # Progress has to rise, and one step has several reports.
                reports += 1
                await ctx.report_progress(reports, message=f"step {step}: {message}")


async def _status(turns: UserTurns, run_id: str) -> dict[str, Any]:
    run = await turns.run(run_id)
    plan = await turns.runtime.plans.current(run.thread_id, user=turns.user)
    questions = await turns.asked(run)
    used = await turns.usage(run.id)
    return {
        "run_id": run.id,
        "thread_id": run.thread_id,
        "status": run.status,
        "stop_reason": run.stop_reason or "",
        "detail": run.detail,
        "output": turns.output(run),
        "steps": run.steps,
        "tokens": {"prompt": used.prompt_tokens, "completion": used.completion_tokens},
        "cost_usd": None if used.unpriced_calls else used.cost / 1e9,
        "plan": plan.to_json() if plan else None,
        "questions": [described(one) for one in questions],
    }


@contextmanager
def _tool_errors() -> Generator[None]:
    """Give the client an error that it can act on; others are logged by the server."""
    try:
        yield
    except AgentRuntimeError as error:
        raise ToolError(text_of(error)) from error


@contextmanager
def _own_logging() -> Generator[None]:
    """Undo that the SDK sets up the logging of the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
