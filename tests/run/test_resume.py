"""Resuming a run that a limit, an error, a cancel or a crash ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import Conflict, ModelRejected, NotFound
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.run.tool_calls import CANCELLED, INTERRUPTED
from tests.services.backends import FILE_FIRST
from tests.support.elsewhere import agent, elsewhere


@pytest.fixture
async def runtime(database_url: str) -> AsyncGenerator[Runtime]:
    """A runtime on the test's own database."""
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        yield runtime


class Bench:
    """An agent whose tool records its arguments."""

    def __init__(self) -> None:
        self.did: list[int] = []

        @tool
        async def work(n: int) -> str:
            """Do a piece of work."""
            self.did.append(n)
            return f"did {n}"

        self.tools = [work]

    def agent(self, *script: Scripted, max_steps: int | None = None) -> Agent:
        """Return the agent, with a model that plays the script."""
        return Agent(ScriptedModel(script), tools=self.tools, max_steps=max_steps)


def results_in_prompt(agent: Agent) -> list[str]:
    """Return the results in the newest prompt of the agent's model."""
    assert isinstance(agent.model, ScriptedModel)
    return [message.text for message in agent.model.requests[-1].messages if message.role == "tool"]


async def test_a_resume_after_max_steps_gives_as_many_again(runtime: Runtime) -> None:
    bench = Bench()
    first = await runtime.run(
        bench.agent(call("work", n=1), call("work", n=2), max_steps=2), "Go.", thread="t"
    )
    assert (first.status, first.stop_reason, first.steps) == ("failed", "max_steps", 2)

    last = bench.agent(call("work", n=3), say("done"), max_steps=2)
    events: list[Event] = []
    second = await runtime.resume(first.run_id, last, on_event=events.append)

    assert (second.status, second.output, second.steps) == ("succeeded", "done", 4)
    assert bench.did == [1, 2, 3]
    assert results_in_prompt(last) == ["did 1", "did 2", "did 3"]
    # Whoever adds up the events gets what the run used in all.
    used = events[0].data["used"]
    assert used["prompt_tokens"] == first.usage.prompt_tokens > 0
    answers = [event.data for event in events if event.kind == "answer"]
    for name in ("prompt_tokens", "completion_tokens"):
        total = used[name] + sum(one[name] for one in answers)
        assert total == getattr(second.usage, name)


async def test_a_resume_after_a_model_error_continues_at_the_same_prompt(runtime: Runtime) -> None:
    bench = Bench()
    failing = bench.agent(call("work", n=1), ModelRejected("refused"))
    with pytest.raises(ModelRejected):
        await runtime.run(failing, "Go.", thread="t")
    [run] = await runtime.store.of("local").runs.list(thread_id="t")
    assert (run.status, run.stop_reason, run.detail) == ("failed", "error", "refused")

    again = bench.agent(say("done"))
    result = await runtime.resume(run.id, again)

    assert (result.run_id, result.output) == (run.id, "done")
    assert bench.did == [1]
    assert isinstance(failing.model, ScriptedModel) and isinstance(again.model, ScriptedModel)
    assert again.model.requests[-1].messages == failing.model.requests[-1].messages


async def test_after_a_cancel_the_model_learns_which_calls_were_interrupted(
    runtime: Runtime,
) -> None:
    under_way = anyio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        under_way.set()
        await anyio.sleep_forever()
        return "never"

    @tool
    async def quick() -> str:
        """Be quick."""
        return "quick"

    both = calls(raw_call("quick"), raw_call("hang"))
    async with anyio.create_task_group() as group:

        async def start() -> None:
            agent = Agent(ScriptedModel([both]), tools=[hang, quick])
            await runtime.run(agent, "Go.", thread="t")

        group.start_soon(start)
        await under_way.wait()
        group.cancel_scope.cancel()
    store = runtime.store.of("local")
    [run] = await store.runs.list(thread_id="t")
    assert (run.status, run.stop_reason, run.open_node) == ("cancelled", "cancelled", None)

    again = Agent(ScriptedModel([say("done")]), tools=[hang, quick])
    result = await runtime.resume(run.id, again)

    assert result.ok
    assert results_in_prompt(again)[1] == INTERRUPTED
    assert results_in_prompt(again)[0] in ("quick", INTERRUPTED)
    assert CANCELLED not in results_in_prompt(again)


async def test_after_a_timeout_a_run_can_be_resumed(database_url: str) -> None:
    @tool
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        return "never"

    settings = Settings(database_url=database_url, run_timeout=0.05)
    async with Runtime.open(settings) as runtime:
        first = await runtime.run(Agent(ScriptedModel([call("hang")] * 99), tools=[hang]), "Go.")
    assert (first.status, first.stop_reason) == ("failed", "timeout")

    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        again = await runtime.resume(first.run_id, Agent(ScriptedModel([say("done")])))
    assert again.output == "done"


async def test_a_run_that_succeeded_is_not_resumed(runtime: Runtime) -> None:
    result = await runtime.run(Agent(ScriptedModel([say("done")])), "Go.", thread="t")
    before = await runtime.store.of("local").threads.get("t")

    with pytest.raises(Conflict, match="succeeded"):
        await runtime.resume(result.run_id, Agent(ScriptedModel([say("again")])))

    assert await runtime.store.of("local").threads.get("t") == before


async def test_a_run_whose_thread_has_moved_is_not_resumed(runtime: Runtime) -> None:
    bench = Bench()
    first = await runtime.run(bench.agent(call("work", n=1), max_steps=1), "Go.", thread="t")
    await runtime.run(bench.agent(say("another")), "Something else.", thread="t")

    with pytest.raises(Conflict, match="has continued since"):
        await runtime.resume(first.run_id, bench.agent(say("late")))

    assert (await runtime.store.of("local").runs.get(first.run_id)).status == "failed"


async def test_a_run_is_not_resumed_while_another_works_on_its_thread(runtime: Runtime) -> None:
    bench = Bench()
    first = await runtime.run(bench.agent(call("work", n=1), max_steps=1), "Go.", thread="t")
    refused = False

    @tool
    async def resume_first() -> str:
        """Resume the run before this one."""
        nonlocal refused
        with pytest.raises(Conflict):
            await runtime.resume(first.run_id, bench.agent(say("late")))
        refused = True
        return "refused"

    second = Agent(ScriptedModel([call("resume_first"), say("done")]), tools=[resume_first])
    assert (await runtime.run(second, "Something else.", thread="t")).ok
    assert refused


async def test_an_unknown_run_is_not_found(runtime: Runtime) -> None:
    with pytest.raises(NotFound):
        await runtime.resume("no-such-run", Agent(ScriptedModel([])))


@FILE_FIRST
async def test_a_call_that_a_crash_interrupted_does_not_run_again(
    runtime: Runtime, database_url: str
) -> None:
    async with elsewhere(database_url, tool="wait") as other:
        run_id = (await other.until("tool-start"))["run_id"]
        await other.kill()

    # If the tool ran again, it would read the end of this process's stdin and return "waited".
    resumed = agent("wait")
    resumed = Agent(ScriptedModel([say("done")]), tools=resumed.tools)
    events: list[Event] = []
    result = await runtime.resume(run_id, resumed, on_event=events.append)

    assert result.ok
    assert results_in_prompt(resumed) == [INTERRUPTED]
    [call_] = (await runtime.store.of("local").log.node("t", 2)).calls
    assert (call_.status, call_.outcome) == ("done", "interrupted")
    ids = [event.id for event in await runtime.store.of("local").events.list("t")]
    assert ids == list(range(1, len(ids) + 1))
    assert [event.data["resumed"] for event in events if event.kind == "run-start"] == [True]


@FILE_FIRST
async def test_a_call_of_an_idempotent_tool_runs_again_after_a_crash(
    runtime: Runtime, database_url: str
) -> None:
    async with elsewhere(database_url, tool="look") as other:
        run_id = (await other.until("tool-start"))["run_id"]
        await other.kill()

    @tool(idempotent=True)
    async def look() -> str:
        """Look again."""
        return "looked"

    resumed = Agent(ScriptedModel([say("done")]), tools=[look])
    assert (await runtime.resume(run_id, resumed)).ok
    assert results_in_prompt(resumed) == ["looked"]


async def test_a_resume_ends_children_that_died_with_their_parent(
    runtime: Runtime, database_url: str
) -> None:
    async with elsewhere(database_url, tool="delegate") as other:
        parent_id = (await other.until("tool-start", tool="delegate"))["run_id"]
        child_id = (await other.until("tool-start", tool="wait"))["run_id"]
        await other.kill()
    store = runtime.store.of("local")
    assert (await store.runs.get(child_id)).status == "running"

    resumed = Agent(ScriptedModel([say("done")]), tools=agent("delegate").tools)
    assert (await runtime.resume(parent_id, resumed)).ok

    assert results_in_prompt(resumed) == [INTERRUPTED]
    child = await store.runs.get(child_id)
    assert (child.status, child.stop_reason, child.open_node) == ("cancelled", "cancelled", None)
    assert (await store.threads.get(child.thread_id)).active_run is None
    [call_] = (await store.log.node(child.thread_id, 2)).calls
    assert (call_.status, call_.outcome) == ("done", "interrupted")


@FILE_FIRST
async def test_a_child_run_can_be_resumed_separately(runtime: Runtime, database_url: str) -> None:
    async with elsewhere(database_url, tool="delegate") as other:
        parent_id = (await other.until("tool-start", tool="delegate"))["run_id"]
        child_id = (await other.until("tool-start", tool="wait"))["run_id"]
        await other.kill()
    tools = agent("delegate").tools
    await runtime.resume(parent_id, Agent(ScriptedModel([say("done")]), tools=tools))

    result = await runtime.resume(child_id, Agent(ScriptedModel([say("whole")]), tools=tools))

    assert (result.run_id, result.output) == (child_id, "whole")
