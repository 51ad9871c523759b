"""No text of a model, a tool or another user controls the terminal, whatever the command."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import click
import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.cli import main
from agent_runtime.cli.terminal import say, write_json, write_output, write_row
from agent_runtime.models.scripted import call
from agent_runtime.models.scripted import say as answer_text
from tests.support.command import without_settings

# OSC 52 writes to the clipboard; then BEL, a reversed text, C1's CSI, and the screen is erased.
HOSTILE = "x\x1b]52;c;aGk=\x07\u202e\x9b31m\x1b[2J\u2066y\r"
# A terminal's own status has other sequences.
ACTING = ("\x1b]", "\x07", "\u202e", "\x9b", "\x1b[2J", "\u2066")


@tool(needs_approval=True)
def deploy(version: str) -> str:
    """Deploy."""
    return version


class Screen:
    """A terminal that records what is written to it."""

    def __init__(self) -> None:
        self.main, other = pty.openpty()
        self.file = io.TextIOWrapper(os.fdopen(other, "wb", buffering=0), write_through=True)
        self._written: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.main, 65536):
                self._written.append(data)

    def close(self) -> str:
        """Return all that was written."""
        self.file.close()
        self._reader.join()
        os.close(self.main)
        return b"".join(self._written).decode()


async def fill(url: str) -> dict[str, str]:
    """Fill a database with hostile names and texts; return the ids."""
    plan = {"action": "create", "goal": HOSTILE, "steps": [{"id": "a", "description": HOSTILE}]}
    deploying = call("deploy", version=HOSTILE)
    script: list[Any] = [call("plan", **plan), answer_text(HOSTILE), deploying]
    agent = Agent(ScriptedModel(script), name=HOSTILE, tools=[deploy], planning=True)
    async with Runtime.open(Settings(database_url=url, user=HOSTILE)) as runtime:
        done = await runtime.run(agent, HOSTILE, thread=HOSTILE)
        waiting = await runtime.run(agent, HOSTILE, thread=HOSTILE)
        assert waiting.stop_reason == "awaiting_user"
        return {"run": done.run_id, "waiting": waiting.run_id, "ask": waiting.questions[0].id}


@pytest.fixture
def ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    url = f"file:{tmp_path / 'agent.db'}"
    without_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", url)
    monkeypatch.setenv("AGENT_RUNTIME_USER", HOSTILE)
    return anyio.run(fill, url)


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command, groups that do something themselves included."""
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        if isinstance(found, click.Group):
            if found.invoke_without_command:
                yield (*before, name)
            yield from commands(found, (*before, name))
        else:
            yield (*before, name)


def shown(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a command writes to a terminal."""
    screen = Screen()
    with monkeypatch.context() as patch, Path(os.devnull).open() as nothing:
        patch.setattr("sys.stdin", nothing)
        patch.setattr("sys.stdout", screen.file)
        patch.setattr("sys.stderr", screen.file)
        try:
            main(list(arguments))
        except SystemExit:
            pass
        finally:
            written = screen.close()
    return written


@pytest.mark.slow
def test_no_command_passes_on_what_controls_a_terminal(
    ids: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.jsonl").write_text(f'{{"{HOSTILE}": 1}}\n')
    given: dict[str, list[list[str]]] = {
        "run": [[HOSTILE, "--thread", "other"], [HOSTILE, "--workspace", HOSTILE]],
        "resume": [[ids["waiting"]], ["--thread", HOSTILE], [HOSTILE]],
        "chat": [["--thread", HOSTILE]],
        "threads": [["--all"]],
        "threads export": [[HOSTILE], [HOSTILE, "-o", HOSTILE + "/x"]],
        "threads import": [["bad.jsonl"], [HOSTILE]],
        "threads prune": [["--older-than", "1d", "--dry-run"]],
        "runs": [[]],
        "runs sweep": [[]],
        "runs tree": [[ids["run"]], [HOSTILE]],
        "usage": [["--thread", HOSTILE], ["--run", ids["run"]]],
        "budget": [[ids["waiting"], "--usd", "3"], [HOSTILE, "--usd", "3"]],
        "tasks list": [[HOSTILE]],
        "tasks cancel": [[HOSTILE, HOSTILE]],
        "tasks steer": [[HOSTILE, HOSTILE, HOSTILE]],
        "show": [[HOSTILE], [HOSTILE, "--events"], [HOSTILE, "--branches"]],
        "fork": [[HOSTILE, "1"], [HOSTILE, HOSTILE]],
        "edit": [[HOSTILE, "1", HOSTILE], [HOSTILE, HOSTILE]],
        "regenerate": [[HOSTILE]],
        "plan show": [[HOSTILE]],
        "plan versions": [[HOSTILE]],
        "memory show": [[HOSTILE]],
        "memory explain": [[HOSTILE, "1"], [HOSTILE, HOSTILE]],
        "memory observe": [[HOSTILE, "--model", HOSTILE]],
        "memory reflect": [[HOSTILE, "--model", HOSTILE]],
        "memory export": [[HOSTILE]],
        "node-memory": [[]],
        "node-memory prune": [["--older-than", "1d", "--dry-run"]],
        "cancel": [[HOSTILE], [ids["run"]]],
        "pause": [[HOSTILE], [ids["run"]]],
        "steer": [[ids["run"], HOSTILE], [HOSTILE, HOSTILE]],
        "questions": [["--all"]],
        "answer": [[ids["ask"], HOSTILE], [HOSTILE, "y"]],
        "approvals": [[HOSTILE], ["--revoke", HOSTILE]],
        "db status": [[]],
        "db migrate": [[]],
        "db check": [[]],
        "db size": [[]],
        "db vacuum": [[]],
        "db reindex": [[]],
        "db copy": [[HOSTILE, f"file:{tmp_path / 'copy.db'}"]],
        "config": [["--explain"]],
        "doctor": [[]],
        "worker": [[HOSTILE]],
        "queue list": [["--all"]],
        "queue retry": [[HOSTILE]],
        "queue cancel": [[HOSTILE]],
        "queue forget": [[HOSTILE]],
        "schedules add": [
            ["plain", "0 9 * * *", HOSTILE],
            [HOSTILE, "0 9 * * *", HOSTILE, "--thread", HOSTILE],
            ["other", HOSTILE, HOSTILE],
            ["other", "0 9 * * *", HOSTILE, "--zone", HOSTILE],
        ],
        "schedules list": [[]],
        "schedules pause": [["plain"], [HOSTILE]],
        "schedules resume": [["plain"], [HOSTILE]],
        "schedules remove": [["plain"], [HOSTILE]],
        "completion": [[HOSTILE]],
        "mcp list": [[]],
        "mcp add": [[HOSTILE, HOSTILE], ["ok", HOSTILE, HOSTILE]],
        "mcp test": [[HOSTILE]],
        "mcp trust": [[HOSTILE]],
        "mcp login": [[HOSTILE]],
        "mcp remove": [[HOSTILE], ["ok"]],
        "skills": [[]],
        "tokens make": [[HOSTILE, "--name", HOSTILE], [HOSTILE, "--expires", HOSTILE]],
        "tokens list": [[]],
        "tokens revoke": [[HOSTILE]],
        "serve": [[HOSTILE], ["--host", HOSTILE], ["--auth", HOSTILE]],
        "view": [[HOSTILE, "--export", "page.html"], [HOSTILE, "--export", HOSTILE + "/x"]],
        "mcp serve": [["--workspace", HOSTILE]],
        "threads rm": [["--yes", HOSTILE]],
        "threads archive": [["--yes", HOSTILE], ["--older-than", HOSTILE]],
        "threads restore": [[HOSTILE]],
    }
    assert {" ".join(one) for one in commands(main)} == given.keys()
    for name, lines in given.items():
        for line in lines:
            for json in ([], ["--json"]):
                arguments = [*name.split(), *line, *json]
                written = shown(arguments, monkeypatch)
                acting = [one for one in ACTING if one in written]
                assert not acting, (arguments, written)
                assert "internal error" not in written, (arguments, written)


def test_what_is_written_stays_within_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen.file)
    monkeypatch.setattr("sys.stderr", screen.file)
    write_row(f"id {HOSTILE}\nforged row")
    write_output(HOSTILE)
    write_json({HOSTILE: HOSTILE})
    say(HOSTILE)
    written = screen.close()
    assert not [one for one in ACTING if one in written]
    assert len(written.splitlines()) == 4
