"""Running commands: output, exit codes, and no process that outlives them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest

from agent_runtime.errors import ConfigError
from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace import command_output
from agent_runtime.tools.workspace.files import workspace_tools
from tests.tools.calling import PATIENCE, call, error, text


def runner(root: Path, *, timeout: float = 60, environment: dict[str, str] | None = None) -> Tool:
    tools = workspace_tools(root, shell=True, shell_timeout=timeout, environment=environment)
    return next(tool for tool in tools if tool.name == "bash")


async def ended(pid: int) -> None:
    """Wait until a process is gone."""

    def wait() -> None:
        deadline = time.monotonic() + PATIENCE
        while _runs(pid):
            assert time.monotonic() < deadline, f"process {pid} still runs"
            time.sleep(0.01)

    await anyio.to_thread.run_sync(wait)


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_the_result_has_output_errors_and_exit_code(tmp_path: Path) -> None:
    command = "pwd; echo error >&2; cat; exit 3"
    assert await text(runner(tmp_path), command=command) == (f"Exit code 3.\n{tmp_path}\nerror\n")


async def test_a_command_that_takes_too_long_is_killed_with_all_it_started(tmp_path: Path) -> None:
    command = "echo begun; sleep 600 & echo $! > pid; wait"
    reply = await error(runner(tmp_path), command=command, timeout=1)
    assert reply == "It was killed after 1 s. Its output until then:\nbegun\n" + (
        "[For more time give `timeout`, at most 60, or `background`.]"
    )
    await ended(int((tmp_path / "pid").read_text()))


async def test_a_model_cannot_exceed_the_time_limit(tmp_path: Path) -> None:
    reply = await error(runner(tmp_path, timeout=0.2), command="sleep 600", timeout=900)
    assert reply.startswith("It was killed after 0.2 s.")


async def test_background_processes_of_a_command_are_killed(tmp_path: Path) -> None:
    # The first sleep holds the output open; the second keeps the command running for a moment.
    shown = await text(runner(tmp_path), command="sleep 600 & echo $!; sleep 0.2")
    await ended(int(shown.split("\n")[1]))


async def test_a_cancelled_command_is_killed_with_all_it_started(tmp_path: Path) -> None:
    reply = tmp_path / "reply"
    os.mkfifo(reply)
    pid = 0
    async with anyio.create_task_group() as group:
        command = "sleep 600 & echo $! > reply; wait"
        group.start_soon(lambda: call(runner(tmp_path), command=command))
        pid = int(await anyio.to_thread.run_sync(reply.read_text))
        group.cancel_scope.cancel()
    await ended(pid)


async def test_a_long_output_is_cut_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_output, "MOST_BYTES", 10)
    shown = await text(runner(tmp_path), command="echo beginning; seq 1000; echo the end")
    assert shown == "Exit code 0.\nbeginning\n\n[... 3,891 bytes left out ...]\n0\nthe end\n"


async def test_a_command_gets_only_variables_without_secrets_and_those_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "SOME_API_KEY AGENT_RUNTIME_DATABASE_URL MYSQL_PWD GH_PAT REDIS_URL MONGODB_URI "
    names += "HTTPS_PROXY PIP_INDEX_URL SSH_AUTH_SOCK PYTHONPATH PYTHONHOME_X ANYTHING"
    for name in names.split():
        monkeypatch.setenv(name, f"secret-{name}")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("MONKEY", "passed")
    tools = workspace_tools(tmp_path, shell=True, pass_environment=["MONKEY", "NOT_SET"])
    shown = await text(tools[-2], command="env; cat /proc/$PPID/environ")
    assert "MONKEY=passed" in shown and "LC_TIME=C" in shown and "HOME=" in shown
    assert "secret-" not in shown and "NOT_SET" not in shown


def test_a_variable_is_passed_by_its_name_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a name"):
        workspace_tools(tmp_path, shell=True, pass_environment=["TOKEN=1"])


async def test_a_command_runs_in_a_custom_environment(tmp_path: Path) -> None:
    tool = runner(tmp_path, environment={"SOME_TOKEN": "mine", "PATH": os.environ["PATH"]})
    assert await text(tool, command="echo $SOME_TOKEN") == "Exit code 0.\nmine\n"
