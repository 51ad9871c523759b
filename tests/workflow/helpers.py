"""Agents that answer by a script, and access to what their runs stored."""

from __future__ import annotations

from agent_runtime import (
    Agent,
    Runtime,
    ScriptedModel,
)
from agent_runtime.messages import (
    AssistantMessage,
    UserMessage,
    decode_message,
)
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import say
from agent_runtime_storage import UserStore


def local(runtime: Runtime) -> UserStore:
    """Return the store as the runs' owner sees it."""
    return runtime.store.of("local")


def answering(*answers: str, name: str = "agent") -> Agent:
    """Return an agent that gives these answers, one per run."""
    return Agent(ScriptedModel([say(answer) for answer in answers]), name=name)


def echo(request: ModelRequest) -> str:
    """Answer with all messages sent to the agent, without its instructions."""
    return " | ".join(message.text for message in request.messages[1:])


ECHO = Agent(ScriptedModel(echo), name="echo")


async def sent(runtime: Runtime, run_id: str) -> list[str]:
    """Return the messages on a run's thread, oldest first."""
    run = await local(runtime).runs.get(run_id)
    thread = await local(runtime).threads.get(run.thread_id)
    nodes = await local(runtime).log.branch(thread.id, thread.head or 0)
    return [decode_message(node.body).text for node in nodes]


def texts(messages: tuple[UserMessage | AssistantMessage, ...]) -> list[str]:
    """Return the texts of messages."""
    return [message.text for message in messages]
