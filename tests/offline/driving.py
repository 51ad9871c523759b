"""A small loop that runs the offline model's script over real files, with a sliding window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from agent_runtime.messages import PromptMessage, ToolCall, ToolResult, call_id
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.tokens import count_text
from agent_runtime.offline.script import next_answer
from agent_runtime.prompt.truncate import share_result_budget, truncate_text
from agent_runtime.tools.toolset import Toolset
from agent_runtime.tools.workspace.files import workspace_tools
from tests.tools.calling import context

TASK = "Survey this folder and write the report to REPORT.md"
LEAST_MESSAGES = 20
MOST_STEPS = 300

Fault = Callable[[int, ToolCall], ToolResult | None]
"""Returns, for a step and a call, the result instead of the tool's; None lets the tool run."""


@dataclass
class Driven:
    """The course of a survey."""

    answer: str
    steps: int
    longest_text: int
    tools: list[str] = field(default_factory=list[str])
    largest_batch: int = 0


def window(messages: list[PromptMessage]) -> list[PromptMessage]:
    """Return the system prompt, the task and the newest messages, in whole exchanges."""
    first = max(2, len(messages) - LEAST_MESSAGES)
    while first > 2 and messages[first].role != "assistant":
        first -= 1
    note = "<runtime-note abc>\nEarlier messages are not shown.\n</runtime-note abc>"
    task = messages[1] if first == 2 else replace(messages[1], text=f"{messages[1].text}\n\n{note}")
    return [messages[0], task, *messages[first:]]


async def drive(
    root: Path, task: str = TASK, *, budget: int = 20_000, fault: Fault | None = None
) -> Driven:
    """Run the script to its answer; the results of an exchange share a budget of tokens."""
    tools = Toolset(workspace_tools(root))
    messages = [PromptMessage("system", "You are an agent."), PromptMessage("user", task)]
    driven = Driven("", 0, 0)
    while driven.steps < MOST_STEPS:
        answer = next_answer(ModelRequest(tuple(window(messages)), tools.specs))
        driven.steps += 1
        if not answer.calls:
            driven.answer = answer.text
            return driven
        driven.longest_text = max(driven.longest_text, len(answer.text.encode()))
        driven.largest_batch = max(driven.largest_batch, len(answer.calls))
        messages += await exchange(tools, answer, driven, budget, fault)
    raise AssertionError(f"the survey took more than {MOST_STEPS} steps")


async def exchange(
    tools: Toolset, answer: ModelAnswer, driven: Driven, budget: int, fault: Fault | None
) -> list[PromptMessage]:
    """Run the calls of an answer; return the messages of the exchange."""
    calls = tuple(
        ToolCall(call_id(driven.steps, index), made.name, orjson.loads(made.arguments))
        for index, made in enumerate(answer.calls)
    )
    results: list[ToolResult] = []
    for call in calls:
        driven.tools.append(call.name)
        result = fault(driven.steps, call) if fault else None
        if result is None:
            tool = tools.get(call.name)
            assert tool is not None
            result = await tool.call(call.arguments, context())
        results.append(result)
    limits = share_result_budget([one.text for one in results], budget, count_text)
    shown = [
        PromptMessage(
            "tool",
            result.text if limit is None else truncate_text(result.text, limit, call.id),
            call_id=call.id,
            name=call.name,
            outcome=result.outcome,
        )
        for result, limit, call in zip(results, limits, calls, strict=True)
    ]
    return [PromptMessage("assistant", answer.text, calls=calls), *shown]
