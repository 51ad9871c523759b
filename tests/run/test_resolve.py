"""The tools of a run: the agent's and the runtime's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_runtime import Agent, tool
from agent_runtime.errors import ConfigError
from agent_runtime.memory.recall.tool import recall as the_runtimes
from agent_runtime.run.resolve import toolset
from agent_runtime.tools.base import Tool
from agent_runtime.tools.output import FINAL, output_type


def work() -> str:
    """Do some work."""
    return "done"


def recall() -> str:
    """Remember."""
    return "mine"


def final_result() -> str:
    """End."""
    return "mine"


@pytest.mark.parametrize(
    ("own", "name"),
    [
        (recall, "recall"),
        (tool(recall), "recall"),
        (final_result, FINAL),
        (tool(work, name=FINAL), FINAL),
    ],
)
def test_names_of_the_runtimes_tools_are_reserved(
    own: Tool | Callable[..., Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=f"The tool name '{name}' is reserved for the runtime"):
        toolset(Agent(tools=[work, own]), None)


def test_recall_is_added_once_and_only_to_other_tools() -> None:
    assert [tool.name for tool in toolset(Agent(tools=[work]), None)] == ["work", "recall"]
    tools = toolset(Agent(tools=[the_runtimes, work]), None)
    assert [tool.name for tool in tools] == ["recall", "work"]
    assert [tool.name for tool in toolset(Agent(), output_type(int))] == [FINAL]
