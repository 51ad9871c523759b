"""A command's end also ends all processes that it started, however they hide."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace import command_records as commands
from agent_runtime.tools.workspace import supervisor
from agent_runtime.tools.workspace.files import workspace_tools
from tests.tools.calling import call, error, text
from tests.tools.test_shell import ended

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it needs Linux")

TREE = """
sh -c 'echo $$ >> pids; exec sleep 600' &
setsid sh -c 'echo $$ >> pids; exec sleep 600' &
(setsid nohup sh -c 'echo $$ >> pids; exec sleep 600' >/dev/null 2>&1 &)
env -i setsid sh -c '(echo $$ >> pids; exec sleep 600) & exit' &
while [ $(cat pids 2>/dev/null | wc -l) -lt 4 ]; do sleep 0.01; done
"""


def runner(root: Path, timeout: float = 60) -> Tool:
    tools = workspace_tools(root, shell=True, shell_timeout=timeout)
    return next(tool for tool in tools if tool.name == "bash")


async def all_ended(root: Path) -> None:
    """Wait until all processes that a command listed in `pids` are gone."""
    for line in (root / "pids").read_text().split():
        await ended(int(line))


def threads_of(pid: str) -> int:
    """Return how many threads a process has; one that nobody awaits keeps its first."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    except FileNotFoundError:
        return 0


async def test_a_whole_tree_ends_with_its_command(tmp_path: Path) -> None:
    assert await text(runner(tmp_path), command=f"{TREE} exit 3") == "Exit code 3.\n"
    await all_ended(tmp_path)


async def test_a_whole_tree_ends_with_the_time_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    reply = await error(runner(tmp_path, 3), command=f"{TREE} echo begun; read x < never")
    assert reply.startswith("It was killed after 3 s.")
    if (tmp_path / "pids").exists():
        await all_ended(tmp_path)


async def test_a_whole_tree_ends_with_a_cancel(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "reply")
    async with anyio.create_task_group() as group:
        command = f"{TREE} echo > reply; sleep 600"
        group.start_soon(lambda: call(runner(tmp_path), command=command))
        await anyio.to_thread.run_sync((tmp_path / "reply").read_text)
        group.cancel_scope.cancel()
    await all_ended(tmp_path)


@pytest.mark.parametrize("kind", ["KILL", "STOP"])
async def test_a_whole_tree_ends_though_its_command_kills_or_stops_its_parent(
    tmp_path: Path, kind: str
) -> None:
    command = f"{TREE} kill -{kind} $PPID; exit 3"
    with anyio.fail_after(60):
        shown = await text(runner(tmp_path), command=command)
    assert shown.startswith("Exit code ")
    await all_ended(tmp_path)


@pytest.mark.parametrize("kind", ["KILL", "TERM"])
async def test_a_whole_tree_ends_though_its_command_kills_the_supervisor(
    tmp_path: Path, kind: str
) -> None:
    # The parent's parent is the supervisor; without it, processes are found by their environment.
    command = """
        setsid sh -c 'echo $$ >> pids; exec sleep 600' &
        while [ ! -s pids ]; do sleep 0.01; done
        kill -%s $(cut -d' ' -f4 /proc/$PPID/stat)
        sleep 600
    """
    with anyio.fail_after(60):
        await call(runner(tmp_path), command=command % kind)
    await all_ended(tmp_path)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="it has the number of a system call")
@pytest.mark.parametrize(
    "end", ["exit 3", "kill -KILL $(cut -d' ' -f4 /proc/$PPID/stat); exec sleep 9"]
)
async def test_a_process_whose_first_thread_ended_ends_as_well(tmp_path: Path, end: str) -> None:
    # Its state is that of a zombie, and its other threads work on.
    (tmp_path / "program.py").write_text(
        "import ctypes, os, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "open('pids', 'w').write(str(os.getpid()))\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"
    )
    command = f"""
        setsid {sys.executable} -I -S program.py >/dev/null 2>&1 &
        while ! grep -qs '^State:.Z' /proc/$(cat pids)/status; do sleep 0.01; done
        {end}
    """
    with anyio.fail_after(60):
        await call(runner(tmp_path), command=command)
    assert threads_of((tmp_path / "pids").read_text()) <= 1


def test_a_processs_name_is_one_line() -> None:
    # Otherwise it could pass for the exit code.
    rename = "open('/proc/self/comm', 'w').write('x\\nexit 0'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert supervisor.name_of(process.pid) == f"{process.pid} (x exit 0)"
        process.kill()


async def test_a_stopped_supervisor_is_woken_at_the_time_limit(tmp_path: Path) -> None:
    command = "echo $$ > pids; kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat); sleep 600"
    with anyio.fail_after(60):
        await error(runner(tmp_path, 2), command=command)
    await all_ended(tmp_path)


async def test_a_killed_commands_exit_code_is_its_signal(tmp_path: Path) -> None:
    assert await text(runner(tmp_path), command="kill -TERM $$") == "Exit code -15.\n"


async def test_a_command_that_no_shell_accepts_is_an_error(tmp_path: Path) -> None:
    reply = await error(runner(tmp_path), command="true \0")
    assert reply.startswith("It could not be run: ")


async def test_a_command_cannot_see_the_runtimes_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-123")
    shown = await text(runner(tmp_path), command="cat /proc/$PPID/environ")
    assert supervisor.MARK in shown
    assert "sk-123" not in shown


async def test_no_record_of_an_ended_command_remains(tmp_path: Path) -> None:
    assert await text(runner(tmp_path), command="exit 0") == "Exit code 0.\n"
    assert commands.end_of_run("run") == {}


async def test_a_leftover_supervisor_is_ended_with_its_command(tmp_path: Path) -> None:
    # As a resume finds it after the runtime was killed while the supervisor was stopped.
    os.mkfifo(tmp_path / "reply")
    async with anyio.create_task_group() as group:
        command = f"{TREE} echo $PPID > reply; sleep 600"
        group.start_soon(lambda: call(runner(tmp_path), command=command))
        parent = int(await anyio.to_thread.run_sync((tmp_path / "reply").read_text))
        supervisor_pid = supervisor.process_parents()[parent]
        os.kill(supervisor_pid, signal.SIGSTOP)

        assert await anyio.to_thread.run_sync(commands.end_of_run, "run") == {}
        await all_ended(tmp_path)
        await ended(supervisor_pid)
