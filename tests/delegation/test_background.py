"""Background tasks: they outlast their run, and their outcomes arrive as messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest

from agent_runtime import Agent, Delegation, Runtime, ScriptedModel, Settings, ToolContext, tool
from agent_runtime.delegation.background import JOB, MOST_RUNNING, tasks_of
from agent_runtime.delegation.request import CallOrder
from agent_runtime.delegation.tasks_tool import tasks_note
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.run.tree import tree_of
from agent_runtime_storage import UserStore
from tests.delegation.helpers import is_child, step
from tests.support.worlds import Play

pytestmark = pytest.mark.backends("file")


def begin(key: str = "k", **more: Any) -> ModelAnswer:
    """Return a call that delegates a task in the background."""
    order = {"role": "worker", "instructions": "Work.", "task_key": key, "background": True}
    return call("delegate", **(order | more))


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait for the result of another asyncio task."""
    for _ in range(2000):
        if await condition():
            return
        await anyio.sleep(0.01)
    raise AssertionError("it did not happen")


@tool
async def hold(context: ToolContext) -> str:
    """Wait until the inbox has a message."""
    await until(lambda: context.store.inbox.pending(context.thread_id))
    return "held"


class Script:
    """A scripted parent, and sub-agents that wait until they are released."""

    def __init__(self, *parent: Scripted) -> None:
        self.parent = parent
        self.go = anyio.Event()
        self.asked: list[ModelRequest] = []
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest) -> Scripted:
        """Answer for the parent, or for a sub-agent."""
        if is_child(request):
            self.asked.append(request)
            await self.go.wait()
            return say("It is done.")
        self.requests.append(request)
        # Either count may be too small: the step in a rebuilt prompt, the requests in a later run.
        return self.parent[max(step(request), len(self.requests) - 1)]

    def agent(self) -> Agent:
        """Return the agent that delegates."""
        return Agent(ScriptedModel(self.respond), tools=[hold], delegation=True)


async def statuses(store: UserStore, thread: str = "t") -> dict[str, str]:
    """Return the status of each task of a thread."""
    return {task.key: task.status for task in await tasks_of(store, thread)}


async def test_a_task_starts_at_once_and_its_outcome_arrives_at_the_next_step(play: Play) -> None:
    two = Script()

    @tool
    async def let_go() -> str:
        """Release the sub-agent."""
        two.go.set()
        return "gone"

    two.parent = (begin(), call("let_go"), call("hold"), say("Done."))
    agent = Agent(ScriptedModel(two.respond), tools=[hold, let_go], delegation=True)
    async with play() as world:
        result = await world.run(agent, thread="t")
        (_, begun), *_ = await world.results("t")
        assert await statuses(world.store) == {"k": "succeeded"}
        assert await world.store.inbox.pending("t") == []
        tree = await tree_of(world.store, result.run_id)
    assert '"status": "running"' in begun
    assert [run.status for run in tree] == ["succeeded", "succeeded"]
    # The message follows the results of the step in which it arrived.
    last = two.requests[-1].messages[-1].text
    assert last.startswith("held") and "It is done." in last and '"status": "succeeded"' in last
    assert [event.data["source"] for event in world.events if event.kind == "note"] == [
        "background"
    ]
    assert sum(event.kind == "run-finish" for event in world.events) == 2


async def test_a_task_outlasts_its_run_and_the_next_run_gets_its_outcome(play: Play) -> None:
    two = Script(begin(), say("Meanwhile."), say("I have read it."))
    async with play() as world:
        assert (await world.run(two.agent(), thread="t")).output == "Meanwhile."
        assert await statuses(world.store) == {"k": "running"}
        two.go.set()
        await until(lambda: world.store.inbox.pending("t"))
        assert await statuses(world.store) == {"k": "succeeded"}
        result = await world.run(two.agent(), "And now?", thread="t")
    assert result.output == "I have read it."
    assert any("It is done." in message.text for message in two.requests[-1].messages)


async def test_the_message_of_a_task_numbers_its_attempt(play: Play) -> None:
    two = Script(begin(), call("hold"), begin(), call("hold"), say("Done."))
    two.go.set()
    async with play() as world:
        await world.run(two.agent(), thread="t")
    first, second = (two.requests[index].messages[-1].text for index in (2, 4))
    assert '"attempt": 1' in first
    assert '"attempt": 2' in second


async def test_a_duplicate_task_and_one_over_the_limit_are_refused(play: Play) -> None:
    order = {"role": "worker", "instructions": "Work.", "background": True}
    many = calls(*(raw_call("delegate", **order, task_key=f"k{n}") for n in range(MOST_RUNNING)))
    two = Script(begin("first"), begin("first"), many, say("Done."))
    async with play() as world:
        await world.run(two.agent(), thread="t")
        first, twice, *replies = await world.results("t")
        running = await statuses(world.store)
        two.go.set()
    assert (first[0], twice[0]) == ("ok", "refused")
    assert "'first' is running already" in twice[1]
    assert list(running.values()) == ["running"] * MOST_RUNNING and "first" in running
    # The last of the answer is the one too many.
    assert [outcome for outcome, _ in replies] == ["ok"] * (MOST_RUNNING - 1) + ["refused"]
    [late] = [text for outcome, text in replies if outcome == "refused"]
    assert "5 tasks are running in the background already" in late


@pytest.mark.parametrize(
    ("settings", "detail"),
    [
        ({"background_timeout": 0.2}, "It ran longer than its 0.2 seconds."),
        ({"background_idle_timeout": 0.2}, "Nothing was heard of it for 0.2 seconds."),
    ],
)
async def test_a_task_ends_by_its_time_limits(
    play: Play, settings: dict[str, float], detail: str
) -> None:
    script = Script(begin(), call("hold"), say("Done."))
    async with play(script.respond, settings=settings) as world:
        result = await world.run(Agent(tools=[hold], delegation=True))
        assert result.ok
        [task] = await tasks_of(world.store, result.thread_id)
        run = await world.store.runs.get(task.run_id)
    assert (run.status, run.stop_reason, run.detail) == ("failed", "timeout", detail)


async def test_the_limits_of_background_tasks_are_not_those_of_others(play: Play) -> None:
    order = {"role": "worker", "instructions": "Work."}
    settings = {"background_timeout": 0.001, "background_idle_timeout": 0.001}

    async def respond(request: ModelRequest) -> Scripted:
        if is_child(request):
            await anyio.sleep(0.05)
            return say("Worked.")
        return say("Done.") if step(request) else call("delegate", **order)

    async with play(respond, settings=settings) as world:
        result = await world.run(Agent(delegation=True))
        assert "Worked." in (await world.results(result.thread_id))[0][1]


async def test_calls_pass_in_the_order_in_which_they_began() -> None:
    order, passed = CallOrder(), list[str]()
    begun = anyio.Event()

    async def pass_by(name: str, *, late: bool = False, leaves: bool = False) -> None:
        with order.place(name):
            if late:
                await begun.wait()
            if leaves:
                return
            await order.turn(name)
            passed.append(name)
            order.leave(name)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for name in ("a", "b", "c", "d", "e"):
            group.start_soon(lambda name=name: pass_by(name, late=name == "a", leaves=name == "c"))
        await anyio.wait_all_tasks_blocked()
        assert passed == []
        begun.set()
    assert passed == ["a", "b", "d", "e"]
    with anyio.fail_after(5):
        # A call of another tool has no place, and does not wait.
        await order.turn("other")


async def test_tasks_are_listed_steered_and_cancelled(play: Play) -> None:
    two = Script(
        begin(),
        call("tasks"),
        call("tasks", action="steer", task="k", text="Look at the sea."),
        call("tasks", action="cancel", task="k"),
        call("tasks", action="wait"),
        call("tasks", action="cancel", task="k"),
        call("tasks", action="cancel", task="another"),
        say("Done."),
    )
    async with play() as world:
        await world.run(two.agent(), thread="t")
        replies = await world.results("t")
        [task] = await tasks_of(world.store, "t")
        run = await world.store.runs.get(task.run_id)
        inbox = await world.store.inbox.pending(run.thread_id)
    assert replies[1][1].startswith("- k: running, 0 steps, started ")
    assert replies[4][1] == "A message has arrived; you read it now."
    assert [outcome for outcome, _ in replies] == ["ok"] * 5 + ["error"] * 2
    assert [item.body for item in inbox] == [b"Look at the sea."]
    assert (task.status, run.status, run.cancel_requested) == ("cancelled", "cancelled", True)
    assert any('"status": "cancelled"' in message.text for message in two.requests[-1].messages)


async def test_running_tasks_are_in_the_state_note(play: Play) -> None:
    seen: list[str] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look at the state note."""
        seen.append(await tasks_note(context))
        return "seen"

    two = Script(call("look"), begin(), call("look"), say("Done."))
    agent = Agent(ScriptedModel(two.respond), tools=[look], delegation=True)
    async with play() as world:
        await world.run(agent, thread="t")
    assert seen[0] == ""
    assert "k: running" in seen[1] and "worker: Work." in seen[1]


async def test_rebuilt_prompts_restate_running_tasks(play: Play) -> None:
    @tool
    async def fill() -> str:
        """Return a long text."""
        return "word " * 3000

    two = Script(begin(), *[call("fill")] * 12, say("Done."))
    agent = Agent(ScriptedModel(two.respond), tools=[fill], delegation=True, last_messages=2)
    settings = {"observer_model": "extractive", "observer_message_tokens": 6000}
    async with play(settings=settings) as world:
        result = await world.run(agent, thread="t")
        assert result.ok
    assert any(event.kind == "activation" for event in world.events)
    notes = [
        message.text
        for message in two.requests[-1].messages
        if "Your background tasks:" in message.text
    ]
    assert len(notes) == 1 and "- k: running" in notes[0]


async def test_closing_the_runtime_leaves_a_task_resumable(database_url: str) -> None:
    first = Script(begin(), say("Bye."))
    before = asyncio.all_tasks()
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(first.agent(), "Go.", thread="t")
        [task] = await tasks_of(runtime.store.of("local"), "t")
        assert task.status == "running"
    assert asyncio.all_tasks() == before

    second = Script(begin(), say("Bye."), begin(), call("hold"), say("All read."))
    second.go.set()
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        store = runtime.store.of("local")
        assert await statuses(store) == {"k": "interrupted"}
        result = await runtime.run(second.agent(), "Go on.", thread="t")
        runs = await store.runs.list(parent_thread_id="t")
        events = await store.events.list(runs[0].thread_id)
    assert result.output == "All read."
    assert any("was interrupted" in message.text for message in second.requests[0].messages)
    assert any("It is done." in message.text for message in second.requests[-1].messages)
    # The same run continued; each of its executions ended once.
    assert [(run.id, run.status) for run in runs] == [(task.run_id, "succeeded")]
    ends = [event.kind for event in events if event.kind in ("run-suspend", "run-finish")]
    assert ends == ["run-suspend", "run-finish"]


async def test_a_task_that_cannot_be_resumed_reports_it_at_once(database_url: str) -> None:
    first = Script(begin(), say("Bye."))
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(first.agent(), "Go.", thread="t")

    second = Script(begin(), say("Bye."), begin(model="nonsense"), say("Then not."))
    agent = replace(second.agent(), delegation=Delegation(models=("nonsense",)))
    # The model has no price, so no limit in dollars allows it.
    settings = Settings(database_url=database_url, day_budget_usd=5.0)
    async with Runtime.open(settings) as runtime:
        await runtime.run(agent, "Go on.", thread="t")
        store = runtime.store.of("local")
        assert await statuses(store) == {"k": "interrupted"}
    outcome = orjson.loads(second.requests[-1].messages[-1].text)
    assert outcome["status"] in ("failed", "refused") and "nonsense" in str(outcome["blockers"])


async def test_a_task_stops_at_its_step_when_the_runtime_closes(database_url: str) -> None:
    work, closing = anyio.Event(), list[Runtime]()

    @tool
    async def read(number: int) -> str:
        """Read a page, while the runtime begins to close."""
        work.set()
        while not closing[0].health().closing:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        await anyio.sleep(0.05)
        return f"page {number}"

    def respond(request: ModelRequest) -> Scripted:
        if is_child(request):
            return call("read", number=step(request))
        return say("Bye.") if step(request) else begin()

    agent = Agent(ScriptedModel(respond), tools=[read], delegation=True)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        closing.append(runtime)
        await runtime.run(agent, "Go.", thread="t")
        await work.wait()
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        [run] = await runtime.store_of().runs.list(parent_thread_id="t")
        node = await runtime.store_of().log.node(run.thread_id, 2)
    # The page was read to its end, and nothing is open.
    assert (run.status, run.stop_reason, run.open_node) == ("suspended", "interrupted", None)
    assert [body.status for body in node.calls] == ["done"]


async def test_a_message_arrives_although_its_sender_died_while_sending(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = anyio.Event()

    async def die(work: Any) -> None:
        """Claim the message's job and do nothing more, like a process that is killed then."""
        context: ToolContext = work.context
        thread = context.thread_id
        assert await context.store.jobs.claim(JOB, seconds=0.5, thread_id=thread, key=work.job_key)
        sending.set()

    monkeypatch.setattr("agent_runtime.delegation.background._BackgroundRun._send", die)
    monkeypatch.setattr("agent_runtime.delegation.background.CLAIM_SECONDS", 0.5)
    two = Script(begin(), say("Bye."), call("hold"), say("Read."))
    async with play() as world:
        await world.run(two.agent(), thread="t")
        two.go.set()
        await sending.wait()
        result = await world.run(two.agent(), "And now?", thread="t")
    assert result.output == "Read."
    assert any("It is done." in message.text for message in two.requests[-1].messages)


async def test_a_task_of_a_cancelled_run_is_cancelled_with_it(play: Play) -> None:
    two = Script(begin(), call("hold"), say("never"))
    async with play() as world, anyio.create_task_group() as group:
        group.start_soon(lambda: world.run(two.agent(), thread="t"))
        await until(lambda: statuses(world.store) if world.events else asyncio.sleep(0))
        await world.runtime.cancel(world.events[0].run_id)
        await until(lambda: ended(world.store))
        assert await statuses(world.store) == {"k": "cancelled"}
        assert set(await ends(world.store)) == {1}


async def ended(store: UserStore) -> bool:
    return not await store.runs.list(status=("running",))


async def ends(store: UserStore) -> list[int]:
    """Return the number of end events of each run."""
    counts: list[int] = []
    for run in await store.runs.list():
        events = await store.events.list(run.thread_id)
        counts.append(sum(event.kind == "run-finish" for event in events))
    return counts


async def test_a_task_that_cannot_start_reports_it_at_once(play: Play) -> None:
    two = Script(begin(output_schema={"type": "text"}), begin("x", tools=["fly"]), say("Done."))
    async with play() as world:
        await world.run(two.agent(), thread="t")
        assert [outcome for outcome, _ in await world.results("t")] == ["refused", "refused"]
        assert await statuses(world.store) == {}
