"""Make the record of the call that begins a sub-agent's run."""

from __future__ import annotations

from agent_runtime.delegation.assignment import Assignment
from agent_runtime.log.run_spec import DelegationRecord
from agent_runtime.messages import encodable

MOST_CHARS = 1000
"""How much is kept of each text that the log of attempts says again."""


def record_delegation(
    assignment: Assignment,
    call: str,
    place: int,
    depth: int,
    *,
    background: bool = False,
    waits: bool = False,
) -> DelegationRecord:
    """Return what is kept of a call that begins a sub-agent's run."""
    return DelegationRecord(
        key=assignment.key,
        call=call,
        place=place,
        depth=depth,
        action=shortened(f"{assignment.role.strip()}: {assignment.instructions.strip()}"),
        diagnosis=shortened(assignment.diagnosis),
        fix_applied=shortened(assignment.fix_applied),
        background=background,
        waits=waits,
    )


def shortened(text: str, most: int = MOST_CHARS) -> str:
    """Return a text's beginning, on one line."""
    line = " ".join(encodable(text).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
