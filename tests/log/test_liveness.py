"""Liveness of other processes: stopped, late, killed, or out of sight."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import ThreadBusy
from agent_runtime.log import liveness as marker
from agent_runtime.log.leases import at_work, is_dead, this_process_owner
from agent_runtime.models.scripted import call, say
from agent_runtime.run.sweep import sweep
from agent_runtime_storage import Lease, Run, open_store
from tests.services.backends import FILE_THEN_POSTGRES
from tests.support.command import ROOT, clean_environ
from tests.support.elsewhere import elsewhere

pytestmark = pytest.mark.backends("file", "postgres")


@pytest.fixture
async def runtime(database_url: str) -> AsyncGenerator[Runtime]:
    """A runtime on the test's own database."""
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        yield runtime


async def expire(runtime: Runtime, run: Run) -> Run:
    """End a run's lease, as a clock that jumped would; return the run's row."""
    store = runtime.store.of("local")
    lease = Lease(run.id, run.thread_id, run.root_run_id, run.epoch)
    await store.runs.renew_lease(lease, seconds=-3600)
    expired = await store.runs.get(run.id)
    assert not expired.lease_live
    return expired


async def test_a_live_process_keeps_its_run_however_late_its_lease(
    runtime: Runtime, database_url: str
) -> None:
    store = runtime.store.of("local")
    async with elsewhere(database_url) as other:
        run_id = (await other.until("tool-start"))["run_id"]
        # Stopped, it cannot renew its lease meanwhile.
        other.process.send_signal(signal.SIGSTOP)
        run = await expire(runtime, await store.runs.get(run_id))

        assert not is_dead(run)
        assert (await sweep(store)).interrupted == ()
        with pytest.raises(ThreadBusy):
            await runtime.resume(run_id, Agent(ScriptedModel([])))

        other.process.send_signal(signal.SIGCONT)
        await other.release()
        await other.until("run-finish", status="succeeded")
    assert (await store.runs.get(run_id)).epoch == 1


@FILE_THEN_POSTGRES
async def test_a_killed_process_is_dead_and_one_out_of_sight_is_not(
    runtime: Runtime, database_url: str
) -> None:
    store = runtime.store.of("local")
    async with elsewhere(database_url) as other:
        run_id = (await other.until("tool-start"))["run_id"]
        await other.kill()
    run = await store.runs.get(run_id)
    owner = run.owner
    assert owner is not None and run.lease_live

    assert is_dead(run)
    # Its process id now belongs to another process, which is alive.
    here = this_process_owner()
    reused = replace(owner, pid=here.pid, started=here.started)
    assert is_dead(replace(run, owner=reused))
    # Another machine of that name, another container, a clone, an earlier boot: state unknown.
    boot = owner.boot.partition(":")[0]
    for elsewhere_owner in (
        replace(owner, machine="another"),
        replace(owner, host="another"),
        replace(owner, boot="another:1"),
        replace(owner, boot=f"{boot}:1"),
        replace(owner, instance="0" * 32),
        replace(owner, instance="", machine=""),
    ):
        assert not is_dead(replace(run, owner=elsewhere_owner)), elsewhere_owner
        assert is_dead(replace(run, owner=elsewhere_owner, lease_live=False)), elsewhere_owner


@FILE_THEN_POSTGRES
async def test_a_process_whose_markers_are_out_of_sight_is_known_by_its_pid(
    runtime: Runtime, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in another container that shares only the database; but its process id is visible here.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = runtime.store.of("local")
    async with elsewhere(database_url) as other:
        run_id = (await other.until("tool-start"))["run_id"]
        monkeypatch.undo()
        other.process.send_signal(signal.SIGSTOP)
        late = await expire(runtime, await store.runs.get(run_id))
        assert not is_dead(late)
        await other.kill()
    assert is_dead(late)
    assert not is_dead(replace(late, lease_live=True))


def python(script: str) -> subprocess.Popen[str]:
    """Start a script; it may wait for the end of its stdin, which comes when the block is left."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script]
    return subprocess.Popen(
        command, cwd=ROOT, env=clean_environ(), stdin=pipe, stdout=pipe, text=True
    )


FORKING_SCRIPT = """
import os, sys
from agent_runtime.log import liveness as marker
with marker.at_work("r"):
    if os.fork() == 0:
        os.write(1, f"child {marker.instance()}\\n".encode())
        sys.stdin.read()
        os._exit(0)
    os.write(1, f"parent {marker.instance()}\\n".encode())
    os._exit(0)
"""


def test_a_forked_child_does_not_hold_its_parents_markers() -> None:
    with python(FORKING_SCRIPT) as process:
        assert process.stdout is not None
        names = dict(process.stdout.readline().split() for _ in range(2))
        process.wait(60)
        assert marker.activity_of(names["parent"], "r") == "gone"
        assert marker.activity_of(names["child"], "r") == "idle"


READING_SCRIPT = """
import sys
from agent_runtime.log import liveness as marker
with marker.at_work("r"):
    [path] = [one for one in marker.state_folders()[0].rglob("*") if one.name == marker.instance()]
    path.read_bytes()
    print(marker.instance(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere locks belong to the process")
def test_markers_stay_when_their_process_reads_their_file() -> None:
    with python(READING_SCRIPT) as process:
        assert process.stdout is not None
        assert marker.activity_of(process.stdout.readline().strip(), "r") == "working"


WORKING_SCRIPT = """
import sys
from agent_runtime.log import liveness as marker
with marker.at_work("r"):
    print(marker.instance(), flush=True)
    sys.stdin.read()
"""


def test_a_process_that_works_on_another_run_is_idle() -> None:
    with python(WORKING_SCRIPT) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert [marker.activity_of(name, run) for run in ("r", "another")] == ["working", "idle"]
    # It ended without leaving a run behind, and removed its file.
    assert marker.activity_of(name, "r") == "unknown"
    with at_work("r"):
        assert marker.activity_of("../" + this_process_owner().instance, "r") == "unknown"


async def renewals(database_url: str) -> None:
    """Expire the lease of the thread's run twice, and wait each time until it is renewed."""
    store = await open_store(database_url, migrate=False)
    try:
        user = store.of("local")
        for _ in range(2):
            [run] = await user.runs.list(thread_id="t")
            lease = Lease(run.id, run.thread_id, run.root_run_id, run.epoch)
            await user.runs.renew_lease(lease, seconds=-3600)
            while not (await user.runs.get(run.id)).lease_live:  # noqa: ASYNC110
                await anyio.sleep(0.02)
    finally:
        await store.close()


async def test_a_tool_that_blocks_the_loop_keeps_its_run(
    runtime: Runtime, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime.log.leases.LEASE_SECONDS", 0.6)

    @tool
    async def block() -> str:
        """Block the event loop until the lease has been renewed twice."""
        script = "import anyio, sys; from tests.log.test_liveness import renewals as f"
        completed = subprocess.run(  # noqa: ASYNC221  (blocking is the point)
            [sys.executable, "-c", f"{script}; anyio.run(f, sys.argv[1])", database_url],
            cwd=ROOT,
            env=clean_environ(),
            timeout=60,
        )
        return f"exit code {completed.returncode}"

    blocking = Agent(ScriptedModel([call("block"), say("done")]), tools=[block])
    result = await runtime.run(blocking, "Go.", thread="t")

    assert result.ok
    node = await runtime.store.of("local").log.node("t", 2)
    assert b"exit code 0" in node.calls[0].body
