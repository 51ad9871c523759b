"""Child runs: each has its own thread, all are in one tree, and the parent gets only the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Model, RunResult, ScriptedModel, Tool, ToolContext, tool
from agent_runtime.errors import BudgetExceeded, ConfigError, RunCancelled
from agent_runtime.log import leases
from agent_runtime.log.run_log import RunLog
from agent_runtime.models.base import ModelRequest, Price
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.testing.model_server import Reply
from agent_runtime_storage.contract.records.log import Amount, NewRun, Run
from tests.support.worlds import Play, Serve, double

PRICE = Price(input=1000, output=2000, cache_read=100, cache_write=1000)


def delegating(agent: Agent) -> Tool:
    """Return a tool that passes a task to the agent and returns its answer."""

    @tool
    async def delegate(context: ToolContext, task: str) -> str:
        """Let another agent do a task."""
        result: RunResult = await context.run_agent(agent, task)
        return f"{result.status}: {result.output}"

    return delegate


def child_of(*script: Any, **options: Any) -> Agent:
    """Return an agent with a scripted model of its own."""
    model: Model = ScriptedModel(list(script), **options)
    return Agent(model, tools=[double], name="child")


async def test_the_parent_gets_only_the_result_and_the_child_has_a_full_thread(
    play: Play,
) -> None:
    child = child_of(call("double", number=21), say("It is 42."))
    agent = Agent(tools=[delegating(child)], name="parent")
    async with play([call("delegate", task="Double 21."), say("Done.")]) as world:
        result = await world.run(agent)
        runs = await world.store.runs.list(root_run_id=result.run_id)
        (one,) = [run for run in runs if run.parent_run_id]
        assert (one.parent_run_id, one.agent) == (result.run_id, "child")
        assert (one.status, one.steps) == ("succeeded", 2)
        assert one.thread_id != result.thread_id
        assert await world.results(one.thread_id) == [("ok", "42")]
        assert await world.results(result.thread_id) == [("ok", "succeeded: It is 42.")]
        assert isinstance(world.model, ScriptedModel)
        last = world.model.requests[-1].messages
    assert [message.role for message in last] == ["system", "user", "assistant", "tool"]
    assert isinstance(child.model, ScriptedModel)
    assert [message.text for message in child.model.requests[0].messages][1:] == ["Double 21."]


async def test_usage_is_summed_over_the_tree_and_separate_for_the_child(play: Play) -> None:
    child = child_of(call("double", number=1), say("Two."), price=PRICE, name="small")
    agent = Agent(tools=[delegating(child)])
    async with play([call("delegate", task="x"), say("Done.")], price=PRICE) as world:
        result = await world.run(agent)
        (one,) = [
            run
            for run in await world.store.runs.list(root_run_id=result.run_id)
            if run.parent_run_id
        ]
        own = await world.store.spending.usage_total(run_id=result.run_id)
        childs = await world.store.spending.usage_total(run_id=one.id)
    assert (own.calls, childs.calls, result.usage.calls) == (2, 2, 4)
    assert result.usage.prompt_tokens == own.prompt_tokens + childs.prompt_tokens
    assert result.usage.cost == own.cost + childs.cost > 0


async def test_events_of_children_carry_their_own_run_and_thread(play: Play) -> None:
    agent = Agent(tools=[delegating(child_of(say("Hi.")))])
    async with play([call("delegate", task="x"), say("Done.")]) as world:
        result = await world.run(agent)
    ended = [event for event in world.events if event.kind == "run-finish"]
    assert [run.run_id == result.run_id for run in ended] == [False, True]
    assert len({run.thread_id for run in ended}) == 2


async def test_parallel_children_are_separate(play: Play) -> None:
    agents = [child_of(say(f"Answer {n}.")) for n in range(3)]

    @tool
    async def delegate(context: ToolContext, number: int) -> str:
        """Ask one of three agents."""
        result: RunResult = await context.run_agent(agents[number], f"Task {number}.")
        return str(result.output)

    script = [calls(*(raw_call("delegate", number=n) for n in range(3))), say("Done.")]
    async with play(script) as world:
        result = await world.run(Agent(tools=[delegate]))
        assert await world.results(result.thread_id) == [
            ("ok", "Answer 0."),
            ("ok", "Answer 1."),
            ("ok", "Answer 2."),
        ]
        assert len(await world.store.runs.list(root_run_id=result.run_id)) == 4


async def test_a_child_that_fails_is_an_error_result_of_the_parent(play: Play) -> None:
    agent = Agent(tools=[delegating(child_of())])
    async with play([call("delegate", task="x"), say("It failed.")]) as world:
        result = await world.run(agent)
        runs = await world.store.runs.list(root_run_id=result.run_id)
        ((outcome, text),) = await world.results(result.thread_id)
    assert (result.output, outcome) == ("It failed.", "error")
    assert "no more answers" in text
    assert {run.status for run in runs if run.parent_run_id} == {"failed"}


async def test_a_child_has_the_step_limit_of_a_sub_agent(play: Play) -> None:
    child = child_of(*[call("double", number=1)] * 9)
    agent = Agent(tools=[delegating(child)])
    script = [call("delegate", task="x"), say("Done.")]
    async with play(script, settings={"sub_agent_max_steps": 3}) as world:
        result = await world.run(agent)
        results = await world.results(result.thread_id)
    assert result.ok
    assert results == [("ok", "failed: None")]


async def test_the_time_of_child_runs_does_not_count_as_the_tools(play: Play) -> None:
    @tool
    async def delegate(context: ToolContext) -> str:
        """Run two agents at once, each for longer than a tool may take, then hang."""

        async def run(delay: float) -> None:
            model = ScriptedModel([say("Done.")], delay=delay)
            await context.run_agent(Agent(model, name="slow"), "x")

        async with anyio.create_task_group() as group:
            group.start_soon(run, 0.6)
            group.start_soon(run, 0.9)
        await anyio.sleep_forever()
        return "never"

    script = [call("delegate"), say("Done.")]
    async with play(script, settings={"tool_timeout": 0.5}) as world:
        result = await world.run(Agent(tools=[delegate]))
        runs = await world.store.runs.list(parent_run_id=result.run_id)
        ((outcome, text),) = await world.results(result.thread_id)
    assert [run.status for run in runs] == ["succeeded", "succeeded"]
    # After them the tool's own time continues.
    assert (outcome, text) == ("error", "The tool was stopped after 0.5 s.")


async def test_the_tree_shares_one_budget(serve: Serve) -> None:
    endless = Reply(calls=(("double", {"number": 1}),))

    def script(request: dict[str, object], n: int) -> Reply:
        # The parent would delegate forever, and each child would work forever.
        tools = str(request["tools"])
        return Reply(calls=(("delegate", {"task": "x"}),)) if "delegate" in tools else endless

    budget = 30_000
    async with serve(script, settings={"budget_tokens": budget}) as world:
        result = await world.run(Agent(tools=[delegating(Agent(tools=[double]))]))
        root = await world.store.runs.get(result.run_id)
        billed = world.billed("total_tokens")
    assert result.stop_reason == "budget"
    assert root.reserved.tokens == 0
    assert root.settled.tokens == billed <= budget


async def test_a_child_waits_for_anothers_reservation_at_full_size(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, refused, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def slowly(request: ModelRequest) -> str:
        asked.set()
        await refused.wait()
        return "First."

    first = Agent(ScriptedModel(slowly, max_output=8_000), name="first")
    second = child_of(say("Second."), max_output=8_000)
    reserve = RunLog.reserve

    async def watched(log: RunLog, amount: Amount, **options: Any) -> None:
        try:
            await reserve(log, amount, **options)
        except BudgetExceeded:
            # The other's reservation is released before this one can look again.
            refused.set()
            await ended.wait()
            raise

    monkeypatch.setattr(RunLog, "reserve", watched)

    @tool
    async def delegate(context: ToolContext, number: int) -> str:
        """Ask one of two agents."""
        if number == 1:
            result: RunResult = await context.run_agent(first, "x")
            ended.set()
        else:
            await asked.wait()
            result = await context.run_agent(second, "x")
        return str(result.output)

    script = [calls(*(raw_call("delegate", number=n) for n in (1, 2))), say("Done.")]
    async with play(script, settings={"budget_tokens": 12_000}, max_output=500) as world:
        result = await world.run(Agent(tools=[delegate]))
        assert await world.results(result.thread_id) == [("ok", "First."), ("ok", "Second.")]
    assert refused.is_set()
    assert isinstance(second.model, ScriptedModel)
    assert [one.max_output for one in second.model.requests] == [8_000]


async def test_a_dead_childs_reservation_is_not_waited_for(play: Play) -> None:
    held = Amount(6_000)

    @tool
    async def lose(context: ToolContext) -> str:
        """Start a child run in a process that is gone."""
        await context.store.threads.ensure("lost")
        dead = replace(leases.this_process_owner(), started="long ago")
        child = NewRun(
            id="lost",
            thread_id="lost",
            agent="child",
            max_steps=9,
            spec={},
            owner=dead,
            lease_seconds=3600,
            expect_head=None,
            expect_seq=0,
            parent_run_id=context.run_id,
            root_run_id=context.run_id,
            reserve=held,
        )
        await context.store.runs.begin(child)
        return "lost"

    script = [call("lose"), say("Done.")]
    async with play(script, settings={"budget_tokens": 12_000}, max_output=8_000) as world:
        result = await world.run(Agent(tools=[lose]))
        lost = await world.store.runs.get("lost")
        root = await world.store.runs.get(result.run_id)
    assert result.output == "Done."
    assert lost.status == "cancelled"
    assert (root.reserved, root.unsettled) == (Amount(), held)


async def resumed_without_its_budget(
    play: Play, resumed: Agent, settings: dict[str, Any], price: Price | None = PRICE
) -> list[Run]:
    """Stop a run after a step and resume it without a budget setting; return its children."""
    async with play([call("double", number=1)], settings=settings, price=PRICE) as world:
        first = await world.run(Agent(tools=[double], max_steps=1))
        assert first.stop_reason == "max_steps"
    async with play([call("delegate", task="x"), say("Done.")], price=price) as world:
        await world.runtime.resume(first.run_id, resumed)
        root = await world.store.runs.get(first.run_id)
        used = await world.store.spending.usage_total(root_run_id=first.run_id)
        children = await world.store.runs.list(parent_run_id=first.run_id)
    spent = used.prompt_tokens + used.completion_tokens
    assert root.reserved == Amount()
    assert root.settled.tokens == spent <= settings.get("budget_tokens", spent)
    return children


async def test_a_run_and_its_children_keep_their_budget_without_the_setting(play: Play) -> None:
    child = child_of(*[call("double", number=n) for n in range(99)], max_output=500)
    agent = Agent(tools=[double, delegating(child)])
    (run,) = await resumed_without_its_budget(play, agent, {"budget_tokens": 8_000})
    assert (run.status, run.stop_reason) == ("failed", "budget")
    assert 1 < run.steps < 99


async def test_a_stored_budget_in_dollars_still_needs_a_price(play: Play) -> None:
    with pytest.raises(ConfigError, match="price"):
        await resumed_without_its_budget(play, Agent(), {"budget_usd": 1.0}, price=None)


async def test_cancelling_the_parent_cancels_its_children(play: Play) -> None:
    began = anyio.Event()

    @tool
    async def hang() -> str:
        """Never end."""
        began.set()
        await anyio.sleep_forever()
        return "ended"

    child = Agent(ScriptedModel([call("hang")]), tools=[hang])
    agent = Agent(tools=[delegating(child)])
    async with play([call("delegate", task="x")]) as world:
        async with anyio.create_task_group() as group:
            group.start_soon(world.run, agent)
            await began.wait()
            group.cancel_scope.cancel()
        root = next(event.run_id for event in world.events if event.kind == "run-start")
        runs = await world.store.runs.list(root_run_id=root)
    assert len(runs) == 2
    assert {(run.status, run.stop_reason) for run in runs} == {("cancelled", "cancelled")}


async def test_a_cancelled_parent_starts_no_more_children(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The parent's own poll would cancel its tool: here only the child's start may notice.
    monkeypatch.setattr("agent_runtime.log.lease_keeper.POLL_SECONDS", 3600.0)

    @tool
    async def late(context: ToolContext) -> str:
        """Cancel the tool's own run, then delegate."""
        await context.deps.cancel(context.run_id)
        with pytest.raises(RunCancelled):
            await context.run_agent(child_of(say("Never.")), "x")
        return "refused"

    async with play([call("late"), say("Done.")]) as world:
        result = await world.run(Agent(tools=[late]), deps=world.runtime)
        assert await world.results(result.thread_id) == [("ok", "refused")]
        assert len(await world.store.runs.list(root_run_id=result.run_id)) == 1
    assert result.status == "cancelled"
