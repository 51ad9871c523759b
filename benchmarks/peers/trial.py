"""One trial: a runner in a process of its own, against the server of the comparison."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

import orjson

from benchmarks.peers.environments import RUNNERS, Environments, Peer
from benchmarks.peers.server import Script, Served

MARK = "ORDER-7391"
"""What `runners/protocol.py` has in its task."""
LONGEST = 900.0
"""Seconds that a runner may take if the course sets no limit."""
KILLED = -9
PASSED = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "LD_LIBRARY_PATH")
_LAST = 300


class Failed(Exception):
    """A runner ended without a result; says what it wrote last."""


class Unfinished(Failed):
    """A runner did not end in time."""


@dataclass(frozen=True, slots=True)
class Course:
    """What is the same for all trials of the comparison.

    Attributes:
        prompts: requests that this runtime sent, for the floor that repeats them.
        limit: seconds that a runner may take.
    """

    server: Server
    environments: Environments
    prompts: Path
    limit: float = LONGEST


class Server:
    """The server's process, which is steered by lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def begin(self, script: Script) -> str:
        """Begin a trial; return the URL."""
        return str(self._say({"do": "begin", **asdict(script)})["url"])

    def victim(self, pid: int) -> None:
        """Name the process to kill."""
        self._say({"do": "victim", "pid": pid})

    def end(self) -> Served:
        """End the trial."""
        return Served(**self._say({"do": "end"}))

    def _say(self, order: dict[str, Any]) -> dict[str, Any]:
        given, answered = self._process.stdin, self._process.stdout
        cast("IO[bytes]", given).write(orjson.dumps(order) + b"\n")
        cast("IO[bytes]", given).flush()
        return orjson.loads(cast("IO[bytes]", answered).readline())


@contextmanager
def server() -> Generator[Server]:
    """Run the server."""
    command = [sys.executable, "-m", "benchmarks.peers.server"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=RUNNERS.parents[2]
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


@contextmanager
def folder() -> Generator[Path]:
    """Give an empty folder for the trial's files."""
    with tempfile.TemporaryDirectory(prefix="agent-runtime-peers-") as name:
        place = Path(name)
        (place / "data").mkdir()
        yield place


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a task, measured.

    Attributes:
        startup: seconds from the start of the process to its first request.
        result: what the runner printed.
        database: bytes of what it keeps.
    """

    startup: float
    result: dict[str, Any]
    served: Served
    database: int


def measure(course: Course, peer: Peer, script: Script) -> Measured:
    """Run a task once.

    Raises:
        Missing: there is no environment for the peer.
        Failed: the task was not done; `Unfinished`: it was not done in time.
    """
    python = course.environments.python(peer)
    with folder() as place:
        url = course.server.begin(script)
        began = time.perf_counter()
        try:
            result = run(course, peer, python, url, place, script, "run")
        finally:
            served = course.server.end()
        if result["error"] is not None or "a" not in served.done:
            raise Failed(str(result["error"] or f"it answered {result['answer']!r}"))
        return Measured(served.first - began, result, served, size(place / "data"))


def run(
    course: Course,
    peer: Peer,
    python: str,
    url: str,
    place: Path,
    script: Script,
    do: str,
    *,
    kill_in: int = 0,
) -> dict[str, Any]:
    """Run a runner; return what it printed, or nothing if it was killed as planned.

    Raises:
        Failed: it ended otherwise.
    """
    given = {
        "PEER_URL": url,
        "PEER_DO": do,
        "PEER_STEPS": str(script.steps),
        "PEER_FOLDER": str(place),
        "PEER_VARIANT": peer.variant,
        "PEER_WINDOW": str(script.window or ""),
        "PEER_KILL_IN": str(kill_in or ""),
        "PEER_PROMPTS": str(course.prompts),
    }
    command = [python, str(RUNNERS / peer.runner)]
    with (
        (place / "stderr.txt").open("wb") as errors,
        subprocess.Popen(
            command,
            env=environment(place) | given,
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        try:
            if script.kill_at and do == "run":
                course.server.victim(process.pid)
            output, _ = process.communicate(timeout=course.limit)
        except subprocess.TimeoutExpired as error:
            raise Unfinished(f"not finished in {course.limit:g} s") from error
        finally:
            process.kill()
    if process.returncode == KILLED and (script.kill_at or kill_in):
        return {}
    lines = output.splitlines()
    if process.returncode or not lines:
        said = (place / "stderr.txt").read_text(errors="replace").strip()
        raise Failed(said[-_LAST:] or f"it ended with code {process.returncode}")
    return orjson.loads(lines[-1])


def environment(place: Path) -> dict[str, str]:
    """Return the variables of a runner: without keys, without settings, with a home of its own."""
    kept = {name: os.environ[name] for name in PASSED if name in os.environ}
    return kept | {
        "HOME": str(place),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LANGSMITH_TRACING": "false",
        "NO_PROXY": "127.0.0.1",
    }


def size(place: Path) -> int:
    """Return the bytes of the files in a folder."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def tools(place: Path) -> list[int]:
    """Return the pages that were read, in order, repeated ones included."""
    file = place / "tools.txt"
    return [int(line) for line in file.read_text().split()] if file.exists() else []
