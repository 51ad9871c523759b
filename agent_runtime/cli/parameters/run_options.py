"""The options of a run, which every command that runs the agent takes alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agent_runtime.cli.agents import Spec
from agent_runtime.cli.answer_prompt import can_ask
from agent_runtime.cli.display.view import remark, view_options
from agent_runtime.cli.options import Positive
from agent_runtime.cli.parameters.confinement import Confinement, confinement_parameters
from agent_runtime.cli.parameters.env_file import env_file_option
from agent_runtime.cli.parameters.instructions import instructions_option, read_instructions
from agent_runtime.cli.parameters.mcp import MCP_PARAMETERS, McpChoice
from agent_runtime.cli.parameters.tool_presets import check_tools, tools_option
from agent_runtime.cli.terminal import say
from agent_runtime_config.limits import MAX_DOLLARS, MAX_SECONDS

if TYPE_CHECKING:
    from agent_runtime_config import Settings

F = TypeVar("F", bound=Callable[..., Any])

NO_MODEL = (
    "No language model is set. The offline model can only survey a folder and write a report of "
    "it. To use a language model set AGENT_RUNTIME_MODEL=anthropic/claude-sonnet-4-5 (any litellm "
    "name) and its provider's key, such as ANTHROPIC_API_KEY."
)
KEPT_OFFLINE = (
    "The run keeps the offline model, with which it began; --model {} gives it the language model "
    "that is set."
)
NO_FILES = "The agent has no file tools; --workspace PATH gives it tools for that folder."
UNSANDBOXED = ("", "none")


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """What the options of a run say; None, or empty, where an option was not given.

    Attributes:
        budget_usd: the most dollars of the run and its sub-agents.
        timeout: the most seconds of an execution of the run.
        allow_web: whether the agent may read web pages.
        instructions: a file of the user's standing instructions.
        tools: the preset of tools for the workspace.
        confinement: what commands may see and reach.
        mcp: the MCP servers.
    """

    model: str | None = None
    workspace: str | None = None
    max_steps: int | None = None
    budget_usd: float | None = None
    timeout: float | None = None
    allow_shell: bool | None = None
    ask_shell: bool | None = None
    read_only: bool | None = None
    allow_web: bool | None = None
    instructions: Path | None = None
    tools: str | None = None
    confinement: Confinement = dataclasses.field(default_factory=Confinement)
    mcp: McpChoice = dataclasses.field(default_factory=McpChoice)

    @property
    def permits(self) -> bool:
        """Whether an option says what the agent may do."""
        given = self.workspace, self.allow_shell, self.ask_shell, self.read_only, self.allow_web
        composed = self.confinement != Confinement() or self.mcp != McpChoice()
        return composed or any(one is not None for one in given)

    def new_spec(self, settings: Settings) -> Spec:
        """Return the spec of a new run, and say what it lacks.

        Raises:
            click.UsageError: options contradict each other.
            ConfigError: the sandbox cannot be used on this machine.
        """
        model = self.model or settings.model or ""
        text = read_instructions(self.instructions, settings)
        given = Spec(model, allow_web=settings.allow_web, instructions=text, tools=settings.tools)
        spec = self.on(given, settings)
        if self.mcp == McpChoice():
            spec = self.mcp.on(spec)
        if spec.workspace is None:
            remark(NO_FILES)
        # Without a terminal nobody would answer, and the run would be suspended.
        return dataclasses.replace(spec, asking=bool(spec.model) and can_ask())

    def on(self, spec: Spec, settings: Settings) -> Spec:
        """Return the spec of an earlier run, changed by these options, and say what it lacks.

        What no option names stays as it is; the settings change nothing that a run may do.

        Raises:
            click.UsageError: options contradict each other or the run.
            ConfigError: the sandbox cannot be used on this machine.
        """
        from agent_runtime.models import OFFLINE

        self._check()
        name = self.model or spec.model
        shell = _given(self.allow_shell, self.ask_shell or spec.allow_shell)
        changed = dataclasses.replace(
            spec,
            model="" if name in OFFLINE else name,
            workspace=self.workspace or spec.workspace,
            max_steps=self.max_steps or spec.max_steps,
            timeout=self.timeout or spec.timeout,
            allow_shell=shell,
            ask_shell=shell and _given(self.ask_shell, spec.ask_shell),
            read_only=_given(self.read_only, spec.read_only),
            allow_web=_given(self.allow_web, spec.allow_web),
            instructions=spec.instructions
            if self.instructions is None
            else read_instructions(self.instructions, settings),
            tools=self.tools or spec.tools,
        )
        if changed.allow_shell and changed.read_only:
            raise click.UsageError(
                "A run that may only read cannot run commands, which can write: give "
                "--no-read-only or --no-allow-shell as well."
            )
        if changed.allow_shell and changed.workspace is None:
            option = "--ask-shell" if self.ask_shell else "--allow-shell"
            raise click.UsageError(f"{option} needs --workspace, the folder that commands run in.")
        check_tools(changed, self.tools)
        if not changed.model:
            say(KEPT_OFFLINE.format(settings.model) if settings.model else NO_MODEL)
        changed = self.confinement.on(changed, settings)
        return self.mcp.on(changed) if self.mcp != McpChoice() else changed

    def _check(self) -> None:
        """Refuse options that contradict each other."""
        if self.read_only and (self.allow_shell or self.ask_shell):
            raise click.UsageError("--read-only excludes commands, which can write.")
        if self.allow_shell is False and self.ask_shell:
            raise click.UsageError("Give either --ask-shell or --no-allow-shell, not both.")

    def limited(self, settings: Settings, spec: Spec) -> Settings:
        """Return the settings with the run's limits."""
        given = {"budget_usd": self.budget_usd, "run_timeout": spec.timeout}
        return settings.model_copy(update={k: v for k, v in given.items() if v is not None})


def run_options(function: F) -> F:
    """Add the options of a run to a command, which gets them as `options`."""

    @wraps(function)
    def with_options(
        *args: Any,
        sandbox: str | None,
        sandbox_network: bool | None,
        environment: tuple[str, ...],
        mcp_config: str | None,
        no_mcp: bool,
        **given: Any,
    ) -> Any:
        names = {field.name for field in dataclasses.fields(RunOptions)} - {"confinement", "mcp"}
        own = {name: given.pop(name) for name in names}
        confinement = Confinement(sandbox, sandbox_network, environment)
        options = RunOptions(**own, confinement=confinement, mcp=McpChoice(mcp_config, no_mcp))
        return function(*args, options=options, **given)

    decorated: Any = view_options(with_options)
    others = (*confinement_parameters(), *MCP_PARAMETERS, *_FILES)
    for one in reversed((*_PARAMETERS, *others)):
        decorated = one(decorated)
    return decorated


_FILES = (tools_option, instructions_option, env_file_option)
_PARAMETERS: tuple[Callable[[Any], Any], ...] = (
    click.option("--model", help="A litellm name, or `offline`; by default AGENT_RUNTIME_MODEL."),
    click.option(
        "--workspace",
        type=click.Path(exists=True, file_okay=False, resolve_path=True),
        help="The folder for the agent's file tools; without it the agent has none.",
    ),
    click.option(
        "--max-steps",
        type=click.IntRange(min=1),
        help="The most model calls; by default the setting, 500.",
    ),
    click.option(
        "--budget-usd",
        type=Positive(MAX_DOLLARS),
        help="The most dollars that the run and its sub-agents may cost together.",
    ),
    click.option(
        "--timeout",
        type=Positive(MAX_SECONDS),
        help="The most seconds that the run may take; by default the setting, no limit.",
    ),
    click.option(
        "--allow-shell/--no-allow-shell",
        default=None,
        help="Let the agent run commands in the workspace; --sandbox confines them.",
    ),
    click.option(
        "--ask-shell/--no-ask-shell",
        default=None,
        help="The same, but every command waits for your approval.",
    ),
    click.option(
        "--read-only/--no-read-only",
        default=None,
        help="Let the agent read the workspace, and change nothing in it.",
    ),
    click.option(
        "--allow-web/--no-allow-web",
        default=None,
        help="Let the agent read web pages; AGENT_RUNTIME_WEB_DOMAINS says which.",
    ),
)


def widened(before: Spec, after: Spec) -> Iterator[str]:
    """Yield what an agent may do by a changed spec that it could not do before."""
    if after.workspace != before.workspace:
        yield f"use the files of {after.workspace}"
    if after.allow_shell and not before.allow_shell:
        yield "run commands"
    if before.allow_shell and before.ask_shell and not after.ask_shell and after.allow_shell:
        yield "run commands without asking"
    if after.allow_shell:
        if after.sandbox in UNSANDBOXED and before.sandbox not in UNSANDBOXED:
            yield "run commands outside of a sandbox"
        if after.sandbox_network and not before.sandbox_network:
            yield "use the network in commands"
        if names := [name for name in after.environment if name not in before.environment]:
            yield f"read {', '.join(names)} in commands"
    if before.read_only and not after.read_only:
        yield "change files"
    if after.tools != before.tools:
        yield f"use the tools of {after.tools}"
    if after.allow_web and not before.allow_web:
        yield "read web pages"
    if after.mcp and (not before.mcp or after.mcp_config != before.mcp_config):
        yield "use the tools of MCP servers"


def say_widened(before: Spec, after: Spec) -> None:
    """Say what the agent may do by a changed spec that it could not do before."""
    if more := list(widened(before, after)):
        say(f"From now on the agent may also: {'; '.join(more)}.")


def describe_limits(settings: Settings) -> str:
    """Return the limits of a run other than its steps, and the options that set more."""
    dollars = {
        "${:g} for this run": settings.budget_usd,
        "${:g} for the thread": settings.thread_budget_usd,
        "${:g} a day": settings.day_budget_usd,
    }
    steps = "step" if settings.budget_steps == 1 else "steps"
    others = {
        "{:,} tokens for this run": settings.budget_tokens,
        "{:,} tokens for the thread": settings.thread_budget_tokens,
        "{:,} tokens a day": settings.day_budget_tokens,
        f"{{:,}} {steps} with its sub-agents": settings.budget_steps,
    }
    seconds = {
        "{:g} s": settings.run_timeout,
        "{:g} s in all": settings.budget_seconds,
    }
    parts = [
        _known(dollars) or "no budget (--budget-usd sets one)",
        _known(others),
        _known(seconds) or "no time limit (--timeout sets one)",
    ]
    return f"Limits other than steps: {'; '.join(filter(None, parts))}."


def _known(limits: Mapping[str, float | None]) -> str:
    return " and ".join(text.format(most) for text, most in limits.items() if most is not None)


def _given(option: bool | None, otherwise: bool) -> bool:
    return otherwise if option is None else option
