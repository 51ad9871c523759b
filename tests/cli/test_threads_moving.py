"""`agent-runtime threads rm`, `prune`, `export` and `import`, with the real command."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime_storage import open_store
from tests.support.command import COMMAND, ROOT, clean_environ, run_command, without_settings

TASK = "Survey the folder of marjoram"

HOLD = """
import anyio, sys
from agent_runtime.log import leases
from agent_runtime_storage import Commit, Finish, LeaseOwner, NewNode, NewRun, open_store

async def hold(owner, obey):
    store = await open_store("agent_runtime.db")
    user = store.of("local")
    await user.threads.ensure("held")
    run = NewRun(
        id="r-held", thread_id="held", agent="a", max_steps=3, spec={}, owner=owner,
        lease_seconds=60, expect_head=None, expect_seq=0,
    )
    lease, _ = await user.runs.begin(run)
    print("held", flush=True)
    while obey and not (await user.runs.poll(lease))[0]:
        await anyio.sleep(0.05)
    if obey:
        await user.runs.commit(lease, Commit(finish=Finish("cancelled", "cancelled")))
    else:
        await anyio.sleep_forever()

anyio.run(hold, leases.this_process_owner(), sys.argv[1] == "obey")
"""


class Desk:
    """A folder with a database, and a thread made by a real run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Without sub-agents: their threads would be moved and removed with this one.
        self.environ = clean_environ({"AGENT_RUNTIME_DELEGATION_DEPTH": "0"})
        (folder / "work").mkdir()
        (folder / "work" / "notes.txt").write_text("about marjoram and thyme\n")
        done = self.run("run", TASK, "--workspace", "work", "--thread", "first")
        assert done.exit_code == 0, done.stderr

    @classmethod
    def set_up(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
        """Make it the current folder, with no other settings than its database."""
        without_settings(monkeypatch, folder)
        monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", "file:agent_runtime.db")
        return cls(folder)

    def run(self, *arguments: str, stdin: str = "") -> Result:
        """Run the command in the folder, within this process."""
        return CliRunner().invoke(main, arguments, input=stdin, env=self.environ)

    def threads(self) -> list[str]:
        """The ids of its threads."""
        lines = self.run("threads", "--json").stdout.splitlines()
        return sorted(json.loads(line)["id"] for line in lines)

    def age(self) -> None:
        """Make all threads old."""
        code = (
            "import apsw, sys\n"
            "apsw.Connection('agent_runtime.db')"
            ".execute('UPDATE threads SET updated_at = updated_at - 864000')"
        )
        subprocess.run([sys.executable, "-c", code], cwd=self.folder, check=True)

    def hold(self, how: str) -> subprocess.Popen[str]:
        """Start a run in a separate process, which holds the thread until it is ended."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, how],
            cwd=self.folder,
            env=clean_environ({"PYTHONPATH": python_path()}),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout as held:
            assert held.readline() == "held\n"
        return process


def python_path() -> str:
    """Return the `PYTHONPATH` of a program that uses the packages."""
    return os.pathsep.join(str(ROOT / one) for one in (".", "storage", "config"))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A folder with one thread, `first`."""
    return Desk.set_up(tmp_path, monkeypatch)


def test_an_export_is_imported_as_a_new_thread_and_looks_the_same(desk: Desk) -> None:
    exported = desk.run("threads", "export", "first")
    assert exported.exit_code == 0 and exported.stderr == ""
    head, *records = [json.loads(line) for line in exported.stdout.splitlines()]
    assert (head["format"], head["version"]) == ("agent-runtime-thread", 1)
    assert records[-1]["section"] == "end"

    imported = desk.run("threads", "import", "-", "--as", "second", stdin=exported.stdout)

    assert imported.stdout == "second\n"
    assert desk.threads() == ["first", "second"]
    assert desk.run("show", "second").stdout == desk.run("show", "first").stdout
    again = desk.run("run", "Survey the folder again", "--workspace", "work", "--thread", "second")
    assert again.exit_code == 0


def test_an_import_is_found_by_search(desk: Desk) -> None:
    desk.run("threads", "export", "first", "-o", "first.jsonl")
    desk.run("threads", "import", "first.jsonl", "--as", "second")

    first, second = anyio.run(_found, "marjoram")

    assert first == second != []


async def _found(word: str) -> list[list[tuple[int, int | None]]]:
    """Return the search results in the threads `first` and `second`."""
    store = await open_store("agent_runtime.db")
    try:
        hits = await store.of("local").search.find(word, limit=100)
    finally:
        await store.close()
    return [
        sorted(((hit.node_id, hit.call) for hit in hits if hit.thread_id == name), key=str)
        for name in ("first", "second")
    ]


def test_an_exported_file_is_private_and_complete(desk: Desk) -> None:
    target = desk.folder / "out.jsonl"
    target.write_text("as it was")

    missing = desk.run("threads", "export", "nowhere", "-o", "out.jsonl")
    assert missing.exit_code == exits.NOTHING
    assert target.read_text() == "as it was"
    assert desk.run("threads", "export", "first", "-o", "out.jsonl").exit_code == 0

    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text() == desk.run("threads", "export", "first").stdout
    assert sorted(one.name for one in desk.folder.glob("*.jsonl*")) == ["out.jsonl"]
    assert not list(desk.folder.glob(".out*"))


def test_an_invalid_import_is_reported(desk: Desk) -> None:
    text = desk.run("threads", "export", "first").stdout
    cut = "".join(text.splitlines(keepends=True)[:-3])
    cases = (
        (("import", "-"), text, exits.NOTHING, "there already"),
        (("import", "-", "--as", "x"), cut, exits.USAGE, "cut short"),
        (("import", "-", "--as", "x"), "{\n", exits.USAGE, "Line 1: it is no JSON"),
        (("import", "missing.jsonl"), "", exits.USAGE, "missing.jsonl"),
    )
    for arguments, stdin, code, message in cases:
        done = desk.run("threads", *arguments, stdin=stdin)
        assert (done.exit_code, done.stdout) == (code, ""), done.stderr
        assert message in done.stderr
    assert desk.threads() == ["first"]


def test_a_killed_import_leaves_nothing_visible(desk: Desk) -> None:
    text = desk.run("threads", "export", "first").stdout
    desk.run("threads", "rm", "first", "--yes")
    process = subprocess.Popen(
        [*COMMAND, "threads", "import", "-"],
        cwd=desk.folder,
        env=clean_environ(),
        stdin=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write("".join(text.splitlines(keepends=True)[:-1]))
        stdin.flush()
        while "import" not in _hidden(desk):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()

    assert desk.threads() == []
    refused = desk.run("threads", "import", "-", stdin=text)
    assert refused.exit_code == exits.NOTHING and "was killed" in refused.stderr
    desk.age()
    assert desk.run("threads", "import", "-", stdin=text).stdout == "first\n"
    assert desk.threads() == ["first"]
    assert desk.run("db", "check").exit_code == 0


def _hidden(desk: Desk) -> str:
    code = (
        "import apsw\n"
        "rows = apsw.Connection('agent_runtime.db').execute('SELECT hidden FROM threads')\n"
        "print(rows.fetchall())"
    )
    return subprocess.check_output([sys.executable, "-c", code], cwd=desk.folder, text=True)


def test_threads_are_removed_after_confirmation(desk: Desk) -> None:
    unasked = desk.run("threads", "rm", "first")
    assert unasked.exit_code == exits.USAGE and "--yes" in unasked.stderr
    assert _on_a_terminal(desk, "threads", "rm", "first", answer="n\n") == exits.INTERRUPTED
    assert desk.threads() == ["first"]

    unknown = desk.run("threads", "rm", "first", "nowhere", "--yes")
    assert unknown.exit_code == exits.NOTHING and desk.threads() == ["first"]
    assert _on_a_terminal(desk, "threads", "rm", "first", answer="y\n") == exits.SUCCESS

    assert desk.threads() == []
    left = subprocess.run(
        ["grep", "-rlaF", "marjoram", "."], cwd=desk.folder, capture_output=True, text=True
    )
    assert not [name for name in left.stdout.splitlines() if "agent_runtime" in name]


def _on_a_terminal(desk: Desk, *arguments: str, answer: str) -> int:
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=desk.folder,
            env=clean_environ(),
            stdin=slave,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        # Only then: what was typed before the question does not answer it.
        assert process.stderr is not None
        question = ""
        while "for good?" not in question:
            read = process.stderr.read(1)
            assert read, question
            question += read
        os.write(master, answer.encode())
        process.communicate(timeout=60)
        return process.returncode
    finally:
        os.close(master)
        os.close(slave)


def test_a_thread_in_use_is_removed_only_by_force(desk: Desk) -> None:
    process = desk.hold("obey")
    try:
        busy = desk.run("threads", "rm", "held", "--yes")
        assert busy.exit_code == exits.NOTHING and "r-held is active" in busy.stderr
        assert "held" in desk.threads()

        forced = desk.run("threads", "rm", "held", "--yes", "--force", "--json")

        assert json.loads(forced.stdout) == {"thread": "held", "deleted": ["held"]}
        assert process.wait(timeout=30) == 0
        assert desk.threads() == ["first"]
    finally:
        process.kill()
        process.wait()


def test_a_thread_whose_process_was_killed_is_removed_at_once(desk: Desk) -> None:
    process = desk.hold("stay")
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert desk.run("threads", "rm", "held", "--yes").stdout == "held\n"
    assert desk.threads() == ["first"]


def test_old_threads_are_pruned(desk: Desk) -> None:
    text = desk.run("threads", "export", "first").stdout
    desk.age()
    desk.run("threads", "import", "-", "--as", "new", stdin=text)
    # The import has the original's times, so it is used first to make it newer.
    assert (
        desk.run(
            "run", "Survey the folder again", "--workspace", "work", "--thread", "new"
        ).exit_code
        == 0
    )

    dry = desk.run("threads", "prune", "--older-than", "5d", "--dry-run")
    assert dry.stdout.startswith("first ") and "1 thread would be deleted" in dry.stderr
    assert desk.run("threads", "prune", "--older-than", "5d").exit_code == exits.USAGE
    assert desk.threads() == ["first", "new"]
    pruned = desk.run("threads", "prune", "--older-than", "5d", "--yes")

    assert pruned.stdout == "first\n"
    assert desk.threads() == ["new"]
    empty = desk.run("threads", "prune", "--older-than", "5d", "--yes")
    assert empty.stdout == "" and "nothing to delete" in empty.stderr


@pytest.mark.parametrize("age", ["", "30", "-1d", "d", "1 year"])
def test_an_invalid_age_is_refused(age: str, tmp_path: Path) -> None:
    done = run_command("threads", "prune", "--older-than", age, "--yes", cwd=tmp_path)

    assert done.returncode == exits.USAGE and "is not an age" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_age_of_one_second_is_enough(desk: Desk) -> None:
    time.sleep(1.1)
    lines: Sequence[str] = desk.run(
        "threads", "prune", "--older-than", "1s", "--dry-run", "--json"
    ).stdout.splitlines()
    assert [json.loads(line)["thread"] for line in lines] == ["first"]
