"""A runtime with recall, its model's requests and its events."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, RunResult, Runtime, ScriptedModel, Settings
from agent_runtime.memory.recall import indexer as embedding
from agent_runtime.messages import Note, PromptMessage, decode_message
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.retrieval.embedding import ScriptedEmbedder
from agent_runtime.models.scripted import Scripted, say
from agent_runtime_storage import UserStore

NAME = "scripted-embedder"
FACTS = [
    "The budget of the Bergen bridge is 40,000 kroner.",
    "My dog Otto has eaten a shoe.",
    "Trains to Voss were late again.",
    "The coffee machine needs new filters.",
    "Kari plays the cello on Thursdays.",
    "We painted the kitchen yellow.",
    "It rained for eleven days.",
    "The library closes at seven.",
]
QUESTION = "How large was the budget of the Bergen bridge?"


@dataclass
class World:
    """A runtime with recall, its model's requests, and its events."""

    runtime: Runtime
    model: ScriptedModel
    embedder: ScriptedEmbedder
    events: list[Event] = field(default_factory=list[Event])

    @property
    def store(self) -> UserStore:
        """The store as the runs' owner sees it."""
        return self.runtime.store_of()

    async def say(self, text: str, thread: str = "t", **options: Any) -> RunResult:
        """Send a message to the agent in a run of its own."""
        agent = options.pop("agent", Agent())
        options = {"on_event": self.events.append} | options
        return await self.runtime.run(agent, text, thread=thread, **options)

    async def converse(
        self, texts: Sequence[str] = FACTS, thread: str = "t", user: str | None = None
    ) -> None:
        """Send messages one by one while recall is off: the first is node 1, the next node 3."""
        settings = self.runtime.settings
        plain = Runtime(settings, self.runtime.store, ScriptedModel(lambda request: say("Noted.")))
        for text in texts:
            await plain.run(Agent(), text, thread=thread, user=user)

    async def embed(self, thread: str = "t", user: str | None = None) -> None:
        """Embed a thread by a run on it."""
        await self.say("Hm.", thread, user=user)
        await embedded(self.runtime.store.of(user or self.runtime.settings.user), thread)

    async def prepare(
        self, texts: Sequence[str] = FACTS, thread: str = "t", user: str | None = None
    ) -> None:
        """Send messages and embed them."""
        await self.converse(texts, thread, user)
        await self.embed(thread, user)

    @property
    def recalled(self) -> list[Event]:
        """The events of recall."""
        return [event for event in self.events if event.kind == "recall"]

    def found(self) -> list[tuple[str, int]]:
        """Return the matches of the last recall, best first."""
        return [(one["thread"], one["node"]) for one in self.recalled[-1].data["found"]]

    def note(self) -> str:
        """Return the recall note in the last prompt; empty if there is none."""
        return "".join(
            message.text for message in self.model.requests[-1].messages if is_recall(message)
        )


def is_recall(message: PromptMessage) -> bool:
    """Return whether a message of a prompt is the recall note."""
    return "Earlier messages that may bear" in message.text


def nodes(note: str) -> list[str]:
    """Return the nodes that a note shows, in its order."""
    return re.findall(r"^\[\w+ \| node (\S+) \|", note, re.MULTILINE)


async def embedded(store: UserStore, thread: str, model: str = NAME) -> None:
    """Wait until every message of a thread's branch has a vector."""
    head = (await store.threads.get(thread)).head
    assert head is not None
    nodes = await store.log.branch(thread, head)
    seqs = [node.seq for node in nodes if not isinstance(decode_message(node.body), Note)]
    with anyio.fail_after(60):
        while await store.vectors.embedded_ids(thread, model, "message", seqs) != seqs:  # noqa: ASYNC110
            # No event reports it: it matters only to a search.
            await anyio.sleep(0.01)


Open = Callable[..., Any]


@pytest.fixture
def world(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return a function that opens a runtime with recall, whose prompts have few raw messages."""
    monkeypatch.setattr(embedding, "CLOSE_SECONDS", 0.2)

    @asynccontextmanager
    async def opened(
        script: Callable[[ModelRequest], Scripted] = lambda request: say("Noted."),
        embedder: ScriptedEmbedder | None = None,
        **settings: Any,
    ) -> AsyncGenerator[World]:
        configured: dict[str, Any] = {
            "observational_memory": False,
            "last_messages": 2,
            "semantic_recall_top_k": 1,
        }
        embedder = embedder or ScriptedEmbedder()
        model = ScriptedModel(script)
        chosen = Settings(database_url=database_url, **(configured | settings))
        async with Runtime.open(chosen, model=model, embedder=embedder) as runtime:
            yield World(runtime, model, embedder)

    return opened
