"""What is kept with a run to go on with it: the runtime's part, and the caller's own part apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from agent_runtime_storage.contract.records import Run

COMMAND = "agent-runtime"
"""The program of the runs that the command line begins."""
_COMMAND_KEYS = {"model", "workspace", "allow_shell", "max_steps"}
_UPKEEP = ("observe", "reflect")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What is kept with a run.

    Attributes:
        caller: what the program that began the run gave as `spec`; only that program reads it, of
            the runtime its command line.
        user_context: what tools and workflows may know of the user; child runs inherit it.
        program: the program that began the run, which alone can build its agent again.
        workflow: whether a workflow drives it.
        upkeep: for a run that only looks after its thread's memory, what it does there.
        delegation: for a sub-agent's run, the call that began it; see `delegation.record`.
        node_memory: for a run with a node's memory, which one; see `memory.node_runs`.
        node, iteration: for the run of a workflow's node, which one.
    """

    caller: Mapping[str, Any] = field(default_factory=dict[str, Any])
    user_context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    program: str = ""
    workflow: bool = False
    upkeep: str = ""
    delegation: Mapping[str, Any] | None = None
    node_memory: Mapping[str, Any] | None = None
    node: str = ""
    iteration: int = 0

    @classmethod
    def of(cls, run: Run) -> RunSpec:
        """Return what is kept with a run, also with one that an earlier version began."""
        if run.internal is None:
            return cls._of_flat(run.spec)
        return cls._of_internal(run.internal, run.spec)

    @classmethod
    def _of_internal(cls, kept: Mapping[str, Any], caller: Mapping[str, Any]) -> RunSpec:
        iteration = kept.get("iteration")
        return cls(
            caller=caller,
            user_context=_mapping(kept, "user_context") or {},
            program=_text(kept, "program"),
            workflow=kept.get("workflow") is True,
            upkeep=_text(kept, "upkeep"),
            delegation=_mapping(kept, "delegation"),
            node_memory=_mapping(kept, "node_memory"),
            node=_text(kept, "node"),
            iteration=iteration if isinstance(iteration, int) else 0,
        )

    @classmethod
    def _of_flat(cls, spec: Mapping[str, Any]) -> RunSpec:
        """Return the spec of a run whose row has both parts in one object."""
        kept = dict(spec)
        if kept.get("memory") in _UPKEEP:
            kept["upkeep"] = kept["memory"]
        # Only the command line kept all of these.
        kept["program"] = COMMAND if spec.keys() >= _COMMAND_KEYS else ""
        return cls._of_internal(kept, spec)

    def with_context(self, user_context: Mapping[str, Any] | None) -> RunSpec:
        """Return it with what may be known of the user, a JSON object, if there is something."""
        return replace(self, user_context=user_context) if user_context else self

    def internal(self) -> dict[str, Any]:
        """Return the runtime's part as the run's row keeps it."""
        parts: dict[str, Any] = {
            "user_context": dict(self.user_context),
            "program": self.program,
            "workflow": self.workflow,
            "upkeep": self.upkeep,
            "delegation": self.delegation,
            "node_memory": self.node_memory,
            "node": self.node,
            "iteration": self.iteration,
        }
        return {name: part for name, part in parts.items() if part}


def _text(kept: Mapping[str, Any], name: str) -> str:
    value = kept.get(name)
    return value if isinstance(value, str) else ""


def _mapping(kept: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = kept.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None
