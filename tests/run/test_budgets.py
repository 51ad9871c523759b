"""Budgets of threads, days and run trees, and the reserve for the root's last answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, RunResult, Runtime, ScriptedModel, Settings, ToolContext, tool
from agent_runtime.errors import BudgetExceeded, ModelError
from agent_runtime.log import leases
from agent_runtime.log.run_log import RunLog
from agent_runtime.models.base import ModelEvent, ModelRequest, Price, Retrying
from agent_runtime.models.cost import max_call_cost
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.run.budget import BudgetState, limits_of, root_reserve, time_limit
from agent_runtime.testing.model_server import Reply
from agent_runtime_storage.contract.records.log import Amount, Lease, NewRun
from agent_runtime_storage.contract.records.spending import Budget, Spending
from tests.delegation.test_children import delegating
from tests.run.test_limits import BROKEN, CALL
from tests.run.test_wrap_up import notes, works_until_warned
from tests.support.stores import execute
from tests.support.worlds import Play, Serve, World, double, in_turn

pytestmark = pytest.mark.backends("file")
ENDLESS = 400
PRICE = Price(input=1000, output=2000, cache_read=500, cache_write=1000)


def endless(request: ModelRequest) -> Scripted:
    """Call a tool without end."""
    return call("double", number=len(request.messages))


class Silent(ScriptedModel):
    """A model that loses one attempt, then ends its stream without an answer."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        self.requests.append(request)

        async def events() -> AsyncIterator[ModelEvent]:
            yield Retrying("Down.", 1, 0.0, lost=1)

        yield events()


@pytest.mark.parametrize("budget", [{}, {"budget_tokens": 1_000_000}])
async def test_a_stream_without_an_answer_counts_as_possibly_billed(
    play: Play, budget: dict[str, int]
) -> None:
    async with play(settings=budget) as world:
        model = Silent([])
        with pytest.raises(ModelError, match="without an answer"):
            await world.run(Agent(model))
        row, info = await world.row(), await model.info()
        # Both attempts count: the one that was tried again, and the one that ended.
        assert row.unsettled.tokens > 2 * max_call_cost(info, 0, info.max_output).tokens
        assert row.reserved == Amount()


# Threads and days


NAMED = {"thread": "budget of the thread", "day": "of the user for today (UTC)"}


@pytest.mark.parametrize("whose", ["thread", "day"])
async def test_a_budget_shared_by_runs_is_never_exceeded(serve: Serve, whose: str) -> None:
    budget = 30_000
    replies = [BROKEN if n % 7 == 3 else CALL for n in range(ENDLESS)]
    agent = Agent(tools=[double], max_steps=4)
    async with serve(in_turn(replies), settings={f"{whose}_budget_tokens": budget}) as world:
        result = await world.run(agent, thread="t")
        runs = 1
        while result.stop_reason == "max_steps":
            result, runs = await world.run(agent, thread="t"), runs + 1
        thread = await world.store.spending.of_thread("t")
        day = await world.store.spending.of_day()
        tokens = world.billed("total_tokens")

    assert (result.status, result.stop_reason, runs > 2) == ("failed", "budget", True)
    assert NAMED[whose] in result.detail
    assert (thread.spent, thread.reserved) == (day.spent, day.reserved) == (day.spent, Amount())
    assert thread.settled.tokens <= tokens <= thread.spent.tokens <= budget
    # A broken call counts as its upper bound.
    assert thread.spent.tokens > 0.7 * budget


@pytest.mark.parametrize("whose", ["thread", "day"])
async def test_a_run_does_not_begin_on_an_exhausted_budget(play: Play, whose: str) -> None:
    async with play([say("First."), say("Never.")]) as world:
        assert (await world.run(Agent(), thread="t")).ok
        before = await world.store.threads.get("t")
        limited_settings = world.runtime.settings.model_copy(update={f"{whose}_budget_tokens": 5})
        async with Runtime.open(limited_settings, model=world.model) as limited:
            with pytest.raises(BudgetExceeded) as raised:
                await limited.run(Agent(), "More.", thread="t")
        assert raised.value.budget == whose
        assert NAMED[whose] in raised.value.message and "of 5 tokens" in raised.value.message
        assert ("the day ends at" in raised.value.message) == (whose == "day")
        assert "Raise the budget of" in raised.value.cure
        assert await world.store.threads.get("t") == before
        assert isinstance(world.model, ScriptedModel) and len(world.model.requests) == 1


async def test_each_thread_and_each_user_has_a_separate_budget(play: Play) -> None:
    agent = Agent(ScriptedModel(endless), tools=[double])
    settings = {"thread_budget_tokens": 6_000, "day_budget_tokens": 9_000}
    async with play(settings=settings) as world:
        first = await world.run(agent, thread="t")
        second = await world.run(agent, thread="u")
        third = await world.run(agent, thread="t", user="bob")
    assert [result.stop_reason for result in (first, second, third)] == ["budget"] * 3
    assert "of the thread" in first.detail and "of the thread" in third.detail
    assert "for today (UTC)" in second.detail and "the day ends at" in second.detail


async def test_concurrent_runs_share_the_day_and_wait_for_reservations_of_others(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, refused, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def slowly(request: ModelRequest) -> str:
        requested.set()
        await refused.wait()
        return "First."

    reserve = RunLog.reserve

    async def watched(log: RunLog, amount: Amount, **options: Any) -> None:
        try:
            await reserve(log, amount, **options)
        except BudgetExceeded as error:
            assert error.budget == "day"
            refused.set()
            await ended.wait()
            raise

    monkeypatch.setattr(RunLog, "reserve", watched)
    results: list[object] = []
    async with play(settings={"day_budget_tokens": 10_000}) as world:

        async def first() -> None:
            model = ScriptedModel(slowly, max_output=8_000)
            results.append((await world.run(Agent(model))).output)
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(first)
            await requested.wait()
            second = Agent(ScriptedModel([say("Second.")], max_output=8_000))
            results.append((await world.run(second)).output)
    assert results == ["First.", "Second."] and refused.is_set()


async def test_reservations_of_a_dead_run_are_not_waited_for(play: Play) -> None:
    held = Amount(9_000)
    async with play([say("Done.")], settings={"day_budget_tokens": 10_000}) as world:
        await world.store.threads.ensure("lost")
        dead = replace(leases.this_process_owner(), started="long ago")
        lost = NewRun(
            id="lost",
            thread_id="lost",
            agent="dead",
            max_steps=9,
            spec={},
            owner=dead,
            lease_seconds=3600,
            expect_head=None,
            expect_seq=0,
            reserve=held,
        )
        await world.store.runs.begin(lost)
        result = await world.run(Agent())
        assert (result.stop_reason, result.steps) == ("budget", 0)
        assert "9,000 tokens reserved" in result.detail and "have died" in result.detail
        # No reservation is lost: it counts as spent once another process has taken the run over.
        assert (await world.store.runs.get("lost")).status == "running"
        await world.store.runs.take_lease(
            "lost", leases.this_process_owner(), seconds=60, replaces=1
        )
        assert (await world.store.spending.of_day()).unsettled == held


async def test_near_the_end_of_the_days_budget_the_model_is_asked_to_wrap_up(play: Play) -> None:
    agent = Agent(ScriptedModel(works_until_warned, max_output=300), tools=[double])
    async with play(settings={"day_budget_tokens": 12_000}) as world:
        result = await world.run(agent)
        [note] = await notes(world, result.thread_id)
        spent = (await world.store.spending.of_day()).spent
    assert result.output == "Wrapped up."
    assert "of the day's tokens" in note
    assert 6_000 < spent.tokens <= 12_000


async def test_a_days_dollars_count_in_all_runs(play: Play) -> None:
    agent = Agent(ScriptedModel(endless, price=PRICE, max_output=300), tools=[double])
    async with play(settings={"day_budget_usd": 0.02}) as world:
        await world.run(replace(agent, max_steps=3))
        before = (await world.store.spending.of_day()).spent.cost
        result = await world.run(agent)
        spent = (await world.store.spending.of_day()).spent.cost
        assert result.stop_reason == "budget" and "$0.02" in result.detail
        assert 0 < before < spent <= 20_000_000


async def test_spending_of_memory_counts_on_the_day(serve: Serve) -> None:
    def respond(request: dict[str, Any], n: int) -> Reply:
        has_tool = "double" in str(request.get("tools"))
        return (
            Reply(calls=(("double", {"number": n}),)) if has_tool else Reply(text="no observation")
        )

    settings = {"observational_memory": True, "observer_message_tokens": 1000, "max_steps": 40}
    settings |= {"day_budget_tokens": 10_000_000}
    async with serve(respond, settings=settings) as world:
        result = await world.run(Agent(tools=[double], last_messages=4))
        run = await world.store.runs.get(result.run_id)
        day = await world.store.spending.of_day()
        billed = world.billed("total_tokens")
    assert result.usage_by_purpose["observe"].calls > 0
    assert (day.settled, day.unsettled) == (run.settled, run.unsettled)
    assert day.settled.tokens <= billed <= day.spent.tokens


# The root's last answer


async def _run_with_spending_children(world: World, children: int, answer: str = "") -> RunResult:
    """Run an agent whose children work without end, and which then answers."""
    child = Agent(ScriptedModel(endless, price=PRICE, max_output=300), tools=[double], name="child")

    @tool
    async def delegate(context: ToolContext, task: str) -> str:
        """Have another agent do a task."""
        result: RunResult = await context.run_agent(child, task)
        return answer or f"{result.status}: {result.detail}"

    def respond(request: ModelRequest) -> Scripted:
        if any(message.role == "tool" for message in request.messages):
            return say("All is done.")
        return calls(*(raw_call("delegate", task=f"Task {n}.") for n in range(children)))

    model = ScriptedModel(respond, price=PRICE, max_output=300)
    return await world.run(Agent(model, tools=[delegate]))


@pytest.mark.parametrize(
    "limit",
    [
        {"budget_tokens": 30_000},
        {"budget_usd": 0.03},
        {"thread_budget_tokens": 30_000},
        {"day_budget_tokens": 30_000},
    ],
    ids=lambda limit: next(iter(limit)),
)
async def test_a_root_still_answers_after_its_children_spent_all_they_can(
    play: Play, limit: dict[str, Any]
) -> None:
    async with play(settings=limit) as world:
        result = await _run_with_spending_children(world, 5)
        runs = await world.store.runs.list(parent_run_id=result.run_id)
        root = await world.store.runs.get(result.run_id)
    assert (result.status, result.output) == ("succeeded", "All is done.")
    assert {run.stop_reason for run in runs} == {"budget"}
    assert all("kept for the run itself" in run.detail for run in runs)
    spent = root.settled.tokens, root.settled.cost
    assert max(spent[0] / 30_000, spent[1] / 30_000_000) >= 0.8
    assert spent[0] <= 30_000 or limit == {"budget_usd": 0.03}
    assert root.kept == Amount()


async def test_results_that_leave_no_room_for_the_last_answer_are_cut(play: Play) -> None:
    async with play(settings={"budget_tokens": 30_000}) as world:
        result = await _run_with_spending_children(
            world, 4, "a long tale that nobody asked for. " * 1_000
        )
        results = await world.results(result.thread_id)
        finishes = [event for event in world.events if event.kind == "tool-finish"]
    assert (result.status, result.output) == ("succeeded", "All is done.")
    assert all(len(text) > 30_000 for _, text in results)
    assert finishes[-1].data["cut"]


async def test_results_are_cut_for_a_budget_only(play: Play) -> None:
    @tool
    def read() -> str:
        """Return a long text."""
        return "a long tale that nobody asked for. " * 700

    for settings, cut in (({}, False), ({"budget_tokens": 6_000}, True)):
        agent = Agent(ScriptedModel([call("read"), say("Done.")], max_output=300), tools=[read])
        async with play(settings=settings) as world:
            assert (await world.run(agent)).output == "Done."
            assert [event.data["cut"] for event in world.events if event.kind == "tool-finish"] == [
                cut
            ]


@pytest.mark.parametrize(
    ("budget", "reserved"),
    # The next call always; a twentieth of the budget beyond it; never more than two calls.
    [(1_000, 100), (2_400, 120), (3_000, 150), (100_000, 200), (None, 200)],
)
def test_a_root_reserves_more_than_its_next_call_of_a_large_budget_only(
    budget: int | None, reserved: int
) -> None:
    cost = None if budget is None else 10 * budget
    states = [
        BudgetState("run", Budget(tokens, money), Spending(Amount(), Amount(), Amount()))
        for tokens, money in ((budget, None), (None, cost))
    ]
    assert root_reserve(Amount(100, 1_000), states) == Amount(reserved, 10 * reserved)


@pytest.mark.parametrize("limit", [{"budget_tokens": 8_000}, {"budget_usd": 0.01}])
async def test_cut_results_leave_room_for_a_useful_answer(
    play: Play, limit: dict[str, Any]
) -> None:
    @tool
    def read() -> str:
        """Return a long text."""
        return "a long tale that nobody asked for. " * 4_000

    price = Price(input=1_000, output=1_000, cache_read=1_000, cache_write=1_000)
    model = ScriptedModel([call("read"), say("Done.")], price=price, max_output=1_500)
    async with play(settings=limit) as world:
        result = await world.run(Agent(model, tools=[read]))
    assert result.output == "Done."
    assert [event.data["cut"] for event in world.events if event.kind == "tool-finish"] == [True]
    assert model.requests[-1].max_output >= 800


async def test_children_leave_the_root_room_for_a_useful_answer(play: Play) -> None:
    child = Agent(ScriptedModel(endless, max_output=300), tools=[double], name="child")

    @tool
    async def delegate(context: ToolContext) -> str:
        """Have another agent work."""
        return (await context.run_agent(child, "Work.")).status

    model = ScriptedModel([call("delegate"), say("Done.")], max_output=1_500)
    async with play(settings={"budget_tokens": 20_000}) as world:
        result = await world.run(Agent(model, tools=[delegate]))
    assert result.output == "Done."
    assert model.requests[-1].max_output >= 800


# Steps and time of the tree


async def test_the_steps_of_a_tree_are_one_budget_that_a_resume_does_not_reset(
    play: Play,
) -> None:
    child = Agent(ScriptedModel(endless), tools=[double], name="child")
    script = [
        calls(*(raw_call("delegate", task=f"Task {n}.") for n in range(3))),
        *(call("delegate", task="More.") for _ in range(9)),
    ]
    agent = Agent(tools=[delegating(child)])
    async with play(script, settings={"budget_steps": 20}) as world:
        result = await world.run(agent)
        runs = await world.store.runs.list(root_run_id=result.run_id)
        steps = await world.store.runs.count_tree_steps(result.run_id)
        assert (
            (result.stop_reason, steps)
            == ("max_steps", 20)
            == ("max_steps", sum(run.steps for run in runs))
        )
        assert "20 steps" in result.detail
        children = [run for run in runs if run.parent_run_id]
        assert len(children) > 3 and {run.stop_reason for run in children} == {"max_steps"}
        [note] = await notes(world, result.thread_id)
        assert "18 of its 20 steps (with its sub-agents)" in note

        again = await world.runtime.resume(result.run_id, agent)
        assert (again.stop_reason, again.steps) == ("max_steps", result.steps)
        assert await world.store.runs.count_tree_steps(result.run_id) == 20


async def test_a_resume_continues_the_time_of_a_tree_which_bounds_its_children(
    play: Play,
) -> None:
    remaining: list[float] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Record how long a child run may take."""
        store, root = context.store, context.run_id
        await execute(
            world.database_url,
            "UPDATE runs SET worked_seconds = worked_seconds + 900",
            owner=world.runtime.settings.user,
        )
        child = Lease("any child", "its thread", root or "", 1)
        limit = await time_limit(store, child, world.runtime.settings)
        assert limit is not None and limit.of == 1000
        remaining.append(limit.seconds)
        return "seen"

    agent = Agent(tools=[look])
    script = [call("look"), call("look"), say("Never.")]
    async with play(script, settings={"budget_seconds": 1000, "max_steps": 1}) as world:
        first = await world.run(agent)
        assert (first.stop_reason, 0 < remaining[0] <= 100) == ("max_steps", True)
        second = await world.resume(agent)
        assert (second.stop_reason, remaining[1]) == ("max_steps", 0)
        third = await world.resume(agent)
    assert (third.status, third.stop_reason, third.steps) == ("failed", "timeout", 2)
    assert "have used up their 1000 seconds" in third.detail


async def test_a_background_task_ends_with_the_time_of_its_tree(play: Play) -> None:
    @tool
    async def hang() -> str:
        """Never end."""
        await anyio.sleep_forever()
        return "ended"

    def respond(request: ModelRequest) -> Scripted:
        if request.messages[0].text.startswith("You are a sub-agent"):
            return call("hang")
        begun = any(message.role == "tool" for message in request.messages)
        task = {"role": "reader", "instructions": "Hang.", "task_key": "k", "background": True}
        return say("Begun.") if begun else call("delegate", **task)

    agent = Agent(tools=[hang], delegation=True)
    async with play(respond, settings={"budget_seconds": 3.0}) as world:
        result = await world.run(agent)
        [task] = await world.runtime.tasks(result.thread_id)
        child = (await world.store.runs.get(task.run_id)).thread_id
        with anyio.fail_after(60):
            async with aclosing(world.store.events.follow(child)) as events:
                async for event in events:
                    if event.kind == "run-finish":
                        break
        run = await world.store.runs.get(task.run_id)
    assert result.output == "Begun."
    assert (run.status, run.stop_reason) == ("failed", "timeout")
    assert "have used up their 3 seconds" in run.detail


def test_limits_are_read_from_the_settings() -> None:
    settings = Settings(
        thread_budget_tokens=5, thread_budget_usd=0.5, day_budget_usd=2.0, budget_steps=2
    )
    limits = limits_of(settings)
    assert (limits.thread.tokens, limits.thread.cost) == (5, 500_000_000)
    assert (limits.day.tokens, limits.day.cost) == (None, 2_000_000_000)
    assert (limits.steps, limits.kept_steps) == (2, 1)
