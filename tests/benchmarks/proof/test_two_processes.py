"""Two processes on one thread: one is killed at a random instant, the other continues."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from agent_runtime_storage.urls import backend_of
from benchmarks.proof.interleavings.harness import Verdict
from benchmarks.proof.interleavings.processes import acted_after, run_kills
from benchmarks.proof.interleavings.store import StoreWorld

pytestmark = pytest.mark.slow

KILLS = {"file": 6}
"""How many the tests try; `python -m benchmarks interleavings.store --processes` tries more."""


async def test_a_killed_process_leaves_a_consistent_thread_and_the_other_continues(
    database_url: str, tmp_path: Path
) -> None:
    verdicts: list[Verdict] = []
    count = KILLS.get(backend_of(database_url), 2)

    kill = partial(run_kills, StoreWorld, database_url, range(count), verdicts.append, tmp_path)
    # In a thread: the processes have event loops of their own.
    await anyio.to_thread.run_sync(kill)

    assert {verdict.seed: verdict.problems for verdict in verdicts if verdict.problems} == {}
    assert len(verdicts) == count
    assert all(acted_after(verdict.history) for verdict in verdicts)
