"""What the cases of attacks share: databases, folders, agents and direct calls of tools."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agent_runtime import Agent, Event, RunResult, Runtime, ScriptedModel, Settings, Tool
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime_storage.urls import Backend
from tests.tools.calling import call

SECRET = "hunter2-hunter2"
"""What no attack may show."""


class Call(NamedTuple):
    """What a tool answered."""

    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class World:
    """What cases work with.

    Attributes:
        make: returns the URL of a new database.
        folder: for files of the cases.
    """

    make: Callable[[Backend], str]
    folder: Path

    def new_folder(self) -> Path:
        """Return a new empty folder."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    @asynccontextmanager
    async def runtime(self, backend: Backend = "file", **settings: Any) -> AsyncGenerator[Runtime]:
        """Open a runtime on a new database."""
        given: dict[str, Any] = {"database_url": self.make(backend), "loop_limit": 0, **settings}
        async with Runtime.open(Settings(**given)) as runtime:
            yield runtime


class Workspace:
    """A workspace next to a secret, and its tools."""

    def __init__(self, world: World, **options: Any) -> None:
        self.above = world.new_folder()
        (self.above / "secret.txt").write_text(SECRET)
        self.root = self.above / "workspace"
        self.root.mkdir()
        self._options = options

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools as an agent gets them now."""
        return workspace_tools(self.root, **self._options)

    async def call(self, name: str, **arguments: Any) -> Call:
        """Call a tool as the loop does."""
        [tool] = [one for one in self.tools if one.name == name]
        result = await call(tool, **arguments)
        return Call(result.outcome == "ok", result.text)

    def outside(self) -> list[str]:
        """Return the files and folders next to the workspace."""
        return sorted(path.name for path in self.above.iterdir())


async def play(
    runtime: Runtime, script: Any, tools: Sequence[Any] = (), *, task: str = "Work.", **options: Any
) -> tuple[RunResult, ScriptedModel, list[Event]]:
    """Run a scripted agent on the thread `t`; return its result, its model and its events."""
    model, events = ScriptedModel(script), list[Event]()
    agent = Agent(model, tools=list(tools), **options)
    result = await runtime.run(agent, task, thread="t", on_event=events.append)
    return result, model, events
