"""What commands in bubblewrap can read, change and reach, and what happens where there is none."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest

from agent_runtime import Agent
from agent_runtime.errors import ConfigError
from agent_runtime.models.scripted import call as call_of
from agent_runtime.models.scripted import say
from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace import supervisor
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.sandbox import bubblewrap
from agent_runtime.tools.workspace.sandbox.bubblewrap import Bubblewrap
from agent_runtime_storage.drivers.protected_files import OpenDatabase, protect_folder
from tests.services.fixtures import missing
from tests.services.process import MissingPart
from tests.support.worlds import Play
from tests.tools.calling import call, error, text, until


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the test if bubblewrap cannot be used here; under CI, fail it."""
    try:
        Bubblewrap().check(tmp_path_factory.mktemp("workspace"))
    except ConfigError as problem:
        missing(MissingPart(str(problem)))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace, with a secret next to it."""
    (tmp_path / "secret").write_text("hunter2")
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def runner(
    root: Path, *, sandbox: str = "bwrap", network: bool = False, seconds: float = 60
) -> Tool:
    tools = workspace_tools(
        root, shell=True, shell_timeout=seconds, sandbox=sandbox, sandbox_network=network
    )
    return tools[-2]


ESCAPES = {
    "read outside": "cat ../secret",
    "read by a link": "ln -s ../secret link; cat link",
    "write outside": "echo x > ../written",
    "write to the system": "touch /usr/bin/written /etc/written && echo ESCAPED",
    "write to the root": "touch /written && echo ESCAPED",
    "read passwords": "head -c 1 /etc/shadow > copy && echo ESCAPED",
    "read environments": "cat /proc/[0-9]*/environ | grep -az hunter3 && echo ESCAPED",
    "see processes": "test -e /proc/$OTHER_PID && echo ESCAPED",
    "signal processes": "kill -0 $OTHER_PID && echo ESCAPED",
    "change the kernel": "test -w /proc/sys/kernel/core_pattern && echo ESCAPED",
    "reach the network": "bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$PORT && echo ESCAPED",
    "take up rights": "grep -q '^CapEff:.*[1-9a-f]' /proc/self/status && echo ESCAPED",
}


REAL = (
    "read outside",
    "read by a link",
    "read environments",
    "see processes",
    "signal processes",
    "reach the network",
)
"""Those that succeed without a sandbox, and do no harm."""


@pytest.mark.usefixtures("works")
async def test_a_command_cannot_leave_the_sandbox(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def attempt(sandbox: str, names: Iterable[str]) -> str:
        tools = workspace_tools(
            workspace, shell=True, sandbox=sandbox, pass_environment=["OTHER_PID", "PORT"]
        )
        command = "".join(f"({ESCAPES[name]})\n" for name in names)
        return await text(tools[-2], command=f"{command} echo done")

    # A process of this user with a key in its environment, as the runtime is.
    other = await anyio.open_process(["sleep", "600"], env={"SOME_KEY": "hunter3"})
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("OTHER_PID", str(other.pid))
        monkeypatch.setenv("PORT", str(server.getsockname()[1]))
        confined, free = await attempt("bwrap", ESCAPES), await attempt("none", REAL)
    other.kill()
    await other.aclose()
    assert confined.endswith("done\n")
    assert "ESCAPED" not in confined and "hunter" not in confined
    assert free.count("hunter2") == 2 and free.count("ESCAPED") == 4
    assert sorted(one.name for one in workspace.parent.iterdir()) == ["secret", "workspace"]


@pytest.mark.usefixtures("works")
async def test_a_command_in_a_sandbox_works_in_its_folder(workspace: Path) -> None:
    command = "pwd; echo kept > file; echo $HOME; touch ~/x; exit 3"
    shown = await text(runner(workspace), command=command)
    assert shown == f"Exit code 3.\n{workspace}\n/tmp\n"
    assert (workspace / "file").read_text() == "kept\n"
    # The home folder is new for each command.
    assert "kept" in await text(runner(workspace), command="ls ~/x || cat file")


@pytest.mark.usefixtures("works")
async def test_variables_do_not_name_folders_that_are_not_there(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace.parent / "cache"))
    monkeypatch.setenv("CARGO_HOME", str(workspace.parent / "cargo"))
    monkeypatch.setenv("UV_CACHE_DIR", str(workspace / "cache"))
    shown = await text(runner(workspace), command="env")
    assert "XDG_CACHE_HOME" not in shown and "CARGO_HOME" not in shown
    assert f"UV_CACHE_DIR={workspace}/cache" in shown
    free = await text(runner(workspace, sandbox="none"), command="env")
    assert "XDG_CACHE_HOME" in free and "CARGO_HOME" in free


@pytest.mark.usefixtures("works")
async def test_the_network_can_be_allowed(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}' && echo reached"
        assert "reached" in await text(runner(workspace, network=True), command=command)


@pytest.mark.usefixtures("works")
async def test_the_runtimes_state_in_a_workspace_is_hidden(workspace: Path) -> None:
    database = OpenDatabase(workspace / "log.db")
    owner = runner(workspace)
    try:
        (workspace / "log.db").write_text("hunter2")
        (workspace / "objects").mkdir()
        (workspace / "objects" / "one").write_text("hunter2")
        protect_folder(workspace / "objects", owner)
        command = "cat log.db objects/*; echo x > log.db; rm -rf log.db objects; echo x > objects/x"
        assert "hunter2" not in await text(owner, command=f"{command}; true")
    finally:
        database.closed()
    assert (workspace / "log.db").read_text() == "hunter2"
    assert [one.name for one in (workspace / "objects").iterdir()] == ["one"]


@pytest.mark.usefixtures("works")
@pytest.mark.backends("file")
async def test_folders_can_be_shown_read_only(
    workspace: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = workspace.parent / "tools"
    other.mkdir()
    (other / "one").write_text("shown")
    command = f"cat {other}/one; echo x > {other}/one"
    settings = {"sandbox": "bwrap", "sandbox_read": str(other)}
    script = [call_of("bash", command=command), say("Done.")]
    # The settings of the runtime hold for tools that choose nothing.
    async with play(script, settings=settings) as world:
        await world.run(Agent(tools=workspace_tools(workspace, shell=True)), thread="t")
        [(outcome, shown)] = await world.results("t")
    assert outcome == "ok" and shown.startswith("Exit code 1.\nshown")
    assert "Read-only file system" in shown


@pytest.mark.usefixtures("works")
async def test_all_processes_of_a_sandbox_end_with_the_time_limit(workspace: Path) -> None:
    # No two tests sleep for as long.
    seconds = f"{os.getpid()}.5"
    command = (
        f"for i in 1 2; do setsid nohup env -i sleep {seconds} & done; echo $! > begun; sleep 600"
    )
    os.mkfifo(workspace / "begun")
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: call(runner(workspace), command=command))
        await anyio.to_thread.run_sync((workspace / "begun").read_text)
        # The shell says so before its children have become `sleep`.
        await until(lambda: len(_sleeping(seconds)) == 2)
        group.cancel_scope.cancel()
    await until(lambda: not _sleeping(seconds))


def _sleeping(seconds: str) -> list[int]:
    found: list[int] = []
    for pid in supervisor.process_parents():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found += [pid] if words[:2] == [b"sleep", seconds.encode()] else []
    return found


@pytest.mark.usefixtures("works")
async def test_all_processes_of_a_sandbox_end_though_its_supervisor_is_killed(
    workspace: Path,
) -> None:
    seconds = f"{os.getpid()}.75"
    os.mkfifo(workspace / "begun")
    async with anyio.create_task_group() as group:
        command = f"env -i setsid sleep {seconds} & echo > begun; wait"
        group.start_soon(lambda: call(runner(workspace), command=command))
        await anyio.to_thread.run_sync((workspace / "begun").read_text)
        await until(lambda: _sleeping(seconds))
        # sleep, sh, two of bwrap, the intermediate process: the supervisor is above them.
        [pid], parents = _sleeping(seconds), supervisor.process_parents()
        while parents[parents[pid]] != os.getpid():
            pid = parents[pid]
        os.kill(parents[pid], signal.SIGKILL)
        await until(lambda: not _sleeping(seconds))


@pytest.mark.parametrize("place", ["system", "link"])
def test_a_sandbox_hides_the_runtimes_state_wherever_it_shows_it(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    # As the state of a service in /opt, or of a user whose home is behind a link.
    state = tmp_path / "shown" / "state"
    state.mkdir(parents=True)
    (tmp_path / "link").symlink_to("shown")
    protect_folder(state, owner := OpenDatabase(state / "log.db"))
    if place == "system":
        monkeypatch.setattr(bubblewrap, "SYSTEM", ("/usr", str(tmp_path / "shown")))
        sandbox, hidden = Bubblewrap(), state
    else:
        sandbox = Bubblewrap(read=(tmp_path / "link",))
        hidden = tmp_path / "link" / "state"
    (tmp_path / "bwrap").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    prefix = sandbox.launch(workspace, {}).prefix
    owner.closed()
    assert prefix[prefix.index(str(hidden)) - 1] == "--tmpfs"


@pytest.mark.usefixtures("works")
async def test_the_runtimes_state_cannot_be_moved_to_where_it_is_not_hidden(
    workspace: Path,
) -> None:
    state = workspace / "data" / "mine" / "state"
    state.mkdir(parents=True)
    (state / "secret").write_text("hunter2")
    protect_folder(state, owner := OpenDatabase(workspace / "data" / "log.db"))
    (workspace / "data" / "log.db").write_text("hunter3")
    for move in ("mv data moved", "mv data/mine data/moved", "mv data/log.db x", "rm -rf data"):
        await text(runner(workspace), command=move)
        assert "hunter" not in await text(runner(workspace), command="grep -r hunter . | cat")
        assert (state / "secret").read_text() == "hunter2"
    owner.closed()


async def test_without_its_program_a_sandbox_runs_no_command(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that a command put into the workspace does not count.
    planted = workspace / "bin" / "bwrap"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\ntouch ran\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted.parent}:bin:")
    reply = await error(runner(workspace), command="touch ran")
    assert reply.startswith("The command was not run. The program `bwrap` of the sandbox is not")
    assert "Install bubblewrap" in reply
    assert not (workspace / "ran").exists()


async def test_a_sandbox_that_fails_runs_no_command(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho bwrap: No permissions to create a new namespace >&2; exit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    reply = await error(runner(workspace), command="touch ran")
    assert "`bwrap` cannot be used: bwrap: No permissions to create a new namespace" in reply
    assert not (workspace / "ran").exists()


async def test_no_sandbox_can_have_the_whole_system_as_workspace() -> None:
    reply = await error(runner(Path("/")), command="true")
    assert "cannot have the workspace /" in reply


async def test_an_unknown_sandbox_is_an_error(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="`none`, `bwrap` or `docker:IMAGE`"):
        runner(workspace, sandbox="docker:")


@pytest.mark.backends("file")
async def test_what_a_sandbox_is_to_show_has_to_exist(workspace: Path, play: Play) -> None:
    settings = {"sandbox": "bwrap", "sandbox_read": "/srv/not/there"}
    async with play(
        [call_of("bash", command="touch ran"), say("Done.")], settings=settings
    ) as world:
        await world.run(Agent(tools=workspace_tools(workspace, shell=True)), thread="t")
        [(outcome, shown)] = await world.results("t")
    assert outcome == "error" and "cannot be shown /srv/not/there" in shown
    assert not (workspace / "ran").exists()
