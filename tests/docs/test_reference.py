"""The reference pages are complete and current, and events match their schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from agent_runtime import (
    Agent,
    AnyEvent,
    Decision,
    Runtime,
    ScriptedEmbedder,
    ScriptedModel,
    Settings,
    tool,
)
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime_config import docs as settings_page
from docs.generate import __main__ as generate
from docs.generate import api
from docs.generate.events import schemas
from docs.generate.page import PAGES, replaced

API = PAGES / "reference" / "api"


def test_the_generated_pages_are_current() -> None:
    assert generate.main(["--check"]) == 0
    assert settings_page.main([str(PAGES / "settings.md"), "--check"]) == 0


def test_every_public_name_is_in_the_reference() -> None:
    pages = [*API.glob("*.md"), PAGES / "reference" / "errors.md"]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    shown = {line.removeprefix("::: ") for line in text.splitlines() if line.startswith("::: ")}
    names = {name.rpartition(".")[2] for name in shown}
    missing = [f"{module.__name__}.{name}" for module, name in api.public_names()]
    missing = [name for name in missing if name.rpartition(".")[2] not in names]
    assert not missing


def test_a_page_without_its_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        replaced("# Events\n", "text", "events.md")


@tool(needs_approval=True)
def deploy(version: str) -> str:
    """Deploy a version."""
    return f"{version} is live."


@tool
def read(name: str) -> str:
    """Read a long text."""
    return f"{name}: " + "The bridge was opened in 1998. " * 300


def answering() -> Callable[[ModelRequest], Scripted]:
    """Return a model's script: one call of each kind in the first run, then answers."""
    script: Iterator[Scripted] = iter(
        (
            call("plan", action="create", goal="Deploy", steps=[{"description": "Read"}]),
            call("delegate", role="counter", instructions="Count.", task_key="count"),
            call("read", name="a"),
            call("deploy", version="7"),
        )
    )

    def answer(request: ModelRequest) -> Scripted:
        sub_agent = request.messages[0].text.startswith("You are a sub-agent")
        return say("Three.") if sub_agent else next(script, say("Done."))

    return answer


async def test_events_have_the_fields_of_their_schema(tmp_path: Path) -> None:
    known = {schema_of_kind.kind: schema_of_kind for schema_of_kind in schemas()}
    seen: list[AnyEvent] = []
    agent = Agent(
        ScriptedModel(answering()),
        tools=[deploy, read],
        planning=True,
        delegation=True,
        asking=True,
    )
    settings = Settings(
        database_url=f"file:{tmp_path}/events.db",
        observer_model="extractive",
        observer_message_tokens=1000,
        last_messages=2,
    )

    async def allow(question: object) -> Decision:
        del question
        return Decision(True)

    async with Runtime.open(settings, embedder=ScriptedEmbedder()) as runtime:
        for task in ("Deploy version 7.", "When was the bridge opened?", "And deployed?"):
            await runtime.run(agent, task, thread="t", on_event=seen.append, on_question=allow)
            await runtime.memory.observe(agent, "t", on_event=seen.append)
    for event in seen:
        schema = known[event.kind]
        names = [name for name, _, _ in schema.fields]
        assert set(event.data) <= set(names), (event.kind, set(event.data) - set(names))
        always = set(names) - schema.optional
        assert always <= set(event.data), (event.kind, always - set(event.data))
        assert bool(event.id) is not schema.live, event.kind
        # Raises if a value is of another type than the documented one.
        TypeAdapter(schema.type).validate_python(dict(event.data), strict=True)
    expected = {"run-start", "answer", "tool-start", "tool-finish", "plan", "question"}
    expected |= {"run-suspend", "run-finish", "activation", "observation", "text-delta", "memory"}
    assert expected <= {event.kind for event in seen}
