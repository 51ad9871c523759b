"""`agent-runtime node-memory`: list node memories and prune old ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from agent_runtime import NodeMemory
from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime_storage import open_store
from tests.support.command import without_settings


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder without settings."""
    without_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", "file:agent_runtime.db")


def run(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["node-memory", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a database that has two node memories, one of them old."""

    async def write() -> None:
        store = await open_store(str(tmp_path / "agent_runtime.db"))
        for node_id in ("old", "young"):
            memory = NodeMemory(store.of("local"), "app", "talk", node_id)
            await memory.add_messages("a", None, user_content="?", assistant_content="!")
            await memory.flush()
        await store.close()

    anyio.run(write)
    [path] = tmp_path.rglob("old.json")
    os.utime(path, (1_000_000, 1_000_000))
    return tmp_path


def test_node_memories_are_listed_oldest_first(folder: Path) -> None:
    shown = run()
    assert [line.split()[-1] for line in shown.stdout.splitlines()] == [
        "app/talk/old",
        "app/talk/young",
    ]
    listed = run("--json")
    first, _ = map(json.loads, listed.stdout.splitlines())
    assert (first["node_id"], first["modified"]) == ("old", 1_000_000)


def test_old_node_memories_are_pruned_after_confirmation(folder: Path) -> None:
    prune = ("prune", "--older-than", "30d")
    tried = run(*prune, "--dry-run")
    assert "app/talk/old" in tried.stdout and "1 node memory would be deleted" in tried.stderr
    refused = run(*prune)
    assert refused.exit_code == exits.USAGE and "--yes" in refused.stderr

    done = run(*prune, "--yes", "--json")

    assert [json.loads(line)["node_id"] for line in done.stdout.splitlines()] == ["old"]
    assert [path.name for path in folder.rglob("*.json")] == ["young.json"]
    again = run(*prune, "--yes")
    assert (again.exit_code, again.stdout) == (0, "") and "nothing to delete" in again.stderr


def test_an_empty_list_is_reported() -> None:
    shown = run()
    assert (shown.exit_code, shown.stdout) == (0, "") and "no node memories" in shown.stderr
