"""Three hundred steps on each native wire: nothing is refused, and prompts only grow."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from agent_runtime import Agent, Event, NativeModel, Runtime, Settings
from agent_runtime.testing.providers.server import StrictServer
from tests.models.scenario import ANSWER, SETTINGS, fail, look, script
from tests.models.test_same_meaning import WIRES

STEPS = 300


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", WIRES)
async def test_three_hundred_steps(tmp_path: Path, name: str) -> None:
    played = WIRES[name]()
    settings = Settings(database_url=f"file:{tmp_path / 'run.db'}", **SETTINGS)
    events: list[Event] = []
    async with (
        StrictServer(played.provider, functools.partial(script, steps=STEPS)) as server,
        Runtime.open(settings) as runtime,
    ):
        url = server.url + played.path
        model = NativeModel(played.model, base_url=url, api_key="sk-test-0123456789", retries=0)
        agent = Agent(
            model, tools=[look, fail], delegation=True, last_messages=4, max_steps=STEPS + 1
        )
        result = await runtime.run(agent, "Look at all parts.", on_event=events.append)
    assert server.violations == []
    assert (result.status, result.output, result.steps) == ("succeeded", ANSWER, STEPS)
    began = [one for one in events if one.kind == "activation" and one.run_id == result.run_id]
    # A prompt that does not extend the one before has an activation that says so.
    assert 10 < len(server.breaks()) <= len(began)
