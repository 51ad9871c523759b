"""Open a runtime whose model is a server on loopback or a script."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from agent_runtime import (
    Agent,
    Event,
    Model,
    NativeModel,
    RunResult,
    Runtime,
    ScriptedModel,
    Settings,
    tool,
)
from agent_runtime.models import attempts
from agent_runtime.models.scripted import Scripted, ScriptFunction
from agent_runtime.testing.model_server import OpenAIServer, Reply, Script
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.log import Run

KEY = "sk-test-0123456789abcdefghij"
REPEATING: dict[str, Any] = {"loop_limit": 0}
"""Switches the loop guard off, for scripts that repeat a call while testing something else."""
FAILING: dict[str, Any] = {"model_outage": 0.0}
"""Lets a run fail at once with its model."""


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@dataclass
class World:
    """A runtime with its own database, and the events of all its runs.

    Attributes:
        contents: returns all bytes of the database.
    """

    runtime: Runtime
    model: Model
    database_url: str
    contents: Callable[[], bytes]
    events: list[Event] = field(default_factory=list[Event])

    @property
    def store(self) -> UserStore:
        """The store as the runs' owner sees it."""
        return self.runtime.store_of()

    @property
    def run_id(self) -> str:
        """The id of the run that began last."""
        return [event for event in self.events if event.kind == "run-start"][-1].run_id

    async def run(self, agent: Agent[Any], task: str = "Work.", **options: Any) -> RunResult:
        """Run a task and record its events."""
        return await self.runtime.run(agent, task, on_event=self.events.append, **options)

    async def resume(self, agent: Agent[Any]) -> RunResult:
        """Resume the run that began last."""
        return await self.runtime.resume(self.run_id, agent, on_event=self.events.append)

    async def row(self) -> Run:
        """Return the stored row of the run that began last."""
        return await self.store.runs.get(self.run_id)

    async def results(self, thread_id: str) -> list[tuple[str, str]]:
        """Return outcome and text of every call on the thread's branch."""
        from agent_runtime.messages import decode_result

        thread = await self.store.threads.get(thread_id)
        assert thread.head is not None
        nodes = await self.store.log.branch(thread_id, thread.head)
        decoded = [decode_result(call.body) for node in nodes for call in node.calls]
        return [(result.outcome, result.text) for result in decoded]


@dataclass
class Served(World):
    """A world whose model is a server on loopback."""

    server: OpenAIServer = field(default_factory=lambda: OpenAIServer(lambda request, n: Reply()))

    def billed(self, kind: str) -> int:
        """Return the server's own sum of a field of usage, such as `prompt_tokens`."""
        return sum(usage[kind] for usage in self.server.billed)

    def sent(self) -> list[list[dict[str, Any]]]:
        """Return the messages of every request."""
        return [request.json["messages"] for request in self.server.requests]


Serve: TypeAlias = Callable[..., AbstractAsyncContextManager[Served]]
Play: TypeAlias = Callable[..., AbstractAsyncContextManager[World]]


def in_turn(replies: Iterable[Reply]) -> Script:
    """Return a script that plays the replies, then repeats the last one."""
    played = list(replies)
    endless = itertools.chain(played, itertools.repeat(played[-1]))
    return lambda request, n: next(endless)


@pytest.fixture
def serve(
    database_url: str, database_contents: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> Serve:
    """Return a function that opens a runtime whose model is a server that plays replies.

    Retries do not wait, so only `retry-after` can delay a test.
    """
    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)
    monkeypatch.setenv("AGENT_RUNTIME_FORBID_REAL_MODELS", "1")

    @asynccontextmanager
    async def open_served(
        replies: Iterable[Reply] | Script,
        *,
        settings: dict[str, Any] | None = None,
        factor: float = 1.0,
        **options: Any,
    ) -> AsyncGenerator[Served]:
        script: Any = replies if callable(replies) else in_turn(replies)
        async with OpenAIServer(script, factor=factor) as server:
            options = {"base_url": server.base_url, "api_key": KEY, "retries": 2} | options
            model = NativeModel(options.pop("name", "openai/test"), **options)
            opened_with = Settings(
                database_url=database_url, **(REPEATING | FAILING | (settings or {}))
            )
            async with Runtime.open(opened_with, model=model) as runtime:
                yield Served(runtime, model, database_url, database_contents, server=server)

    return open_served


@pytest.fixture
def play(database_url: str, database_contents: Callable[[], bytes]) -> Play:
    """Return a function that opens a runtime whose model answers by a script."""

    @asynccontextmanager
    async def open_scripted(
        script: Iterable[Scripted] | ScriptFunction = (),
        *,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> AsyncGenerator[World]:
        model = ScriptedModel(script, **options)
        opened_with = Settings(
            database_url=database_url, **(REPEATING | FAILING | (settings or {}))
        )
        async with Runtime.open(opened_with, model=model) as runtime:
            yield World(runtime, model, database_url, database_contents)

    return open_scripted
