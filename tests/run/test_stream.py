"""A run as a stream: live events, the same events from the store, and leaving early."""

from __future__ import annotations

import inspect
from itertools import pairwise
from typing import Any, cast

import anyio
import pytest

from agent_runtime import Agent, Event, RunResult, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import ConfigError, ModelAuthError
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.testing.model_server import Reply, unauthorized
from agent_runtime_storage.contract.records.log import EventRow as StoredEvent
from tests.support.worlds import Play, Serve, double

AGENT = Agent(tools=[double])
SCRIPT = [calls(raw_call("double", number=1), raw_call("double", number=2)), say("All\ndone.")]


def as_stored(event: Event | StoredEvent) -> tuple[object, ...]:
    """Return the stored form of an event: arguments and results of calls are in the log only."""
    data = {key: value for key, value in event.data.items() if key not in ("arguments", "result")}
    return event.id, event.kind, event.run_id, event.node_id, data


async def test_events_arrive_in_order_with_rising_ids(play: Play) -> None:
    async with play(SCRIPT) as world, world.runtime.stream(AGENT, "Work.") as stream:
        events = [event async for event in stream]
        assert stream.result.output == "All\ndone."
    kinds = [event.kind for event in events if event.kind != "text-delta"]
    assert kinds == [
        "run-start",
        "activation",
        "answer",
        "tool-start",
        "tool-start",
        "tool-finish",
        "tool-finish",
        "answer",
        "run-finish",
    ]
    text = "".join(event.data["text"] for event in events if event.kind == "text-delta")
    assert text == "All\ndone."
    assert all(event.data.get("result") for event in events if event.kind == "tool-finish")
    ids = [event.id for event in events if event.id]
    assert ids == list(range(1, len(kinds) + 1))
    assert {(event.run_id, event.thread_id) for event in events} == {
        (stream.run_id, stream.thread_id)
    }


async def test_the_store_returns_the_events_after_any_cursor(play: Play) -> None:
    async with play(SCRIPT * 2) as world:
        first = await world.run(AGENT, thread="t")
        await world.run(AGENT, thread="t")
        live = [event for event in world.events if event.id]
        assert all(before.id < after.id for before, after in pairwise(live))
        for cursor in (0, *(event.id for event in live)):
            stored = await world.store.events.list(first.thread_id, after=cursor)
            assert [as_stored(event) for event in stored] == [
                as_stored(event) for event in live if event.id > cursor
            ]


async def test_deltas_arrive_before_the_answer_is_complete(serve: Serve) -> None:
    reply = Reply(text="One two three four.", reasoning="Hm, well.")
    async with serve([reply]) as world, world.runtime.stream(Agent(), "Count.") as stream:
        events = [event async for event in stream]
    deltas = [event for event in events if event.kind == "text-delta"]
    assert len(deltas) > 1
    assert "".join(event.data["text"] for event in deltas) == reply.text
    thoughts = [event.data["text"] for event in events if event.kind == "reasoning-delta"]
    assert "".join(thoughts) == reply.reasoning
    assert events.index(deltas[-1]) < [event.kind for event in events].index("answer")


async def test_leaving_the_stream_cancels_the_run_and_it_can_be_resumed(play: Play) -> None:
    @tool
    async def hang() -> str:
        """Never end."""
        await anyio.sleep_forever()
        return "ended"

    async with play([call("hang"), say("Done.")]) as world:
        async with world.runtime.stream(Agent(tools=[hang]), "Work.") as stream:
            async for event in stream:
                if event.kind == "tool-start":
                    break
            with pytest.raises(RuntimeError, match="not over"):
                _ = stream.result
        run = await world.store.runs.get(stream.run_id)
        assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
        ((outcome, text),) = await world.results(stream.thread_id)
        assert outcome == "interrupted"
        assert "unverified" in text
        resumed = world.runtime.resume_stream(run.id, Agent(tools=[hang]))
        async with resumed as stream:
            kinds = [event.kind async for event in stream]
            assert stream.result.output == "Done."
    assert kinds[0] == "run-start"
    assert kinds[-1] == "run-finish"


async def test_leaving_the_stream_in_mid_answer_closes_the_connection(serve: Serve) -> None:
    silent = Reply(text="So far, so", stall_after=3)
    async with serve([silent]) as world:
        async with world.runtime.stream(Agent(), "Work.") as stream:
            async for event in stream:
                if event.kind == "text-delta":
                    break
        await world.server.wait_for_connections(0)
        run = await world.store.runs.get(stream.run_id)
        assert run.status == "cancelled"
        # The provider may charge for the part that it sent.
        assert run.unsettled.tokens >= world.billed("total_tokens") > 0


async def test_the_stream_raises_the_runs_error_after_its_events(
    serve: Serve,
) -> None:
    seen: list[Event] = []
    script = [unauthorized("***")]
    async with serve(script) as world, world.runtime.stream(Agent(), "Work.") as stream:
        with pytest.raises(ModelAuthError):
            async for event in stream:
                seen.append(event)
        with pytest.raises(ModelAuthError):
            _ = stream.result
    assert [event.kind for event in seen] == ["run-start", "activation", "run-finish"]


class Counting(Runtime):
    """A runtime that counts the calls of the methods that it overrides."""

    calls = 0

    async def run(self, *args: Any, **kwargs: Any) -> RunResult:
        self.calls += 1
        return await super().run(*args, **kwargs)

    async def resume(self, *args: Any, **kwargs: Any) -> RunResult:
        self.calls += 1
        return await super().resume(*args, **kwargs)


@pytest.mark.backends("file")
async def test_streams_call_the_methods_of_a_subclass(database_url: str) -> None:
    agent = Agent(ScriptedModel([ModelAuthError("No."), say("Done.")]))
    async with Counting.open(Settings(database_url=database_url)) as runtime:
        assert isinstance(runtime, Counting)
        async with runtime.stream(agent, "Work.") as stream:
            with pytest.raises(ModelAuthError):
                _ = [event async for event in stream]
        async with runtime.resume_stream(stream.run_id, agent) as resumed:
            _ = [event async for event in resumed]
            assert resumed.result.output == "Done."
        assert runtime.calls == 2


async def test_wrong_arguments_raise_before_the_stream_begins(play: Play) -> None:
    async with play([]) as world:
        wrong = cast("Any", world.runtime)
        for streaming in (wrong.stream(AGENT), wrong.resume_stream("run", AGENT, thread="t")):
            with pytest.raises(TypeError):
                async with streaming:
                    raise AssertionError("the stream began")


@pytest.mark.parametrize("name", ["run", "resume"])
def test_help_shows_a_stream_by_its_own_name(name: str) -> None:
    stream = f"{name}_stream" if name == "resume" else "stream"
    method, plain = getattr(Runtime, stream), getattr(Runtime, name)
    assert (method.__name__, method.__qualname__) == (stream, f"Runtime.{stream}")
    assert method.__module__ == Runtime.__module__
    assert (inspect.getdoc(method) or "").startswith(f"Like `{name}`, in a context")
    shown, parameters = inspect.signature(method), inspect.signature(plain).parameters
    assert shown.parameters == parameters
    assert shown.return_annotation == "AbstractAsyncContextManager[RunStream]"


async def test_only_agents_and_workflows_run(play: Play) -> None:
    async with play([]) as world:
        with pytest.raises(ConfigError, match="A str cannot be run"):
            await world.runtime.run(cast("Any", "agent"), "Work.")
        assert await world.store.runs.list() == []
