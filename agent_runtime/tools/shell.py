"""Running commands in a folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import anyio
from anyio.abc import ByteReceiveStream, Process
from pydantic import Field

from agent_runtime.messages import ToolResult

MOST_BYTES = 256 << 10
"""Of the output, so much of its beginning and so much of its end are kept."""
AFTER_EXIT = 2.0
"""Seconds for what a command's own descendants still write after they were killed."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH\b|DATABASE_URL|DSN\b", re.IGNORECASE)


class Shell:
    """The command tool; its docstring is what a model reads.

    Args:
        folder: where commands run.
        longest: the most seconds that one may take.
        environment: their variables; None for this process's own, without what looks secret.
    """

    def __init__(self, folder: Path, longest: float, environment: Mapping[str, str] | None) -> None:
        self._folder = folder
        self._longest = longest
        self._environment = environment

    async def run_command(
        self, command: str, timeout: Annotated[float | None, Field(gt=0)] = None
    ) -> ToolResult:
        """Run a command by `sh` in the workspace; return its output and its exit code.

        Standard output and errors come together; there is no input. Everything that the command
        started in the background is killed when it ends.

        Args:
            command: what to run.
            timeout: seconds after which it is killed; the default is the most that is allowed.
        """
        seconds = min(timeout or self._longest, self._longest)
        output = Output()
        process = await anyio.open_process(
            ["/bin/sh", "-c", command],
            cwd=self._folder,
            env=visible(os.environ) if self._environment is None else self._environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with anyio.move_on_after(seconds):
                await _follow(process, output)
        finally:
            kill_group(process.pid)
            with anyio.CancelScope(shield=True):
                await process.aclose()
        code = process.returncode
        if output.ended:
            return ToolResult(f"Exit code {code}.\n{output.text()}")
        text = f"It was killed after {seconds:g} s. Its output until then:\n{output.text()}"
        return ToolResult(text, outcome="error")


@dataclass(slots=True)
class Output:
    """What a command has written: the beginning, the end, and how much lies between."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    left_out: int = 0
    ended: bool = False

    def add(self, data: bytes) -> None:
        """Take more of the output."""
        room = MOST_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        over = max(0, len(self.tail) - MOST_BYTES)
        self.left_out += over
        del self.tail[:over]

    def text(self) -> str:
        """Return it, with a line that says what is left out."""
        middle = f"\n[... {self.left_out:,} bytes are left out ...]\n" if self.left_out else ""
        if not middle:
            return (self.head + self.tail).decode(errors="replace")
        return self.head.decode(errors="replace") + middle + self.tail.decode(errors="replace")


def visible(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names do not look like secrets."""
    return {name: value for name, value in environment.items() if not _SECRET.search(name)}


def kill_group(group: int) -> None:
    """Kill every process of a group, if there is one left."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


async def _follow(process: Process, output: Output) -> None:
    """Collect the output until the command has ended and nobody writes any more."""
    stream = process.stdout
    if stream is None:
        raise AssertionError("the process was opened without its output")
    async with anyio.create_task_group() as group:
        group.start_soon(_collect, stream, output)
        await process.wait()
        # What it left in the background would hold the output open.
        kill_group(process.pid)
        output.ended = True
        group.cancel_scope.deadline = anyio.current_time() + AFTER_EXIT


async def _collect(stream: ByteReceiveStream, output: Output) -> None:
    async for data in stream:
        output.add(data)
