"""Tool calls in the loop: concurrency, the order of results, and bad calls."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import anyio
import orjson
import pytest

from agent_runtime import Agent, Event, ScriptedModel, ToolContext, ToolError, ToolResult, tool
from agent_runtime.errors import ConfigError, ModelProtocolError, ThreadBusy
from agent_runtime.models.base import RawCall
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.testing.model_server import Reply
from tests.support.worlds import KEY, Play, Serve, World, double

HELLO = """
from agent_runtime import Agent

def weather(city: str) -> str:
    "Tell the weather in a city."
    return f"It rains in {city}."

agent = Agent("openai/test", tools=[weather], instructions="Be brief.")
print(agent.run_sync("What is the weather in Oslo?").output)
"""


@pytest.mark.backends("file")
async def test_hello_world_takes_ten_lines(serve: Serve) -> None:
    assert len(HELLO.strip().splitlines()) <= 10
    script = [Reply(calls=(("weather", {"city": "Oslo"}),)), Reply(text="Rain.")]
    async with serve(script) as world:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "AGENT_RUNTIME_MODEL_BASE_URL": world.server.base_url,
            "AGENT_RUNTIME_DATABASE_URL": world.database_url,
            "OPENAI_API_KEY": KEY,
        }
        completed = await anyio.run_process([sys.executable, "-c", HELLO], env=environment)
        assert completed.stdout.decode() == "Rain.\n"
        assert completed.stderr == b""
        assert world.sent()[1][-1]["content"] == "It rains in Oslo."
    assert KEY.encode() not in world.contents()


async def test_parallel_calls_run_at_once_and_their_results_go_back_in_call_order(
    serve: Serve,
) -> None:
    finished = {"second": anyio.Event(), "third": anyio.Event()}

    @tool
    async def first() -> str:
        """Wait for the second."""
        await finished["second"].wait()
        return "one"

    @tool
    async def second() -> str:
        """Wait for the third."""
        await finished["third"].wait()
        return "two"

    @tool
    def third() -> str:
        """Run in a thread."""
        return f"three, {threading.current_thread() is threading.main_thread()}"

    def watch(event: Event) -> None:
        if event.kind == "tool-finish" and event.data["tool"] in finished:
            finished[event.data["tool"]].set()

    reply = Reply(text="Now.", calls=(("first", {}), ("second", {}), ("third", {})))
    async with serve([reply, Reply(text="Done.")]) as world:
        agent = Agent(tools=[first, second, third])
        result = await world.runtime.run(agent, "Work.", on_event=watch)
    assert result.ok
    answer, *results = world.sent()[1][2:]
    assert [call["id"] for call in answer["tool_calls"]] == [
        result["tool_call_id"] for result in results
    ]
    assert [result["content"] for result in results] == ["one", "two", "three, False"]


@tool
def fail(text: str) -> str:
    """Raise."""
    raise ValueError(text)


@tool
def refuse() -> str:
    """Raise an error that is meant for the model."""
    raise ToolError("Ask for another day.")


@tool(timeout=0.01)
async def hang() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return "ended"


BAD_CALLS: dict[str, tuple[RawCall, str, str]] = {
    "no JSON": (RawCall("double", '{"number": '), "error", "not a JSON object"),
    "no object": (RawCall("double", "[1]"), "error", "not a JSON object"),
    "null": (RawCall("double", "null"), "error", "not a JSON object"),
    "a missing argument": (raw_call("double"), "error", "number"),
    "a wrong type": (raw_call("double", number="x"), "error", "number"),
    "an unknown tool": (raw_call("triple", number=1), "error", "There is no tool 'triple'"),
    "a name that no provider takes": (RawCall("a b!", "{}"), "error", "There is no tool 'a_b_'"),
    "a tool that raises": (raw_call("fail", text="No luck"), "error", "ValueError: No luck"),
    "a tool that says why": (raw_call("refuse"), "error", "Ask for another day."),
    "a tool that takes too long": (raw_call("hang"), "error", "stopped after 0.01 s"),
}


@pytest.mark.parametrize(("bad", "outcome", "says"), BAD_CALLS.values(), ids=BAD_CALLS)
async def test_a_bad_call_becomes_a_result_and_the_next_prompt_is_valid(
    serve: Serve, bad: RawCall, outcome: str, says: str
) -> None:
    both = Reply(calls=((bad.name, bad.arguments), ("double", {"number": 2})))
    async with serve([both, Reply(text="Sorry.")]) as world:
        result = await world.run(Agent(tools=[double, fail, refuse, hang]))
        recorded = await world.results(result.thread_id)
    assert result.output == "Sorry."
    assert recorded[0][0] == outcome
    assert says in recorded[0][1]
    assert recorded[1] == ("ok", "4")
    answer, *results = world.sent()[1][2:]
    assert [result["content"] for result in results] == [text for _, text in recorded]
    for made in answer["tool_calls"]:
        assert isinstance(orjson.loads(made["function"]["arguments"]), dict)
        assert made["function"]["name"].replace("_", "").isalnum()


async def test_the_error_quotes_arguments_that_are_no_json(play: Play) -> None:
    script = [calls(RawCall("double", "number=21")), say("I see.")]
    async with play(script) as world:
        result = await world.run(Agent(tools=[double]))
        ((_, text),) = await world.results(result.thread_id)
    assert "number=21" in text


async def test_a_tool_receives_its_context_and_the_programs_objects(play: Play) -> None:
    seen: list[ToolContext] = []

    @tool
    def look(context: ToolContext) -> ToolResult:
        """Look around."""
        seen.append(context)
        return ToolResult("Seen.")

    async with play([call("look"), say("Done.")]) as world:
        result = await world.run(Agent(tools=[look]), deps={"a": 1}, user="ann")
        run = await world.runtime.store.of("ann").runs.get(result.run_id)
    (context,) = seen
    assert (context.user_id, context.deps, context.step) == ("ann", {"a": 1}, 1)
    assert (context.thread_id, context.run_id) == (result.thread_id, run.id)


@pytest.mark.parametrize("empty", [Reply(), Reply(text="   ")], ids=["nothing", "spaces"])
async def test_an_empty_answer_is_asked_for_again_and_not_logged(
    serve: Serve, empty: Reply
) -> None:
    async with serve([empty, Reply(text="Here.")]) as world:
        result = await world.run(Agent())
        run = await world.row()
    assert (result.output, result.steps) == ("Here.", 1)
    assert [message["role"] for message in world.sent()[1]] == ["system", "user"]
    # The provider may or may not charge for it, so it counts separately as an upper bound.
    assert run.unsettled.tokens > 0


async def test_an_empty_answer_of_a_custom_model_fails_the_run(play: Play) -> None:
    async with play([say("")]) as world:
        with pytest.raises(ModelProtocolError, match="empty answer"):
            await world.run(Agent())
        assert (await world.row()).status == "failed"


async def test_too_many_calls_at_once_fail_the_run(play: Play) -> None:
    async with play([calls(*[raw_call("double", number=1)] * 129)]) as world:
        with pytest.raises(ModelProtocolError, match="129 calls"):
            await world.run(Agent(tools=[double]))
        assert (await world.row()).status == "failed"


async def test_an_exception_of_a_model_ends_the_run_and_is_raised(play: Play) -> None:
    def script(request: Any) -> str:
        raise ZeroDivisionError("secret-ish detail")

    async with play() as world:
        with pytest.raises(ZeroDivisionError):
            await world.run(Agent(ScriptedModel(script)))
        run = await world.row()
    assert (run.status, run.detail) == ("failed", "Unexpected ZeroDivisionError")


@pytest.mark.parametrize("task", ["", "  \n"])
async def test_an_empty_task_is_refused(play: Play, task: str) -> None:
    async with play() as world:
        with pytest.raises(ConfigError, match="task is empty") as raised:
            await world.run(Agent(), task)
    assert raised.value.cure


async def test_a_second_run_on_a_busy_thread_is_refused_without_harm(play: Play) -> None:
    began, release = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait for the test."""
        began.set()
        await release.wait()
        return "waited"

    async def first(world: World) -> None:
        result = await world.run(Agent(tools=[wait]), thread="t")
        assert result.output == "Done."

    async with play([call("wait"), say("Done.")]) as world, anyio.create_task_group() as group:
        group.start_soon(first, world)
        await began.wait()
        with pytest.raises(ThreadBusy) as raised:
            await world.run(Agent(ScriptedModel([say("Mine.")])), thread="t")
        assert raised.value.run_id == world.run_id
        assert raised.value.cure
        release.set()
    assert [event.kind for event in world.events if event.kind == "run-start"] == ["run-start"]
