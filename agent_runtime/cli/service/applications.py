"""What `agent-runtime serve` serves: an application of a module, or the command line's agent."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agent_runtime_config.log_filter import mask_secrets

if TYPE_CHECKING:
    from agent_runtime.agent import Agent
    from agent_runtime.cli.agents import Spec
    from agent_runtime.workflow.definition import Workflow
    from agent_runtime.workflow.registry import Registry
    from agent_runtime_storage.contract.records.log import Run


def load_app(target: str) -> Registry:
    """Return the `App` that `module:name` names; a single agent or workflow is one as well.

    Raises:
        ConfigError: there is no such module or name, or it is something else.
    """
    from agent_runtime.agent import Agent
    from agent_runtime.errors import ConfigError
    from agent_runtime.workflow.definition import Workflow
    from agent_runtime.workflow.registry import App

    found = load_named(target if ":" in target else f"{target}:app", "APP")
    if isinstance(found, Agent):
        agent = cast("Agent[Any]", found)
        return App(agents={agent.name: agent}, name=target)
    if isinstance(found, Workflow):
        return App(workflows={found.name: found}, name=target)
    if not isinstance(found, App):
        raise ConfigError(
            f"{target!r} names no `App`, agent or workflow.",
            cure="Write `app = App(agents={...})` in the module, and name it: `module:app`.",
        )
    return found


def load_named(target: str, parameter: str) -> Any:
    """Return what `module:name` names, or None where the module has no such name.

    Args:
        target: a module of the current folder, or an installed one, and a name in it.
        parameter: where the user wrote it, for the error.

    Raises:
        ConfigError: there is no such module, or it cannot be imported.
    """
    from agent_runtime.errors import ConfigError, text_of

    module, _, names = target.partition(":")
    missing = ConfigError(
        f"There is no module {module!r}.",
        cure=f"Write {parameter} as `module:name`, in the folder of the module.",
    )
    if not all(part.isidentifier() for part in module.split(".")):
        raise missing
    try:
        with _modules_of_this_folder():
            found: Any = importlib.import_module(module)
        for part in names.split("."):
            found = getattr(found, part, None)
    # A module that ends the process would end this one without a word, or with any text.
    except (Exception, SystemExit) as error:
        # Another missing module is an error of the application, and shown as such.
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        if name is not None and f"{module}.".startswith(f"{name}."):
            raise missing from error
        said = f"{type(error).__name__}: {mask_secrets(text_of(error))}"
        raise ConfigError(
            f"{target!r} cannot be imported: {said}",
            cure="Correct the module; `agent-runtime --debug ...` shows where it failed.",
        ) from error
    return found


@contextmanager
def _modules_of_this_folder() -> Generator[None]:
    """Let modules of the current folder come first, and afterwards last.

    As by `python -m`, an application is a module of the folder that one is in.  Later it must not
    come first: an agent may write there, and what is imported only when it is used would be its
    file of that name.
    """
    here = str(Path.cwd())
    if here in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        sys.path.append(here)


@dataclass(frozen=True, slots=True)
class CommandApp:
    """The command line's own agent, as `agent-runtime run` builds it."""

    options: Spec

    @property
    def program(self) -> str:
        from agent_runtime.log.run_spec import COMMAND

        return COMMAND

    @property
    def names(self) -> Sequence[str]:
        return ["agent"]

    @property
    def versions(self) -> Sequence[str]:
        return [""]

    def named(self, name: str | None) -> Agent | Workflow:
        from agent_runtime.cli.agents import build_agent
        from agent_runtime.errors import NotFound

        if name not in (None, "agent"):
            raise NotFound(f"There is no agent {name!r}.", cure="There is: agent.")
        return build_agent(self.options)

    def spec(self, name: str | None) -> Mapping[str, Any]:
        return self.options.to_json()

    def of_run(self, run: Run) -> Agent | Workflow | None:
        """Return the agent of a run that the command line began with what this one may do.

        A run that may do more was allowed to by somebody else, who resumes it.
        """
        from agent_runtime.cli.agents import Spec, build_agent, is_of_command
        from agent_runtime.cli.parameters.run_options import widened

        if not is_of_command(run):
            return None
        spec = Spec.from_json(run.spec)
        return None if any(widened(self.options, spec)) else build_agent(spec)
