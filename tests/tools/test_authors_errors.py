"""What the author of a tool learns of a mistake in it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from agent_runtime import Agent, Tool, ToolContext, tool
from agent_runtime.models.scripted import call, say
from tests.support.worlds import Play
from tests.tools import calling


class Careless(Tool):
    """A tool that returns a text where a `ToolResult` is promised."""

    def __init__(self) -> None:
        super().__init__(name="careless", description="Return a text.")

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Return a text."""
        return "text"


@pytest.mark.backends("file")
async def test_a_tool_that_returns_no_result_is_an_error_that_says_so(play: Play) -> None:
    async with play([call("careless"), say("Done.")]) as world:
        result = await world.run(Agent(tools=[Careless()]), thread="t")
        [(outcome, text)] = await world.results("t")
    assert result.output == "Done."
    assert outcome == "error"
    assert text.startswith("The tool careless ran, but its method `call` returned str instead")


class Unprintable(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise SystemExit("not even that")


@tool
async def lookup(key: str) -> str:
    """Look something up."""
    if key == "odd":
        raise Unprintable
    return {"a": "b"}[key]


async def test_an_exception_of_a_tool_is_logged_with_its_place_and_without_keys(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hunter2-hunter2")
    caplog.set_level(logging.INFO, "agent_runtime")
    assert await calling.error(lookup, key="hunter2-hunter2") == "KeyError: 'hunter2-hunter2'"
    assert 'return {"a": "b"}[key]' in caplog.text and "KeyError" in caplog.text
    assert "hunter2" not in caplog.text
    assert (await calling.call(lookup, key="odd")).outcome == "error"
    assert "Unprintable" in caplog.text
