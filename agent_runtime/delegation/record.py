"""What a sub-agent's run keeps of the call that began it, as a part of its spec."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass

from agent_runtime.delegation.assignment import Assignment
from agent_runtime.log.run_spec import RunSpec
from agent_runtime_storage.contract.records import Run

MOST_CHARS = 1000
"""How much is kept of each text that the log of attempts says again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    """The call that began a sub-agent's run.

    Attributes:
        key: of the task, the same for writing and for reading its log.
        call: the id of the call, in the log of the run that asked.
        place: which one of this key it was in that call.
        depth: how many sub-agents are above it, itself included.
        action, diagnosis, fix_applied: what the log of attempts says of it.
        background: whether nobody waits for it.
        waits: whether the call, and all above it, wait where a person has to be asked.
    """

    key: str
    call: str
    place: int
    depth: int
    action: str
    diagnosis: str = ""
    fix_applied: str = ""
    background: bool = False
    waits: bool = False

    def spec(self) -> RunSpec:
        """Return what is kept with the run."""
        return RunSpec(delegation=asdict(self))


def record_of(run: Run) -> Record | None:
    """Return what a run keeps of the call that began it; None if it is no sub-agent's.

    One that cannot be read is passed over, with a warning: an attempt less is known then.
    """
    data = RunSpec.of(run).delegation
    if data is None:
        return None
    texts = ("key", "call", "action", "diagnosis", "fix_applied")
    whole = all(isinstance(data.get(name), str) for name in texts)
    if whole and all(isinstance(data.get(name), int) for name in ("place", "depth")):
        known = {name: data[name] for name in (*texts, "place", "depth")}
        background, waits = data.get("background") is True, data.get("waits") is True
        return Record(**known, background=background, waits=waits)
    _log.warning("What run %s keeps of its delegation cannot be read.", run.id)
    return None


def key_of(spec: RunSpec) -> str:
    """Return the key under which a run with this spec was delegated; empty if it was not."""
    key = (spec.delegation or {}).get("key")
    return key if isinstance(key, str) else ""


def recorded(
    assignment: Assignment,
    call: str,
    place: int,
    depth: int,
    *,
    background: bool = False,
    waits: bool = False,
) -> Record:
    """Return what is kept of a call that begins a sub-agent's run."""
    return Record(
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
    from agent_runtime.messages import encodable

    line = " ".join(encodable(text).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
