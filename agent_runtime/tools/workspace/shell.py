"""The tool `run_command`: run a shell command in the workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process
from pydantic import Field

from agent_runtime.errors import ConfigError
from agent_runtime.messages import ToolResult
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.workspace.command_process import CommandEnd, Supervised
from agent_runtime.tools.workspace.environment import command_environment
from agent_runtime.tools.workspace.sandbox.base import Launch
from agent_runtime.tools.workspace.sandbox.choose import CommandSettings, check_sandbox, sandbox_of
from agent_runtime_config.sandbox import VARIABLE

MOST_BYTES = 256 << 10
"""How many bytes of the output's beginning, and of its end, a result has."""
AFTER_EXIT = 2.0
"""Seconds to keep reading output after a command ended."""


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


class Shell:
    """The command tool; its docstring is what a model reads.

    Args:
        folder: where commands run.
        longest: the most seconds that a command may take.
        environment: their variables; None for those that `command_environment` selects.
        chosen: what differs from the settings of the run; None for nothing.
    """

    def __init__(
        self,
        folder: Path,
        longest: float,
        environment: Mapping[str, str] | None = None,
        chosen: ShellOptions | None = None,
    ) -> None:
        self._folder = folder
        self._longest = longest
        self._environment = environment
        self._chosen = chosen or ShellOptions()

    async def run_command(
        self,
        context: ToolContext,
        command: str,
        timeout: Annotated[float | None, Field(gt=0)] = None,
    ) -> ToolResult:
        """Run a command with `sh` in the workspace; return its output and exit code.

        Output and errors are merged; there is no input. Background processes that the command
        started are killed when it ends.

        Args:
            command: the command.
            timeout: seconds after which it is killed; the default is the longest allowed.
        """
        seconds = min(timeout or self._longest, self._longest)
        output, ended = Output(), CommandEnd()
        settings = self._chosen.over(context.service(CommandSettings) or CommandSettings())
        try:
            # In a thread: it reads folders and may start programs.  It changes nothing, so a
            # cancellation need not wait for it.
            launch = await anyio.to_thread.run_sync(self._launch, settings, abandon_on_cancel=True)
        except ConfigError as error:
            return ToolResult(f"The command was not run. {error}", outcome="error")
        supervised = await Supervised.start(self._folder, launch, context)
        try:
            with anyio.move_on_after(seconds):
                await supervised.give(command)
                await _follow(supervised.process, output)
        finally:
            with anyio.CancelScope(shield=True):
                ended = await supervised.end()
        rest = f"\nCould not be killed: {', '.join(ended.left)}." if ended.left else ""
        if ended.error:
            return ToolResult(f"It could not be run: {ended.error}.", outcome="error")
        if output.ended:
            return ToolResult(f"Exit code {ended.code}.\n{output.text()}{rest}")
        text = f"It was killed after {seconds:g} s. Its output until then:\n{output.text()}{rest}"
        return ToolResult(text, outcome="error")

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


@dataclass(slots=True)
class Output:
    """A command's output: its beginning, its end, and the size of what is left out."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    left_out: int = 0
    ended: bool = False

    def add(self, data: bytes) -> None:
        """Add a piece of output."""
        room = MOST_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        over = max(0, len(self.tail) - MOST_BYTES)
        self.left_out += over
        del self.tail[:over]

    def text(self) -> str:
        """Return the output, with a line for what is left out."""
        middle = f"\n[... {self.left_out:,} bytes are left out ...]\n" if self.left_out else ""
        if not middle:
            # Joined before decoding: a character may have been split between the two.
            return (self.head + self.tail).decode(errors="replace")
        return self.head.decode(errors="replace") + middle + self.tail.decode(errors="replace")


async def _follow(process: Process, output: Output) -> None:
    """Collect the output until the command has ended and the output is closed."""
    stream = process.stdout
    if stream is None:
        raise AssertionError("the process was opened without its output")
    async with anyio.create_task_group() as group:
        group.start_soon(_collect, stream, output)
        await process.wait()
        output.ended = True
        # A process that could not be killed may hold the output open.
        group.cancel_scope.deadline = anyio.current_time() + AFTER_EXIT


async def _collect(stream: ByteReceiveStream, output: Output) -> None:
    async for data in stream:
        output.add(data)
