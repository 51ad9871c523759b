"""The calls and answers that the offline model makes."""

from __future__ import annotations

from typing import Any

import orjson

from agent_runtime.messages import ToolCall
from agent_runtime.models.base import ModelAnswer, RawCall
from agent_runtime.run.tool_calls import CANCELLED, INTERRUPTED

NAME = "offline"
STOPPED = (CANCELLED, INTERRUPTED, "The tool took longer than ")
"""How results begin of calls that were not made, or whose effect is not known."""


def call(tool: str, /, **arguments: Any) -> RawCall:
    """Return a call of a tool."""
    return RawCall(tool, orjson.dumps(arguments).decode())


def repeat(made: ToolCall) -> RawCall:
    """Return a call as it was made."""
    return call(made.name, **made.arguments)


def ask(text: str, *calls: RawCall) -> ModelAnswer:
    """Return an answer that makes calls."""
    return ModelAnswer(text, calls, "tool_calls", NAME)


def say(text: str) -> ModelAnswer:
    """Return the last answer."""
    return ModelAnswer(text, (), "stop", NAME)
