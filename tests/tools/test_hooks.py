"""Hooks around the calls of tools: they see, refuse and change them, and guard sub-agents too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Agent, Runtime, Settings, ToolContext, ToolResult, tool
from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolCall
from agent_runtime.models.scripted import ScriptedModel, call, say

Proceed = Callable[[], Awaitable[ToolResult]]
ran: list[str] = []


@tool
def greet(name: str) -> str:
    """Greet somebody."""
    ran.append(name)
    return f"Hello {name}, your key is s3cret."


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def result_of(tmp_path: Path, *hooks: Any) -> tuple[str, str]:
    """Run a call of `greet` within the hooks; return its text and outcome, as recorded."""
    model = ScriptedModel([call("greet", name="Ada"), say("Done.")])
    settings = Settings(database_url=f"file:{tmp_path}/a.db")
    found: list[tuple[str, str]] = []
    async with (
        Runtime.open(settings) as runtime,
        runtime.stream(Agent(model, tools=[greet], hooks=hooks), "Greet.") as stream,
    ):
        async for event in stream:
            if event.kind == "tool-finish":
                found.append((event.data.get("result", ""), event.data["outcome"]))
    assert stream.result.status == "succeeded"
    [one] = found
    assert model.requests[-1].messages[-1].text == one[0]
    return one


async def test_hooks_lie_within_each_other_and_change_the_result(tmp_path: Path) -> None:
    seen: list[str] = []

    async def outer(call: ToolCall, context: ToolContext, proceed: Proceed) -> ToolResult:
        seen.append(f"{call.name} {call.arguments} {context.step}")
        result = await proceed()
        seen.append(result.text)
        return result

    async def redact(call: ToolCall, context: ToolContext, proceed: Proceed) -> ToolResult:
        # What it changes here changes no call.
        call.arguments["name"] = "Eve"
        result = await proceed()
        return replace(result, text=result.text.replace("s3cret", "***"))

    text, _ = await result_of(tmp_path, outer, redact)
    assert text == "Hello Ada, your key is ***." and ran == ["Ada"]
    assert seen == ["greet {'name': 'Ada'} 1", "Hello Ada, your key is ***."]


async def test_a_hook_refuses_and_one_that_fails_lets_nothing_pass(tmp_path: Path) -> None:
    async def refuse(call: ToolCall, context: ToolContext, proceed: Proceed) -> ToolResult:
        return ToolResult("Not on Sundays.", outcome="refused")

    async def fail(call: ToolCall, context: ToolContext, proceed: Proceed) -> ToolResult:
        raise KeyError("policy")

    assert await result_of(tmp_path, refuse) == ("Not on Sundays.", "refused")
    assert await result_of(tmp_path, fail) == ("KeyError: 'policy'", "error") and not ran


async def test_a_hook_starts_a_tool_once_and_returns_its_result(tmp_path: Path) -> None:
    async def twice(call: ToolCall, context: ToolContext, proceed: Proceed) -> ToolResult:
        await proceed()
        return await proceed()

    async def nothing(call: ToolCall, context: ToolContext, proceed: Proceed) -> None:
        await proceed()

    text, _ = await result_of(tmp_path, twice)
    assert "called `proceed` twice" in text and ran == ["Ada"]
    text, _ = await result_of(tmp_path, nothing)
    assert "The hook nothing returned NoneType instead of a ToolResult" in text


async def test_a_hook_that_is_not_async_is_an_error_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a hook of tools"):
        await result_of(tmp_path, str)


async def test_sub_agents_have_the_hooks_of_their_agent(tmp_path: Path) -> None:
    async def refuse(call: ToolCall, context: ToolContext, proceed: Proceed) -> ToolResult:
        if call.name != "greet":
            return await proceed()
        return ToolResult("Not here.", outcome="refused")

    def answer(request: Any) -> Any:
        last = request.messages[-1]
        if last.role == "tool":
            return say(f"It says: {last.text}")
        if any(spec.name == "delegate" for spec in request.tools):
            return call("delegate", role="a", instructions="Greet Bob.", task_key="a")
        return call("greet", name="Bob")

    settings = Settings(database_url=f"file:{tmp_path}/a.db")
    async with Runtime.open(settings) as runtime:
        agent = Agent(ScriptedModel(answer), tools=[greet], delegation=True, hooks=[refuse])
        result = await runtime.run(agent, "Delegate.")
    assert "It says: Not here." in str(result.output) and not ran


async def test_a_call_that_asks_a_person_waits_whatever_its_hooks_return(tmp_path: Path) -> None:
    async def hide(call: ToolCall, context: ToolContext, proceed: Proceed) -> ToolResult:
        await proceed()
        return ToolResult("hidden")

    model = ScriptedModel([call("greet", name="Ada"), say("Done.")])
    asking = tool(greet_by_name, needs_approval=True)
    settings = Settings(database_url=f"file:{tmp_path}/a.db")
    async with Runtime.open(settings) as runtime:
        agent = Agent(model, tools=[asking], hooks=[hide], asking=True)
        result = await runtime.run(agent, "Greet.")
        # A person is asked first; no hook has seen the call.
        assert result.status == "suspended" and not ran
        [question] = result.questions
        await runtime.answer(question.id, True)
        result = await runtime.resume(result.run_id, agent)
    assert result.status == "succeeded" and ran == ["Ada"]
    assert model.requests[-1].messages[-1].text == "hidden"


def greet_by_name(name: str) -> str:
    """Greet somebody."""
    ran.append(name)
    return "Hello."


greet_by_name.__name__ = "greet"
