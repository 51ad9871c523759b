"""Where a message is now, on threads made by real runs."""

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
    return f"src/part_{number}.py: the lantern is number {number}\n" + "what was seen there\n" * 300


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    left = iter(range(60))

    def script(request: ModelRequest) -> Scripted:
        number = next(left, None)
        return say("Done.") if number is None else call("look", number=number)

    settings = Settings(
        database_url=f"file:{tmp_path / 'run.db'}",
        observational_memory=True,
        observer_message_tokens=3000,
        reflector_observation_tokens=600,
        max_result_tokens=400,
    )
    agent = Agent(ScriptedModel(script), tools=[look], last_messages=6)
    async with Runtime.open(settings) as opened:
        first = Agent(ScriptedModel(lambda request: say("Noted.")), last_messages=6)
        assert (await opened.run(first, "Never touch the walrus config.", thread="t")).ok
        assert (await opened.run(agent, "Find the lantern.", thread="t")).ok
        yield opened


async def test_each_node_of_the_branch_has_the_form_that_the_prompt_gives_it(
    runtime: Runtime,
) -> None:
    store = runtime.store_of()
    head = (await store.threads.get("t")).head or 0
    view = await load_view(store, "t", head)
    raw = view.entries[0].seq
    covered = [one for one in view.observations if not one.archive]
    for node in await store.log.lineage("t", head):
        found = await runtime.memory.explain("t", node)
        assert found.forks_from is None
        if node >= raw:
            assert found.form in ("raw", "shortened") and not found.active
        elif node == view.start.task:
            assert found.form in ("task", "observed")
        else:
            assert found.form in ("observed", "archived", "condensed")
            top = found.observations[0]
            assert top.id in view.start.observed and top.first <= node <= top.last
            # Down to the observation of messages.
            assert not found.observations[-1].parts
            assert all(one.first <= node <= one.last for one in found.observations)
            assert set(found.lines) <= set(top.notes.lines)
    assert covered


async def test_a_result_that_is_shown_in_part_is_named_with_its_handle(runtime: Runtime) -> None:
    store = runtime.store_of()
    head = (await store.threads.get("t")).head or 0
    view = await load_view(store, "t", head)
    newest = next(entry.seq for entry in reversed(view.entries) if entry.results)
    found = await runtime.memory.explain("t", newest)
    assert found.form == "shortened"
    [result] = found.shortened
    assert result.tool == "look" and 0 < result.shown < result.of
    report = await runtime.memory.report(Agent(), "t")
    assert result.handle in report.left_out.shortened
    assert report.left_out.messages == view.start.left_out > 0
    assert not report.left_out.gaps


async def test_the_lines_of_an_observation_that_tell_of_a_node_are_shown(runtime: Runtime) -> None:
    first = await runtime.memory.explain("t", 1)
    assert first.constraint and "walrus" in first.constraint
    shown_lines = [line.text for line in (*first.lines, *first.replaced)]
    assert any("walrus" in text for text in shown_lines)
    assert not any("lantern is number" in text for text in shown_lines)


async def test_a_node_of_another_branch_tells_where_it_leaves(runtime: Runtime) -> None:
    store = runtime.store_of()
    head = (await store.threads.get("t")).head or 0
    await branches.fork(store, "t", 2)
    found = await runtime.memory.explain("t", head)
    assert (found.form, found.forks_from) == ("elsewhere", 2)
    assert (await runtime.memory.explain("t", 2)).form == "raw"


async def test_without_memory_a_node_outside_of_the_prompt_is_unobserved(tmp_path: Path) -> None:
    settings = Settings(
        database_url=f"file:{tmp_path / 'run.db'}", observational_memory=False, last_messages=2
    )
    agent = Agent(ScriptedModel(lambda request: say("Noted.")))
    async with Runtime.open(settings) as runtime:
        for text in "abcdefgh":
            await runtime.run(agent, text, thread="t")
        assert (await runtime.memory.explain("t", 1)).form == "unobserved"
        for missing in (99, 10**12):
            with pytest.raises(NotFound):
                await runtime.memory.explain("t", missing)
        with pytest.raises(NotFound):
            await runtime.memory.explain("t", 1, user="somebody else")
