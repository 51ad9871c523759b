"""`agent-runtime worker` and `queue`, as processes: killed, stopped, drained."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from agent_runtime import Agent, Runtime, Settings
from agent_runtime.log import leases
from agent_runtime_storage import Run
from agent_runtime_storage.contract.records.queue import QueueLimits
from tests.services.backends import FILE_THEN_POSTGRES
from tests.support.command import COMMAND, clean_environ, invoke_command

APP = """
import pathlib
import anyio
from agent_runtime import Agent, App, ScriptedModel, tool
from agent_runtime.models.scripted import call, say

@tool(idempotent=True)
async def effect() -> str:
    "Have an effect, and take a while the first time."
    marks = pathlib.Path("marks")
    first = not marks.exists()
    with marks.open("a") as file:
        file.write("x")
    if first:
        await anyio.sleep(HOW_LONG)
    return "it happened here"

def answer(request):
    done = any("it happened here" in str(one) for one in request.messages)
    return say("All done.") if done else call("effect")

app = App(agents={"helper": Agent(ScriptedModel(answer), tools=[effect])}, name="mine")
"""


@contextmanager
def worker(folder: Path, url: str) -> Generator[subprocess.Popen[str]]:
    """Start a worker that works by the time the context begins."""
    process = subprocess.Popen(
        [*COMMAND, "worker", "mine:app"], cwd=folder, text=True, stderr=subprocess.PIPE,
        env={**clean_environ(), "AGENT_RUNTIME_DATABASE_URL": url},
    )  # fmt: skip
    assert process.stderr is not None
    try:
        next(line for line in process.stderr if "Working on the queue" in line)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


async def until(runtime: Runtime, run_id: str, folder: Path | None = None) -> Run:
    """Wait until a run has ended, or until its tool has begun in this folder."""
    with anyio.fail_after(60):
        while True:
            run = await runtime.store_of().runs.get(run_id)
            if run.finished_at or (folder is not None and (folder / "marks").exists()):
                return run
            await anyio.sleep(0.05)


@FILE_THEN_POSTGRES
@pytest.mark.parametrize(
    ("sent", "seconds", "effects"), [(signal.SIGKILL, 600, "xx"), (signal.SIGTERM, 1, "x")]
)
async def test_another_worker_continues_what_one_leaves(
    tmp_path: Path, database_url: str, sent: signal.Signals, seconds: int, effects: str
) -> None:
    (tmp_path / "mine.py").write_text(APP.replace("HOW_LONG", str(seconds)))
    async with Runtime.open(Settings(database_url=database_url), program="mine") as runtime:
        queued = await runtime.enqueue(_helper(), "Go.")
        with worker(tmp_path, database_url) as first:
            await until(runtime, queued.run_id, tmp_path)
            first.send_signal(sent)
            first.wait(30)
        with worker(tmp_path, database_url):
            run = await until(runtime, queued.run_id)
    assert (run.status, run.output) == ("succeeded", b'"All done."')
    assert (tmp_path / "marks").read_text() == effects


def _helper() -> Agent:
    return Agent(name="helper")


@pytest.mark.slow
@pytest.mark.backends("postgres")
async def test_a_worker_that_was_stopped_beyond_its_lease_writes_nothing(
    tmp_path: Path, database_url: str
) -> None:
    # Its tool has ended by the time it goes on, so it tries to write the result at once.
    (tmp_path / "mine.py").write_text(APP.replace("HOW_LONG", "5"))
    async with Runtime.open(Settings(database_url=database_url), program="mine") as runtime:
        queued = await runtime.enqueue(_helper(), "Go.")
        with worker(tmp_path, database_url) as stopped:
            await until(runtime, queued.run_id, tmp_path)
            stopped.send_signal(signal.SIGSTOP)
            with worker(tmp_path, database_url):
                run = await until(runtime, queued.run_id)
                before = await runtime.threads.messages(queued.thread_id)
                stopped.send_signal(signal.SIGCONT)
            # The other one is gone, so the one that was stopped works on the next.
            following = await runtime.enqueue(_helper(), "Go on.")
            assert (await until(runtime, following.run_id)).status == "succeeded"
        after = await runtime.store_of().runs.get(queued.run_id)
        messages = await runtime.threads.messages(queued.thread_id)
    assert (run.status, run.output) == ("succeeded", b'"All done."') and run.epoch > 1
    assert (after, messages) == (run, before)
    assert (tmp_path / "marks").read_text() == "xxx"


@pytest.mark.backends("file", "postgres")
async def test_the_clock_of_the_database_decides(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "clock.py").write_text(
        "import time\nreal = time.time\ntime.time = lambda: real() + 7200\n"
    )
    (tmp_path / "mine.py").write_text("import clock\n" + APP.replace("HOW_LONG", "0"))
    async with Runtime.open(Settings(database_url=database_url), program="mine") as runtime:
        # By the clock of the worker, the first is due, and the lease of the second has expired.
        delayed = await runtime.enqueue(
            _helper(), "Later.", at=datetime.now(UTC) + timedelta(hours=1)
        )
        held = await runtime.enqueue(_helper(), "Held.")
        [picked] = await runtime.store.queue.pick(
            1, [("mine", "helper", "")], leases.this_process_owner(), seconds=60.0,
            limits=QueueLimits(),
        )  # fmt: skip
        queued = await runtime.enqueue(_helper(), "Go.")
        with worker(tmp_path, database_url):
            assert (await until(runtime, queued.run_id)).status == "succeeded"
        states = {row.run_id: row.state for row in await runtime.queue.list()}
        run = await runtime.store_of().runs.get(held.run_id)
    assert states == {delayed.run_id: "delayed", held.run_id: "working"}
    assert (picked.lease.run_id, run.epoch) == (held.run_id, 1)


def test_a_task_of_the_command_line_waits_in_the_queue(tmp_path: Path) -> None:
    made = invoke_command("run", "Look around.", "--queue", cwd=tmp_path)
    run_id = made.stdout.strip()
    listed = invoke_command("queue", "list", "--json", cwd=tmp_path)
    row = json.loads(listed.stdout)
    assert (row["run_id"], row["state"], row["program"]) == (run_id, "waiting", "agent-runtime")
    assert "it waits for a worker" in invoke_command("runs", "list", cwd=tmp_path).stdout
    assert invoke_command("queue", "forget", run_id, cwd=tmp_path).returncode != 0
    assert invoke_command("queue", "cancel", run_id, cwd=tmp_path).returncode == 0
    assert "empty" in invoke_command("queue", "list", cwd=tmp_path).stderr

    assert invoke_command("run", "Go.", "--at", "2100-01-01T09:00", cwd=tmp_path).returncode == 2
    assert invoke_command("run", "Go.", "--queue", "--at", "soon", cwd=tmp_path).returncode == 2
    turn = ("--at", "2100-01-01T09:00+01:00", "--priority", "2")
    invoke_command("run", "Go.", "--queue", *turn, cwd=tmp_path)
    row = json.loads(invoke_command("queue", "list", "--json", cwd=tmp_path).stdout)
    at = datetime(2100, 1, 1, 8, tzinfo=UTC).timestamp()
    assert (row["state"], row["due_at"], row["tag"]) == ("delayed", at, 0.5)


def test_schedules_of_the_command_line(tmp_path: Path) -> None:
    add = ("schedules", "add", "news", "0 9 * * MON-FRI", "What is new?")
    made = invoke_command(*add, "--zone", "Europe/Berlin", cwd=tmp_path)
    assert (made.returncode, invoke_command(*add, cwd=tmp_path).returncode != 0) == (0, True)
    [row] = invoke_command("schedules", "list", "--json", cwd=tmp_path).stdout.splitlines()
    assert {"id": "news", "zone": "Europe/Berlin", "paused": False}.items() <= json.loads(
        row
    ).items()
    assert invoke_command("schedules", "pause", "news", cwd=tmp_path).returncode == 0
    assert "paused" in invoke_command("schedules", "list", cwd=tmp_path).stdout
    assert invoke_command("schedules", "resume", "news", cwd=tmp_path).returncode == 0
    assert invoke_command("schedules", "remove", "news", cwd=tmp_path).returncode == 0
    assert "no schedules" in invoke_command("schedules", "list", cwd=tmp_path).stderr
