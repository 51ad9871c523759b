"""What is committed with an observation: its event and the usage of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.observational.observer.base import MemoryCall
from agent_runtime.models.cost import usage_of
from agent_runtime.prompt.observation import Observation
from agent_runtime_storage.contract.records.log import Amount, NewEvent
from agent_runtime_storage.contract.records.usage import Usage


def observation_event(written: Observation, of: int, why: str, *, again: bool = False) -> NewEvent:
    """Return the event of a committed observation.

    Args:
        of: tokens of what it replaces, in our count.
        why: why the Observer's or Reflector's own notes are not used; empty if they are.
        again: whether it replaces a provisional observation.
    """
    data = {
        "level": written.level,
        "first": written.first,
        "last": written.last,
        "tokens": written.tokens,
        "of": of,
        "origin": written.origin,
        "provisional": written.provisional,
        "again": again,
        "why": why,
    }
    return NewEvent("observation", written.last, data)


def usage_rows(
    log: RunLog, calls: Sequence[MemoryCall], purpose: str, node_id: int | None
) -> list[Usage]:
    """Return the usage rows of model calls that memory made for a run."""
    rows = [
        usage_of(
            call.answer,
            run_id=log.lease.run_id,
            root_run_id=log.lease.root_run_id,
            node_id=node_id,
            counted=call.counted,
            bound=Amount(call.counted, 0),
        )
        for call in calls
    ]
    return [replace(row, purpose=purpose) for row in rows]


def unreported(calls: Sequence[MemoryCall]) -> bool:
    """Return whether an attempt without reported usage may be billed."""
    # An answer without usage was billed by an unknown amount, and so were lost attempts before it.
    return any(call.answer.usage is None or call.answer.lost for call in calls)
