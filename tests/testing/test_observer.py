"""Scripted notes pass for a good model's: the first answer is accepted and keeps what was seen."""

from __future__ import annotations

from agent_runtime.memory.observational.observer.base import ObserverInput
from agent_runtime.memory.observational.observer.model import ModelObserver
from agent_runtime.memory.observational.reflector.base import plan_reflection
from agent_runtime.memory.observational.reflector.model import ModelReflector
from agent_runtime.messages import AssistantMessage, ToolCall, ToolResult, UserMessage
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import ScriptedModel
from agent_runtime.models.tokens import load_vocabulary
from agent_runtime.prompt.observation import Observation, ObservationLine, ObservationNotes
from agent_runtime.prompt.view import Entry
from agent_runtime.testing.observer import is_for_memory, notes_for

AT = 1_795_269_900.0
COLOURS = ("red", "green", "blue", "white", "black", "brown")
PAGES = 30
FAILS = 17


def answer(request: ModelRequest) -> str:
    """Answer as a server does that gets the request in OpenAI's form."""
    messages = [{"role": one.role, "content": one.text} for one in request.messages]
    sent = {"messages": messages}
    assert is_for_memory(sent)
    return notes_for(sent)


def read(number: int) -> Entry:
    """A call that reads a page, unlike any other."""
    call = ToolCall(f"call_{number}_0", "read_page", {"number": number})
    words = " ".join(f"{COLOURS[(number * n) % 6]}{n * number}" for n in range(60))
    outcome = "error" if number == FAILS else "ok"
    result = ToolResult(f"src/part_{number}.py: {words}", outcome)
    return Entry(number, number - 1, AssistantMessage("", (call,)), (result,), at=AT)


async def test_the_observers_first_answer_is_accepted_and_names_every_page() -> None:
    await load_vocabulary()
    model = ScriptedModel(answer)
    task = Entry(1, None, UserMessage("Read ORDER-7391. Never skip a page."), at=AT)
    entries = (task, *map(read, range(2, PAGES)))

    result = await ModelObserver(model, await model.info(), 60).observe(ObserverInput(entries))

    assert len(model.requests) == 1 and result.notes is not None
    lines = {line.text: line.priority for line in result.notes.lines}
    assert lines["User says: Read ORDER-7391. Never skip a page."] == "critical"
    for number in range(2, PAGES):
        found = [text for text in lines if f"src/part_{number}.py" in text]
        assert found and lines[found[0]] == ("important" if number == FAILS else "info")
    assert result.notes.task.startswith("Read ORDER-7391.")
    shown = sum(len(entry.results[0].text) for entry in entries[1:])
    assert 0.05 * shown < sum(map(len, lines)) < 0.25 * shown


async def test_the_reflectors_first_answer_is_within_its_goal_and_keeps_what_is_critical() -> None:
    await load_vocabulary()
    model = ScriptedModel(answer)
    parts: list[Observation] = []
    for part in range(4):
        lines = [
            ObservationLine("2026-11-21 14:05", "info", f"{read(number).results[0].text[:200]}")
            for number in range(part * 10 + 1, part * 10 + 11)
        ]
        lines.append(ObservationLine("2026-11-21 14:06", "critical", f"Keep table legacy_{part}."))
        first, last = part * 10 + 1, part * 10 + 10
        notes = ObservationNotes(tuple(lines), f"read part {part}")
        parts.append(Observation(part + 1, 0, first - 1 or None, first, last, notes))
    reflection = plan_reflection(parts, sum(part.tokens for part in parts))
    assert reflection is not None

    result = await ModelReflector(model, await model.info(), 60).reflect(reflection, [])

    assert len(model.requests) == 1
    critical = [line.text for line in result.notes.lines if line.priority == "critical"]
    assert critical[: len(reflection.parts)] == [
        f"Keep table legacy_{part}." for part in range(len(reflection.parts))
    ]
    assert any(line.priority == "info" for line in result.notes.lines)


def test_similar_messages_in_a_row_are_folded() -> None:
    body = "\n\n".join(
        f"[abc | node {n} | 2026-11-21 14:0{n} | agent]\nWaiting for build {n}."
        for n in range(1, 5)
    )
    text = f"The code is abc.\n\n<transcript abc>\n{body}\n</transcript abc>\n\nWrite the notes."

    assert notes_for({"messages": [{"role": "user", "content": text}]}) == (
        "2026-11-21 14:04 | info | Said by the agent: Waiting for build 4. (4 times alike)\n"
        "TASK: none\nNEXT: go on"
    )


def test_only_memory_asks_for_notes() -> None:
    notes = {"messages": [{"role": "user", "content": "The code is a1b2c3.\n\nThe transcript"}]}
    summary = {"messages": [{"role": "user", "content": "Summarize: The code is open."}]}
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}]}

    assert is_for_memory(notes) and not is_for_memory(notes | {"tools": [{"type": "function"}]})
    assert not is_for_memory(summary) and not is_for_memory(parts)


def test_an_agents_request_with_an_image_is_not_for_the_memory() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    for content in ([image], [image, {"type": "text", "text": "What is this?"}], None):
        assert not is_for_memory({"messages": [{"role": "user", "content": content}]})
