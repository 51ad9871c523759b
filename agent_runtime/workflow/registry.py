"""`App`: the agents and workflows of an application, by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Protocol

from agent_runtime.agent import Agent
from agent_runtime.errors import ConfigError, NotFound
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.run.queue.enqueue import Agents
from agent_runtime.workflow.definition import Workflow
from agent_runtime_storage.contract.records.log import Run


class Registry(Agents, Protocol):
    """What can be run, by name, and what continues a run; `App` is one.

    The first of its names is the default.
    """

    def named(self, name: str | None) -> Agent | Workflow:
        """Return what has this name, or the default. Raises `NotFound`."""
        ...

    def spec(self, name: str | None) -> Mapping[str, Any]:
        """Return what is stored with a run of it, to build it again; no secrets."""
        ...

    def of_run(self, run: Run) -> Agent | Workflow | None:
        """Return what continues a run; None for a run of another program."""
        ...


class Named(Mapping[str, Agent | Workflow]):
    """What a registry has, as a mapping by name; each look-up returns what the registry gives."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __getitem__(self, name: str) -> Agent | Workflow:
        if name not in self._registry.names:
            raise KeyError(name)
        return self._registry.named(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry.names)

    def __len__(self) -> int:
        return len(self._registry.names)


@dataclass(frozen=True, slots=True)
class App:
    """The agents and workflows of an application, by the names under which they are run.

        app = App(agents={"research": Agent(tools=[...])}, workflows={"report": report})

    `agent-runtime serve module:app` serves them, and sweeps continue their runs.

    Args:
        agents, workflows: each gets the name that it has here.
        name: of the application; it is stored with its runs, and only runs of the same application
            are continued.  Change it, or a name above, and older runs wait for their old name.
        version: of the code; queued runs begin, and go on, on workers of their version.
        continues: older versions whose queued runs move over to this one; those of others end on
            their own workers.

    Raises:
        ConfigError: there is nothing, or a name is there twice or empty.
    """

    agents: Mapping[str, Agent] = field(default_factory=dict[str, Agent])
    workflows: Mapping[str, Workflow] = field(default_factory=dict[str, Workflow])
    _: KW_ONLY
    name: str = "app"
    version: str = ""
    continues: Collection[str] = ()

    def __post_init__(self) -> None:
        if twice := sorted(self.agents.keys() & self.workflows.keys()):
            raise ConfigError(
                f"An agent and a workflow have the same name: {', '.join(twice)}.",
                cure="Rename one of them.",
            )
        if not (self.agents or self.workflows) or not all(self.names):
            raise ConfigError(
                "This `App` has nothing to run, or something without a name.",
                cure="Write `App(agents={'name': agent})`.",
            )
        # A stored run has only the agent's name, by which `of_run` has to find it.
        renamed = {name: replace(one, name=name) for name, one in self.agents.items()}
        object.__setattr__(self, "agents", renamed)
        flows = {name: replace(one, name=name) for name, one in self.workflows.items()}
        object.__setattr__(self, "workflows", flows)

    @property
    def program(self) -> str:
        return self.name

    @property
    def names(self) -> Sequence[str]:
        return [*self.agents, *self.workflows]

    @property
    def versions(self) -> Sequence[str]:
        return [self.version, *(one for one in self.continues if one != self.version)]

    def named(self, name: str | None) -> Agent | Workflow:
        """Return the agent or workflow of this name; None for the first. Raises `NotFound`."""
        wanted = self.names[0] if name is None else name
        found = self.agents.get(wanted) or self.workflows.get(wanted)
        if found is None:
            raise NotFound(
                f"There is no agent or workflow {wanted!r}.",
                cure=f"There are: {', '.join(self.names)}.",
            )
        return found

    def spec(self, name: str | None) -> Mapping[str, Any]:
        return {}

    def of_run(self, run: Run) -> Agent | Workflow | None:
        """Return what continues a run of this application; None for a run of another one."""
        spec = RunSpec.of(run)
        if spec.program != self.name:
            return None
        return self.workflows.get(run.agent) if spec.workflow else self.agents.get(run.agent)
