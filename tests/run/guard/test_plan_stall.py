"""Runs whose plan stands still: told so, then stopped, and a person is asked whether they go on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Decision, ToolError, tool
from agent_runtime.log import branches
from agent_runtime.models.base import ModelAnswer, ModelRequest, RawCall
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from tests.delegation.helpers import is_child, step
from tests.support.worlds import Play, World, double

LIMIT: dict[str, Any] = {"plan_stall_limit": 4}
"""Told after 4 steps without progress, stopped after 6."""
AGENT = Agent(tools=[double], planning=True)
FILE = pytest.mark.backends("file")


def create() -> ModelAnswer:
    """The call that makes the plan."""
    first = {"id": "dig", "description": "Dig deep", "status": "in_progress"}
    steps = [first, {"id": "build", "description": "Build it"}]
    return call("plan", action="create", goal="Ship it", steps=steps)


def update(**change: Any) -> RawCall:
    """The call that changes the first item, or the plan."""
    item = {name: change.pop(name) for name in ("status", "result", "follow") if name in change}
    steps = [{"id": "dig", **item}] if item else []
    return raw_call("plan", action="update", steps=steps, **change)


def work() -> Iterator[ModelAnswer]:
    """Calls of which no two are the same."""
    return (call("double", number=n) for n in itertools.count())


def some(number: int, first: int = 100) -> list[Scripted]:
    """So many calls of which no two are the same."""
    return [call("double", number=first + n) for n in range(number)]


async def notes(world: World, source: str = "plan") -> int:
    """Return how often the thread was told something by this source."""
    events = await world.store.events.list("t", limit=10_000)
    return sum(one.kind == "note" and one.data["source"] == source for one in events)


def told(world: World) -> list[str]:
    """Return what the newest prompt of the model says of the plan standing still."""
    model: Any = world.model
    return [m.text for m in model.requests[-1].messages if "of your plan has changed" in m.text]


async def test_the_model_is_told_first_and_then_the_run_stops(play: Play) -> None:
    async with play(itertools.chain([create()], work()), settings=LIMIT) as world:
        result = await world.run(AGENT, thread="t")

        assert (result.status, result.stop_reason) == ("failed", "no_progress")
        assert result.steps == 7
        assert "In 6 steps no item of its plan has changed" in result.detail
        [text] = told(world)
        assert "last 4 answers" in text and "In progress: dig (Dig deep)" in text
        assert await notes(world) == 1
        kinds = [one.kind for one in await world.store.events.list("t")]
        assert kinds.count("run-finish") == 1


@FILE
@pytest.mark.parametrize(
    "change",
    [
        {"result": "two holes of ten"},
        {"status": "pending"},
        {"add": [{"description": "Fill it up"}]},
    ],
    ids=["a result", "a status", "a new step"],
)
async def test_what_changes_an_item_begins_the_count_anew(play: Play, change: Any) -> None:
    script = [create(), *some(3), calls(update(**change)), *some(3, 200), say("Done.")]
    async with play(script, settings=LIMIT) as world:
        assert (await world.run(AGENT, thread="t")).ok and await notes(world) == 0


@FILE
@pytest.mark.parametrize(
    "change",
    [{"phase": "execute"}, {"goal": "Ship it soon"}, {"status": "in_progress"}],
    ids=["a phase", "a goal", "the status that it has"],
)
async def test_what_changes_no_item_is_no_progress(play: Play, change: Any) -> None:
    script = [create(), *some(2), calls(update(**change)), *some(5), say("Done.")]
    async with play(script, settings=LIMIT) as world:
        result = await world.run(AGENT, thread="t")

        assert (result.stop_reason, result.steps) == ("no_progress", 7)


@FILE
async def test_a_phase_that_goes_to_and_fro_is_no_progress(play: Play) -> None:
    to_and_fro = (calls(update(phase=one)) for one in itertools.cycle(["execute", "plan"]))
    async with play(itertools.chain([create()], to_and_fro), settings=LIMIT) as world:
        result = await world.run(AGENT, thread="t")

        assert (result.stop_reason, result.steps) == ("no_progress", 7)


@FILE
async def test_an_item_that_follows_the_call_beside_it_has_moved(play: Play) -> None:
    """The call that it follows ends last, so that its result is not recorded at the look."""

    @tool
    async def last() -> str:
        """Wait until the plan was changed."""
        for _ in range(3000):
            if len(await world.runtime.plans.versions("t")) == 2:
                return "done"
            await anyio.sleep(0.01)
        raise ToolError("The plan was not changed.")

    followed = calls(raw_call("last"), update(follow=True))
    script = [create(), *some(3), followed, *some(3, 200), say("Done.")]
    async with play(script, settings=LIMIT) as world:
        agent = Agent(tools=[double, last], planning=True)
        assert (await world.run(agent, thread="t")).ok and await notes(world) == 0
        assert {outcome for outcome, _ in await world.results("t")} == {"ok"}


@FILE
@pytest.mark.parametrize("settings", [LIMIT, {"plan_stall_limit": 0}])
async def test_a_plan_without_open_items_is_left_alone(play: Play, settings: Any) -> None:
    done = call(
        "plan",
        action="create",
        goal="Ship it",
        steps=[{"description": "Dig", "status": "completed" if settings is LIMIT else "pending"}],
    )
    async with play([done, *some(12), say("Done.")], settings=settings) as world:
        assert (await world.run(AGENT, thread="t")).ok and await notes(world) == 0


@FILE
async def test_a_run_that_was_resumed_counts_the_same(play: Play) -> None:
    async with play(itertools.chain([create()], work()), settings=LIMIT) as world:
        few = Agent(tools=[double], planning=True, max_steps=3)
        assert (await world.run(few, thread="t")).stop_reason == "max_steps"

        result = await world.resume(AGENT)

        assert (result.stop_reason, result.steps) == ("no_progress", 7)
        assert await notes(world) == 1
        # Who has it go on all the same gives it as many steps again as it had after the note.
        again = await world.resume(AGENT)
        assert (again.stop_reason, again.steps) == ("no_progress", 9)
        assert await notes(world) == 1


@FILE
async def test_what_has_left_the_prompt_counts_too(play: Play) -> None:
    @tool
    def read(page: int) -> str:
        """Read a page."""
        return f"the page {page} " * 150

    agent = Agent(tools=[read], planning=True, last_messages=2, context_window=6000)
    pages: Iterator[Scripted] = (call("read", page=n) for n in itertools.count())
    settings = LIMIT | {"observational_memory": False, "response_reserve": 500}
    settings |= {"plan_stall_limit": 16}
    async with play(itertools.chain([create()], pages), settings=settings) as world:
        result = await world.run(agent, thread="t")

        assert (result.stop_reason, result.steps) == ("no_progress", 25)
        assert len(await world.store.log.activations("t")) > 1
        assert await notes(world) == 1


@FILE
async def test_another_branch_and_another_run_are_counted_by_themselves(play: Play) -> None:
    script = [create(), *some(5), say("A."), *some(5, 200), say("B."), *some(5, 300), say("C.")]
    async with play(script, settings=LIMIT) as world:
        assert (await world.run(AGENT, thread="t")).ok
        assert (await world.run(AGENT, "Go on.", thread="t")).ok
        assert await notes(world) == 2
        # On this branch there is the plan, and no word of it standing still.
        await branches.fork(world.store, "t", 4)

        assert (await world.run(AGENT, "Again.", thread="t")).ok
        assert await notes(world) == 3


@FILE
async def test_sub_agents_that_bring_an_item_forward_are_progress(play: Play) -> None:
    delegate = call("delegate", role="digger", instructions="Dig.", task_key="dig")
    answers = [create(), *some(3), delegate, *some(3, 200), say("Done.")]

    def respond(request: ModelRequest) -> Scripted:
        return say("Dug.") if is_child(request) else answers[step(request)]

    agent = Agent(tools=[double], planning=True, delegation=True)
    async with play(respond, settings=LIMIT) as world:
        assert (await world.run(agent, thread="t")).ok and await notes(world) == 0


@FILE
async def test_waiting_for_tasks_in_the_background_is_no_standstill(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime.delegation.tasks_tool.POLL_SECONDS", 0.001)
    wait = call("tasks", action="wait")
    agent = Agent(tools=[double], planning=True, delegation=True)
    async with play(
        [create(), *some(3), *[wait] * 8, *some(1, 200), say("Done.")], settings=LIMIT
    ) as world:
        assert (await world.run(agent, thread="t")).ok
        # Eight waits count nothing, and the call after them is the fourth.
        model: Any = world.model
        assert "of your plan has changed" not in str(model.requests[-2].messages)
        [text] = told(world)
        assert "last 4 answers" in text


@FILE
@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_person_is_asked_whether_it_goes_on(play: Play, goes_on: bool) -> None:
    asks = Agent(tools=[double], planning=True, asking=True)
    script = [create(), *some(6), *some(3, 200), say("Done.")]
    async with play(script, settings=LIMIT) as world:
        stopped = await world.run(asks, thread="t")

        assert (stopped.status, stopped.stop_reason) == ("suspended", "no_progress")
        [question] = stopped.questions
        assert question.kind == "continue" and "dig (Dig deep)" in question.text
        await world.runtime.answer(question.id, Decision(goes_on, "The rock is hard."))
        result = await world.resume(asks)

        if goes_on:
            assert result.ok and await notes(world) == 1
            model: Any = world.model
            said = str(model.requests[-1].messages)
            assert "your plan did not move" in said and "The rock is hard." in said
        else:
            assert (result.status, result.stop_reason) == ("failed", "no_progress")
            assert "Its plan did not move, and the user stopped it: The rock" in result.detail
