"""Start, follow and end a command under its supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process

from agent_runtime.concurrency import open_process
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.workspace import command_records as commands
from agent_runtime.tools.workspace import supervisor
from agent_runtime.tools.workspace.command_script import BOOT, MOST_STATE
from agent_runtime.tools.workspace.sandbox.base import Launch

AFTER_EXIT = 2.0
"""Seconds to keep reading output after a command ended."""


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        code: as in `subprocess`: negative for the signal that killed it.
        left: processes that could not be killed.
        error: why it could not be run; otherwise empty.
    """

    code: int = -signal.SIGKILL
    left: tuple[str, ...] = ()
    error: str = ""


@dataclass(slots=True)
class Supervised:
    """A running supervisor, and the socket for its command."""

    process: Process
    control: socket.socket
    command: commands.SupervisedCommand
    record: Path | None
    report: bytearray = field(default_factory=bytearray)
    """What the shell reported, up to a bound."""

    @classmethod
    async def start(cls, folder: Path, launch: Launch, context: ToolContext) -> Supervised:
        """Start a supervisor in a folder, and record it.

        Cancellation: the supervisor is ended.
        """
        mark = uuid.uuid4().hex
        # Closing its end, even by the death of this process, makes the supervisor end everything.
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await open_process(
                    # Without site packages and environment: it starts in a fraction of the time,
                    # and nothing of the project is imported into it.
                    [
                        sys.executable,
                        "-I",
                        "-S",
                        supervisor.__file__,
                        launch.container,
                        *launch.prefix,
                        "-c",
                        BOOT,
                    ],
                    cwd=folder,
                    env={**launch.environment, supervisor.MARK: mark},
                    stdin=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except BaseException:
            # A supervisor exits once the socket for its command is closed.
            ours.close()
            raise
        ours.setblocking(False)
        command = commands.SupervisedCommand.of(
            context.call_id, mark, process.pid, launch.container, folder
        )
        started = cls(process, ours, command, None)
        # The record comes before the command: `give` sends that only after this.
        with anyio.CancelScope(shield=True):
            started.record = await anyio.to_thread.run_sync(
                commands.record_command, context.run_id, command
            )
        return started

    async def give(self, script: bytes) -> None:
        """Send the script of the command to the supervisor, which runs it."""
        loop = asyncio.get_running_loop()
        # If the supervisor is dead, `end` notices.
        with suppress(BrokenPipeError, ConnectionResetError):
            await loop.sock_sendall(self.control, struct.pack("!Q", len(script)) + script)

    async def follow(self, add: Callable[[bytes], Awaitable[None]]) -> None:
        """Pass the output on until the command has ended and its output is closed."""
        output, report = self.process.stdout, self.process.stderr
        if output is None or report is None:
            raise AssertionError("the process was opened without its output")
        async with anyio.create_task_group() as group:
            group.start_soon(_collect, output, add)
            group.start_soon(_collect, report, self._add_report)
            await self.process.wait()
            # A process that could not be killed may hold the output open.
            group.cancel_scope.deadline = anyio.current_time() + AFTER_EXIT

    async def _add_report(self, data: bytes) -> None:
        # Beyond the bound it is only read, so that no writer waits.
        self.report += data[: max(0, MOST_STATE - len(self.report))]

    async def end(self) -> CommandEnd:
        """End all processes; return how the command ended.  Call it under a shield."""
        with self.control:
            with suppress(OSError):
                # The supervisor reads the end of its input, and ends the command; its report can
                # still come back.
                self.control.shutdown(socket.SHUT_WR)
            if self.process.returncode is None:
                # A command may have stopped its supervisor.
                with suppress(ProcessLookupError):
                    os.kill(self.process.pid, signal.SIGCONT)
                removing = supervisor.REMOVE_SECONDS if self.command.container else 0
                with anyio.move_on_after(supervisor.END_SECONDS + removing + 2):
                    await self.process.wait()
            report = b""
            with suppress(OSError):
                report = self.control.recv(1 << 16)
        lines = [line.partition(" ") for line in report.decode(errors="replace").splitlines()]
        left = [text for word, _, text in lines if word == "left"]
        if not lines or lines[-1][0] != "over":
            # The supervisor was killed before it could end everything.
            left += await anyio.to_thread.run_sync(commands.end_command, self.command)
        await self.process.aclose()
        # With processes left the record stays, so that a resume can try again.
        if self.record is not None and not left:
            await anyio.to_thread.run_sync(lambda path: path.unlink(missing_ok=True), self.record)
        codes = [int(text) for word, _, text in lines if word == "exit"]
        error = next((text for word, _, text in lines if word == "error"), "")
        return CommandEnd(codes[0] if codes else -signal.SIGKILL, tuple(left), error)


async def _collect(stream: ByteReceiveStream, add: Callable[[bytes], Awaitable[None]]) -> None:
    async for data in stream:
        await add(data)
