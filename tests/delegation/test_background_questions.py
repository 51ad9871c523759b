"""Background tasks that need a person: they wait alone, and continue after the answer."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from agent_runtime import Agent, App, Delegation, Question, Runtime, Settings
from agent_runtime.delegation import background
from agent_runtime.delegation.background import tasks_of
from agent_runtime.errors import Conflict, QuestionClosed
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, ScriptedModel, call, say
from tests.delegation.erasing import erase, erased
from tests.delegation.erasing import nothing_erased as nothing_erased
from tests.delegation.helpers import is_child, step
from tests.delegation.test_background import begin, statuses, until

FILE = pytest.mark.backends("file")


class Boss:
    """An agent that delegates in the background, and sub-agents that erase or ask."""

    def __init__(self, *parent: Scripted, asks: bool = False, **policy: Any) -> None:
        self.parent, self.asks = parent, asks
        self.seen: list[ModelRequest] = []
        self.policy = Delegation(**policy)

    def respond(self, request: ModelRequest) -> Scripted:
        """Answer for the agent, or for a sub-agent."""
        if is_child(request):
            if step(request):
                return say(f"I report: {request.messages[-1].text}")
            question = call("ask_user", question="Which one?", kind="text")
            return question if self.asks else call("erase", path="/a")
        self.seen.append(request)
        return self.parent[len(self.seen) - 1]

    def agent(self) -> Agent:
        """Return the agent."""
        model = ScriptedModel(self.respond)
        return Agent(model, tools=[erase], delegation=self.policy, asking=self.asks, name="boss")

    @property
    def last(self) -> str:
        """All that the agent's last prompt says."""
        return "\n".join(message.text for message in self.seen[-1].messages)


async def asked(runtime: Runtime, thread: str = "t") -> Question:
    """Wait until a task asks; return its question."""
    await until(lambda: runtime.questions(thread=thread))
    [question] = await runtime.questions(thread=thread)
    await until(lambda: _suspended(runtime, question))
    return question


async def _suspended(runtime: Runtime, question: Question) -> bool:
    return (await runtime.store_of().runs.get(question.run_id)).status == "suspended"


async def done(runtime: Runtime, thread: str = "t") -> None:
    """Wait until the message of a task has arrived."""
    await until(lambda: runtime.store_of().inbox.pending(thread))


@pytest.mark.backends("file", "postgres")
@pytest.mark.parametrize("allow", [True, False])
async def test_a_task_waits_for_its_approval_and_goes_on_by_itself(
    database_url: str, allow: bool
) -> None:
    boss = Boss(begin(), say("It is on its way."), say("I have read it."))
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        first = await runtime.run(boss.agent(), "Erase it.", thread="t")
        # Nobody waits: the run that delegated it has its answer.
        assert first.output == "It is on its way."
        question = await asked(runtime)
        assert (question.tool, question.role, question.task_key) == ("erase", "worker", "k")
        assert await runtime.questions(run_id=first.run_id) == [question]
        assert await runtime.questions(run_id=first.run_id, background=False) == []
        assert erased == [] and await statuses(runtime.store_of()) == {"k": "waiting"}

        assert await runtime.answer(question.id, allow)
        await done(runtime)

        assert erased == (["/a"] if allow else [])
        assert await statuses(runtime.store_of()) == {"k": "succeeded"}
        assert (await runtime.run(boss.agent(), "And?", thread="t")).ok
        assert ("erased /a" if allow else "did not allow") in boss.last
        runs = await runtime.store_of().runs.list()
        assert len(runs) == 3 and {run.status for run in runs} == {"succeeded"}


@FILE
async def test_the_agent_is_told_what_its_waiting_task_waits_for(database_url: str) -> None:
    boss = Boss(
        begin(),
        call("tasks", action="wait"),
        begin(),
        call("tasks", action="cancel", task="k"),
        call("tasks", action="wait"),
        say("Done."),
    )
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        result = await runtime.run(boss.agent(), "Erase it.", thread="t")
        assert result.ok
        assert "The user has yet to answer what 'k' asks." in boss.seen[2].messages[-1].text
        assert "waits for the user" in boss.seen[3].messages[-1].text
        assert '"status": "cancelled"' in boss.last
        [question] = await runtime.questions(thread="t", status=None)
        assert question.status == "withdrawn" and erased == []
        with pytest.raises(QuestionClosed):
            await runtime.answer(question.id, True)


@pytest.mark.backends("file", "postgres")
@pytest.mark.parametrize("how", ["resume", "delegate"])
async def test_a_task_whose_process_is_gone_goes_on_with_the_answer(
    database_url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(database_url=database_url)
    boss = Boss(begin(), say("It is on its way."), begin(), say("Again."), say("I have read it."))
    async with Runtime.open(settings) as runtime:
        await runtime.run(boss.agent(), "Erase it.", thread="t")
        question = await asked(runtime)

    async with Runtime.open(settings) as runtime:
        assert (await runtime.sweep()).resumable == ()
        assert await statuses(runtime.store_of()) == {"k": "waiting"}
        assert await runtime.answer(question.id, True)
        if how == "resume":
            # With the agent that delegated it.
            result = await runtime.resume(question.run_id, boss.agent())
            assert result.output == "I report: erased /a"
        monkeypatch.setattr(background, "LEFT_SECONDS", 0.0)
        if how == "delegate":
            assert await statuses(runtime.store_of()) == {"k": "interrupted"}
            assert (await runtime.run(boss.agent(), "Go on.", thread="t")).ok
            assert any("who has answered" in m.text for m in boss.seen[-1].messages)
            await done(runtime)
        else:
            boss.seen += boss.seen[:1] * 2
        assert (await runtime.run(boss.agent(), "And?", thread="t")).ok

        assert erased == ["/a"] and boss.last.count("I report: erased /a") == 1
        [task] = await tasks_of(runtime.store_of(), "t")
        assert (task.run_id, task.status) == (question.run_id, "succeeded")


@FILE
async def test_a_root_does_not_wait_for_its_background_tasks_question(database_url: str) -> None:
    """The root asks too, and its own answer is all that it needs."""
    boss = Boss(begin(), call("erase", path="/root"), say("Done."), say("Read."))
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        waits = await runtime.run(boss.agent(), "Erase it.", thread="t")
        await until(lambda: _several(runtime))
        own, of_task = sorted(await runtime.questions(thread="t"), key=lambda one: one.role)
        # The run waits for its own only; both reach the person.
        assert list(waits.questions) == [own] and of_task.role == "worker"
        assert await runtime.answer(own.id, True)
        result = await runtime.resume(waits.run_id, boss.agent())
        assert result.output == "Done." and erased == ["/root"]
        # Taking the root over left the task as it was.
        assert await runtime.questions(thread="t") == [of_task]
        await runtime.answer(of_task.id, True)
        await done(runtime)
        assert erased == ["/root", "/a"]


async def _several(runtime: Runtime) -> bool:
    return len(await runtime.questions(thread="t")) == 2


@FILE
async def test_a_task_asks_the_user(database_url: str) -> None:
    boss = Boss(begin(), say("It asks."), say("Read."), asks=True)
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(boss.agent(), "Find out.", thread="t")
        question = await asked(runtime)
        assert (question.kind, question.text, question.role) == ("text", "Which one?", "worker")
        await runtime.answer(question.id, "The blue one.")
        await done(runtime)
        await runtime.run(boss.agent(), "And?", thread="t")
    assert "I report: The blue one." in boss.last


@FILE
async def test_a_tasks_run_is_not_resumed_before_the_answer(database_url: str) -> None:
    boss = Boss(begin(), say("It asks."))
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.run(boss.agent(), "Erase it.", thread="t")
        question = await asked(runtime)
        with pytest.raises(Conflict):
            await runtime.resume(question.run_id, boss.agent())
        assert erased == []


@pytest.mark.parametrize("placement", ["queue", "process"])
@pytest.mark.backends("file", "postgres")
async def test_a_queued_roots_tasks_wait_apart(database_url: str, placement: Any) -> None:
    boss = Boss(
        begin(), call("erase", path="/root"), say("Done."), say("Read."), placement=placement
    )
    app = App(agents={"boss": boss.agent()}, name="clean")
    settings = Settings(database_url=database_url)
    async with Runtime.open(settings) as runtime, anyio.create_task_group() as group:
        group.start_soon(lambda: runtime.work(app))
        queued = await runtime.enqueue(app.named("boss"), "Erase it.", app=app, thread="t")
        with anyio.fail_after(60):
            await until(lambda: _several(runtime))
            own, of_task = sorted(await runtime.questions(thread="t"), key=lambda one: one.role)
            # The root's own answer wakes it, whatever its task waits for.
            await runtime.answer(own.id, True)
            await until(lambda: _is(runtime, queued.run_id, "succeeded"))
            assert erased == ["/root"]
            await runtime.answer(of_task.id, True)
            await done(runtime)
        assert erased == ["/root", "/a"]
        group.cancel_scope.cancel()


async def _is(runtime: Runtime, run_id: str, status: str) -> bool:
    return (await runtime.store_of().runs.get(run_id)).status == status
