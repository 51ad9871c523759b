"""Services and workers of the cluster: real processes that are killed, stopped and drained."""
# ruff: noqa: ASYNC110 - it waits for what other processes do

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import anyio
import psutil

from tests.services.process import free_port
from tests.support.command import COMMAND, clean_environ

APP = "benchmarks.proof.cluster.app:app"
HOOK = "benchmarks.proof.cluster.app:user_of"
START_SECONDS = 120.0
BUDGET = 50_000_000
"""Tokens: more than a run uses; with a budget each call is reserved on the root of its tree."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where processes of the cluster run, and how they reach what they share.

    Attributes:
        name: for people.
        database: the URL of the database.
        model: the URL of the model.
        before: a program that starts a process there, such as `nsenter`.
        environment: more variables.
        address: where services of the place listen.
    """

    name: str
    database: str
    model: str
    before: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    address: str = "127.0.0.1"


@dataclass(eq=False)
class Member:
    """A process of the cluster.

    Attributes:
        pid: as this process sees it.
        stopped: the times between which it was stopped, by the monotonic clock.
        ended: when it was killed.
    """

    name: str
    place: Place
    process: subprocess.Popen[bytes]
    log: Path
    url: str = ""
    pid: int = 0
    stopped: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    ended: float | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs; also while it is stopped."""
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> float:
        """Send it a signal; return when."""
        at = time.monotonic()
        pids = [self.pid]
        if number is signal.SIGCONT:
            # `nsenter` stops itself when what it started is stopped, and would not see its end.
            pids.append(self.process.pid)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number is signal.SIGKILL:
            self.ended = at
        return at

    async def until(self, text: str) -> None:
        """Wait until its log has a text.

        Raises:
            RuntimeError: it has ended before, or did not come so far in time.
        """
        end = time.monotonic() + START_SECONDS
        while text not in self.tail():
            if not self.alive or time.monotonic() > end:
                raise RuntimeError(f"{self.name} did not start: {self.tail()[-2000:]}")
            await anyio.sleep(0.05)
        self.pid = self._own_pid()

    async def gone(self, seconds: float) -> bool:
        """Return whether it ends in time."""
        with anyio.move_on_after(seconds):
            while self.alive:
                await anyio.sleep(0.05)
        return not self.alive

    def tail(self) -> str:
        """Return its log."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def end(self) -> None:
        """Kill it, and what started it."""
        for number in (self.pid, self.process.pid):
            with suppress(ProcessLookupError):
                if number:
                    os.kill(number, signal.SIGKILL)
        self.process.wait(30)

    def _own_pid(self) -> int:
        """Return the id of the process itself, below the program that starts it."""
        if not self.place.before:
            return self.process.pid
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if "agent_runtime.cli" in child.cmdline():
                return child.pid
        return self.process.pid


class Cluster:
    """All processes of the cluster.

    Args:
        folder: of the journal and the logs.
        pause: seconds between the beginning and the effect of a call of a tool.

    Attributes:
        members: every process that was started.
    """

    def __init__(self, folder: Path, pause: float = 0.3) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.members: list[Member] = []
        self._pause = pause
        (folder / "logs").mkdir()

    async def worker(self, place: Place, slots: int, *, tokens: bool) -> Member:
        """Start a worker and wait until it works."""
        command = [*COMMAND, "worker", APP, "--concurrency", str(slots)]
        member = self._start("worker", place, command, {"CLUSTER_TOKENS": str(int(tokens))})
        await member.until("Working on the queue")
        return member

    async def service(self, place: Place, port: int = 0) -> Member:
        """Start a service and wait until it serves.

        Args:
            port: of a service that ended; 0 for a free one.
        """
        port = port or free_port()
        command = [*COMMAND, "serve", APP, "--host", place.address, "--port", str(port)]
        member = self._start("service", place, [*command, "--auth", HOOK])
        member.url = f"http://{place.address}:{port}"
        await member.until("Serving on")
        return member

    def plain(self, place: Place, at_once: int, runs: int) -> Member:
        """Start a process that runs agents without a queue; it ends with the last of them."""
        command = [sys.executable, "-m", "benchmarks.proof.cluster.plain", str(at_once), str(runs)]
        return self._start("plain", place, command)

    def end(self) -> None:
        """Kill all processes."""
        for member in self.members:
            if member.alive:
                member.end()

    def _start(
        self,
        kind: str,
        place: Place,
        command: list[str],
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Member:
        name = f"{kind}-{len(self.members) + 1}"
        variables = {
            "AGENT_RUNTIME_DATABASE_URL": place.database,
            "AGENT_RUNTIME_BUDGET_TOKENS": str(BUDGET),
            "AGENT_RUNTIME_OBSERVER_MODEL": "extractive",
            "AGENT_RUNTIME_LOOP_LIMIT": "0",
            "AGENT_RUNTIME_SERVICE_RATE": "0",
            "AGENT_RUNTIME_FORBID_REAL_MODELS": "0",
            "AGENT_RUNTIME_DRAIN_TIMEOUT": "0",
            "CLUSTER_JOURNAL": str(self.journal),
            "CLUSTER_MODEL": place.model,
            "CLUSTER_MEMBER": name,
            "CLUSTER_PAUSE": str(self._pause),
            "PYTHONFAULTHANDLER": "1",
            **place.environment,
            **environment,
        }
        log = self.folder / "logs" / name
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*place.before, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=clean_environ(variables),
                cwd=self.folder,
                # A Ctrl-C is for the benchmark, which ends them.
                start_new_session=True,
            )
        member = Member(name, place, process, log)
        self.members.append(member)
        return member
