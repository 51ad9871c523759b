"""Two processes run agents with memory on one thread; one of them is killed at a random instant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import anyio

from agent_runtime_storage import open_store
from benchmarks.proof.interleavings.memory_run import Scheduler, Verdict, judge
from benchmarks.proof.interleavings.memory_worker import read_journal
from benchmarks.proof.interleavings.memory_world import MAIN, Op, Sent
from benchmarks.proof.interleavings.processes import kill_one, processes

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
    with processes("benchmarks.proof.interleavings.memory_worker") as work:
        for seed in range(first, first + count):
            owner = f"{prefix} {seed}"
            anyio.run(_prepare, url, owner)
            journals = kill_one(work, url, owner, seed, folder, before=_BEFORE, after=_AFTER)
            history: list[Op] = []
            sent: list[Sent] = []
            for journal in journals:
                ops, prompts = read_journal(journal)
                history += ops
                sent += prompts
            on_verdict(anyio.run(_finish, url, owner, seed, history, sent))


async def _prepare(url: str, owner: str) -> None:
    store = await open_store(url)
    await store.of(owner).ensure_thread(MAIN)
    await store.close()


async def _finish(url: str, owner: str, seed: int, history: list[Op], sent: list[Sent]) -> Verdict:
    """Bring what is left to its end by a third, and judge it."""
    store = await open_store(url)
    try:
        scheduler = Scheduler((store, store), owner, seed, 0, False, history=history, sent=sent)
        await scheduler.finish()
        return await judge(store, owner, seed, history, sent)
    finally:
        await store.close()
