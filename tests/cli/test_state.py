"""Where the runtime stores its state: with its user, private, and unreachable for its tools."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from agent_runtime import Agent, Runtime, Settings
from agent_runtime.cli import main
from agent_runtime.cli.agents import Spec
from agent_runtime.cli.state import misplaced, readable_by_others
from agent_runtime.errors import ConfigError, ModelError, ToolError
from agent_runtime.log.run_spec import COMMAND as COMMAND_LINE
from agent_runtime.models.base import ModelAnswer
from agent_runtime.models.scripted import ScriptedModel, call, calls, raw_call, say
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.root import Root
from agent_runtime_config import state_folder
from agent_runtime_config.state import state_folders
from agent_runtime_storage.objects.object_store import Objects
from tests.support.command import COMMAND, clean_environ

LARGE = os.urandom(320_000).hex()


def environ(home: Path) -> dict[str, str]:
    """Return an environment without a database setting, and a home for state."""
    found = clean_environ({"XDG_STATE_HOME": str(home)})
    del found["AGENT_RUNTIME_DATABASE_URL"]
    return found


def run(folder: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; it must succeed."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder, env=environ(home), stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def modes(folder: Path) -> dict[str, int]:
    """Return the permissions of a folder and of everything in it."""
    return {
        str(path.relative_to(folder.parent)): stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.rglob("*"))
    }


def too_open(folder: Path) -> dict[str, int]:
    """Return the entries that other users can access."""
    return {name: mode for name, mode in modes(folder).items() if mode & 0o077}


def test_state_is_stored_with_the_user_and_not_in_the_work_folder(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    # A clone may contain somebody else's database.
    (project / "agent_runtime.db").write_text("a trap")

    assert "There are no threads yet." in run(project, home, "threads").stderr

    assert (project / "agent_runtime.db").read_text() == "a trap"
    assert [path.name for path in project.iterdir()] == ["agent_runtime.db"]
    assert (home / "agent-runtime" / "agent_runtime.db").is_file()


def test_a_relative_state_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "here")

    assert state_folder().is_absolute() and not state_folder().is_relative_to(tmp_path)


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run as a user without a known home."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("homeless")
async def test_a_user_without_a_home_must_name_a_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this user has no home") as raised:
        Settings()
    assert "AGENT_RUNTIME_DATABASE_URL" in raised.value.cure

    settings = Settings(database_url=f"file:{tmp_path / 'own.db'}")
    assert list(misplaced(settings)) == []
    model = ScriptedModel([call("write_file", path="a.txt", content="x"), say("Done.")])
    async with Runtime.open(settings) as runtime:
        assert (await runtime.run(Agent(model, tools=workspace_tools(tmp_path)), "Write.")).ok
    assert list(readable_by_others(settings)) == []
    assert await anyio.Path(tmp_path / "a.txt").read_text() == "x"


@pytest.fixture(params=[0o022, 0o000])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """A umask that lets others read, or even write."""
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


async def test_state_is_private_to_its_user(umask: int, state_home: Path) -> None:
    async with Runtime.open(Settings()) as runtime:
        agent = Agent(ScriptedModel([say("a" + LARGE)]))
        await runtime.run(agent, "Go.", thread="t")
        folder = state_home / "agent-runtime"
        found = modes(folder)

    assert too_open(folder) == {} and {name.rpartition("-")[2] for name in found} >= {"wal", "shm"}
    assert [name for name in found if name.endswith((".raw", ".zstd"))]


async def test_a_new_databases_files_are_private_in_a_shared_folder(
    umask: int, tmp_path: Path
) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    async with Runtime.open(Settings(database_url=f"file:{tmp_path / 'link.db'}")) as runtime:
        await runtime.run(Agent(ScriptedModel([say("a" + LARGE)])), "Go.")
        found = {name: mode for name, mode in modes(tmp_path).items() if "/real" in name}

    assert len(found) > 4 and set(found.values()) == {0o600, 0o700}


_OPENER = """
import os, sys, anyio
os.umask(0)
from agent_runtime_config import default_database_url
from agent_runtime_storage import open_store
from agent_runtime_storage.objects.object_store import Objects
async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    store = await open_store(default_database_url())
    await store.of("ann").threads.ensure("t")
    await Objects.open(sys.argv[1], room="room").put("a/b/c.raw", b"x")
    await store.close()
anyio.run(main)
"""


def test_concurrent_first_starts_all_create_private_state(tmp_path: Path) -> None:
    home, objects = tmp_path / "home", tmp_path / "objects"
    command = [sys.executable, "-c", _OPENER, str(objects)]
    processes = [
        subprocess.Popen(command, env=environ(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert too_open(home / "agent-runtime") == {} and too_open(objects) == {}


class Guarded:
    """A workspace that contains the database and its objects, and many names for one object."""

    def __init__(self, root: Path, kept: Path) -> None:
        self.object = next(path for path in kept.rglob("*.*") if path.is_file())
        self.before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
        name = self.object.relative_to(root)
        (root / "folder").mkdir()
        (root / "file-link").symlink_to(self.object)
        (root / "folder-link").symlink_to(kept)
        os.link(self.object, root / "hard")
        self.paths = [
            str(name),
            str(self.object),
            f"folder/../{name}",
            f"./{name}",
            "file-link",
            f"folder-link/{self.object.relative_to(kept)}",
            "hard",
            f"{kept.name}/new",
            "folder-link/new",
        ]


@pytest.mark.parametrize("named", [False, True])
async def test_no_file_tool_reaches_the_objects(tmp_path: Path, named: bool) -> None:
    root = tmp_path / "work"
    root.mkdir()
    kept = root / ("own" if named else "store.objects")
    settings = Settings(
        database_url=f"file:{root / 'store.db'}", object_store_url=str(kept) if named else None
    )
    async with Runtime.open(settings) as runtime:
        # Their place is reserved even before any object exists.
        files = Root(root)
        with pytest.raises(ToolError, match="kept from its tools"):
            files.replace(f"{kept.name}/first", b"x")
        said = "a" + LARGE
        await runtime.run(Agent(ScriptedModel([say(said)])), "Go.", thread="t")
        guarded = Guarded(root, kept)
        script = [
            calls(
                raw_call("write_file", path=path, content="x"),
                raw_call("write_file", path=path, content="x", append=True),
                raw_call("read_file", path=path),
                raw_call("edit_file", path=path, edits=[{"old": "a", "new": "b"}]),
                raw_call("search", pattern="a", path=path),
                raw_call("glob", path=path),
            )
            for path in guarded.paths
        ]
        around = calls(
            raw_call("glob", path=".", pattern="**"),
            raw_call("search", pattern="[a-f0-9]{8}"),
        )
        model = ScriptedModel([*script, around, say("Done.")])
        result = await runtime.run(Agent(model, tools=workspace_tools(root)), "Break it.")
        assert result.ok

        store = runtime.store.of("local")
        runs = await store.runs.list(thread_id=result.thread_id)
        head = (await store.threads.get(runs[0].thread_id)).head
        nodes = [node for node in await store.log.branch(result.thread_id, head or 0) if node.calls]
        *attacks, looks = nodes
        assert len(attacks) == len(guarded.paths)
        for node in attacks:
            assert {one.outcome for one in node.calls} == {"error"}, node.body
        listed, searched = (one.body.decode() for one in looks.calls)
        assert listed.count(guarded.object.name) == 1 and f"-> {guarded.object}" in listed
        assert "0 matching lines" in searched
        for path, content in guarded.before.items():
            assert path.read_bytes() == content
        assert {path for path in kept.rglob("*") if path.is_file()} >= set(guarded.before)
        last = (await store.log.branch("t", (await store.threads.get("t")).head or 0))[-1]
        assert said in last.body.decode()


async def test_no_workspace_may_contain_the_users_state(state_home: Path) -> None:
    async with Runtime.open(Settings()):
        folder = state_home / "agent-runtime"
        with pytest.raises(ConfigError, match="its own state"):
            Root(folder)
        above = Root(state_home)
        with pytest.raises(ToolError, match="kept from its tools"):
            above.replace("agent-runtime/other.db", b"x")
        assert above.walk(".").found == []


def test_no_file_tool_reaches_the_process_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # If the user's state folder is unusable, they are among the temporary files.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for folder in state_folders():
        if folder.is_relative_to(tmp_path):
            with pytest.raises(ToolError, match="kept from its tools"):
                path = (folder / "commands" / "run.mark").relative_to(tmp_path)
                Root(tmp_path).replace(str(path), b"{}")
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_walk_looks_up_hard_links_once(
    state_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, work = state_home / "agent-runtime", tmp_path / "work"
    for folder in (state, work):
        folder.mkdir(parents=True)
    (state / "a").write_text("kept")
    (tmp_path / "b").write_text("free")
    os.link(state / "a", work / "a")
    for name in "bcdefgh":
        os.link(tmp_path / "b", work / name)
    looked: list[str] = []
    scan = os.scandir

    def scandir(path: Any) -> Any:
        looked.append(str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    walk = Root(work).walk(".")

    assert [one.path for one in walk.found] == [*"bcdefgh"] and walk.skipped == ["a"]
    assert looked.count(str(state)) == 1


async def test_files_that_only_look_like_state_belong_to_the_agent(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "own.objects").mkdir(parents=True)
    with suppress(OSError):
        (work / "one").write_text("x")
        os.link(work / "one", work / "two")
    model = ScriptedModel([call("write_file", path="own.objects/a", content="x"), say("Done.")])
    async with Runtime.open(Settings(database_url=f"file:{tmp_path / 'store.db'}")) as runtime:
        await runtime.run(Agent(model, tools=workspace_tools(work)), "Write.")
    assert await anyio.Path(work / "own.objects" / "a").read_text() == "x"
    with Root(work).read("two") as (file, _):
        assert file.read() == b"x"


def test_a_new_object_is_never_readable_by_others(tmp_path: Path) -> None:
    async def put() -> None:
        await Objects.open(str(tmp_path / "objects"), room="room").put("a/b.raw", b"x")

    old = os.umask(0)
    try:
        anyio.run(put)
    finally:
        os.umask(old)
    assert too_open(tmp_path / "objects") == {}


async def ran_in(workspace: Path, thread: str, answer: ModelAnswer | None) -> None:
    """Run an agent in a workspace as the command does; without an answer the run fails."""
    model = ScriptedModel([] if answer is None else [answer])
    agent = Agent(model, tools=workspace_tools(workspace))
    spec = Spec("", str(workspace)).to_json()
    async with Runtime.open(Settings(), program=COMMAND_LINE) as runtime:
        with suppress(ModelError):
            await runtime.run(agent, f"Work in {workspace.name}", thread=thread, spec=spec)


def test_a_folders_runs_are_listed_first_and_resumed_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENT_RUNTIME_DATABASE_URL", raising=False)
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "below").mkdir(parents=True)
    two.mkdir()
    anyio.run(ran_in, one, "t-one", None)
    anyio.run(ran_in, two, "t-two", say("Done."))

    for folder, first in ((one, "t-one"), (one / "below", "t-one"), (two, "t-two")):
        monkeypatch.chdir(folder)
        threads = CliRunner().invoke(main, ["threads"]).stdout.splitlines()
        assert [" in /" in line for line in threads] == [False, True]
        assert threads[0].startswith(first)
        runs = CliRunner().invoke(main, ["runs", "--json"]).stdout.splitlines()
        assert json.loads(runs[0])["thread_id"] == first and len(runs) == 2

    refused = CliRunner().invoke(main, ["resume"])
    assert "There is no run to resume in this folder." in refused.stderr


def test_a_database_in_a_work_tree_or_at_the_old_place_is_reported(
    tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert list(misplaced(Settings())) == []
    [problem] = misplaced(Settings(database_url="file:own.db"))
    assert f"git work tree {tmp_path}" in problem.text and problem.cure
    Path("agent_runtime.db").touch()
    [problem] = misplaced(Settings())
    assert "is not used" in problem.text and "DATABASE_URL=file:agent_runtime.db" in problem.cure


async def test_doctor_reports_files_that_others_can_access(
    tmp_path: Path, state_home: Path
) -> None:
    settings = Settings(database_url=f"file:{tmp_path / 'store.db'}")
    async with Runtime.open(settings) as runtime:
        await runtime.run(Agent(ScriptedModel([say("a" + LARGE)])), "Go.")
    assert list(readable_by_others(settings)) == []

    (tmp_path / "store.db").chmod(0o644)
    (tmp_path / "store.objects").chmod(0o755)

    found = list(readable_by_others(settings))
    assert [one.text.partition(" ")[0] for one in found] == [
        str(tmp_path / "store.db"), str(tmp_path / "store.objects")
    ]  # fmt: skip
    for one in found:
        await anyio.run_process(one.cure)
    assert list(readable_by_others(settings)) == []
