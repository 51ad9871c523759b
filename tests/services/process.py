"""A server process of the tests: it can be killed and started again, and never outlives them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path

import psutil

START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOG_TAIL = 4000
"""Characters of a log in the report of a failed test."""
IN_MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30
"""Free bytes in memory that files of servers need at most, for all workers of a session."""

_running: list[Service] = []


class MissingPart(Exception):
    """A server cannot be started on this machine; the message says why."""


class Service(ABC):
    """A server on a loopback port, with its own folder.

    If this process is killed and cannot clean up, a watchman (a shell that waits for the end of a
    pipe) ends the server and removes its folder.

    Attributes:
        folder: the server's files except its log; removed when it is stopped.
        log: the output of all its processes.
        port: where all its processes listen.
        pid: the current process.
    """

    stop_signal = signal.SIGTERM
    user: str | None = None
    """The user that runs it; None for the user of the tests."""

    def __init__(self, name: str, logs: Path, *, on_disk: bool = False) -> None:
        self.name = name
        self.folder = temporary_folder(name, on_disk=on_disk)
        self.log = logs / f"{self.folder.name}.log"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchman: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line."""

    @abstractmethod
    def answers(self) -> bool:
        """Return whether the server serves requests yet."""

    def start(self) -> None:
        """Start the server on its existing files, and wait until it answers.

        Raises:
            MissingPart: the server does not start.
        """
        deadline = time.monotonic() + START_SECONDS
        while not self._come_up(deadline):
            if time.monotonic() > deadline:
                raise MissingPart(f"{self.name} does not start:\n{self.tail()}")
            time.sleep(0.05)
        _running.append(self)

    def _come_up(self, deadline: float) -> bool:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                # Otherwise Ctrl-C at a terminal would reach it before its clients.
                start_new_session=True,
                user=self.user,
                group=None if self.user is None else primary_group(self.user),
                extra_groups=None if self.user is None else [],
            )
        self._watch()
        while self._process.poll() is None:
            if self.answers():
                return True
            if time.monotonic() > deadline:
                self.kill()
                return False
            time.sleep(0.005)
        self._unwatch()
        return False

    def _watch(self) -> None:
        script = 'kill -s "$1" "$2"; sleep 1; rm -rf "$3"'
        kind = self.stop_signal.name.removeprefix("SIG")
        self._watchman = watchman(script, kind, str(self.pid), str(self.folder))

    def _unwatch(self) -> None:
        if self._watchman is not None:
            dismiss(self._watchman)
            self._watchman = None

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL, as a power cut would."""
        if self._process is None:
            return
        family: list[psutil.Process] = []
        try:
            parent = psutil.Process(self.pid)
            # A suspended process cannot start children while they are listed.
            parent.suspend()
            family = [*parent.children(recursive=True), parent]
        except psutil.NoSuchProcess:
            pass
        for member in family:
            if member.is_running():
                member.send_signal(signal.SIGKILL)
        self._ended()
        psutil.wait_procs(family, timeout=STOP_SECONDS)

    def stop(self) -> None:
        """End the server and remove its folder; a second call is harmless."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        """End the server, and leave its files."""
        if self._process is not None and self.alive:
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._ended()

    def _ended(self) -> None:
        if self._process is not None:
            self._process.wait(STOP_SECONDS)
        self._unwatch()
        if self in _running:
            _running.remove(self)

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text("utf-8", "replace")[-LOG_TAIL:] if self.log.exists() else ""


def temporary_folder(name: str, *, on_disk: bool = False) -> Path:
    """Return a new folder for files of a server, in memory where the machine has room.

    On a disk, to copy a Postgres database takes four times as long; a killed process loses no file
    in memory.

    Args:
        on_disk: for files that would fill the memory.
    """
    roomy = not on_disk and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= MEMORY_BYTES
    return Path(tempfile.mkdtemp(prefix=f"agent-runtime-{name}-", dir=IN_MEMORY if roomy else None))


def watchman(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a shell that runs a script when this process ends in any way, unless dismissed."""
    return subprocess.Popen(
        ["sh", "-c", f"read -r _; {script}", "watchman", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A signal that ends this process, such as Ctrl-C, must not end the watchman.
        start_new_session=True,
    )


def dismiss(guard: subprocess.Popen[bytes]) -> None:
    """End a watchman without running its script."""
    # Kill first: the end of the pipe would start the script.
    guard.kill()
    guard.communicate()


def running() -> list[Service]:
    """Return the servers that run now."""
    return list(_running)


def primary_group(user: str) -> int:
    """Return a user's own group."""
    import pwd

    return pwd.getpwnam(user).pw_gid


def free_port() -> int:
    """Return a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def let_others_in(path: Path) -> None:
    """Open the parent folders to the unprivileged user that root becomes.

    pytest creates its temporary folders closed to other users.
    """
    for folder in path.parents:
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)


def in_ci() -> bool:
    """Whether a missing server fails the tests instead of skipping them."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def ordinary_user() -> str | None:
    """Return a user for programs that refuse to run as root; None if the tests do not run as root.

    Raises:
        MissingPart: the tests run as root, and there is no other user.
    """
    if sys.platform == "win32" or os.geteuid() != 0:
        return None
    import pwd

    others = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid != 0}
    if not others:
        raise MissingPart("the tests run as root, and there is no other user to run Postgres as")
    return "nobody" if "nobody" in others else max(others, key=lambda name: others[name])
