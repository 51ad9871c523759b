"""Commands of a runtime that was killed: they end with it, or by the resume."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.models.scripted import say
from agent_runtime.tools.workspace import command_records as commands
from agent_runtime.tools.workspace import supervisor
from agent_runtime.tools.workspace.files import workspace_tools
from tests.support.processes import program
from tests.tools.test_command_trees import TREE, all_ended
from tests.tools.test_shell import ended

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it needs Linux")


async def resumed(database_url: str, folder: Path) -> str:
    """Resume the run, and return what its model is shown of the command."""
    model = ScriptedModel([say("done")])
    tools = workspace_tools(folder, shell=True)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        [run] = await runtime.store.of("local").runs.list(thread_id="t")
        assert (await runtime.resume(run.id, Agent(model, tools=tools))).ok
        node = await runtime.store.of("local").log.node("t", 2)
    [result] = node.calls
    assert result.outcome == "interrupted"
    return str(result.body)


def test_a_supervisor_that_ended_before_it_was_recorded_is_not_waited_for() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    command = commands.SupervisedCommand.of("call", "0" * 32, gone.pid)
    assert not command.started
    assert commands.end_command(command) == []


@pytest.mark.backends("file")
async def test_a_whole_tree_ends_with_a_killed_runtime(tmp_path: Path, database_url: str) -> None:
    os.mkfifo(tmp_path / "reply")
    command = f"{TREE} echo > reply; sleep 600"
    async with program("tests.tools.commanding", database_url, str(tmp_path), command) as other:
        await anyio.to_thread.run_sync((tmp_path / "reply").read_text)
        await other.kill()
    await all_ended(tmp_path)
    assert "could not be ended" not in await resumed(database_url, tmp_path)


@pytest.mark.backends("file")
async def test_what_outlives_a_killed_runtime_is_ended_by_the_resume(
    tmp_path: Path, database_url: str
) -> None:
    os.mkfifo(tmp_path / "reply")
    command = f"{TREE} echo $PPID > reply; sleep 600"
    async with program("tests.tools.commanding", database_url, str(tmp_path), command) as other:
        parent = int(await anyio.to_thread.run_sync((tmp_path / "reply").read_text))
        above = supervisor.process_parents()[parent]
        # So it does not notice that the runtime is gone.
        os.kill(above, signal.SIGSTOP)
        await other.kill()
    assert above in supervisor.process_parents()

    assert "could not be ended" not in await resumed(database_url, tmp_path)

    await all_ended(tmp_path)
    await ended(above)
