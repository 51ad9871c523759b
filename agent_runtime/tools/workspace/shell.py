"""The tools `bash` and `bash_output`: run commands in the workspace, also in the background."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Awaitable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
from pydantic import Field

from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolResult, encodable
from agent_runtime.tools.base import NeedsApproval, Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.function import FunctionTool, tool
from agent_runtime.tools.workspace.background_commands import BackgroundCommand
from agent_runtime.tools.workspace.command_output import CommandOutput, asks_for_input
from agent_runtime.tools.workspace.command_process import CommandEnd, Supervised
from agent_runtime.tools.workspace.command_script import read_state, script
from agent_runtime.tools.workspace.environment import command_environment
from agent_runtime.tools.workspace.root import show
from agent_runtime.tools.workspace.sandbox.base import Launch
from agent_runtime.tools.workspace.sandbox.choose import CommandSettings, check_sandbox, sandbox_of
from agent_runtime.tools.workspace.shell_session import (
    SessionStart,
    ShellSession,
    folder_text,
)
from agent_runtime_config.sandbox import VARIABLE

DEFAULT_SECONDS = 120.0
"""How long a command may take that asks for no other time."""
MOST_SECONDS = 600.0
"""How long a command may take at most, by default."""
START_SECONDS = 0.5
"""How long a command in the background is watched before the call returns."""
MOST_TOKENS = 4000
"""How much of an output prompts show; `recall` opens the rest."""
_LIMITS = "default 120, at most 600"
NO_INPUT = (
    "It had no input and no terminal. If it asked for something, pass it by an option, a pipe or a "
    "variable (such as `--yes`)."
)


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """What a program chooses for the commands of a workspace; None leaves it to the settings.

    Attributes:
        variables: names of variables, in addition to those of the settings.

    Raises:
        ConfigError: a name is not valid.
    """

    sandbox: str | None = None
    network: bool | None = None
    variables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.sandbox is not None:
            sandbox_of(self.sandbox)
        for name in self.variables:
            if not VARIABLE.fullmatch(name):
                raise ConfigError(
                    f"{name!r} is not a name of a variable.",
                    cure="Give the name alone; its value is read from the runtime's environment.",
                )

    def over(self, settings: CommandSettings) -> CommandSettings:
        """Return the settings with what was chosen here."""
        return CommandSettings(
            settings.sandbox if self.sandbox is None else self.sandbox,
            settings.network if self.network is None else self.network,
            settings.read,
            (*settings.variables, *self.variables),
        )


class _Bash(FunctionTool[..., Awaitable[ToolResult]]):
    """The tool `bash`, which can say where a call begins."""

    async def working_folder(self, context: ToolContext) -> str:
        """Return the folder of the run's session."""
        session = context.service(ShellSession)
        if session is None or self.folder is None:
            return str(self.folder or "")
        start = await session.begin(context, self.folder)
        return str(self.folder) if start.folder is None else os.fsdecode(start.folder)


class Shell:
    """The tools for commands; a model reads the docstrings of their methods.

    Args:
        folder: where commands run at first.
        longest: the most seconds that a command may take.
        environment: their variables; None for those that `command_environment` selects.
        chosen: what differs from the settings of the run; None for nothing.
    """

    def __init__(
        self,
        folder: Path,
        longest: float = MOST_SECONDS,
        environment: Mapping[str, str] | None = None,
        chosen: ShellOptions | None = None,
    ) -> None:
        self._folder = folder
        self._longest = longest
        self._usual = min(DEFAULT_SECONDS, longest)
        self._environment = environment
        self._chosen = chosen or ShellOptions()

    def tools(self, needs_approval: NeedsApproval) -> list[Tool]:
        """Return its methods as tools, which say what shell there is and how long commands take."""
        run = _Bash(
            self.bash,
            timeout=math.inf,
            needs_approval=needs_approval,
            max_result_tokens=MOST_TOKENS,
        )
        # A container has what its image has; the first result says so where that is not bash.
        if shutil.which("bash") is None and not (self._chosen.sandbox or "").startswith("docker"):
            run.description = run.description.replace("in bash", "in sh (not bash)")
        parameters = deepcopy(run.spec.parameters)
        timeout = parameters["properties"]["timeout"]
        limits = f"default {self._usual:g}, at most {self._longest:g}"
        timeout["description"] = timeout["description"].replace(_LIMITS, limits)
        run.spec = replace(run.spec, description=run.description, parameters=parameters)
        # Not idempotent: what a lost result showed is not shown again.
        follow = tool(self.bash_output, timeout=math.inf, max_result_tokens=MOST_TOKENS)
        return [run, follow]

    async def bash(
        self,
        context: ToolContext,
        command: str,
        timeout: Annotated[float | None, Field(gt=0)] = None,
        background: bool = False,
    ) -> ToolResult:
        """Run a command in bash; return its output and exit code.

        The first begins in the workspace; folder and exported variables persist. There is no input,
        and what it leaves running is killed.

        Args:
            timeout: seconds; default 120, at most 600.
            background: for servers and long work, until the task ends; see `bash_output`.
        """
        if "\0" in command:
            return ToolResult("It could not be run: it has a NUL character.", outcome="error")
        session = context.service(ShellSession) or ShellSession()
        settings = self._chosen.over(context.service(CommandSettings) or CommandSettings())
        try:
            # In a thread: it reads folders and may start programs.  It changes nothing, so a
            # cancellation need not wait for it.
            launch = await anyio.to_thread.run_sync(self._launch, settings, abandon_on_cancel=True)
        except ConfigError as error:
            return ToolResult(f"The command was not run. {error}", outcome="error")
        start = await session.begin(context, self._folder)
        news = session.news()
        run = CommandRun(self._folder, session, start, launch, encodable(command), news)
        if background:
            return await run.in_background(context, timeout)
        return await run.to_end(context, min(timeout or self._usual, self._longest), self._longest)

    async def bash_output(
        self,
        context: ToolContext,
        handle: str,
        wait: Annotated[float, Field(ge=0, le=3600)] = 0,
        kill: bool = False,
    ) -> ToolResult:
        """Return the new output of a background command, and whether it runs.

        Args:
            wait: seconds.
        """
        session = context.service(ShellSession) or ShellSession()
        one = session.background.get(handle.strip())
        if one is None:
            known = "; ".join(f"{one.handle}: {one.name}" for one in session.background.values())
            text = f"There is no background command {handle[:40]!r} any more. There are: "
            return ToolResult(text + (known or "none") + ".", outcome="error")
        if kill:
            one.kill("killed")
        if kill or wait:
            await one.wait(math.inf if kill else wait)
        return await output_result(one)

    def _launch(self, settings: CommandSettings) -> Launch:
        """Return how a command is started. Raises `ConfigError` if its sandbox cannot be used."""
        sandbox = sandbox_of(settings.sandbox, settings.network, settings.read)
        environment = self._environment
        if environment is None:
            environment = command_environment(
                os.environ,
                self._folder,
                settings.variables,
                places=sandbox is None or sandbox.sees_system,
            )
        if sandbox is None:
            return Launch(environment)
        check_sandbox(sandbox, self._folder)
        return sandbox.launch(self._folder, environment)


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One command of a session.

    Attributes:
        news: what its result tells first; may be empty.
    """

    workspace: Path
    session: ShellSession
    start: SessionStart
    launch: Launch
    command: str
    news: str

    def _script(self) -> bytes:
        return script(self.command, self.start.folder, self.start.variables)

    def _variables(self) -> dict[bytes, bytes]:
        """Return the variables that the command begins with, as far as they are known here."""
        outer = self.launch.variables
        given = self.launch.environment if outer is None else outer
        known: dict[bytes, bytes | None] = {
            os.fsencode(name): os.fsencode(value) for name, value in given.items()
        }
        known |= self.start.variables
        return {name: value for name, value in known.items() if value is not None}

    async def to_end(self, context: ToolContext, seconds: float, longest: float) -> ToolResult:
        """Run it, and end it after some seconds."""
        output, ended, over = CommandOutput(), CommandEnd(), False
        text, before = self._script(), self._variables()
        supervised = await Supervised.start(self.workspace, self.launch, context)

        async def add(data: bytes) -> None:
            output.add(data)

        try:
            with anyio.move_on_after(seconds):
                await supervised.give(text)
                await supervised.follow(add)
            over = supervised.process.returncode is not None
        finally:
            with anyio.CancelScope(shield=True):
                ended = await supervised.end()
        state, other = read_state(bytes(supervised.report))
        output.add(other)
        if state is not None:
            self.session.take(self.start.folder or os.fsencode(self.workspace), before, state)
        # In a thread: it may be half a megabyte.
        shown = await anyio.to_thread.run_sync(output.text)
        notes = [f"Could not be killed: {', '.join(ended.left)}."] if ended.left else []
        if ended.error:
            return ToolResult(f"It could not be run: {ended.error}.", outcome="error")
        if asks_for_input(shown) and (not over or ended.code):
            notes.append(NO_INPUT)
        if not over:
            if seconds < longest:
                notes.append(f"For more time give `timeout`, at most {longest:g}, or `background`.")
            head = f"It was killed after {seconds:g} s. Its output until then:"
            return ToolResult(
                self._text(head, shown, notes), outcome="error", data=self.session.data()
            )
        if state is not None and not state.bash and not self.session.named_shell:
            self.session.named_shell = True
            notes.append("The shell is sh: there is no bash.")
        if where := folder_text(self.session.folder, self.workspace):
            notes.append(f"Folder: {show(where)}")
        data = {"exit_code": ended.code, **self.session.data()}
        return ToolResult(self._text(f"Exit code {ended.code}.", shown, notes), data=data)

    async def in_background(self, context: ToolContext, limit: float | None) -> ToolResult:
        """Start it in the background, and watch it for a moment: most failures come at once."""
        self.session.check_room()
        text = self._script()
        supervised = await Supervised.start(self.workspace, self.launch, context)
        try:
            one = await self.session.start(context, supervised, self.command, text, limit)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await supervised.end()
            raise
        await one.wait(START_SECONDS)
        result = await output_result(one)
        data = {**self.session.data(), **result.data}
        return replace(result, text=self._text("", result.text, []), data=data)

    def _text(self, head: str, shown: str, notes: list[str]) -> str:
        lines = [self.news] if self.news else []
        lines += [head] if head else []
        text = "\n".join([*lines, shown])
        if notes:
            text += "" if text.endswith("\n") else "\n"
            text += "\n".join(f"[{note}]" for note in notes)
        return text


async def output_result(one: BackgroundCommand) -> ToolResult:
    """Return what a call's result says about a command in the background."""
    shown = await one.new_output()
    end = one.end
    data = {"handle": one.handle}
    if end is None:
        shown = shown or "(no new output)"
        return ToolResult(f"{one.handle} is {one.status}.\n{shown.rstrip()}", data=data)
    left = f"\n[Could not be killed: {', '.join(end.left)}.]" if end.left else ""
    if end.error:
        return ToolResult(f"It could not be run: {end.error}.", outcome="error", data=data)
    if one.killed:
        return ToolResult(f"It was {one.killed}.\n{shown}{left}", data=data)
    return ToolResult(f"Exit code {end.code}.\n{shown}{left}", data={**data, "exit_code": end.code})
