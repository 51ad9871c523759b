"""The stored spec of a run: the caller's part is untouched, and earlier versions' runs resume."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, Workflow, WorkflowContext
from agent_runtime.cli.agents import Spec
from agent_runtime.errors import Conflict, ModelUnavailable
from agent_runtime.log.run_spec import COMMAND, RunSpec, delegation_record
from agent_runtime.models.scripted import say
from tests.run.old_runs.make import SPECS, WORKSPACE, agents
from tests.support.command import run_command

OLD = Path(__file__).parent / "old_runs" / "runs.db.zst"
GONE = ModelUnavailable("The provider is gone.")
RESERVED: dict[str, dict[str, Any]] = {
    "memory": {"memory": "observe"},
    "workflow": {"workflow": True},
    "delegation": {"delegation": {"key": "k", "call": "c", "place": 0, "depth": 1, "action": ""}},
    "a broken delegation": {"delegation": "mine"},
    "node memory": {"node_memory": {"app_id": "a", "conversation_id": "c", "node_id": "n"}},
    "a node": {"node": "x", "iteration": 1},
    "a user context": {"user_context": {"role": "admin"}},
    "the command line's": Spec("", "/", allow_shell=True).to_json(),
    "the runtime's own format": {"format": 2, "internal": {"workflow": True}, "spec": {}},
    "upkeep": {"upkeep": "observe", "program": COMMAND},
}


def _flow(script: list[Any]) -> Workflow:
    worker = Agent(ScriptedModel(script), name="worker")

    @Workflow
    async def flow(w: WorkflowContext) -> str:
        return await w.agent("work", worker)

    return flow


@pytest.mark.backends("file")
@pytest.mark.parametrize("key", RESERVED)
@pytest.mark.parametrize("kind", ["agent", "workflow"])
async def test_a_callers_spec_is_stored_unchanged(database_url: str, key: str, kind: str) -> None:
    spec = RESERVED[key]
    seen: list[Any] = []

    def build(script: list[Any]) -> Agent | Workflow:
        return Agent(ScriptedModel(script)) if kind == "agent" else _flow(script)

    async with Runtime.open(Settings(database_url=database_url, model_outage=0)) as runtime:
        store = runtime.store.of("local")
        with pytest.raises(Exception, match="The provider is gone"):
            await runtime.run(build([GONE]), "Work.", thread="t", spec=spec)
        [run] = await store.runs.list(thread_id="t")
        assert run.spec == spec
        assert RunSpec.of(run) == RunSpec(caller=spec, workflow=kind == "workflow")

        swept = await runtime.sweep()
        assert (swept.interrupted, swept.ended) == ((), ())
        result = await runtime.resume(run.id, build([say("Done.")]), on_event=seen.append)
        assert result.output == "Done."
        assert (await store.runs.get(run.id)).spec == spec
        assert (await runtime.run(build([say("More.")]), "Go on.", thread="t")).ok


@pytest.mark.backends("file")
async def test_an_unreadable_delegation_record_is_logged_when_it_is_read(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime.open(Settings(database_url=database_url, model_outage=0)) as runtime:
        result = await runtime.run(Agent(ScriptedModel([say("Done.")])), "Work.")
        own = await runtime.store.of("local").runs.get(result.run_id)
    broken = {"delegation": {"key": "k", "call": "c"}}
    for run in (replace(own, internal=broken), replace(own, internal=None, spec=broken)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert RunSpec.of(run).delegation is None
            assert caplog.messages == []
            assert delegation_record(run) is None
        assert caplog.messages == [f"The delegation record of run {run.id} cannot be read."]
    caplog.clear()
    assert delegation_record(replace(own, spec=broken)) is None
    assert caplog.messages == []


async def test_only_the_command_lines_workspace_becomes_thread_metadata(tmp_path: Path) -> None:
    for program, metadata in (("", {}), (COMMAND, {"workspace": "/work"})):
        settings = Settings(database_url=f"file:{tmp_path / 'own.db'}", model_outage=0)
        async with Runtime.open(settings, program=program) as runtime:
            agent = Agent(ScriptedModel([say("Done.")]))
            spec = {"workspace": "/work"}
            result = await runtime.run(agent, "Work.", spec=spec)
            thread = await runtime.store.of("local").threads.get(result.thread_id)
        assert thread.metadata == metadata


async def test_the_command_line_resumes_its_own_runs_only(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'own.db'}"
    spec = Spec("", str(tmp_path), allow_shell=True).to_json()
    async with Runtime.open(Settings(database_url=url, model_outage=0)) as runtime:
        with pytest.raises(ModelUnavailable):
            await runtime.run(Agent(ScriptedModel([GONE])), "Work.", thread="t", spec=spec)
        [run] = await runtime.store.of("local").runs.list(thread_id="t")

    done = run_command("resume", run.id, cwd=tmp_path, environ={"AGENT_RUNTIME_DATABASE_URL": url})
    assert done.returncode != 0
    assert "was not started from the command line" in done.stderr


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a database that an earlier version wrote, with its workspace on this machine."""
    database = tmp_path / "old.db"
    database.write_bytes(zstandard.ZstdDecompressor().decompress(OLD.read_bytes()))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("four")
    with sqlite3.connect(database) as connection:
        connection.execute(
            "UPDATE runs SET spec = replace(spec, ?, ?)", (WORKSPACE, str(tmp_path / "work"))
        )
    connection.close()
    return database


OUTPUTS = {
    "plain": "Plain.",
    "workflow": "One. Two. Ada",
    "delegation": "Delegated.",
    "node_memory": "Remembered.",
    "command": "Commanded.",
}


@pytest.mark.parametrize("kind", OUTPUTS)
async def test_a_run_of_an_earlier_version_resumes(old: Path, kind: str) -> None:
    async with Runtime.open(Settings(database_url=f"file:{old}", model_outage=0)) as runtime:
        store = runtime.store.of("local")
        agent_names = {"workflow": "flow", "node_memory": "node"}
        roots = [run for run in await store.runs.list(limit=100) if run.parent_run_id is None]
        [run] = [
            run
            for run in roots
            if (kind == "node_memory" and run.agent == "node")
            or (run.thread_id == kind and run.agent == agent_names.get(kind, "agent"))
        ]
        spec = RunSpec.of(run)
        assert spec.user_context == {"name": "Ada"}
        assert spec.workflow == (kind == "workflow")
        assert (spec.program == COMMAND) == (kind == "command")
        assert (
            spec.caller.items()
            >= {
                name: value for name, value in SPECS.get(kind, {}).items() if value != WORKSPACE
            }.items()
        )

        agent = agents(old.parent / "work", again=True)[kind]
        result = await runtime.resume(run.id, agent)
        assert result.output == OUTPUTS[kind]


async def test_the_command_line_resumes_its_run_of_an_earlier_version(old: Path) -> None:
    async with Runtime.open(Settings(database_url=f"file:{old}", model_outage=0)) as runtime:
        [run] = await runtime.store.of("local").runs.list(thread_id="command")
    environ = {"AGENT_RUNTIME_DATABASE_URL": f"file:{old}"}
    done = run_command("resume", run.id, cwd=old.parent, environ=environ)
    # The offline model cannot do that task, but the agent was built and the run continued.
    assert "was not started from the command line" not in done.stderr
    async with Runtime.open(Settings(database_url=f"file:{old}", model_outage=0)) as runtime:
        assert (await runtime.store.of("local").runs.get(run.id)).epoch == run.epoch + 1
    shutil.rmtree(old.parent / "work")


@pytest.mark.backends("file", "postgres")
async def test_memory_upkeep_is_not_resumed_as_a_task(database_url: str) -> None:
    async with Runtime.open(Settings(database_url=database_url, model_outage=0)) as runtime:
        agent = Agent(ScriptedModel([say("Done.")]))
        await runtime.run(agent, "Work.", thread="t")
        await runtime.memory.observe(agent, "t")
        store = runtime.store.of("local")
        runs = await store.runs.list(thread_id="t")
        upkeep = [run for run in runs if RunSpec.of(run).upkeep]
        assert [RunSpec.of(run).upkeep for run in upkeep] == ["observe"]
        with pytest.raises(Conflict):
            await runtime.resume(upkeep[0].id, Agent(ScriptedModel([say("No.")])))
