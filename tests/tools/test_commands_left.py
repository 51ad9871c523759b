"""Commands of a killed runtime end with it, or are ended by the resume."""

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


async def resume_run(database_url: str, folder: Path) -> str:
    """Resume the run, and return the command's result in its log."""
    model = ScriptedModel([say("done")])
    tools = workspace_tools(folder, shell=True)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        [run] = await runtime.store.of("local").runs.list(thread_id="t")
        assert (await runtime.resume(run.id, Agent(model, tools=tools))).ok
        node = await runtime.store.of("local").log.node("t", 2)
    [result] = node.calls
    assert result.outcome == "interrupted"
    return str(result.body)


def test_a_supervisor_that_was_gone_when_recorded_is_not_waited_for() -> None:
    ended_process = subprocess.Popen([sys.executable, "-c", ""])
    ended_process.wait()
    command = commands.SupervisedCommand.of("call", "0" * 32, ended_process.pid)
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
    assert "could not be ended" not in await resume_run(database_url, tmp_path)


@pytest.mark.backends("file")
async def test_a_resume_ends_processes_that_outlived_a_killed_runtime(
    tmp_path: Path, database_url: str
) -> None:
    os.mkfifo(tmp_path / "reply")
    command = f"{TREE} echo $PPID > reply; sleep 600"
    async with program("tests.tools.commanding", database_url, str(tmp_path), command) as other:
        parent = int(await anyio.to_thread.run_sync((tmp_path / "reply").read_text))
        supervisor_pid = supervisor.process_parents()[parent]
        # Stopped, it does not notice that the runtime is gone.
        os.kill(supervisor_pid, signal.SIGSTOP)
        await other.kill()
    assert supervisor_pid in supervisor.process_parents()

    assert "could not be ended" not in await resume_run(database_url, tmp_path)

    await all_ended(tmp_path)
    await ended(supervisor_pid)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
@pytest.mark.backends("file")
async def test_ten_trees_end_with_a_killed_runtime(
    tmp_path: Path, database_url: str, turn: int
) -> None:
    folders = [tmp_path / str(number) for number in range(10)]
    for folder in folders:
        folder.mkdir()
        os.mkfifo(folder / "reply")
    command = f"{TREE} echo > reply; exec sleep 600"
    commands_of_all = [f"cd {folder.name}; {command}" for folder in folders]
    async with program(
        "tests.tools.commanding", database_url, str(tmp_path), *commands_of_all
    ) as other:
        for folder in folders:
            await anyio.to_thread.run_sync((folder / "reply").read_text)
        await other.kill()
    for folder in folders:
        await all_ended(folder)
