"""Runs whose plan stands still: the model is warned, then the run stops or asks a person."""

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
"""Warned after 4 steps without progress, stopped after 6."""
AGENT = Agent(tools=[double], planning=True)
FILE = pytest.mark.backends("file")


def create() -> ModelAnswer:
    """Return a call that creates the plan."""
    first = {"id": "dig", "description": "Dig deep", "status": "in_progress"}
    steps = [first, {"id": "build", "description": "Build it"}]
    return call("plan", action="create", goal="Ship it", steps=steps)


def update(**change: Any) -> RawCall:
    """Return a call that changes the first item or the plan."""
    item = {name: change.pop(name) for name in ("status", "result", "follow") if name in change}
    steps = [{"id": "dig", **item}] if item else []
    return raw_call("plan", action="update", steps=steps, **change)


def endless_calls() -> Iterator[ModelAnswer]:
    """Return an endless series of different calls."""
    return (call("double", number=n) for n in itertools.count())


def different_calls(number: int, first: int = 100) -> list[Scripted]:
    """Return `number` different calls."""
    return [call("double", number=first + n) for n in range(number)]


async def count_notes(world: World, source: str = "plan") -> int:
    """Return how many notes of this source the thread has."""
    events = await world.store.events.list("t", limit=10_000)
    return sum(event.kind == "note" and event.data["source"] == source for event in events)


def stall_notes(world: World) -> list[str]:
    """Return the notes of the newest prompt that say that the plan stands still."""
    model: Any = world.model
    return [m.text for m in model.requests[-1].messages if "of your plan has changed" in m.text]


async def test_the_model_is_warned_first_and_then_the_run_stops(play: Play) -> None:
    async with play(itertools.chain([create()], endless_calls()), settings=LIMIT) as world:
        result = await world.run(AGENT, thread="t")

        assert (result.status, result.stop_reason) == ("failed", "no_progress")
        assert result.steps == 7
        assert "In 6 steps no item of its plan has changed" in result.detail
        [text] = stall_notes(world)
        assert "last 4 answers" in text and "In progress: dig (Dig deep)" in text
        assert await count_notes(world) == 1
        kinds = [event.kind for event in await world.store.events.list("t")]
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
async def test_a_changed_item_restarts_the_count(play: Play, change: Any) -> None:
    script = [
        create(),
        *different_calls(3),
        calls(update(**change)),
        *different_calls(3, 200),
        say("Done."),
    ]
    async with play(script, settings=LIMIT) as world:
        assert (await world.run(AGENT, thread="t")).ok and await count_notes(world) == 0


@FILE
@pytest.mark.parametrize(
    "change",
    [{"phase": "execute"}, {"goal": "Ship it soon"}, {"status": "in_progress"}],
    ids=["a phase", "a goal", "the status that it has"],
)
async def test_a_change_of_no_item_is_no_progress(play: Play, change: Any) -> None:
    script = [
        create(),
        *different_calls(2),
        calls(update(**change)),
        *different_calls(5),
        say("Done."),
    ]
    async with play(script, settings=LIMIT) as world:
        result = await world.run(AGENT, thread="t")

        assert (result.stop_reason, result.steps) == ("no_progress", 7)


@FILE
async def test_alternating_phases_are_no_progress(play: Play) -> None:
    alternating = (calls(update(phase=phase)) for phase in itertools.cycle(["execute", "plan"]))
    async with play(itertools.chain([create()], alternating), settings=LIMIT) as world:
        result = await world.run(AGENT, thread="t")

        assert (result.stop_reason, result.steps) == ("no_progress", 7)


@FILE
async def test_an_item_that_follows_a_parallel_call_is_progress(play: Play) -> None:
    """The followed call ends last, so its result is not recorded when the guard looks."""

    @tool
    async def last() -> str:
        """Wait until the plan has changed."""
        for _ in range(3000):
            if len(await world.runtime.plans.versions("t")) == 2:
                return "done"
            await anyio.sleep(0.01)
        raise ToolError("The plan has not changed.")

    followed = calls(raw_call("last"), update(follow=True))
    script = [create(), *different_calls(3), followed, *different_calls(3, 200), say("Done.")]
    async with play(script, settings=LIMIT) as world:
        agent = Agent(tools=[double, last], planning=True)
        assert (await world.run(agent, thread="t")).ok and await count_notes(world) == 0
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
    async with play([done, *different_calls(12), say("Done.")], settings=settings) as world:
        assert (await world.run(AGENT, thread="t")).ok and await count_notes(world) == 0


@FILE
async def test_a_resumed_run_counts_the_same(play: Play) -> None:
    async with play(itertools.chain([create()], endless_calls()), settings=LIMIT) as world:
        few = Agent(tools=[double], planning=True, max_steps=3)
        assert (await world.run(few, thread="t")).stop_reason == "max_steps"

        result = await world.resume(AGENT)

        assert (result.stop_reason, result.steps) == ("no_progress", 7)
        assert await count_notes(world) == 1
        # A person who resumes it anyway gives it as many steps again as it had after the note.
        again = await world.resume(AGENT)
        assert (again.stop_reason, again.steps) == ("no_progress", 9)
        assert await count_notes(world) == 1


@FILE
async def test_steps_that_left_the_prompt_count_too(play: Play) -> None:
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
        assert await count_notes(world) == 1


@FILE
async def test_each_branch_and_each_run_is_counted_separately(play: Play) -> None:
    script = [
        create(),
        *different_calls(5),
        say("A."),
        *different_calls(5, 200),
        say("B."),
        *different_calls(5, 300),
        say("C."),
    ]
    async with play(script, settings=LIMIT) as world:
        assert (await world.run(AGENT, thread="t")).ok
        assert (await world.run(AGENT, "Go on.", thread="t")).ok
        assert await count_notes(world) == 2
        # This branch has the plan, but no note that it stands still.
        await branches.fork(world.store, "t", 4)

        assert (await world.run(AGENT, "Again.", thread="t")).ok
        assert await count_notes(world) == 3


@FILE
async def test_a_sub_agent_that_advances_an_item_is_progress(play: Play) -> None:
    delegate = call("delegate", role="digger", instructions="Dig.", task_key="dig")
    answers = [create(), *different_calls(3), delegate, *different_calls(3, 200), say("Done.")]

    def respond(request: ModelRequest) -> Scripted:
        return say("Dug.") if is_child(request) else answers[step(request)]

    agent = Agent(tools=[double], planning=True, delegation=True)
    async with play(respond, settings=LIMIT) as world:
        assert (await world.run(agent, thread="t")).ok and await count_notes(world) == 0


@FILE
async def test_waiting_for_background_tasks_is_no_stall(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_runtime.delegation.tasks_tool.POLL_SECONDS", 0.001)
    wait = call("tasks", action="wait")
    agent = Agent(tools=[double], planning=True, delegation=True)
    async with play(
        [create(), *different_calls(3), *[wait] * 8, *different_calls(1, 200), say("Done.")],
        settings=LIMIT,
    ) as world:
        assert (await world.run(agent, thread="t")).ok
        # The eight waits do not count, so the call after them is the fourth.
        model: Any = world.model
        assert "of your plan has changed" not in str(model.requests[-2].messages)
        [text] = stall_notes(world)
        assert "last 4 answers" in text


@FILE
@pytest.mark.parametrize("continues", [True, False])
async def test_a_person_is_asked_whether_the_run_continues(play: Play, continues: bool) -> None:
    asks = Agent(tools=[double], planning=True, asking=True)
    script = [create(), *different_calls(6), *different_calls(3, 200), say("Done.")]
    async with play(script, settings=LIMIT) as world:
        stopped = await world.run(asks, thread="t")

        assert (stopped.status, stopped.stop_reason) == ("suspended", "no_progress")
        [question] = stopped.questions
        assert question.kind == "continue" and "dig (Dig deep)" in question.text
        await world.runtime.answer(question.id, Decision(continues, "The rock is hard."))
        result = await world.resume(asks)

        if continues:
            assert result.ok and await count_notes(world) == 1
            model: Any = world.model
            prompt = str(model.requests[-1].messages)
            assert "your plan did not move" in prompt and "The rock is hard." in prompt
        else:
            assert (result.status, result.stop_reason) == ("failed", "no_progress")
            assert "Its plan did not move, and the user stopped it: The rock" in result.detail
