"""A run waits while its model is unavailable, then is suspended."""

from __future__ import annotations

import anyio
import pytest

from agent_runtime import Agent, RunResult
from agent_runtime.run.guard import outage
from agent_runtime.testing.model_server import Reply, server_error
from tests.support.worlds import Serve, double, in_turn

# A provider is down in the same way over every database.
pytestmark = pytest.mark.backends("file")
CALL = Reply(calls=(("double", {"number": 21}),))
OK = Reply(text="It is 42.")
AGENT = Agent(tools=[double])


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "FIRST_WAIT", 0.001)


async def test_a_run_waits_for_a_model_that_is_down(serve: Serve) -> None:
    # Each try of the step makes three attempts.
    down = [server_error()] * 7
    async with serve([CALL, *down, OK], settings={"model_outage": 600.0}) as world:
        result = await world.run(AGENT)

        assert (result.output, result.steps) == ("It is 42.", 2)
        row = await world.row()
        assert row.settled.tokens == world.billed("total_tokens")
        assert row.reserved.tokens == 0


async def test_a_longer_outage_suspends_the_run_and_a_sweep_offers_it(serve: Serve) -> None:
    async with serve([CALL, server_error()], settings={"model_outage": 0.01}) as world:
        result = await world.run(AGENT)

        assert (result.status, result.stop_reason) == ("suspended", "unavailable")
        assert "0.01 s" in result.detail
        assert (await world.row()).reserved.tokens == 0
        assert [run.id for run in (await world.runtime.sweep()).resumable] == [result.run_id]
        world.server.script = in_turn([OK])
        assert (await world.resume(AGENT)).output == "It is 42."


async def test_a_run_that_waits_for_its_model_can_be_paused(serve: Serve) -> None:
    async with serve([server_error()], settings={"model_outage": 600.0}) as world:
        results: list[RunResult] = []
        async with anyio.create_task_group() as group:

            async def run() -> None:
                results.append(await world.run(AGENT))

            group.start_soon(run)
            while not any(event.kind == "model-retry" for event in world.events):  # noqa: ASYNC110
                await anyio.sleep(0.001)
            await world.runtime.pause(world.run_id)
        assert [result.stop_reason for result in results] == ["paused"]
