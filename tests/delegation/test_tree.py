"""The tree of a run: the work, usage and ending of each run; and that every cancel reaches it."""

from __future__ import annotations

import anyio
import pytest

from agent_runtime import Agent, ToolContext, tool
from agent_runtime.cli.commands.runs import lines
from agent_runtime.errors import NotFound
from agent_runtime.models.base import ModelRequest, Price
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.run.tree import tree_of
from tests.delegation.helpers import is_child, outcomes, playing, step
from tests.support.worlds import Play, World, double

pytestmark = pytest.mark.backends("file")

PRICE = Price(input=1000, output=2000, cache_read=100, cache_write=1000)


async def finishes(world: World, root: str) -> dict[str, int]:
    """Return the number of end events of each run of a tree."""
    counts: dict[str, int] = {}
    for run in await tree_of(world.store, root):
        events = await world.store.events.list(run.thread_id)
        counts[run.run_id] = sum(event.kind == "run-finish" for event in events)
    return counts


async def test_a_tree_lists_every_run_with_its_usage_and_time(play: Play) -> None:
    def child(request: ModelRequest, number: int) -> Scripted:
        if "part 1" in request.messages[1].text:
            return say("")
        return [call("double", number=1), say("Done.")][number]

    orders = [
        raw_call(
            "delegate", role="reader", instructions="i", briefing=f"part {n}", task_key=f"k{n}"
        )
        for n in range(3)
    ]
    script = playing([calls(*orders), say("Done.")], child)
    async with play(script, price=PRICE, settings={"delegation_parallel": 1}) as world:
        result = await world.run(Agent(tools=[double], delegation=True, name="boss"))
        tree = await world.runtime.tree(result.run_id)
        assert [run.agent for run in tree] == ["boss", "reader", "reader", "reader"]
        assert {run.task_key: run.status for run in tree.children} == {
            "k0": "succeeded",
            "k1": "failed",
            "k2": "succeeded",
        }
        assert [run.steps for run in tree.children if run.task_key != "k1"] == [2, 2]
        assert result.usage.prompt_tokens == sum(run.usage.prompt_tokens for run in tree)
        assert sum(run.usage.cost for run in tree) == result.usage.cost > 0
        assert all(0 <= run.duration <= tree.duration for run in tree)
        assert not any(run.alive for run in tree)
        assert set((await finishes(world, result.run_id)).values()) == {1}
        # A subtree is the tree of its root run.
        part = await tree_of(world.store, tree.children[0].run_id)
        assert [run.run_id for run in part] == [tree.children[0].run_id]
        shown = lines(tree)
        with pytest.raises(NotFound):
            await tree_of(world.runtime.store.of("another"), result.run_id)
    assert [line[:10] for line in shown] == ["boss: succ", *["├─ reader "] * 2, "└─ reader "]
    assert sum("failed (error)" in line for line in shown) == 1


async def test_cancelling_the_root_reaches_every_level_and_each_ends_once(play: Play) -> None:
    hanging, all_hang = 0, anyio.Event()

    @tool
    async def hang() -> str:
        """Never end."""
        nonlocal hanging
        hanging += 1
        if hanging == 4:
            all_hang.set()
        await anyio.sleep_forever()
        return "never"

    def respond(request: ModelRequest) -> Scripted:
        if "delegate" in [one.name for one in request.tools]:
            orders = [
                raw_call("delegate", role="r", instructions="i", briefing=f"{n}") for n in range(2)
            ]
            return calls(*orders)
        return call("hang")

    async with play(respond, settings={"delegation_depth": 2}) as world:
        reached: list[str] = []
        async with anyio.create_task_group() as group:

            async def run() -> None:
                result = await world.run(Agent(tools=[hang], delegation=True))
                assert (result.status, result.stop_reason) == ("cancelled", "cancelled")

            group.start_soon(run)
            await all_hang.wait()
            reached = await world.runtime.cancel(world.events[0].run_id)
        assert len(reached) == 7
        tree = await tree_of(world.store, world.events[0].run_id)
        assert {run.status for run in tree} == {"cancelled"}
        assert set((await finishes(world, tree.run_id)).values()) == {1}
        assert (await world.runtime.cancel(tree.run_id)) == []


async def test_a_sub_agent_does_not_start_after_its_root_is_cancelled(
    play: Play,
) -> None:
    ends: list[str] = []

    @tool
    async def late(context: ToolContext) -> str:
        """Cancel the root; the other calls of this answer wait for their turn."""
        run = await context.store.runs.get(context.run_id)
        await context.deps.cancel(run.root_run_id)
        return "cancelled"

    def respond(request: ModelRequest) -> Scripted:
        if is_child(request):
            ends.append(request.messages[1].text)
            return call("late") if step(request) == 0 else say("never")
        orders = [
            raw_call("delegate", role="r", instructions="i", briefing=f"{n}") for n in range(5)
        ]
        return calls(*orders)

    async with play(respond, settings={"delegation_parallel": 1}) as world:
        result = await world.run(Agent(tools=[late], delegation=True), deps=world.runtime)
        tree = await tree_of(world.store, result.run_id)
    assert result.status == "cancelled"
    assert len(ends) == 1
    assert [run.status for run in tree] == ["cancelled", "cancelled"]


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
async def test_every_end_of_a_sub_agent_reaches_its_waiting_parent(play: Play, end: str) -> None:
    @tool
    async def stop(context: ToolContext) -> str:
        """Cancel the tool's own run."""
        await context.deps.cancel(context.run_id)
        return "stopped"

    def child(request: ModelRequest, number: int) -> Scripted:
        if end == "cancelled" and number == 0:
            return call("stop")
        return say("Done." if end == "succeeded" else "")

    script = playing([call("delegate", role="r", instructions="i"), say("Done.")], child)
    async with play(script) as world:
        result = await world.run(Agent(tools=[stop], delegation=True), deps=world.runtime)
        [outcome] = await outcomes(world, result)
        ends = await finishes(world, result.run_id)
    assert (result.output, outcome["status"]) == ("Done.", end)
    assert list(ends.values()) == [1, 1]
