"""Let two processes act on one thread, and kill one of them with SIGKILL at a random instant."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

import anyio
import orjson

from agent_runtime.errors import AgentRuntimeError
from agent_runtime_storage import open_store
from benchmarks.proof.interleavings import worker
from benchmarks.proof.interleavings.harness import Scheduler, Verdict, World, finish
from benchmarks.proof.interleavings.history import Op, read_journal
from benchmarks.proof.interleavings.worker import Life
from tests.support.command import ROOT, clean_environ
from tests.support.prompt_judge import MAIN

VICTIM, SURVIVOR = "victim", "survivor"
_BEFORE = 80
"""The most lines that the victim writes before it is killed: two per action, one per prompt."""
_AFTER = 40
"""Lines that the survivor writes after the kill."""
_PATIENCE = 60.0


class WorkerError(AgentRuntimeError):
    """A process of the harness failed, so nothing is known about the store."""


class Processes:
    """The program that forks the processes."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        self._program = program

    def start(self, life: Life) -> int:
        """Start a process and return its id."""
        return self._ask(orjson.dumps(asdict(life)))[0]

    def join(self) -> Sequence[int]:
        """Wait until all processes have ended, and return their exit codes, in order."""
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
def processes(kind: type[World]) -> Generator[Processes]:
    """Start the program that forks the processes of a world, and end it afterwards."""
    command = [sys.executable, "-m", worker.__name__, kind.__module__]
    pipe = subprocess.PIPE
    environ = clean_environ()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environ, cwd=ROOT) as program:
        # Leaving this context closes its stdin, which ends it.
        yield Processes(program)


def kill_one(work: Processes, url: str, owner: str, seed: int, folder: Path) -> list[Path]:
    """Let two processes act, kill one of them, and return both journals.

    Raises:
        WorkerError: a process ended in an unexpected way.
    """
    chance = random.Random(seed)
    journals = {name: folder / f"{seed} {name}" for name in (VICTIM, SURVIVOR)}
    stop = folder / f"{seed} stop"
    victim, _ = [
        work.start(Life(url, owner, name, seed, str(journal), str(stop)))
        for name, journal in journals.items()
    ]
    _wait_for_lines(journals[VICTIM], chance.randint(1, _BEFORE))
    # So the kill hits anywhere in an action, not only right after a line.
    time.sleep(chance.uniform(0, 0.005))
    os.kill(victim, signal.SIGKILL)
    _wait_for_lines(journals[SURVIVOR], _lines(journals[SURVIVOR]) + _AFTER)
    stop.touch()
    ended = work.join()
    if list(ended) != [-signal.SIGKILL, 0]:
        raise WorkerError(f"The processes of seed {seed} ended with {ended}.")
    return list(journals.values())


def _lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def _wait_for_lines(journal: Path, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while _lines(journal) < count:
        if time.monotonic() > deadline:
            raise WorkerError(f"{journal} did not reach {count} lines.")
        time.sleep(0.001)


def run_kills(
    kind: type[World],
    url: str,
    seeds: Iterable[int],
    on_verdict: Callable[[Verdict], None],
    folder: Path,
) -> None:
    """Let two processes act on one thread and kill one of them, for each seed.

    Raises:
        WorkerError: a process ended in an unexpected way.
    """
    kind.prepare()
    prefix = f"processes {uuid4().hex}"
    with processes(kind) as work:
        for seed in seeds:
            world = kind(f"{prefix} {seed}")
            anyio.run(_ensure_thread, url, world.owner)
            history: list[Op] = []
            for journal in kill_one(work, url, world.owner, seed, folder):
                ops, sent = read_journal(journal)
                history += ops
                world.sent += sent
            on_verdict(anyio.run(_judge, url, world, seed, history))


async def _ensure_thread(url: str, owner: str) -> None:
    store = await open_store(url)
    await store.of(owner).threads.ensure(MAIN)
    await store.close()


async def _judge(url: str, world: World, seed: int, history: list[Op]) -> Verdict:
    """Judge, with a third store, the rows that two processes left."""
    store = await open_store(url)
    try:
        return await finish(Scheduler(world, (store, store), seed, history=history), store)
    finally:
        await store.close()


def acted_after(history: Sequence[Op]) -> int:
    """Return how many actions of the survivor succeeded after the victim's last line."""
    last = max((op.end or op.start for op in history if op.side == VICTIM), default=0)
    after = (op for op in history if op.side == SURVIVOR and op.start > last)
    return sum(op.outcome == "ok" for op in after)
