"""Claims of memory jobs whose process was killed: the next run takes them at once."""

from __future__ import annotations

import re
from dataclasses import replace

import anyio
import pytest

from agent_runtime import Runtime, Settings
from agent_runtime.log import leases
from agent_runtime.log.leases import claim_holder, is_claim_void
from agent_runtime_storage import Lease
from tests.memory.observational import hanging_observer
from tests.memory.observational.hanging_observer import MEMORY, RecordingObserver, agent_for
from tests.memory.observational.observing import observe_with
from tests.support.processes import program

LEASE = Lease("run", "t", "run", 2)


@pytest.mark.backends("file", "postgres")
async def test_a_resumed_run_takes_over_the_observation_of_a_killed_process(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program(hanging_observer.__name__, database_url) as other:
        nodes = (await other.line())["nodes"]
        await other.kill()

    observer = RecordingObserver()
    observe_with(monkeypatch, observer, deadline=3600)
    async with Runtime.open(Settings(database_url=database_url, **MEMORY)) as runtime:
        [run] = await runtime.store.of("local").runs.list()
        with anyio.fail_after(60):
            assert (await runtime.resume(run.id, agent_for(observer))).ok

    assert observer.asked[0] == nodes


def test_a_claim_of_a_process_that_cannot_be_seen_is_void_once_its_lease_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = claim_holder(replace(LEASE, epoch=1))
    # This process is alive, so it may still finish what the run began.
    assert not is_claim_void(older, LEASE)

    here = leases.this_process_owner()
    monkeypatch.setattr(leases, "this_process_owner", lambda: replace(here, host="another host"))
    assert is_claim_void(older, LEASE)
    assert not is_claim_void(claim_holder(LEASE), LEASE)
    assert not is_claim_void(older, replace(LEASE, run_id="another"))


@pytest.mark.parametrize("holder", ["", "run", "run x y z", "run 1 y z and more"])
def test_a_claim_that_names_nobody_has_to_expire(holder: str) -> None:
    assert not is_claim_void(holder, LEASE)


def test_a_claim_of_a_process_that_has_ended_here_is_void() -> None:
    gone = re.sub(r"[0-9a-f]{32}", "0" * 32, claim_holder(LEASE))
    # No file of such a process can be seen, so it may be anywhere.
    assert not is_claim_void(gone, LEASE)
