"""Start workers, wait for what they write, and see what is left of them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.abc
from anyio.streams.text import TextReceiveStream

PATIENCE = 120.0
"""Seconds after which a worker that does not go on counts as stuck."""


class Worker:
    """A worker's process and the lines that it has written."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._text = ""
        assert process.stdout is not None
        self._stream = TextReceiveStream(process.stdout)

    async def until(self, beginning: str, seconds: float = PATIENCE) -> str:
        """Return the next line that begins so.

        Raises:
            TimeoutError: it did not come in time.
            EOFError: the process ended before.
        """
        with anyio.fail_after(seconds):
            while True:
                line, end, rest = self._text.partition("\n")
                if end:
                    self._text = rest
                    self.lines.append(line)
                    if line.startswith(beginning):
                        return line
                    continue
                try:
                    self._text += await self._stream.receive()
                except anyio.EndOfStream as error:
                    raise EOFError(f"the worker ended after {self.lines[-3:]}") from error


@asynccontextmanager
async def worker(
    *arguments: str,
    before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncGenerator[Worker]:
    """Start a worker; it is killed at the end.

    Args:
        before: a program that starts it, such as `unshare`.
        environment: variables in addition to this process's own.
    """
    command = [*before, sys.executable, "-m", "benchmarks.proof.fault_cases.worker", *arguments]
    env = {**os.environ, **(environment or {})}
    process = await anyio.open_process(command, stderr=None, env=env)
    try:
        yield Worker(process)
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                process.kill()
            await process.aclose()


async def swept(database: str, environment: Mapping[str, str] | None = None) -> int:
    """Return how many runs a sweep by another process took over."""
    async with worker("sweep", database, environment=environment) as sweeping:
        return int((await sweeping.until("swept")).removeprefix("swept "))


def alive(pids: Sequence[int]) -> list[int]:
    """Return which of these processes run; a zombie does not."""
    return [pid for pid in pids if _state(pid) not in ("", "Z", "X")]


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
