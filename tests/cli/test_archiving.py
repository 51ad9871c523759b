"""`agent-runtime threads archive`, `restore` and `--archived`, with the real command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.cli import exit_codes as exits
from tests.cli.test_threads_moving import Desk, python_path
from tests.support.command import clean_environ

AGAIN = "Survey the folder again"
KILLED = """
import os, signal, sys
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from agent_runtime_storage.objects.object_store import Objects

left = int(sys.argv.pop(1))

def mortal(owner, name):
    real = getattr(owner, name)
    async def act(*args, **options):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return await real(*args, **options)
    setattr(owner, name, act)

for name in ("put", "delete", "delete_prefix", "replace", "remove"):
    mortal(Objects, name)
for name in ("batch", "purge"):
    mortal(SqliteDriver, name)

from agent_runtime.cli import main
main()
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A folder with one thread, `first`."""
    return Desk.set_up(tmp_path, monkeypatch)


def exported(desk: Desk) -> str:
    """Return the thread as it is exported."""
    return desk.run("threads", "export", "first").stdout


def test_a_thread_is_archived_listed_and_restored(desk: Desk) -> None:
    before, shown = exported(desk), desk.run("show", "first").stdout

    archived = desk.run("threads", "archive", "first")

    assert archived.exit_code == 0 and archived.stdout.startswith("first  ")
    assert desk.threads() == []
    listed = desk.run("threads", "--archived", "--json")
    [row] = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (row["thread"], row["threads"]) == ("first", 1)
    assert 0 < row["stored_bytes"] < row["bytes"]
    assert desk.run("threads", "--archived").stdout.startswith("first  ")

    refused = desk.run("run", "Go on", "--workspace", "work", "--thread", "first")
    assert refused.exit_code == exits.NOTHING
    assert "agent-runtime threads restore first" in refused.stderr
    assert "is archived" in desk.run("show", "first").stderr
    assert desk.run("db", "check").exit_code == 0

    restored = desk.run("threads", "restore", "first")

    assert restored.stdout == "first\n"
    assert exported(desk) == before and desk.run("show", "first").stdout == shown
    assert desk.run("threads", "--archived").stdout == ""
    again = desk.run("threads", "restore", "first")
    assert again.exit_code == exits.NOTHING and "is not archived" in again.stderr
    went_on = desk.run("run", AGAIN, "--workspace", "work", "--thread", "first")
    assert went_on.exit_code == 0


def test_threads_are_archived_by_age(desk: Desk) -> None:
    assert desk.run("threads", "archive").exit_code == 2
    assert desk.run("threads", "archive", "first", "--older-than", "1d").exit_code == 2
    young = desk.run("threads", "archive", "--older-than", "5d", "--yes")
    assert "nothing to archive" in young.stderr
    desk.age()

    dry = desk.run("threads", "archive", "--older-than", "5d", "--dry-run")
    assert dry.stdout.startswith("first  ") and "1 thread would be archived" in dry.stderr
    assert desk.threads() == ["first"]
    assert desk.run("threads", "archive", "--older-than", "5d").exit_code == 2

    done = desk.run("threads", "archive", "--older-than", "5d", "--yes", "--json")
    assert json.loads(done.stdout)["thread"] == "first"
    assert desk.threads() == []
    # An archived thread can be deleted for good.
    gone = desk.run("threads", "rm", "first", "--yes")
    assert gone.stdout == "first\n"
    assert desk.run("threads", "--archived").stdout == ""
    assert not list((desk.folder / "agent_runtime.objects").rglob("*.zst"))


def test_a_thread_at_work_is_not_archived(desk: Desk) -> None:
    held = desk.hold("stay")
    try:
        busy = desk.run("threads", "archive", "held")
        assert busy.exit_code == exits.NOTHING and "is not over" in busy.stderr
    finally:
        held.kill()
        held.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", ["archive", "restore"])
def test_a_command_that_is_killed_at_any_step_is_finished_by_the_same_command(
    desk: Desk, command: str
) -> None:
    before = exported(desk)
    environ = clean_environ(
        {"PYTHONPATH": python_path(), "AGENT_RUNTIME_DATABASE_URL": "file:agent_runtime.db"}
    )
    steps = 0
    for steps in range(100):
        if command == "restore":
            assert desk.run("threads", "archive", "first").exit_code == 0
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(steps), "threads", command, "first"],
            cwd=desk.folder,
            env=environ,
            capture_output=True,
        )
        archived = desk.run("threads", "--archived", "--json").stdout.count("\n")
        assert len(desk.threads()) + archived == 1, steps
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        if command == "archive" or archived:
            assert desk.run("threads", command, "first").exit_code == 0
        if command == "archive":
            assert desk.run("threads", "restore", "first").exit_code == 0
        assert exported(desk) == before
        assert desk.run("db", "check").exit_code == 0
    assert steps >= 4
