"""Commands in containers, by a program that takes `docker`'s options; see `docker_double`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace import command_records as commands
from agent_runtime.tools.workspace import supervisor
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.sandbox import docker as docker_sandbox
from tests.tools.calling import call, error, text, until
from tests.tools.docker_double import DockerDouble, docker_double


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerDouble]:
    """A `docker` with the image `tools:1`."""
    docker_sandbox._is_rootless.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with docker_double(tmp_path, "tools:1") as double:
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("DOCKER_HOST", f"unix://{double.socket}")
        yield double


def runner(root: Path, image: str = "tools:1", seconds: float = 60, network: bool = False) -> Tool:
    return workspace_tools(
        root,
        shell=True,
        shell_timeout=seconds,
        sandbox=f"docker:{image}",
        sandbox_network=network,
        pass_environment=["GIVEN"],
    )[-2]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace whose path needs quotes."""
    folder = tmp_path / 'a "b", c'
    folder.mkdir()
    return folder


async def test_a_command_runs_in_a_container_that_is_confined(
    docker: DockerDouble, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN", "a value")
    monkeypatch.setenv("SOME_KEY", "hunter2")
    shown = await text(runner(workspace), command="pwd; echo $HOME $GIVEN; exit 3")
    assert shown == f"Exit code 3.\n{workspace}\n/tmp a value\n"
    [run] = docker.runs
    assert run["--network"] == "none" and run["--cap-drop"] == "ALL" and run["--read-only"]
    assert run["--security-opt"] == "no-new-privileges" and run["--pull"] == "never"
    assert run["--user"] == f"{os.getuid()}:{os.getgid()}"
    assert run["--mount"] == [["type=bind", f"source={workspace}", f"target={workspace}"]]
    assert run["--rm"] and run["image"] == "tools:1"
    # Of this machine's variables only those that mean something in another system.
    given = set(run["--env"])
    assert {"GIVEN", "HOME"} <= given and not given & {"PATH", "SHELL", "DOCKER_HOST", "SOME_KEY"}


async def test_the_network_and_rootless_docker(docker: DockerDouble, workspace: Path) -> None:
    docker.rootless = True
    await text(runner(workspace, network=True), command="true")
    assert docker.runs[0]["--network"] == "bridge"
    # Its root is this user.
    assert "--user" not in docker.runs[0]


async def test_a_container_ends_with_the_time_limit(docker: DockerDouble, workspace: Path) -> None:
    os.mkfifo(workspace / "never")
    reply = await error(runner(workspace, seconds=2), command="echo begun; read x < never")
    assert reply.startswith("It was killed after 2 s.")
    await until(lambda: not docker.running)


async def test_a_container_ends_though_its_supervisor_was_killed(
    docker: DockerDouble, workspace: Path
) -> None:
    os.mkfifo(workspace / "begun")
    async with anyio.create_task_group() as group:
        command = "echo > begun; sleep 600"
        group.start_soon(lambda: call(runner(workspace), command=command))
        await anyio.to_thread.run_sync((workspace / "begun").read_text)
        _kill_supervisor()
    await until(lambda: not docker.running)
    assert commands.end_of_run("run") == {}


def _kill_supervisor() -> None:
    # Containers are children of this process, too.
    children = [pid for pid, one in supervisor.process_parents().items() if one == os.getpid()]
    for pid in children:
        if b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError("there is no supervisor")


async def test_a_container_that_cannot_be_removed_is_named(
    docker: DockerDouble, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(arguments: list[str], *_: object) -> int:
        if arguments[0] == "rm":
            raise ValueError("Error response from daemon: it is busy")
        return original(arguments, *_)  # pyright: ignore[reportArgumentType]

    original = docker.run_command
    monkeypatch.setattr(docker, "run_command", refuse)
    shown = await text(runner(workspace), command="true")
    assert "Could not be killed: container agent-command-" in shown
    monkeypatch.setattr(docker, "run_command", original)
    # It is recorded, so a resume tries again.
    assert commands.end_of_run("run") == {}


async def test_a_missing_image_is_an_error(docker: DockerDouble, workspace: Path) -> None:
    reply = await error(runner(workspace, "other:2"), command="touch ran")
    assert reply.startswith("The command was not run. The image other:2 is not on this machine.")
    assert "docker pull other:2" in reply
    assert not (workspace / "ran").exists()


async def test_a_server_that_does_not_answer_is_an_error(
    docker: DockerDouble, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///not/there")
    reply = await error(runner(workspace), command="touch ran")
    assert "Cannot connect to the Docker daemon" in reply
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("name", ["--all", "other", "agent-command-1", ""])
def test_a_record_cannot_remove_other_containers(
    docker: DockerDouble, workspace: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def record(arguments: list[str], *_: object) -> int:
        asked.append(arguments)
        return 0

    monkeypatch.setattr(docker, "run_command", record)
    assert docker_sandbox.remove_container(name, workspace) == []
    assert asked == []
    docker_sandbox.remove_container(f"agent-command-{'0' * 32}", workspace)
    assert len(asked) == 1
