"""A step before it is closed: its open exchange, and what its answer cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_runtime.messages import AssistantMessage, ToolResult, encode_result, searchable
from agent_runtime.models.tokens import count_text
from agent_runtime_storage.contract.records.log import Amount, CallDone, NewEvent
from agent_runtime_storage.contract.records.usage import Usage

_COUNTED_CHARS = 200_000
"""Longer results are estimated: they are truncated when their exchange closes, and counted then."""


@dataclass(slots=True)
class Exchange:
    """An open exchange: its calls, the results so far by call index, and what was started.

    Attributes:
        at: when its answer was recorded, in seconds since the epoch.
        marked: the calls that the log has as started.
        started: those of them that have begun, or may have begun in a dead process.
        failed: results of calls that end the run; they are recorded when the exchange closes.
        asked: calls that ran until they asked a person something, before the run was suspended.
    """

    seq: int
    message: AssistantMessage
    at: float
    results: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])
    marked: set[int] = field(default_factory=set[int])
    started: set[int] = field(default_factory=set[int])
    failed: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])
    asked: set[int] = field(default_factory=set[int])

    @property
    def waiting(self) -> int:
        """The number of calls that have no result yet."""
        return len(self.message.calls) - len(self.results)

    def start_events(
        self, indices: Sequence[int]
    ) -> tuple[list[NewEvent], dict[int, dict[str, Any]]]:
        """Return the events of calls that start, and for each its data that is not stored."""
        calls = [self.message.calls[index] for index in indices]
        events = [
            NewEvent("tool-start", self.seq, {"call_id": call.id, "tool": call.name})
            for call in calls
        ]
        # The answer's node has the arguments.
        return events, {place: {"arguments": call.arguments} for place, call in enumerate(calls)}

    def done_row(self, index: int, result: ToolResult) -> CallDone:
        """Return the row of a call's result."""
        text = result.text
        return CallDone(
            node_id=self.seq,
            index=index,
            outcome=result.outcome,
            body=encode_result(result),
            tokens=count_text(text) if len(text) <= _COUNTED_CHARS else len(text) // 4,
            text=searchable(result, self.message.calls[index].name),
        )

    def finish_event(self, index: int, result: ToolResult, *, cut: bool) -> NewEvent:
        """Return the event of a call's end."""
        call = self.message.calls[index]
        data: dict[str, Any] = {
            "call_id": call.id,
            "tool": call.name,
            "outcome": result.outcome,
            "chars": len(result.text),
            "cut": cut,
        }
        if result.data:
            data["data"] = result.data
        return NewEvent("tool-finish", self.seq, data)

    def live_results(
        self, done: Mapping[int, ToolResult], first: int = 0
    ) -> dict[int, dict[str, Any]]:
        """Return what listeners get of results with their events, which the store does not repeat.

        Args:
            first: the index of the first result's event.
        """
        live: dict[int, dict[str, Any]] = {}
        for place, (index, result) in enumerate(done.items(), first):
            live[place] = {"result": result.text}
            if index not in self.marked:
                # No event of its beginning has said what it was called with.
                live[place]["arguments"] = self.message.calls[index].arguments
        return live


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
