"""When a step's model calls began and answered, and why they were made again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from agent_runtime.errors import ModelError
from agent_runtime.log.live_events import live_event
from agent_runtime.models.base import LiveEvent, ReasoningDelta, Retrying, TextDelta
from agent_runtime_storage.contract.records.log import NewEvent

MOST_RETRIES = 20
"""How many causes are kept: an outage may last for hours."""
CAUSE_CHARS = 300


@dataclass(slots=True)
class CallTiming:
    """The calls that led to one answer, by this machine's clock.

    Attributes:
        began_at: when the first of them began; None before it.
        first_at: when the last of them gave its first token; None before it.
        retries: how many failed.
        causes: why, of the last ones.
    """

    began_at: float | None = None
    first_at: float | None = None
    retries: int = 0
    causes: list[str] = field(default_factory=list[str])

    def begin(self) -> None:
        """Note that a call begins."""
        # The first call's beginning stays: users wait from there on, whatever the number of
        # tries.
        self.began_at, self.first_at = self.began_at or time.time(), None

    def live_event(self, event: LiveEvent) -> NewEvent:
        """Note a part of an answer or a retry, and return its event for listeners."""
        if isinstance(event, Retrying):
            self._failed(event.reason)
        elif self.first_at is None and isinstance(event, TextDelta | ReasoningDelta):
            self.first_at = time.time()
        return live_event(event)

    def failed(self, error: ModelError) -> None:
        """Note that a call ended with an error, for which the step may make another."""
        self._failed(error.message)

    def _failed(self, reason: str) -> None:
        self.first_at, self.retries = None, self.retries + 1
        self.causes = [*self.causes, reason[:CAUSE_CHARS]][-MOST_RETRIES:]

    def take(self) -> dict[str, Any]:
        """Return the fields of the `answer` event, and start over."""
        now, began = time.time(), self.began_at
        data: dict[str, Any] = {"began_at": began, "first_token_at": self.first_at}
        # Not negative, if the clock was set back meanwhile.
        data["seconds"] = None if began is None else round(max(now - began, 0.0), 3)
        if self.retries:
            data |= {"retries": self.retries, "retry_causes": self.causes}
        self.began_at, self.first_at, self.retries, self.causes = None, None, 0, []
        return {name: value for name, value in data.items() if value is not None}
