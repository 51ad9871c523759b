"""The report of a thread's memory, on threads made by real runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.errors import NotFound
from agent_runtime.log import branches
from agent_runtime.log.branch import load_view
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say


def look(number: int) -> str:
    """Look.

    Args:
        number: at what.
    """
    return f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20


def _agent(steps: int) -> Agent:
    left = iter(range(steps))

    def script(request: ModelRequest) -> Scripted:
        number = next(left, None)
        return say("Done.") if number is None else call("look", number=number)

    return Agent(ScriptedModel(script), tools=[look], last_messages=6)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    settings = Settings(
        database_url=f"file:{tmp_path / 'run.db'}",
        observational_memory=True,
        observer_message_tokens=3000,
        reflector_observation_tokens=600,
    )
    async with Runtime.open(settings) as opened:
        assert (await opened.run(_agent(100), "Find the bug.", thread="t")).ok
        yield opened


async def test_it_shows_where_each_observation_is_used(runtime: Runtime) -> None:
    store = runtime.store.of("local")
    view = await load_view(store, "t", (await store.threads.get("t")).head)

    report = await runtime.memory.report(_agent(0), "t")

    active = [observation.observation.id for observation in report.at("active")]
    assert active == list(view.start.observed)
    parts = {part for observation in report.at("active") for part in observation.observation.parts}
    assert parts and parts <= {observation.observation.id for observation in report.at("replaced")}
    prepared = [
        observation.observation
        for observation in report.at("prepared")
        if not observation.observation.level
    ]
    assert all(observation.first >= view.entries[0].seq for observation in prepared)
    assert len(report.held) == await store.log.last_observation_id("t")
    assert not report.at("elsewhere")


async def test_its_figures_match_the_log(runtime: Runtime) -> None:
    store = runtime.store.of("local")
    view = await load_view(store, "t", (await store.threads.get("t")).head)

    report = await runtime.memory.report(_agent(0), "t")

    assert abs(report.tokens.total - round(view.tokens * report.ratio)) <= 2
    for observation in report.held:
        seen = observation.observation
        nodes = await store.log.branch("t", seen.last, first=seen.first)
        assert observation.of == round(sum(node.tokens for node in nodes) * report.ratio)
        assert observation.tokens == round(seen.tokens * report.ratio)
    # The window is large enough for the configured thresholds.
    assert (report.observe_at, report.reflect_at, report.on) == (3000, 600, True)
    assert report.activation is not None and report.activation.id == view.activation_id


async def test_observations_of_another_branch_are_listed_as_elsewhere(runtime: Runtime) -> None:
    await branches.edit(runtime.store.of("local"), "t", 1)
    assert (await runtime.run(_agent(1), "Find the walrus.", thread="t")).ok

    report = await runtime.memory.report(_agent(0), "t")

    assert report.held and {observation.place for observation in report.held} == {"elsewhere"}
    assert (report.task, report.ledger, report.tokens.observations) == ("", (), 0)


async def test_an_unknown_thread_has_no_report(runtime: Runtime) -> None:
    with pytest.raises(NotFound):
        await runtime.memory.report(_agent(0), "nowhere")
    await runtime.store.of("local").threads.ensure("empty")
    report = await runtime.memory.report(_agent(0), "empty")
    assert (report.activation, report.held, report.tokens.raw) == (None, (), 0)
    # Having nothing to do is not an error.
    assert (await runtime.memory.observe(_agent(0), "empty")).written == ()
    assert (await runtime.memory.reflect(_agent(0), "empty")).written == ()
