"""A killed delegation continues where it was, and finished work is not repeated."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import anyio
import orjson
import pytest

from agent_runtime import Runtime, Settings
from agent_runtime.delegation.background import tasks_of
from agent_runtime.messages import decode_result
from agent_runtime.run.sweep import sweep
from agent_runtime_storage import UserStore
from tests.delegation.elsewhere import PARTS, Worker, elsewhere
from tests.delegation.test_background import until
from tests.services.backends import FILE_THEN_POSTGRES


@pytest.mark.backends("file", "postgres")
async def test_finished_sub_agents_do_not_run_again_and_the_dead_ones_are_resumed(
    database_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "asked"
    async with elsewhere(database_url, path, "two", "three") as other:
        # The first has ended, and the others are at their second step.
        versions = ["plan"] * 5
        await other.until("run-finish", "waiting", "waiting", *versions)
        await other.kill()

    worker = Worker(path)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        store = runtime.store.of("local")
        [parent] = await store.runs.list(thread_id="t")
        before = {run.id: run.status for run in await store.runs.list(parent_run_id=parent.id)}
        assert sorted(before.values()) == ["running", "running", "succeeded"]

        result = await runtime.resume(parent.id, worker.agent())

        assert result.output == "Done."
        runs = await store.runs.list(parent_run_id=parent.id)
        # There are three sub-agents: each was resumed, none started again.
        assert {run.id for run in runs} == before.keys()
        assert {run.status for run in runs} == {"succeeded"}
        [_, exchange] = [node for node in await store.log.branch("t", 4) if node.calls]
        outcomes = [orjson.loads(decode_result(call.body).text) for call in exchange.calls]
        for run in runs:
            ends = [
                event
                for event in await store.events.list(run.thread_id)
                if event.kind == "run-finish"
            ]
            assert len(ends) == 1
        # Items that are completed in the plan are not started again.
        plans = reversed(await runtime.plans.versions("t"))
        statuses = [status for status, _ in groupby(plan.items[0].status for plan in plans)]
        assert statuses == ["pending", "in_progress", "completed"]
    assert [(outcome["result"], outcome["attempt"]) for outcome in outcomes] == [
        (f"read {part}", 1) for part in PARTS
    ]
    # Each sub-agent looked once; the killed ones repeated only the step in progress.
    assert sorted(worker.asked()) == sorted(
        ["one 0", "one 1", "two 0", "two 1", "two 1", "three 0", "three 1", "three 1"]
    )


@FILE_THEN_POSTGRES
async def test_dead_sub_agents_end_if_the_calls_that_began_them_are_refused_now(
    database_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "asked"
    async with elsewhere(database_url, path, "two", "three") as other:
        await other.until("run-finish", "waiting", "waiting", *["plan"] * 5)
        await other.kill()

    # The briefings name a tool that this version of the agent does not have.
    agent = replace(Worker(path).agent(), tools=())
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        store = runtime.store.of("local")
        [parent] = await store.runs.list(thread_id="t")
        assert (await runtime.resume(parent.id, agent)).output == "Done."
        [_, exchange] = [node for node in await store.log.branch("t", 4) if node.calls]
        ends = [run.status for run in await store.runs.list(parent_run_id=parent.id)]
        left = await sweep(store)
    assert "refused" in {call.outcome for call in exchange.calls}
    assert sorted(ends) == ["cancelled", "cancelled", "succeeded"]
    assert left.interrupted == ()


@FILE_THEN_POSTGRES
async def test_killed_background_tasks_are_reported_and_resumed(
    database_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "asked"
    async with elsewhere(database_url, path, "parent", "two", "three", background=True) as other:
        await other.until("run-finish", "waiting", "waiting", "waiting")
        await other.kill()

    worker = Worker(path, background=True)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        store = runtime.store.of("local")
        [parent] = await store.runs.list(thread_id="t")
        stood = {task.key: task.status for task in await tasks_of(store, "t")}
        assert stood == {"one": "succeeded", "two": "interrupted", "three": "interrupted"}

        result = await runtime.resume(parent.id, worker.agent())

        assert result.output == "Done."
        runs = await store.runs.list(parent_thread_id="t")
        assert [run.status for run in runs] == ["succeeded"] * 3
    assert sorted(worker.asked()) == sorted(
        ["one 0", "one 1", "two 0", "two 1", "two 1", "three 0", "three 1", "three 1"]
    )


@pytest.mark.backends("file", "postgres")
@pytest.mark.parametrize("leaves", [True, False])
async def test_a_sweep_continues_background_tasks_of_a_killed_process(
    database_url: str, tmp_path: Path, leaves: bool
) -> None:
    """Whether the run that delegated them is over, or was killed too."""
    path = tmp_path / "asked"
    waits = ("two", "three") if leaves else ("parent", "two", "three")
    async with elsewhere(database_url, path, *waits, background=True, leaves=leaves) as other:
        await other.until(*["waiting"] * len(waits), *["left"] * leaves)
        if leaves:
            # That of `one`, which has ended.  What a killed process still owes is sent only when
            # the agent next works.
            async with Runtime.open(Settings(database_url=database_url)) as watching:
                await until(lambda: _has_outcomes(watching, 1))
        await other.kill()

    worker = Worker(path, background=True, leaves=leaves)
    settings = Settings(database_url=database_url, sweep=0.1)
    async with Runtime.open(settings, agents=lambda _: worker.agent()) as runtime:
        store = runtime.store.of("local")

        async def is_done() -> bool:
            runs = await store.runs.list()
            return len(runs) == 4 and {run.status for run in runs} == {"succeeded"}

        with anyio.fail_after(60):
            await until(is_done)
        if leaves:
            # The thread gets the outcome of each once; the agent reads it when it next works.
            with anyio.fail_after(60):
                await until(lambda: _has_outcomes(runtime, 3))
    # Each looked once; of the killed ones the step in progress came again.
    assert sorted(worker.asked()) == sorted(
        ["one 0", "one 1", "two 0", "two 1", "two 1", "three 0", "three 1", "three 1"]
    )


async def _has_outcomes(runtime: Runtime, number: int) -> bool:
    said = [message.text for message in await runtime.threads.messages("t")]
    waiting = [item.body.decode() for item in await runtime.store_of().inbox.pending("t")]
    return f"{said} {waiting}".count("Its outcome follows") == number


@pytest.mark.backends("file", "postgres")
async def test_a_resumed_root_takes_its_background_tasks_along(
    database_url: str, tmp_path: Path
) -> None:
    """Whatever its model makes of them: here it does nothing more."""
    path = tmp_path / "asked"
    async with elsewhere(database_url, path, "parent", "two", "three", background=True) as other:
        await other.until("waiting", "waiting", "waiting")
        await other.kill()

    worker = Worker(path, leaves=True)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        store = runtime.store.of("local")
        [parent] = await store.runs.list(thread_id="t")
        result = await runtime.resume(parent.id, worker.agent())
        assert result.output == "Done."
        with anyio.fail_after(60):
            await until(lambda: _all_succeeded(store, parent.id))
        said = [message.text for message in await runtime.threads.messages("t")]
        waiting = [item.body.decode() for item in await store.inbox.pending("t")]
        # None was reported as interrupted, and the outcome of each comes once.
        assert "was interrupted" not in f"{said} {waiting}"
    assert sorted(worker.asked()) == sorted(
        ["one 0", "one 1", "two 0", "two 1", "two 1", "three 0", "three 1", "three 1"]
    )


async def _all_succeeded(store: UserStore, parent: str) -> bool:
    runs = await store.runs.list(parent_run_id=parent)
    return [run.status for run in runs] == ["succeeded"] * 3
