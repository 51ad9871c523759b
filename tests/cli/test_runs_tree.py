"""`agent-runtime runs` and `runs tree`."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.cli.display.short_ids import short_id
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from tests.delegation.helpers import is_child, step


async def delegated(url: str) -> str:
    """Run an agent that delegates one task; return its run."""

    def respond(request: ModelRequest) -> Scripted:
        if is_child(request) or step(request):
            return say("Done.")
        return call("delegate", role="a reader", instructions="Read.", task_key="part one")

    agent = Agent(ScriptedModel(respond), delegation=True, name="boss")
    async with Runtime.open(Settings(database_url=url)) as runtime:
        return (await runtime.run(agent, "Go.", thread="t")).run_id


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file:{tmp_path / 'runs.db'}"


def invoke(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"AGENT_RUNTIME_DATABASE_URL": url})


def test_the_tree_shows_the_work_of_each_run(url: str) -> None:
    run_id = anyio.run(delegated, url)
    shown = invoke(url, "runs", "tree", run_id)
    first, second = shown.stdout.splitlines()
    assert first.startswith("boss: succeeded, 2 steps, ") and first.endswith(short_id(run_id))
    assert second.startswith("└─ a reader [part one]: succeeded, 1 step, ")
    report = json.loads(invoke(url, "runs", "tree", run_id, "--json").stdout)
    assert (report["run_id"], report["children"][0]["task_key"]) == (run_id, "part one")
    assert report["children"][0]["parent_run_id"] == run_id


def test_runs_are_listed_newest_first(url: str) -> None:
    run_id = anyio.run(delegated, url)
    listed = invoke(url, "runs").stdout.splitlines()
    assert "a reader  sub-agent" in listed[0]
    assert listed[1].startswith(short_id(run_id))
    [only] = map(json.loads, invoke(url, "runs", "--thread", "t", "--json").stdout.splitlines())
    assert (only["run_id"], only["status"]) == (run_id, "succeeded")


def test_an_unknown_run_is_a_named_error(url: str) -> None:
    anyio.run(delegated, url)
    missing = invoke(url, "runs", "tree", "no-such-run")
    assert missing.exit_code == exits.NOTHING
    assert "no-such-run" in missing.stderr
