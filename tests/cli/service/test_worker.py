"""`agent-runtime worker` and `queue`, as processes: killed, stopped, drained."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from agent_runtime import Agent, Runtime, Settings
from agent_runtime_storage import Run
from tests.support.command import COMMAND, clean_environ, run_command

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


@pytest.mark.backends("file", "postgres")
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


def test_a_task_of_the_command_line_waits_in_the_queue(tmp_path: Path) -> None:
    made = run_command("run", "Look around.", "--queue", cwd=tmp_path)
    run_id = made.stdout.strip()
    listed = run_command("queue", "list", "--json", cwd=tmp_path)
    row = json.loads(listed.stdout)
    assert (row["run_id"], row["state"], row["program"]) == (run_id, "waiting", "agent-runtime")
    assert run_command("queue", "forget", run_id, cwd=tmp_path).returncode != 0
    assert run_command("queue", "cancel", run_id, cwd=tmp_path).returncode == 0
    assert "empty" in run_command("queue", "list", cwd=tmp_path).stderr
