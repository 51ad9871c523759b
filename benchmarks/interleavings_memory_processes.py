"""Two processes run agents with memory on one thread; one of them is killed at a random instant."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import anyio

from agent_runtime_storage import open_store

from .interleavings_memory_run import Scheduler, Verdict, judge
from .interleavings_memory_worker import read_journal
from .interleavings_memory_world import MAIN, Op, Sent
from .interleavings_processes import (
    SURVIVOR,
    VICTIM,
    Processes,
    WorkerError,
    processes,
    wait_for_lines,
)
from .interleavings_worker import Life

_BEFORE = 60
"""Lines that the victim writes at most before it is killed: two for an action, one for a prompt."""
_AFTER = 30
"""Lines that the survivor still writes after the kill."""


def run_kills(
    url: str, first: int, count: int, on_verdict: Callable[[Verdict], None], folder: Path
) -> None:
    """Let two processes work on one thread and kill one of them, for each of so many seeds.

    Raises:
        WorkerError: a process ended otherwise than it had to.
    """
    prefix = f"memory processes {uuid4().hex}"
    with processes("benchmarks.interleavings_memory_worker") as work:
        for seed in range(first, first + count):
            owner = f"{prefix} {seed}"
            anyio.run(_prepare, url, owner)
            history, sent = _kill_one(work, url, owner, seed, folder)
            on_verdict(anyio.run(_finish, url, owner, seed, history, sent))


async def _prepare(url: str, owner: str) -> None:
    store = await open_store(url)
    await store.of(owner).ensure_thread(MAIN)
    await store.close()


def _kill_one(
    work: Processes, url: str, owner: str, seed: int, folder: Path
) -> tuple[list[Op], list[Sent]]:
    chance = random.Random(seed)
    journals = {name: folder / f"memory {seed} {name}" for name in (VICTIM, SURVIVOR)}
    stop = folder / f"memory {seed} stop"
    victim, _ = [
        work.start(Life(url, owner, name, seed, str(journal), str(stop)))
        for name, journal in journals.items()
    ]
    wait_for_lines(journals[VICTIM], chance.randint(2, _BEFORE))
    time.sleep(chance.uniform(0, 0.005))
    os.kill(victim, signal.SIGKILL)
    wait_for_lines(journals[SURVIVOR], _AFTER, more=True)
    stop.touch()
    ended = work.join()
    if list(ended) != [-signal.SIGKILL, 0]:
        raise WorkerError(f"The processes of seed {seed} ended with {ended}.")
    history: list[Op] = []
    sent: list[Sent] = []
    for journal in journals.values():
        ops, prompts = read_journal(journal)
        history += ops
        sent += prompts
    return history, sent


async def _finish(url: str, owner: str, seed: int, history: list[Op], sent: list[Sent]) -> Verdict:
    """Bring what is left to its end by a third, and judge it."""
    store = await open_store(url)
    try:
        scheduler = Scheduler((store, store), owner, seed, 0, False, history=history, sent=sent)
        await scheduler.finish()
        return await judge(store, owner, seed, history, sent)
    finally:
        await store.close()
