"""Node memories in a folder or in a bucket, with helpers of their tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Agent, MemoryConfig, MemoryMode, NodeMemory, ScriptedModel
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted
from agent_runtime.models.scripted import say as answer
from agent_runtime_storage import Store, UserStore, open_store
from agent_runtime_storage.contract.documents import Documents

KEY = "node_memory/app/talk/node.json"


@pytest.fixture(params=["folder", "s3"])
async def opened(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path
) -> AsyncIterator[Store]:
    """A store whose objects are in a folder or in a bucket."""
    folder = str(tmp_path / "objects")
    place = folder if request.param == "folder" else request.getfixturevalue("s3_url")
    store = await open_store(database_url, objects=place)
    yield store
    await store.close()


@pytest.fixture
def ann(opened: Store) -> UserStore:
    """One owner's view."""
    return opened.of("ann")


@pytest.fixture
def documents(ann: UserStore) -> Documents:
    """The owner's documents."""
    return ann.documents


def node(store: UserStore, name: str = "node", talk: str = "talk", **options: bool) -> NodeMemory:
    """Return the memory of a node."""
    return NodeMemory(store, "app", talk, name, **options)


async def add(memory: NodeMemory, message_id: str, parent: str | None = None) -> None:
    """Add a turn whose text is its id."""
    await memory.add_messages(
        message_id, parent, user_content=f"{message_id}?", assistant_content=f"{message_id}."
    )


async def say(memory: NodeMemory, *message_ids: str) -> None:
    """Add consecutive turns and write them."""
    before: str | None = None
    for message_id in message_ids:
        await add(memory, message_id, before)
        before = message_id
    await memory.flush()


def texts(history: Sequence[PromptMessage]) -> list[str]:
    """Return the texts of the messages."""
    return [message.text for message in history]


async def put(documents: Documents, data: bytes, key: str = KEY) -> None:
    """Write a document unchanged, replacing any other."""
    there = await documents.read(key)
    assert await documents.write(key, data, replaces=there.version if there else None)


async def keys(documents: Documents) -> list[str]:
    """Return the keys of all node memories."""
    chunks = [chunk async for chunk in documents.list("node_memory")]
    return sorted(info.key for chunk in chunks for info in chunk)


def echo(request: ModelRequest) -> Scripted:
    """Answer with the task's own text."""
    return answer(f"Re: {request.messages[-1].text}")


def writer(model: ScriptedModel | None = None, name: str = "writer", **options: Any) -> Agent:
    """Return an agent with node memory."""
    return Agent(
        model or ScriptedModel(echo), name=name, memory=MemoryConfig(MemoryMode.NODE, **options)
    )


def seen(agent: Agent) -> list[str]:
    """Return the texts last sent to the agent's model, without the system prompt."""
    assert isinstance(agent.model, ScriptedModel)
    return [message.text for message in agent.model.requests[-1].messages[1:]]


def without(method: str) -> Callable[..., Any]:
    """Return a replacement for a method that a crash prevented."""

    async def crashed(*_: Any, **__: Any) -> None:
        return None

    crashed.__name__ = method
    return crashed
