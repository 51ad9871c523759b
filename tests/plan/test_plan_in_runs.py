"""Plans in runs: by branch, correct after a crash, in every prompt, and private to their owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import (
    Agent,
    Plan,
    Runtime,
    ScriptedModel,
    Settings,
    ToolContext,
    plan_tool,
    tool,
)
from agent_runtime.errors import LeaseLost, NotFound
from agent_runtime.log import branches
from agent_runtime.models.base import ModelRequest, RawCall
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.models.tokens import count_text
from agent_runtime.plan.planner import Planner
from agent_runtime.plan.render import NOTE_TOKENS
from agent_runtime.run.tool_calls import INTERRUPTED
from tests.plan.planned import agent as planned_agent
from tests.storage.items import run_raw
from tests.support.processes import program
from tests.support.worlds import Play, World, double

FILE = pytest.mark.backends("file")
AGENT = Agent(tools=[double], planning=True)
STEPS = [{"id": "a", "description": "Look"}, {"id": "b", "description": "Build"}]


def create(*steps: dict[str, Any]) -> RawCall:
    """Return a call that creates the plan."""
    return raw_call("plan", action="create", goal="Ship it", steps=list(steps) or STEPS)


def update(*steps: dict[str, Any], **options: Any) -> RawCall:
    """Return a call that changes the plan."""
    return raw_call("plan", action="update", steps=list(steps), **options)


def done(*ids: str) -> RawCall:
    """Return a call that completes items."""
    return update(*({"id": item_id, "status": "completed"} for item_id in ids))


async def current_plan(world: World, thread: str = "t") -> Plan:
    """Return the thread's plan."""
    plan = await world.runtime.plans.current(thread)
    assert plan is not None
    return plan


def statuses(plan: Plan) -> list[str]:
    """Return the status of each item."""
    return [item.status for item in plan.items]


async def play_on(world: World, *script: Scripted, agent: Agent = AGENT) -> list[str]:
    """Run a script on the thread `t`; return the tool results in its last prompt."""
    model = ScriptedModel([*script, say("Done.")])
    agent_with_script = Agent(model, tools=agent.tools, planning=agent.planning)
    await world.run(agent_with_script, thread="t")
    return [message.text for message in model.requests[-1].messages if message.role == "tool"]


async def test_a_plan_survives_its_process(play: Play) -> None:
    async with play() as world:
        await play_on(world, create(), update({"id": "a", "status": "in_progress"}))
    async with play() as world:
        plan = await current_plan(world)
        assert (plan.goal, statuses(plan)) == ("Ship it", ["in_progress", "pending"])
        results = await play_on(world, calls(done("a")), call("plan", action="review"))
        assert "[x] a (plan) Look" in results[-1]
        versions = await world.runtime.plans.versions("t")
        assert [(version.version, version.settled) for version in versions] == [
            (3, 1),
            (2, 0),
            (1, 0),
        ]
        assert versions[0] == await current_plan(world)


@FILE
async def test_a_refused_change_explains_the_correction_and_changes_nothing(
    play: Play,
) -> None:
    async with play() as world:
        results = await play_on(
            world,
            call("plan", action="review"),
            done("a"),
            create(),
            update({"id": "a", "status": "completed"}, {"id": "x", "phase": "party"}),
            update({"id": "a", "status": "finished"}),
        )
        assert results[2].endswith("Can be begun: a, b. Steps: a, b.")
        assert results[0].startswith("There is no plan yet.") and "`create`" in results[1]
        assert "there is no step 'x'; there are: a, b" in results[3]
        assert "'pending', 'in_progress'" in results[4]
        plan = await current_plan(world)
        assert (plan.version, statuses(plan)) == (1, ["pending", "pending"])


@FILE
async def test_changes_in_one_message_are_applied_in_order(play: Play) -> None:
    async with play() as world:
        await play_on(
            world,
            calls(create(), *(update({"id": "a", "result": str(number)}) for number in range(9))),
            calls(done("a"), done("b"), raw_call("double", number=1)),
        )
        versions = await world.runtime.plans.versions("t")
        assert [version.items[0].result for version in versions[::-1]] == [
            "",
            *"012345678",
            "8",
            "8",
        ]
        assert statuses(versions[0]) == ["completed", "completed"]


@FILE
async def test_a_step_follows_the_other_calls_of_its_message(play: Play) -> None:
    seen: list[list[str]] = []
    called = anyio.Event()
    release = anyio.Event()

    @tool
    async def slow() -> str:
        """Wait for the test."""
        called.set()
        await release.wait()
        return "slow"

    @tool
    async def fails() -> str:
        """Fail."""
        raise ValueError("no such file")

    agent = Agent(tools=[slow, fails], planning=True)
    async with play() as world:

        async def watch() -> None:
            await called.wait()
            async with aclosing(world.store.events.follow("t")) as events:
                async for event in events:
                    if event.kind == "plan" and event.data["version"] == 2:
                        break
            seen.append(statuses(await current_plan(world)))
            release.set()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await play_on(
                world,
                create(),
                calls(update({"id": "a", "follow": True}), raw_call("slow")),
                calls(update({"id": "b", "follow": True}), raw_call("slow"), raw_call("fails")),
                agent=agent,
            )
        assert seen == [["in_progress", "pending"]]
        plan = await current_plan(world)
        assert statuses(plan) == ["completed", "failed"]
        assert plan.items[1].result == "fails: ValueError: no such file"
        # Later calls do not change the recorded status.
        await play_on(world, raw_call("double", number=1), update(phase="debug"))
        assert statuses(await current_plan(world)) == ["completed", "failed"]


@pytest.mark.parametrize(
    ("kind", "tool_name", "number"),
    [("tool-start", "work", 1), ("plan", "", 2), ("plan", "", 3)],
)
@FILE
async def test_after_a_crash_each_change_is_applied_once_and_the_plan_is_correct(
    play: Play, database_url: str, kind: str, tool_name: str, number: int
) -> None:
    async with program("tests.plan.planned", database_url, kind, tool_name, str(number)) as other:
        await other.process.wait()
    async with play() as world:
        [run] = await world.store.runs.list(thread_id="t")
        assert run.status == "running"
        result = await world.runtime.resume(run.id, planned_agent(answered=2))
        assert result.output == "done"
        [_, exchange, *_] = [
            node
            for node in await world.store.log.branch(
                "t", (await world.store.threads.get("t")).head or 0
            )
            if node.calls
        ]
        versions = await world.runtime.plans.versions("t")
        made_by = [row.call_id for row in await world.store.log.plans("t", exchange.seq)]
        assert len(versions) == 3 and len(set(made_by)) == 3
        results = await world.results("t")
        summary = "Plan version 2: 1 of 3 done, phase plan, iteration 1. Can be begun: 2, 3."
        assert results[1] == ("ok", summary)
        assert results[3][0] == "ok" and "In progress: 2." in results[3][1]
        # `work` may not run again: unless its end was recorded, its effect is unverified.
        ended = "completed" if results[2][0] == "ok" else "failed"
        assert statuses(versions[0]) == ["completed", ended, "pending"]
        if ended == "failed":
            assert versions[0].items[1].result == f"work: {INTERRUPTED}"


async def test_each_branch_has_its_own_plan(play: Play) -> None:
    async with play() as world:
        await play_on(world, create())
        fork = (await world.store.threads.get("t")).head
        await play_on(world, done("a"))
        first_head = (await world.store.threads.get("t")).head
        await branches.fork(world.store, "t", fork)
        assert statuses(await current_plan(world)) == ["pending", "pending"]
        await play_on(world, done("b"))
        assert statuses(await current_plan(world)) == ["pending", "completed"]
        assert [version.version for version in await world.runtime.plans.versions("t")] == [3, 1]
        await branches.fork(world.store, "t", first_head)
        assert statuses(await current_plan(world)) == ["completed", "pending"]
        await branches.fork(world.store, "t", None)
        assert await world.runtime.plans.current("t") is None


@FILE
async def test_a_plan_is_private_to_its_thread_and_owner(play: Play) -> None:
    async with play([calls(create()), say("."), call("plan", action="review"), say(".")]) as world:
        await world.run(AGENT, thread="t")
        await world.run(AGENT, thread="other")
        assert [text for _, text in await world.results("other")] == [
            "There is no plan yet. Make one with the action `create`."
        ]
        assert await world.runtime.plans.current("other") is None
        for read in (world.runtime.plans.current, world.runtime.plans.versions):
            with pytest.raises(NotFound):
                await read("t", user="bob")


@FILE
async def test_a_process_without_the_lease_changes_no_plan(play: Play) -> None:
    planners: list[Planner] = []
    lost: list[Exception] = []

    @tool
    async def lose(context: ToolContext) -> str:
        """Lose the lease, then change the plan."""
        planner = context.service(Planner)
        assert planner is not None
        planners.append(planner)
        run = await context.store.runs.get(context.run_id)
        assert run.owner is not None
        # The run may hear of its loss, and cancel this tool, before the tool writes.
        with anyio.CancelScope(shield=True):
            await context.store.runs.take_lease(run.id, run.owner, seconds=60, replaces=run.epoch)
            try:
                await planner.mark("a", "completed")
            except LeaseLost as error:
                lost.append(error)
        return "lost"

    async with play() as world:
        agent = Agent(ScriptedModel([calls(create()), call("lose")]), tools=[lose], planning=True)
        with pytest.raises(LeaseLost):
            await world.run(agent, thread="t")
        assert lost and statuses(await current_plan(world)) == ["pending", "pending"]


@FILE
async def test_a_tool_can_mark_an_item(play: Play) -> None:
    marked: list[bool] = []

    @tool
    async def work(context: ToolContext, key: str) -> str:
        """Work on an item."""
        planner = context.service(Planner)
        assert planner is not None
        marked.append(await planner.mark(key, "in_progress"))
        marked.append(await planner.mark(key, "failed", "it broke"))
        marked.append(await planner.mark(key, "failed", "it broke"))
        return "worked"

    agent = Agent(tools=[work], planning=True)
    async with play() as world:
        await play_on(world, raw_call("work", key="a"), agent=agent)
        assert marked == [False] * 3
        await play_on(world, create(), raw_call("work", key="a"), agent=agent)
        await play_on(world, raw_call("work", key="unknown"), agent=agent)
        plan = await current_plan(world)
        assert (plan.items[0].status, plan.items[0].result) == ("failed", "it broke")
        # A mark that changes nothing makes no version.
        assert marked[3:] == [True] * 3 + [False] * 3 and plan.version == 3


class Looking:
    """A script that creates a plan, then calls a tool until the plan has left the prompt."""

    def __init__(self, steps: Sequence[dict[str, Any]]) -> None:
        self.steps = steps
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Scripted:
        """Answer."""
        self.requests.append(request)
        if len(self.requests) == 1:
            return create(*self.steps)
        return call("look", n=len(self.requests)) if len(self.requests) < 40 else say("Done.")


@tool
def look(n: int) -> str:
    """Look."""
    return f"src/part_{n}.py:\n" + "what was seen there, in a few words\n" * 20


@FILE
@pytest.mark.parametrize("remembering", [True, False], ids=["with memory", "without memory"])
async def test_the_plan_is_always_in_the_prompt(play: Play, remembering: bool) -> None:
    script = Looking([{"description": f"Do part {n} with care"} for n in range(200)])
    settings = {"observational_memory": remembering, "observer_message_tokens": 3000}
    async with play(script, settings=settings) as world:
        agent = Agent(tools=[look], planning=True, last_messages=6)
        assert (await world.run(agent, thread="t")).ok
    causes = [event.data["cause"] for event in world.events if event.kind == "activation"]
    assert len(causes) > 2
    for request in script.requests[1:]:
        text = "\n".join(
            [message.text for message in request.messages[1:]]
            + [str(call.arguments) for message in request.messages for call in message.calls]
        )
        assert "Ship it" in text and "Do part 0 with care" in text
    # The call has left by now, so the state note restates the plan, bounded and fenced.
    last = script.requests[-1]
    assert not any(call.name == "plan" for message in last.messages for call in message.calls)
    note = "\n".join(message.text for message in last.messages[1:] if message.role == "user")
    before, _, restated = note.partition("Plan version 1: ")
    assert "<runtime-note " in before
    assert count_text(restated.partition("</runtime-note")[0]) <= NOTE_TOKENS


@FILE
async def test_phases_come_from_the_agent_or_else_the_settings(play: Play) -> None:
    settings = {"plan_phases": "scout,dig"}
    async with play(settings=settings) as world:
        for agent, phases in (
            (Agent(planning=True), ["scout", "dig"]),
            (Agent(planning=("draft", "polish")), ["draft", "polish"]),
            (Agent(tools=[plan_tool(phases=("one",))]), ["one"]),
        ):
            results = await play_on(world, create(), update(phase="party"), agent=agent)
            assert f"there is no phase 'party'; the phases are: {', '.join(phases)}" in results[-1]
            assert (await current_plan(world)).phase == phases[0]


@FILE
async def test_without_planning_there_is_no_plan_tool(play: Play) -> None:
    async with play([say("Done.")]) as world:
        await world.run(Agent(tools=[double]), thread="t")
        assert isinstance(world.model, ScriptedModel)
        assert "plan" not in [request.name for request in world.model.requests[-1].tools]


@FILE
async def test_the_event_of_a_version_has_counts_but_no_content(play: Play) -> None:
    async with play() as world:
        await play_on(world, create(), calls(done("a")))
        [first, second] = [
            event for event in await world.store.events.list("t") if event.kind == "plan"
        ]
        assert dict(second.data) == {
            "version": 2,
            "phase": "plan",
            "iteration": 1,
            "pending": 1,
            "in_progress": 0,
            "completed": 1,
            "failed": 0,
            "skipped": 0,
        }
        assert (
            second.node_id == (await current_plan(world)).node_id
            and first.node_id != second.node_id
        )
        live = [event for event in world.events if event.kind == "plan"]
        assert [event.id for event in live] == [first.id, second.id]
        assert live[-1].data["plan"].items == (await current_plan(world)).items


@FILE
async def test_an_unreadable_plan_is_an_error_result_and_can_be_replaced(
    play: Play, tmp_path: Path
) -> None:
    async with play() as world:
        await play_on(world, create())
    run_raw(tmp_path / "store.db", "UPDATE plans SET body = x'7b7d'")
    async with play() as world:
        results = await play_on(world, done("a"), create())
        assert "Version 1 of the plan of thread t cannot be read" in results[-2]
        assert (await current_plan(world)).version == 2


async def test_a_plan_moves_with_its_thread(play: Play, tmp_path: Path) -> None:
    async with play() as world:
        await play_on(world, create(), calls(update({"id": "a", "follow": True}), raw_call(
            "double", number=1)))  # fmt: skip
        records = [record async for record in world.store.upkeep.export_thread("t")]
        plan = await current_plan(world)

    async def exported() -> AsyncIterator[Mapping[str, Any]]:
        for record in records:
            yield record

    async with Runtime.open(Settings(database_url=f"file:{tmp_path / 'other.db'}")) as other:
        await other.store.of("local").upkeep.import_thread(exported())
        assert await other.plans.current("t") == plan
        assert statuses(plan) == ["completed", "pending"]
