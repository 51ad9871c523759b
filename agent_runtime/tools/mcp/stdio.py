"""A server's program under the supervisor, and its messages: one line of JSON each."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from agent_runtime.concurrency import open_process
from agent_runtime.tools.mcp import launcher
from agent_runtime.tools.mcp.bounds import MAX_MESSAGE_BYTES, Received, ServerMisbehaves
from agent_runtime.tools.mcp.server import McpServer
from agent_runtime.tools.workspace import command_records, supervisor
from agent_runtime.tools.workspace.environment import command_environment

MAX_NOISE_BYTES = 1 << 20
"""How much a program may print that is no message before its first message, and between two."""
TAIL_BYTES = 2000
"""How much of what a program prints to stderr errors show."""
LARGE_BYTES = 1 << 16
"""Larger messages are parsed in a thread."""
OUTBOX = 16
"""How many messages may wait for a program to read them."""
NOT_NEEDED = "it was not needed any more"
"""Why the messages of a program end that did nothing wrong."""
LEAVE_SECONDS = 2.0
"""How long a program may take to end by itself, once its input is closed."""


@dataclass(slots=True)
class Ending:
    """Why a program's messages ended, and the last it wrote to stderr."""

    why: str = ""
    tail: bytearray = field(default_factory=bytearray)


@asynccontextmanager
async def stdio_streams(server: McpServer, ending: Ending) -> AsyncGenerator[TransportStreams]:
    """Run a server's program while the context is open; give the streams of its messages.

    Nothing of it survives the context or this process, however either ends.

    Raises:
        OSError: it cannot be started.
    """
    program = await _Program.start(server)
    send, received = anyio.create_memory_object_stream[Received](0)
    # With room: a program that reads nothing must not hold up a call that is being cancelled.
    outbox, to_send = anyio.create_memory_object_stream[SessionMessage](OUTBOX)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, program, send, ending)
            group.start_soon(_write, program, to_send)
            group.start_soon(_keep_tail, program.process, ending)
            try:
                with outbox, received:
                    yield received, outbox
            finally:
                # The reader goes on, so that a program that still prints is not held up.
                if ending.why in ("", NOT_NEEDED):
                    with anyio.CancelScope(shield=True):
                        await program.leave()
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await program.end()


@dataclass(slots=True)
class _Program:
    """A running supervisor, its socket, and the pipe to the program's standard input."""

    process: Process
    control: socket.socket
    stdin: int
    command: command_records.SupervisedCommand

    @classmethod
    async def start(cls, server: McpServer) -> _Program:
        """Start a server's program.  Raises `OSError`."""
        mark = uuid.uuid4().hex
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        try:
            # With the socket closed, even by the death of this process, the supervisor ends
            # everything that it started.
            process = await open_process(
                [sys.executable, "-I", "-S", supervisor.__file__, "", sys.executable, "-I", "-S",
                 launcher.__file__],
                cwd=server.cwd,
                env={**_environment(server.env), supervisor.MARK: mark},
                stdin=theirs.fileno(),
                stderr=subprocess.PIPE,
                pass_fds=(reader,),
                start_new_session=True,
            )  # fmt: skip
        except BaseException:
            ours.close()
            os.close(writer)
            raise
        finally:
            theirs.close()
            os.close(reader)
        ours.setblocking(False)
        os.set_blocking(writer, False)
        command = command_records.SupervisedCommand.of("", mark, process.pid)
        program = cls(process, ours, writer, command)
        argv = {"argv": [server.command, *server.args], "stdin": reader}
        data = json.dumps(argv).encode(errors="surrogateescape")
        try:
            # If the supervisor is dead, its closed output says so.
            with suppress(BrokenPipeError, ConnectionResetError):
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(ours, struct.pack("!Q", len(data)) + data)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await program.end()
            raise
        return program

    async def send(self, data: bytes) -> None:
        """Write to the program's standard input.  Raises `OSError` when that is closed."""
        view = memoryview(data)
        while view and self.stdin >= 0:
            try:
                # A pipe that is nearly full takes a part.
                view = view[os.write(self.stdin, view) :]
            except BlockingIOError:
                await anyio.wait_writable(self.stdin)

    async def leave(self) -> None:
        """Close the program's input, and give it a moment to end by itself."""
        self._close_stdin()
        with anyio.move_on_after(LEAVE_SECONDS):
            await self.process.wait()

    async def end(self) -> None:
        """End all of the program's processes."""
        self._close_stdin()
        with self.control:
            with suppress(OSError):
                self.control.shutdown(socket.SHUT_WR)
            with anyio.move_on_after(supervisor.END_SECONDS + 2):
                await self.process.wait()
            report = b""
            with suppress(OSError):
                report = self.control.recv(1 << 16)
        if not report.endswith(b"over"):
            # The supervisor was killed before it could end everything.
            await anyio.to_thread.run_sync(command_records.end_command, self.command)
        await self.process.aclose()

    def _close_stdin(self) -> None:
        if self.stdin >= 0:
            writer, self.stdin = self.stdin, -1
            # Whoever waits until it can write must not find another file under the same number.
            anyio.notify_closing(writer)
            os.close(writer)


def _environment(named: Mapping[str, str]) -> dict[str, str]:
    # The folder of a project would put its programs first, before those that the user named.
    return command_environment(os.environ, Path(os.sep)) | dict(named)


async def _write(program: _Program, to_send: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with to_send:
        async for message in to_send:
            data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await program.send(data.encode(errors="replace") + b"\n")
            except (OSError, anyio.ClosedResourceError):
                # It has ended; the reader sees it too.
                return


async def _read(program: _Program, send: MemoryObjectSendStream[Received], ending: Ending) -> None:
    stdout = program.process.stdout
    assert stdout is not None
    noise, held = 0, bytearray()
    async with send:
        try:
            while True:
                held += await stdout.receive(1 << 16)
                # Only what has just come can hold the line's end; searching all of it each time
                # would be quadratic.
                *lines, rest = held.split(b"\n") if b"\n" in held[-(1 << 16) :] else [held]
                held = rest
                if len(held) > MAX_MESSAGE_BYTES:
                    raise ServerMisbehaves(f"it sent more than {MAX_MESSAGE_BYTES:,} bytes at once")
                for line in lines:
                    message = await _parsed(bytes(line))
                    noise = 0 if message is not None else noise + len(line) + 1
                    if noise > MAX_NOISE_BYTES:
                        raise ServerMisbehaves("it prints something else than messages")
                    if message is not None:
                        await send.send(message)
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            ending.why = "its program ended"
        except anyio.BrokenResourceError:
            # The session is over: only read on, so that the program can end.
            await _drain(stdout)
        except ServerMisbehaves as error:
            ending.why = str(error)


async def _drain(stdout: ByteReceiveStream) -> None:
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            await stdout.receive(1 << 16)


async def _parsed(line: bytes) -> SessionMessage | None:
    """Return the message of a line; None for a line that is none."""
    if not line.strip():
        return None
    try:
        if len(line) > LARGE_BYTES:
            message = await anyio.to_thread.run_sync(_parse, line)
        else:
            message = _parse(line)
    except ValueError:
        return None
    return message


def _parse(line: bytes) -> SessionMessage:
    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))


async def _keep_tail(process: Process, ending: Ending) -> None:
    assert process.stderr is not None
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for data in process.stderr:
            ending.tail += data
            del ending.tail[:-TAIL_BYTES]
