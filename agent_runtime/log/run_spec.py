"""The spec of a run: what its row stores so that the run can be resumed.

The runtime's part and the caller's part are separate columns, so no key of a caller can be taken
for one of the runtime's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from agent_runtime_storage.contract.records.log import Run

COMMAND = "agent-runtime"
"""The program of the runs that the command line begins."""
WORKSPACE = "workspace"
"""The key of the folder in the command line's run specs and in the metadata of threads."""
_COMMAND_KEYS = {"model", WORKSPACE, "allow_shell", "max_steps"}
_UPKEEP = ("observe", "reflect")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DelegationRecord:
    """The call that began a sub-agent's run.

    Attributes:
        key: the task's key, under which its attempts are found.
        call: the id of the call, in the log of the run that delegated.
        place: the index of this task among those of the call that have the same key.
        depth: the number of sub-agents from the root down to this one, itself included.
        action, diagnosis, fix_applied: its entry in the log of attempts.
        background: whether it is a background run.
        waits: whether it may be suspended to ask a person: it is in the background, or the call,
            and every call above it, is suspended too.
        placed: of a run that any worker may begin, what its agent is built from.
        built: of a background run that its process begins, the same, for whoever resumes it.
        apart: whether it is a background run or below one, so that its root does not wait for it.
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
    placed: Mapping[str, Any] | None = None
    built: Mapping[str, Any] | None = None
    apart: bool = False

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> DelegationRecord | None:
        """Return the record that a spec's JSON holds; None if it cannot be read."""
        texts = ("key", "call", "action", "diagnosis", "fix_applied")
        # A row may come from an import or another version, so nothing in it is taken on trust.
        whole = all(isinstance(data.get(name), str) for name in texts)
        if not whole or not all(isinstance(data.get(name), int) for name in ("place", "depth")):
            return None
        known = {name: data[name] for name in (*texts, "place", "depth")}
        known |= {name: data.get(name) is True for name in ("background", "waits", "apart")}
        known |= {name: _mapping(data, name) for name in ("placed", "built")}
        return cls(**known)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What is stored with a run.

    Attributes:
        caller: what the program that began the run gave as `spec`; only that program reads it. The
            command line is such a program.
        user_context: what tools and workflows may know of the user; child runs inherit it.
        program: the program that began the run, which alone can build its agent again.
        workflow: whether a workflow drives it.
        upkeep: for a maintenance run of its thread's memory, what it does.
        delegation: for a sub-agent's run, the call that began it.
        node_memory: for a run with a node's memory, which one; see `run.node_memory`.
        node, iteration: for the run of a workflow's node, which one.
        trace: the span in which it began, as W3C's `traceparent`; empty without telemetry.
    """

    caller: Mapping[str, Any] = field(default_factory=dict[str, Any])
    user_context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    program: str = ""
    workflow: bool = False
    upkeep: str = ""
    delegation: DelegationRecord | None = None
    node_memory: Mapping[str, Any] | None = None
    node: str = ""
    iteration: int = 0
    trace: str = ""

    @classmethod
    def of(cls, run: Run) -> RunSpec:
        """Return the spec of a run, also of one that an earlier version began."""
        if run.internal is None:
            return cls._of_flat(run.spec)
        return cls._of_internal(run.internal, run.spec)

    @classmethod
    def _of_internal(cls, stored: Mapping[str, Any], caller: Mapping[str, Any]) -> RunSpec:
        iteration = stored.get("iteration")
        delegation = _mapping(stored, "delegation")
        return cls(
            caller=caller,
            user_context=_mapping(stored, "user_context") or {},
            program=_text(stored, "program"),
            workflow=stored.get("workflow") is True,
            upkeep=_text(stored, "upkeep"),
            delegation=None if delegation is None else DelegationRecord.of(delegation),
            node_memory=_mapping(stored, "node_memory"),
            node=_text(stored, "node"),
            iteration=iteration if isinstance(iteration, int) else 0,
            trace=_text(stored, "trace"),
        )

    @classmethod
    def _of_flat(cls, spec: Mapping[str, Any]) -> RunSpec:
        """Return the spec of a run whose row has both parts in one object."""
        stored = dict(spec)
        if stored.get("memory") in _UPKEEP:
            stored["upkeep"] = stored["memory"]
        # Only the command line stored all of these.
        stored["program"] = COMMAND if spec.keys() >= _COMMAND_KEYS else ""
        return cls._of_internal(stored, spec)

    def with_context(self, user_context: Mapping[str, Any] | None) -> RunSpec:
        """Return it with this JSON object as the user context, unless that is empty."""
        return replace(self, user_context=user_context) if user_context else self

    def internal(self) -> dict[str, Any]:
        """Return the runtime's part as the run's row stores it."""
        parts: dict[str, Any] = {
            "user_context": dict(self.user_context),
            "program": self.program,
            "workflow": self.workflow,
            "upkeep": self.upkeep,
            "delegation": self.delegation and asdict(self.delegation),
            "node_memory": self.node_memory,
            "node": self.node,
            "iteration": self.iteration,
            "trace": self.trace,
        }
        # Rows stay small: most runs have none of these.
        return {name: part for name, part in parts.items() if part}


def delegation_record(run: Run) -> DelegationRecord | None:
    """Return the call that began a run; None if the run is not a sub-agent's.

    A record that cannot be read gives None and a warning; the log of attempts then lacks that run.
    """
    record = RunSpec.of(run).delegation
    stored = run.spec if run.internal is None else run.internal
    if record is None and _mapping(stored, "delegation") is not None:
        _log.warning("The delegation record of run %s cannot be read.", run.id)
    return record


def _text(stored: Mapping[str, Any], name: str) -> str:
    value = stored.get(name)
    return value if isinstance(value, str) else ""


def _mapping(stored: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = stored.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None
