"""`agent-runtime tasks`."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from tests.delegation.helpers import is_child, step


async def respond(request: ModelRequest) -> Scripted:
    """Delegate a task that never ends."""
    if is_child(request):
        await anyio.sleep_forever()
    order = {"role": "a reader", "instructions": "Read.", "task_key": "k", "background": True}
    return say("Done.") if step(request) else call("delegate", **order)


class Machine:
    """A database with a background task that this process works on.

    Commands run in threads, since each opens the database itself.
    """

    def __init__(self, folder: Path) -> None:
        self.url = f"file:{folder / 'tasks.db'}"

    async def invoke(self, *arguments: str) -> Result:
        """Run a command."""
        environ = {"AGENT_RUNTIME_DATABASE_URL": self.url}
        return await anyio.to_thread.run_sync(
            lambda: CliRunner().invoke(main, ("tasks", *arguments), env=environ)
        )


async def test_a_task_is_listed_steered_and_cancelled_from_another_process(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    agent = Agent(ScriptedModel(respond), delegation=True)
    async with Runtime.open(Settings(database_url=machine.url)) as runtime:
        await runtime.run(agent, "Go.", thread="t")
        listed = await machine.invoke("list", "t")
        report = json.loads((await machine.invoke("list", "t", "--json")).stdout)
        steered = await machine.invoke("steer", "t", "k", "Look at the sea.")
        store = runtime.store.of("local")
        run = await store.runs.get(report["run_id"])
        [item] = await store.inbox.pending(run.thread_id)
        cancelled = await machine.invoke("cancel", "t", report["run_id"])
        assert (await store.runs.get(run.id)).cancel_requested
        missing = await machine.invoke("cancel", "t", "another")
    assert "running" in listed.stdout and "a reader: Read." in listed.stdout
    assert (report["key"], report["status"]) == ("k", "running")
    assert (steered.exit_code, cancelled.exit_code) == (0, 0)
    assert (item.kind, item.body) == ("steer", b"Look at the sea.")
    assert (missing.exit_code, "list t" in missing.stderr) == (exits.NOTHING, True)


@pytest.mark.parametrize("thread", ["t", "no-such-thread"])
async def test_a_thread_without_tasks_and_an_unknown_thread_are_reported(
    tmp_path: Path, thread: str
) -> None:
    machine = Machine(tmp_path)
    async with Runtime.open(Settings(database_url=machine.url)) as runtime:
        await runtime.run(Agent(ScriptedModel([say("Done.")])), "Go.", thread="t")
    result = await machine.invoke("list", thread)
    assert result.exit_code == (0 if thread == "t" else exits.NOTHING)
    assert thread in result.stderr
