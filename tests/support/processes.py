"""Run modules of the tests as processes that report their progress as lines of JSON."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import orjson
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.support.command import ROOT, clean_environ

LINE = 1_000_000
SECONDS = 120


class Program:
    """A program that runs in another process."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def line(self) -> dict[str, Any]:
        """Wait for the next line."""
        return orjson.loads(await self._lines.receive_until(b"\n", LINE))

    async def until(self, *kinds: str) -> dict[str, Any]:
        """Wait until all these kinds were reported, in any order; return the last line."""
        missing, line = list(kinds), dict[str, Any]()
        while missing:
            line = await self.line()
            if line["kind"] in missing:
                missing.remove(line["kind"])
        return line

    async def say(self, line: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        await self.process.stdin.send(f"{line}\n".encode())

    async def kill(self) -> None:
        """Send SIGKILL, and wait until the process is dead."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def program(module: str, *arguments: str) -> AsyncGenerator[Program]:
    """Start a module of the tests; kill it at the end if it is still alive."""
    command = [sys.executable, "-m", module, *arguments]
    environ = clean_environ()
    async with await anyio.open_process(command, cwd=ROOT, env=environ, stderr=None) as process:
        started = Program(process)
        try:
            with anyio.fail_after(SECONDS):
                yield started
        finally:
            if process.returncode is None:
                with anyio.CancelScope(shield=True):
                    await started.kill()
