"""What a model's stream tells listeners while it runs; none of it is recorded."""

from __future__ import annotations

from agent_runtime.models.base import (
    LiveEvent,
    ReasoningDelta,
    Retrying,
    SettingIgnored,
    TextDelta,
    Waiting,
)
from agent_runtime_storage.contract.records.log import NewEvent


def live_event(event: LiveEvent) -> NewEvent:
    """Return the event of a part of an answer, of a retry or of a wait, for listeners only."""
    match event:
        case TextDelta(text):
            return NewEvent("text-delta", data={"text": text})
        case ReasoningDelta(text):
            return NewEvent("reasoning-delta", data={"text": text})
        case Retrying(reason, attempt, wait):
            data = {"reason": reason, "attempt": attempt, "wait": wait}
            return NewEvent("model-retry", data=data)
        case Waiting(reason, wait):
            return NewEvent("model-wait", data={"reason": reason, "wait": wait})
        case SettingIgnored(name):
            return NewEvent("setting-ignored", data={"setting": name})
