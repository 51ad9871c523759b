"""A workflow is killed between an effect and its record, and resumed in another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import NodeFailed, Runtime, Settings
from agent_runtime.log.run_spec import RunSpec
from agent_runtime_storage.contract.records.log import Run
from tests.services.backends import FILE_THEN_POSTGRES
from tests.workflow.elsewhere import EFFECTS, Effects, elsewhere, flow

ALL = [
    "once", "agent1", "agent2", "loop0", "loop1", "left", "right1", "right2", "deep", "look",
]  # fmt: skip
OUTPUT = {
    "first": "once done",
    "agent": "agent is done",
    "loops": ["loop0 done", "loop1 done"],
    "both": ["left done", "right is done"],
    "deep": "deep done: Ada",
    "seen": "look done",
    "messages": ["Go.", "agent is done", "right is done", "deep done: Ada"],
}


@FILE_THEN_POSTGRES
@pytest.mark.parametrize(
    ("stop", "recorded"), [("agent2", "tool-finish once"), ("right1", "tool-finish left")]
)
async def test_finished_nodes_are_not_run_again_after_a_kill(
    database_url: str, tmp_path: Path, stop: str, recorded: str
) -> None:
    """A killed agent continues in its own run; its tool call in progress is not repeated."""
    effects = Effects(tmp_path / "effects")
    async with elsewhere(database_url, effects.path, stop) as other:
        await other.until(f"effect {stop}", recorded)
        await other.kill()
    EFFECTS[str(effects.path)] = effects
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        result = await runtime.resume(other.run_id, flow, deps=effects)
        runs = await runtime.store.of("local").runs.list(root_run_id=other.run_id)
    assert result.output == OUTPUT
    assert sorted(effects.done()) == sorted(ALL)
    assert {run.status for run in runs} == {"succeeded"}
    assert sorted(_node(run) for run in runs) == ["", "agent 1", "inner 1", "right 1"]


@pytest.mark.backends("file")
async def test_a_function_in_progress_at_a_kill_runs_again_only_if_idempotent(
    database_url: str, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    EFFECTS[str(effects.path)] = effects
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        async with elsewhere(database_url, effects.path, "look") as other:
            await other.until("effect look")
            await other.kill()
        result = await runtime.resume(other.run_id, flow, deps=effects)
        assert result.output == OUTPUT
        assert sorted(effects.done()) == sorted([*ALL, "look"])

        effects.path.unlink()
        store = runtime.store.of("local")
        async with elsewhere(database_url, effects.path, "loop1") as other:
            await other.until("effect loop1")
            await other.kill()
        for _ in range(2):
            with pytest.raises(NodeFailed, match=r"'loop' \(iteration 2\).*unverified") as failed:
                await runtime.resume(other.run_id, flow, deps=effects)
            assert (failed.value.outcome, failed.value.iteration) == ("interrupted", 2)
            assert (await store.runs.get(other.run_id)).status == "failed"
    assert effects.done() == ["once", "agent1", "agent2", "loop0", "loop1"]


def _node(run: Run) -> str:
    spec = RunSpec.of(run)
    return f"{spec.node} {spec.iteration}" if spec.node else ""
