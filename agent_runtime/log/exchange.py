"""A step before it is closed: its open exchange, and what its answer cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent_runtime.messages import AssistantMessage, ToolResult
from agent_runtime_storage.contract.records.log import Amount, NewEvent
from agent_runtime_storage.contract.records.usage import Usage


@dataclass(slots=True)
class Exchange:
    """An open exchange: its calls, the results so far by call index, and what was started.

    Attributes:
        at: when its answer was recorded, in seconds since the epoch.
        marked: the calls that the log has as started.
        started: those of them that have begun, or may have begun in a dead process.
        failed: results of calls that end the run; they are recorded when the exchange closes.
    """

    seq: int
    message: AssistantMessage
    at: float
    results: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])
    marked: set[int] = field(default_factory=set[int])
    started: set[int] = field(default_factory=set[int])
    failed: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])

    @property
    def waiting(self) -> int:
        """The number of calls that have no result yet."""
        return len(self.message.calls) - len(self.results)


@dataclass(frozen=True, slots=True)
class Billing:
    """What is recorded with a model's answer.

    Attributes:
        spent: counts against budgets as reported.
        lost: bounds attempts that may be billed without a report.
        event: the `answer` event.
    """

    usage: Usage
    spent: Amount
    lost: Amount
    event: NewEvent

    def without_node(self) -> Billing:
        """Return the billing of an answer that gets no node, because it said nothing."""
        usage = replace(self.usage, node_id=None)
        return replace(self, usage=usage, event=replace(self.event, node_id=None))
