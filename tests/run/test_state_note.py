"""The state note: current state from parts of a program, repeated at each activation."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, ToolContext
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.run import state_note


class Script:
    """A script that calls a tool `steps` times and records its requests."""

    def __init__(self, steps: int = 60) -> None:
        self.steps = steps
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Scripted:
        """Answer."""
        self.requests.append(request)
        done = len(self.requests)
        return call("look", number=done) if done <= self.steps else say("Done.")


def look(number: int, context: ToolContext) -> str:
    """Look.

    Args:
        number: the part to look at.
    """
    context.deps.append(number)
    return f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20


def seen(context: ToolContext) -> str:
    """Report what was seen so far."""
    return f"Parts seen: {len(context.deps)} on thread {context.thread_id}."


async def open_questions(context: ToolContext) -> str | None:
    """Report an open question once there is one."""
    await anyio.lowlevel.checkpoint()
    return f"Open: is part {context.deps[-1]} the last?" if len(context.deps) > 30 else None


async def _run(runtime: Runtime, script: Script, *state: Any) -> list[Event]:
    events: list[Event] = []
    agent = Agent(ScriptedModel(script), tools=[look], last_messages=6, state=state)
    result = await runtime.run(agent, "Look.", on_event=events.append, deps=[], thread="t")
    assert result.ok
    return events


def _notes(script: Script) -> list[str]:
    """Return the user messages of each prompt, which begin with the state note."""
    return [
        "".join(message.text for message in request.messages[1:] if message.role == "user")
        for request in script.requests
    ]


async def test_each_activation_states_the_current_state(runtime: Runtime) -> None:
    script = Script()
    events = await _run(runtime, script, seen, open_questions)
    notes = _notes(script)
    causes = [event.data["cause"] for event in events if event.kind == "activation"]
    assert len(causes) > 2
    counts = {note.partition("Parts seen: ")[2].partition(" ")[0] for note in notes}
    # None before the second activation; then the state at each activation.
    assert len(counts - {""}) == len(causes) - 1
    assert "Open: is part" in notes[-1] and "thread t." in notes[-1]
    assert "Open: is part" not in next(note for note in notes if "Parts seen" in note)


async def test_the_note_does_not_change_between_two_activations(runtime: Runtime) -> None:
    script = Script()
    events = await _run(runtime, script, seen)
    changed = sum(
        before.messages != after.messages[: len(before.messages)]
        for before, after in zip(script.requests, script.requests[1:], strict=False)
    )
    assert changed <= sum(event.kind == "activation" for event in events)


async def test_the_note_is_fenced_as_the_runtimes(runtime: Runtime) -> None:
    script = Script()
    await _run(runtime, script, seen)
    before = _notes(script)[-1].partition("Parts seen: ")[0]
    assert before.rstrip().rpartition("\n")[2].startswith("<runtime-note ")


async def test_state_functions_that_fail_or_hang_are_skipped(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_note, "SECONDS", 0.05)

    def broken(context: ToolContext) -> str:
        raise ZeroDivisionError("the key is sk-secret")

    async def hanging(context: ToolContext) -> str:
        await anyio.sleep_forever()
        return "never"

    script = Script()
    await _run(runtime, script, broken, hanging, seen)
    assert "Parts seen: " in _notes(script)[-1]
    assert "broken failed: ZeroDivisionError" in caplog.text
    assert "hanging took longer" in caplog.text
    assert "sk-secret" not in caplog.text


async def test_the_note_cannot_fill_the_prompt(runtime: Runtime) -> None:
    script = Script()

    def endless(context: ToolContext) -> str:
        return "and so on " * 50_000

    await _run(runtime, script, endless)
    note = _notes(script)[-1]
    assert "more characters ...]" in note
    assert len(note) < 40_000
