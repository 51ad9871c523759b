"""Scripts for an agent that delegates and its sub-agents, and access to their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from agent_runtime import RunResult
from agent_runtime.delegation.assignment import ASKING_PROTOCOL, PROTOCOL
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.scripted import Scripted, ScriptFunction
from tests.support.worlds import World

Answer = Callable[[ModelRequest, int], Scripted]


def is_child(request: ModelRequest) -> bool:
    """Return whether a request is a sub-agent's."""
    return request.messages[0].text.startswith((PROTOCOL, ASKING_PROTOCOL))


def step(request: ModelRequest) -> int:
    """Return the number of earlier answers on this thread."""
    return sum(message.role == "assistant" for message in request.messages)


def playing(parent: list[ModelAnswer], child: Answer) -> ScriptFunction:
    """Return a script: the parent's answers in order, and the sub-agents' answers by step."""

    def respond(request: ModelRequest) -> Scripted:
        number = step(request)
        return child(request, number) if is_child(request) else parent[number]

    return respond


async def outcomes(world: World, result: RunResult) -> list[dict[str, Any]]:
    """Return the outcomes that the parent received, in the order of its calls."""
    return [orjson.loads(text) for _, text in await world.results(result.thread_id)]
