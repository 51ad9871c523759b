"""Queued runs: begun once by workers, handed over, parked and woken, ended if they kill workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from agent_runtime import (
    Agent,
    App,
    Runtime,
    ScriptedModel,
    Settings,
    ToolContext,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.errors import ConfigError, Conflict, NotFound, QuestionsOpen
from agent_runtime.log import lease_keeper, leases
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.tools.base import Tool
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.log import Commit, Finish
from agent_runtime_storage.contract.records.queue import PickedRun, QueueLimits
from tests.run.process.working import over, until, working
from tests.support.stores import execute

ASK = raw_call("ask_user", question="Which colour?", kind="single", choices=["red", "blue"])


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings with the test's own database."""
    return Settings(database_url=database_url, observational_memory=False, pause_timeout=30)


def app_of(*answers: Any, tools: Sequence[Any] = (), **more: Any) -> App:
    """Return an application whose agent answers by a script."""
    agent = Agent(ScriptedModel(answers), tools=tools, asking=more.pop("asking", False))
    return App(agents={"helper": agent}, **more)


def waiting_once() -> tuple[Tool, list[str]]:
    """Return a tool that returns only when it runs for the second time, and a list of its runs."""
    begun = list[str]()

    @tool(idempotent=True)
    async def wait() -> str:
        """Wait for ever, but for the second time."""
        begun.append("once")
        if len(begun) == 1:
            await anyio.sleep_forever()
        return "waited"

    return wait, begun


async def pick_as(runtime: Runtime, app: App, *, seconds: float = 60.0) -> HeldLease:
    """Take the next run's lease and do nothing for it, as a worker that dies at once."""
    known = [(app.program, name, app.version) for name in app.names]
    owner = leases.this_process_owner()
    [one] = await runtime.store.queue.pick(1, known, owner, seconds=seconds, limits=QueueLimits())
    return HeldLease(one.user_id, one.lease.run_id, one.lease.epoch)


async def test_a_worker_runs_what_was_enqueued(settings: Settings) -> None:
    app = app_of(say("Hello."))
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(
            app.named("helper"), "Say hello.", app=app, spec={"by": "me"}, user_context={"a": 1}
        )
        assert (await runtime.store_of().threads.get(queued.thread_id)).head is None
        async with working(runtime, app):
            run = await until(runtime, queued.run_id, over)

        assert (run.status, run.spec, run.epoch) == ("succeeded", {"by": "me"}, 1)
        messages = await runtime.threads.messages(queued.thread_id)
        assert [one.text for one in messages] == ["Say hello.", "Hello."]
        assert await runtime.queue.list() == []


@pytest.mark.backends("file")
async def test_a_workflow_and_a_file_can_be_enqueued(settings: Settings, tmp_path: Any) -> None:
    async def flow(w: WorkflowContext) -> str:
        return w.task.text.upper()

    app = App(workflows={"loud": Workflow(flow)})
    note = tmp_path / "note.txt"
    note.write_text("in a file")
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("loud"), "hello", app=app, files=[note])
        async with working(runtime, app):
            run = await until(runtime, queued.run_id, over)
        assert (run.status, run.output) == ("succeeded", b'"HELLO"')
        task = await runtime.store_of().log.node(queued.thread_id, run.task_id or 0)
        assert b"note.txt" in task.body


async def test_a_run_is_handed_over_at_a_step_and_goes_on_elsewhere(settings: Settings) -> None:
    begun, effects = anyio.Event(), list[str]()

    @tool
    async def effect() -> str:
        """Have an effect."""
        begun.set()
        # The runtime has begun to close before it returns.
        await anyio.sleep(0.3)
        effects.append("once")
        return "done"

    first, second = [app_of(*script, tools=[effect]) for script in (
        [call("effect"), say("Not here.")], [say("It goes on.")],
    )]  # fmt: skip
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(first.named("helper"), "Go.", app=first)
        async with working(runtime, first):
            await begun.wait()
    async with Runtime.open(settings) as runtime:
        [row] = await runtime.queue.list()
        assert (row.state, row.status, row.takeovers) == ("waiting", "suspended", 0)
        assert row.cause == "Its runtime was closed."
        async with working(runtime, second):
            run = await until(runtime, queued.run_id, over)

    assert (run.status, run.output, effects) == ("succeeded", b'"It goes on."', ["once"])


@pytest.mark.backends("file", "postgres")
async def test_a_run_that_asks_leaves_its_slot_and_goes_on_after_the_answer(
    settings: Settings,
) -> None:
    app = app_of(calls(ASK), say("Blue."), asking=True)
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("helper"), "Ask.", app=app)
        async with working(runtime, app, concurrency=1):
            await until(runtime, queued.run_id, lambda run: run.status == "suspended")
            [question] = await runtime.questions()
            with pytest.raises(QuestionsOpen):
                await runtime.queue.retry(queued.run_id)
            await runtime.answer(question.id, "blue")
            run = await until(runtime, queued.run_id, over)

        assert run.status == "succeeded"
        kinds = [event.kind for event in await runtime.store_of().events.list(run.thread_id)]
        assert kinds.count("run-start") == 2


@pytest.mark.backends("file", "postgres")
async def test_a_run_that_kills_its_workers_ends_and_can_be_retried(settings: Settings) -> None:
    app = app_of(say("At last."))
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("helper"), "Kill.", app=app)
        for _ in range(3):
            await pick_as(runtime, app, seconds=0.0)
        async with working(runtime, app):
            run = await until(runtime, queued.run_id, over)
            assert (run.status, run.stop_reason) == ("failed", "dead_letter")
            [row] = await runtime.queue.list(state="dead")
            assert row.cause.startswith("3 workers in a row died")

            await runtime.queue.retry(queued.run_id)
            run = await until(runtime, queued.run_id, lambda run: run.status == "succeeded")
        assert run.output == b'"At last."'


@pytest.mark.backends("file")
async def test_a_zombie_that_begins_too_late_writes_nothing(settings: Settings) -> None:
    app = app_of(say("Mine."))
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("helper"), "Go.", app=app)
        stale = await pick_as(runtime, app, seconds=0.0)
        async with working(runtime, app):
            run = await until(runtime, queued.run_id, over)
        # One more than the new pick's: the lease that it found expired is revoked first.
        assert (run.status, run.epoch) == ("succeeded", stale.epoch + 2)


async def test_a_late_worker_does_not_resume_a_run_that_has_failed_meanwhile(
    settings: Settings,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "agent_runtime.run.queue.worker")
    app, failed = app_of(ASK, say("Late."), asking=True), list[str]()
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("helper"), "Go.", app=app)
        pick, answering = runtime.store.queue.pick, anyio.Event()

        async def late(*args: Any, **named: Any) -> Sequence[PickedRun]:
            picked = await pick(*args, **named)
            if picked and answering.is_set() and not failed:
                # It stands still for longer than its lease, and another one has the run meanwhile.
                await execute(database_url, "UPDATE runs SET lease_until = 0")
                [other] = await pick(*args, **named)
                ended = Commit(finish=Finish("failed", "error", "It failed."))
                await runtime.store_of().runs.commit(other.lease, ended)
                failed.append(queued.run_id)
            return picked

        monkeypatch.setattr(runtime.store.queue, "pick", late)
        async with working(runtime, app):
            await until(runtime, queued.run_id, lambda run: run.status == "suspended")
            [question] = await runtime.questions()
            answering.set()
            await runtime.answer(question.id, "blue")
            lost = f"Run {queued.run_id} was lost"
            run = await until(
                runtime, queued.run_id, lambda run: run.status == "succeeded" or lost in caplog.text
            )
        assert (run.status, failed) == ("failed", [queued.run_id])


async def test_a_worker_that_picks_the_run_again_which_it_lost_ends_its_first_work_before(
    settings: Settings, database_url: str
) -> None:
    wait, begun = waiting_once()

    app = app_of(call("wait"), say("Done."), tools=[wait])
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("helper"), "Go.", app=app)
        async with working(runtime, app):
            await until(runtime, queued.run_id, lambda _: bool(begun))
            # As after a stop of the whole process that was longer than a lease.
            await execute(database_url, "UPDATE runs SET lease_until = 0")
            runtime.store.queue.wake()
            run = await until(runtime, queued.run_id, over)
        assert (run.status, len(begun)) == ("succeeded", 2)


async def test_sub_agents_of_a_lost_run_are_resumed_and_not_cancelled(
    settings: Settings, database_url: str
) -> None:
    wait, begun = waiting_once()

    def answer(request: ModelRequest) -> Scripted:
        if any(message.role == "tool" for message in request.messages):
            return say("Done.")
        if any(one.name == "delegate" for one in request.tools):
            return call("delegate", role="worker", instructions="Wait.")
        return call("wait")

    agent = Agent(ScriptedModel(answer), tools=[wait], delegation=True)
    app = App(agents={"helper": agent})
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("helper"), "Go.", app=app)
        async with working(runtime, app):
            await until(runtime, queued.run_id, lambda _: bool(begun))
            await execute(
                database_url, "UPDATE runs SET lease_until = 0 WHERE parent_run_id IS NULL"
            )
            runtime.store.queue.wake()
            run = await until(runtime, queued.run_id, over)
        [child] = (await runtime.tree(run.id)).children
        events = await runtime.threads.events(child.thread_id)
    assert (run.status, child.status, len(begun)) == ("succeeded", "succeeded", 2)
    assert [event.data["status"] for event in events if event.kind == "run-finish"] == ["succeeded"]


@pytest.mark.backends("file", "postgres")
async def test_what_a_dead_letter_left_open_is_closed(
    settings: Settings, database_url: str
) -> None:
    begun = list[str]()

    @tool(idempotent=True)
    async def deadly() -> str:
        """Bring down the worker, as long as anybody calls it."""
        begun.append("once")
        return await anyio.sleep_forever() or "never"

    def answer(request: ModelRequest) -> Scripted:
        if any(message.role == "tool" for message in request.messages):
            return say("It goes on.")
        if any(one.name == "delegate" for one in request.tools):
            return call("delegate", role="worker", instructions="Wait.")
        return call("deadly")

    agent = Agent(ScriptedModel(answer), tools=[deadly], delegation=True)
    app = App(agents={"helper": agent})
    budget = settings.model_copy(update={"budget_tokens": 1_000_000, "pause_timeout": 0.1})
    async with Runtime.open(budget) as dying:
        queued = await dying.enqueue(app.named("helper"), "Go.", app=app)
        async with working(dying, app):
            await until(dying, queued.run_id, lambda _: bool(begun))
    # As if the process had died in the call, and another one as soon as it had the run.
    away = "lease_until = 0, lease_host = 'away', lease_instance = 'away'"
    await execute(database_url, f"UPDATE runs SET status = 'running', {away}")
    await execute(database_url, "UPDATE queue SET state = 'working'")
    async with Runtime.open(budget) as first:
        for _ in range(2):
            await pick_as(first, app, seconds=0.0)
        async with working(first, app):
            run = await until(first, queued.run_id, over)
        [child] = (await first.tree(run.id)).children

        assert (run.stop_reason, run.open_node, child.status) == ("dead_letter", None, "cancelled")
        assert (run.reserved.tokens, len(begun)) == (0, 1)
        await first.queue.retry(run.id)
        async with working(first, app):
            run = await until(first, run.id, lambda run: run.status == "succeeded")
        assert (run.output, len(begun)) == (b'"It goes on."', 1)


async def test_sub_agents_are_not_cancelled_by_the_write_that_finds_the_lease_lost(
    settings: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No poll comes before the write.
    monkeypatch.setattr(lease_keeper, "POLL_SECONDS", 60.0)
    begun, gate = Counter[str](), anyio.Event()

    @tool(idempotent=True)
    async def wait(name: str) -> str:
        """Wait for the gate; the slow one for ever, but for the second time."""
        begun[name] += 1
        if name == "quick":
            await gate.wait()
        elif begun[name] == 1:
            await anyio.sleep_forever()
        return "waited"

    def answer(request: ModelRequest) -> Scripted:
        if any(message.role == "tool" for message in request.messages):
            return say("Done.")
        if any(one.name == "delegate" for one in request.tools):
            parts = ("slow", "quick")
            return calls(*(raw_call("delegate", role=one, instructions=one) for one in parts))
        name = next(one for one in ("slow", "quick") if one in request.messages[0].text)
        return call("wait", name=name)

    agent = Agent(ScriptedModel(answer), tools=[wait], delegation=True)
    app = App(agents={"helper": agent})
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("helper"), "Go.", app=app)
        async with working(runtime, app):
            await until(runtime, queued.run_id, lambda _: len(begun) == 2)
            await execute(
                database_url, "UPDATE runs SET lease_until = 0 WHERE parent_run_id IS NULL"
            )
            runtime.store.queue.wake()
            await until(runtime, queued.run_id, lambda run: run.epoch == 3)
            gate.set()
            run = await until(runtime, queued.run_id, over)
        children = (await runtime.tree(run.id)).children
        ends = [
            event.data["status"]
            for child in children
            for event in await runtime.threads.events(child.thread_id)
            if event.kind == "run-finish"
        ]
    assert (run.status, ends) == ("succeeded", ["succeeded", "succeeded"])


@pytest.mark.backends("file")
async def test_a_queued_run_can_be_cancelled_and_not_resumed(settings: Settings) -> None:
    app = app_of()
    helper = app.named("helper")
    async with Runtime.open(settings) as runtime:
        busy = await runtime.enqueue(helper, "Go.", app=app, thread="t")
        queued = await runtime.enqueue(helper, "Go.", app=app, thread="t")
        with pytest.raises(Conflict, match="has not begun"):
            await runtime.resume(queued.run_id, helper)
        for one in (queued, busy):
            assert await runtime.cancel(one.run_id) == [one.run_id]
            run = await runtime.store_of().runs.get(one.run_id)
            assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
        assert await runtime.queue.list() == []


@pytest.mark.backends("file")
async def test_a_run_that_cannot_begin_fails_with_the_cause(settings: Settings) -> None:
    @tool
    def needs(context: ToolContext) -> str:
        """Need something."""
        return str(context)

    app = app_of(say("No."), tools=[needs, needs])
    async with Runtime.open(settings) as runtime:
        queued = await runtime.enqueue(app.named("helper"), "Go.", app=app)
        async with working(runtime, app):
            run = await until(runtime, queued.run_id, over)
        [row] = await runtime.queue.list()
        assert (run.status, row.state) == ("failed", "dead")
        assert "needs" in row.cause and row.cause == run.detail
        await runtime.queue.forget(queued.run_id)
        with pytest.raises(NotFound):
            await runtime.queue.retry(queued.run_id)


@pytest.mark.backends("file")
async def test_versions_end_where_they_began_or_move_over(settings: Settings) -> None:
    old, new = app_of(version="1"), app_of(say("New."), version="2")
    mover = app_of(say("Moved."), version="2", continues=["1"])
    async with Runtime.open(settings) as runtime:
        first = await runtime.enqueue(old.named("helper"), "Old.", app=old)
        second = await runtime.enqueue(new.named("helper"), "New.", app=new)
        async with working(runtime, new):
            await until(runtime, second.run_id, over)
        [row] = await runtime.queue.list()
        assert (row.run_id, row.version, row.state) == (first.run_id, "1", "waiting")
        async with working(runtime, mover):
            run = await until(runtime, first.run_id, over)
        assert run.output == b'"Moved."'


@pytest.mark.backends("file")
@pytest.mark.parametrize(
    "wrong",
    [
        {"task": " "},
        {"task": None},
        {"priority": 0.0},
        {"priority": float("nan")},
        {"share": ""},
        {"share": "a\0"},
        {"share": "a\ud800"},
        {"share": "a" * 513},
        {"at": datetime(2030, 1, 1)},
    ],
)
async def test_what_no_worker_could_run_is_refused(
    settings: Settings, wrong: dict[str, Any]
) -> None:
    values: dict[str, Any] = {"task": "Go.", **wrong}
    async with Runtime.open(settings) as runtime:
        with pytest.raises(ConfigError):
            await runtime.enqueue(Agent(), values.pop("task"), **values)
        assert await runtime.queue.list_all() == []


@pytest.mark.backends("file")
async def test_what_is_put_off_waits(settings: Settings) -> None:
    async with Runtime.open(settings) as runtime:
        at = datetime.now(UTC) + timedelta(days=1)
        await runtime.enqueue(Agent(), "Later.", at=at)
        [row] = await runtime.queue.list()
        assert (row.state, row.due_at) == ("delayed", at.timestamp())


@pytest.mark.backends("file")
async def test_the_queue_names_the_limit_that_a_run_waits_at(settings: Settings) -> None:
    app = app_of()
    limited = settings.model_copy(update={"queue_runs_per_user": 1})
    async with Runtime.open(settings) as runtime, Runtime.open(limited) as other:
        for _ in range(2):
            await runtime.enqueue(app.named("helper"), "Go.", app=app)
        await pick_as(runtime, app)
        rows = await runtime.queue.list(state="waiting")
        assert await other.queue.reasons(rows) == ["Its user has 1 runs at work, the most allowed."]
        assert "waits for a worker" in (await runtime.queue.reasons(rows))[0]
