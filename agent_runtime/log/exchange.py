"""An exchange under way, as its run's memory holds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_runtime.messages import AssistantMessage, ToolResult


@dataclass(slots=True)
class Exchange:
    """An exchange under way: its calls, by index the results so far, and what was started.

    Attributes:
        at: when its answer was recorded, in seconds since the epoch.
        failed: results of calls that end the run; they are recorded when the exchange closes.
    """

    seq: int
    message: AssistantMessage
    at: float
    results: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])
    started: set[int] = field(default_factory=set[int])
    failed: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])

    @property
    def waiting(self) -> int:
        """How many calls have no result yet."""
        return len(self.message.calls) - len(self.results)
