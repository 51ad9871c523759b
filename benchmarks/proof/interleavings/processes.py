"""Two processes on one thread, one of them killed by SIGKILL at a random instant."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import orjson

from agent_runtime.errors import AgentRuntimeError
from agent_runtime_storage import Store
from benchmarks.proof.interleavings.check import Judge, read_rows
from benchmarks.proof.interleavings.history import MAIN, Op
from benchmarks.proof.interleavings.run import Verdict, driver_of
from benchmarks.proof.interleavings.worker import Life

ROOT = Path(__file__).parents[3]
VICTIM, SURVIVOR = "victim", "survivor"
_PATIENCE = 60.0


class WorkerError(AgentRuntimeError):
    """A process of the harness failed, so that nothing can be said of the store."""


class Processes:
    """The program that forks the processes."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        self._program = program

    def start(self, life: Life) -> int:
        """Begin a process and return its id."""
        return self._ask(orjson.dumps(asdict(life)))[0]

    def join(self) -> Sequence[int]:
        """Wait until all processes are over, and return how they ended, in order."""
        return self._ask(b"")

    def _ask(self, line: bytes) -> list[int]:
        assert self._program.stdin and self._program.stdout
        self._program.stdin.write(line + b"\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        if not answer:
            raise WorkerError(f"The program of the processes ended: {self._program.wait()}.")
        return orjson.loads(answer)


@contextmanager
def processes(module: str = "benchmarks.proof.interleavings.worker") -> Generator[Processes]:
    """Start the program that forks the processes, and end it afterwards."""
    environ = {name: value for name, value in os.environ.items() if "AGENT_RUNTIME" not in name}
    environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / one) for one in (".", "storage", "config"))
    command = [sys.executable, "-m", module]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environ, cwd=ROOT) as program:
        # Closing its stdin, as leaving this context does, ends it.
        yield Processes(program)


def kill_one(
    work: Processes,
    url: str,
    owner: str,
    seed: int,
    folder: Path,
    *,
    before: int = 80,
    after: int = 40,
) -> list[Path]:
    """Let two processes act, kill one of them, and return the journals of both.

    Args:
        before: lines that the one has written at most when it is killed.
        after: lines that the other one still writes then.

    Raises:
        WorkerError: a process ended otherwise than it had to.
    """
    chance = random.Random(seed)
    journals = {name: folder / f"{seed} {name}" for name in (VICTIM, SURVIVOR)}
    stop = folder / f"{seed} stop"
    victim, _ = [
        work.start(Life(url, owner, name, seed, str(journal), str(stop)))
        for name, journal in journals.items()
    ]
    _wait_for_lines(journals[VICTIM], chance.randint(1, before))
    time.sleep(chance.uniform(0, 0.005))
    os.kill(victim, signal.SIGKILL)
    _wait_for_lines(journals[SURVIVOR], after, more=True)
    stop.touch()
    ended = work.join()
    if list(ended) != [-signal.SIGKILL, 0]:
        raise WorkerError(f"The processes of seed {seed} ended with {ended}.")
    return list(journals.values())


def _lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def _wait_for_lines(journal: Path, count: int, *, more: bool = False) -> None:
    """Wait until a journal has so many lines, or so many more than it has.

    Raises:
        WorkerError: it takes a minute.
    """
    count += _lines(journal) if more else 0
    deadline = time.monotonic() + _PATIENCE
    while _lines(journal) < count:
        if time.monotonic() > deadline:
            raise WorkerError(f"{journal} did not reach {count} lines.")
        time.sleep(0.001)


async def judge(store: Store, prefix: str, seed: int, history: Sequence[Op]) -> Verdict:
    """Judge what two processes left, seen by a third."""
    owner = f"{prefix} {seed}"
    thread = await store.of(owner).thread(MAIN)
    if thread.head is not None:
        await store.of(owner).branch(MAIN, thread.head)
    rows = await read_rows(driver_of(store), owner)
    return Verdict(seed, tuple(Judge(rows, history).judge()), tuple(history))


def went_on(history: Sequence[Op]) -> int:
    """Return how many actions of the survivor succeeded after the other one's last word."""
    last = max((op.end or op.start for op in history if op.side == VICTIM), default=0)
    after = (op for op in history if op.side == SURVIVOR and op.start > last)
    return sum(op.outcome == "ok" for op in after)
