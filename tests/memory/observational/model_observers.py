"""Observers with scripted models, and what they read."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime.memory.observational.observer.base import ObserverFailed, ObserverInput
from agent_runtime.memory.observational.observer.model import (
    ModelObserver,
)
from agent_runtime.messages import (
    AssistantMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    call_id,
)
from agent_runtime.models.base import (
    ModelRequest,
    Price,
)
from agent_runtime.models.scripted import ScriptedModel
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes
from agent_runtime.prompt.view import Entry

AT = 1_795_269_900.0
WHEN = "2026-11-21 14:05"
GOOD = f"{WHEN} | critical | User wants port 8443.\nTASK: set the port\nNEXT: edit app.yaml"
NOTES = ObservationNotes(
    (ObservationLine(WHEN, "critical", "User wants port 8443."),), "set the port", "edit app.yaml"
)
PRICE = Price(input=3000, output=15000, cache_read=300, cache_write=3750)


def user(seq: int, text: str) -> Entry:
    """Return a user's message."""
    return Entry(seq, seq - 1 or None, UserMessage(text), at=AT)


def exchange(seq: int, result: str) -> Entry:
    """Return a call and its result."""
    made = (ToolCall(call_id(seq, 0), "read", {"path": "app.yaml"}),)
    return Entry(seq, seq - 1, AssistantMessage("", made), (ToolResult(result),), at=AT)


ASKED = "Please set the port of the service in app.yaml to 8443; it must not stay at 8080."
INTERVAL = ObserverInput((user(1, ASKED), exchange(2, "port: 8080\n" * 20)))
QUIET = ObserverInput((exchange(2, "port: 8080\n" * 20),))


async def observer(script: Any, **options: Any) -> tuple[ModelObserver, ScriptedModel]:
    """Return an Observer of a scripted model, and the model."""
    names = ("window", "delay", "name", "price")
    given: dict[str, Any] = {"price": PRICE} | {
        key: options.pop(key) for key in names if key in options
    }
    model = ScriptedModel(script, **given)
    options = {"timeout": 600.0, "wait": 0.0} | options
    return ModelObserver(model, await model.info(), **options), model


async def fails(script: Any, interval: ObserverInput = INTERVAL, **options: Any) -> ObserverFailed:
    """Return the error of an observer that must fail."""
    watcher, _ = await observer(script, **options)
    with pytest.raises(ObserverFailed) as caught:
        await watcher.observe(interval)
    return caught.value


def sent_to(request: ModelRequest) -> str:
    """Return the message that a request sends."""
    return request.messages[1].text
