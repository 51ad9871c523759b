"""The spans and metrics of real runs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from agent_runtime import Agent, Delegation, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import ModelRejected
from agent_runtime.models.native import NativeModel
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.models.telemetry.tally import TALLY
from agent_runtime.testing import Anthropic, ScriptedEmbedder, StrictServer
from agent_runtime.testing.providers.gemini import Gemini
from agent_runtime.testing.providers.responses import Responses
from tests.delegation.helpers import is_child
from tests.models.scenario import Played, script
from tests.telemetry.recorded import Recorded, facts, id_of, parent_of, trace_of
from tests.tools.mcp.serving import sums

SECRET = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


WIRES = {
    "messages": (
        lambda: Played(Anthropic(thinking=True), "anthropic/claude-sonnet-4-5"),
        "anthropic",
    ),
    "responses": (lambda: Played(Responses(), "openai/responses/gpt-5.6", "/v1"), "openai"),
    "gemini": (lambda: Played(Gemini(), "gemini/gemini-3-pro-preview"), "gcp.gemini"),
}


def settings_of(folder: Path, **more: Any) -> Settings:
    """Return settings with a database of the test's own."""
    return Settings(database_url=f"file:{folder / 'run.db'}", **more)


async def test_a_run_its_calls_and_tools_are_one_tree(recorded: Recorded, tmp_path: Path) -> None:
    own = recorded.traces.get_tracer("program")

    @tool
    async def look(n: int) -> str:
        """Look, in a span of the program's."""
        with own.start_as_current_span("own"):
            return f"saw {n}"

    @tool
    def count() -> str:
        """Count in a thread, in a span of the program's."""
        with own.start_as_current_span("own"):
            return "2"

    @tool
    async def broken() -> str:
        """Fail."""
        raise ValueError(SECRET)

    model = ScriptedModel(
        [calls(raw_call("look", n=1), raw_call("count"), raw_call("broken")), say("Done.")]
    )
    before = TALLY.steps
    async with Runtime.open(settings_of(tmp_path)) as runtime:
        agent = Agent(model, name="reader", tools=[look, count, broken])
        result = await runtime.run(agent, "Look.")

    run = recorded.one("invoke_agent reader")
    assert facts(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "reader",
        "gen_ai.conversation.id": result.thread_id,
        "agent_runtime.run.id": result.run_id,
        "agent_runtime.run.status": "succeeded",
        "agent_runtime.run.stop_reason": "completed",
        "agent_runtime.run.steps": 2,
    }
    assert run.parent is None and run.status.status_code is StatusCode.UNSET
    chats = recorded.named("chat ")
    assert {parent_of(one) for one in chats} == {id_of(run)} and len(chats) == 2
    assert all(one.kind is SpanKind.CLIENT for one in chats)
    assert facts(chats[1])["gen_ai.usage.input_tokens"] > 0
    tools = {facts(one)["gen_ai.tool.name"]: one for one in recorded.named("execute_tool")}
    assert {parent_of(one) for one in tools.values()} == {id_of(run)}
    assert facts(tools["broken"])["error.type"] == "error"
    assert tools["broken"].status.status_code is StatusCode.ERROR
    # The spans of the program are inside of their tools', also in a thread.
    owns = {parent_of(one) for one in recorded.named("own")}
    assert owns == {id_of(tools["look"]), id_of(tools["count"])}
    assert recorded.named("commit")
    # No contents without the setting, neither of messages nor of errors.
    shown = "".join(one.to_json() for one in recorded.spans)
    assert SECRET not in shown and "saw 1" not in shown and "Look." not in shown
    points = {(one.name, one.attributes.get("gen_ai.token.type")) for one in recorded.points()}
    assert {
        ("gen_ai.client.operation.duration", None),
        ("gen_ai.client.operation.time_to_first_chunk", None),
        ("gen_ai.client.token.usage", "input"),
        ("gen_ai.client.token.usage", "output"),
        ("agent_runtime.steps", None),
        ("agent_runtime.runs", None),
    } <= points
    assert TALLY.steps == before + 2


async def test_contents_are_shown_on_request_and_masked(recorded: Recorded, tmp_path: Path) -> None:
    @tool
    async def look(path: str) -> str:
        """Look."""
        return f"password={SECRET} in {path}"

    model = ScriptedModel([call("look", path=f"/etc/{SECRET}"), say("It is there.")])
    async with Runtime.open(settings_of(tmp_path, telemetry_content=True)) as runtime:
        await runtime.run(Agent(model, tools=[look]), f"Look. My key is {SECRET}.")

    first, last = recorded.named("chat ")
    assert "Look. My key is ***" in facts(first)["gen_ai.input.messages"]
    assert "It is there." in facts(last)["gen_ai.output.messages"]
    used = recorded.one("execute_tool")
    assert "/etc/***" in facts(used)["gen_ai.tool.call.arguments"]
    assert "password=***" in facts(used)["gen_ai.tool.call.result"]
    assert SECRET not in "".join(one.to_json() for one in recorded.spans)


async def test_a_failing_model_fails_its_call_and_its_run(
    recorded: Recorded, tmp_path: Path
) -> None:
    model = ScriptedModel([ModelRejected(f"It said {SECRET}.")])
    async with Runtime.open(settings_of(tmp_path)) as runtime:
        with pytest.raises(ModelRejected):
            await runtime.run(Agent(model), "Go.")
    for start in ("chat ", "invoke_agent"):
        one = recorded.one(start)
        assert one.status.status_code is StatusCode.ERROR
        assert facts(one)["error.type"] == "ModelRejected"
    assert SECRET not in "".join(one.to_json() for one in recorded.spans)
    kinds = {one.attributes.get("error.type") for one in recorded.points() if "dur" in one.name}
    assert kinds == {"ModelRejected"}


async def test_a_cancelled_run_is_no_error(recorded: Recorded, tmp_path: Path) -> None:
    working = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        working.set()
        await anyio.sleep_forever()
        return ""

    async with (
        Runtime.open(settings_of(tmp_path)) as runtime,
        anyio.create_task_group() as group,
    ):
        agent = Agent(ScriptedModel([call("wait")]), tools=[wait])
        group.start_soon(runtime.run, agent, "Wait.")
        await working.wait()
        group.cancel_scope.cancel()
    for start in ("execute_tool", "invoke_agent"):
        one = recorded.one(start)
        assert facts(one)["agent_runtime.outcome"] == "cancelled"
        assert one.status.status_code is StatusCode.UNSET


async def test_a_resumed_run_links_to_the_trace_before(recorded: Recorded, tmp_path: Path) -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "did it"

    async with Runtime.open(settings_of(tmp_path)) as runtime:
        agent = Agent(ScriptedModel([call("work")]), tools=[work], max_steps=1)
        first = await runtime.run(agent, "Go.")
    # Another process knows only what is stored.
    async with Runtime.open(settings_of(tmp_path)) as runtime:
        agent = Agent(ScriptedModel([say("Done.")]), tools=[work], max_steps=1)
        await runtime.resume(first.run_id, agent)
    before, after = recorded.named("invoke_agent")
    assert facts(before)["error.type"] == "max_steps"
    assert facts(after)["agent_runtime.run.resumed"] is True
    [link] = after.links
    assert (link.context.trace_id, link.context.span_id) == (trace_of(before), id_of(before))
    assert trace_of(after) != trace_of(before)
    assert after.parent is None


@pytest.mark.parametrize("background", [False, True])
async def test_sub_agents_are_in_their_parents_trace(
    recorded: Recorded, tmp_path: Path, background: bool
) -> None:
    order: dict[str, Any] = {
        "role": "worker",
        "instructions": "Work.",
        "briefing": "All.",
        "task_key": "k",
    }
    if background:
        order["background"] = True
    parent = iter([call("delegate", **order), say("Done."), say("Done."), say("Done.")])

    def answer(request: Any) -> Scripted:
        return say("I did.") if is_child(request) else next(parent)

    async with Runtime.open(settings_of(tmp_path)) as runtime:
        agent = Agent(ScriptedModel(answer), name="boss", delegation=Delegation())
        await runtime.run(agent, "Go.")
        await runtime.drain(5.0)
    [delegated] = recorded.named("execute_tool delegate")
    child = next(one for one in recorded.named("invoke_agent") if one.name != "invoke_agent boss")
    assert parent_of(child) == id_of(delegated)
    [chat] = [one for one in recorded.named("chat ") if parent_of(one) == id_of(child)]
    assert facts(chat)["gen_ai.conversation.id"] == facts(child)["gen_ai.conversation.id"]


async def test_memory_and_recall_are_in_the_run(recorded: Recorded, tmp_path: Path) -> None:
    @tool
    async def read(n: int) -> str:
        """Read a long text."""
        return f"Part {n}: " + "the harvest of the year was better than the last one. " * 60

    script = [*(call("read", n=n) for n in range(12)), say("Done."), say("It was good.")]
    settings = settings_of(
        tmp_path,
        observational_memory=True,
        observer_message_tokens=3000,
        observer_model="extractive",
        last_messages=2,
    )
    embedder = ScriptedEmbedder()
    async with Runtime.open(settings, embedder=embedder) as runtime:
        agent = Agent(ScriptedModel(script), tools=[read])
        first = await runtime.run(agent, "Read all of it.", thread="t")
        await runtime.run(agent, "How was the harvest of the year?", thread=first.thread_id)
    runs = {id_of(one) for one in recorded.named("invoke_agent")}
    observed = recorded.named("observe")
    assert observed and {parent_of(one) for one in observed} <= runs
    assert all(facts(one)["agent_runtime.memory.tokens"] > 0 for one in observed)
    assert recorded.named("retrieval")
    embedded = recorded.named("embeddings ")
    assert embedded and facts(embedded[0])["gen_ai.embeddings.dimension.count"] > 0


async def test_mcp_servers_get_the_trace(recorded: Recorded, tmp_path: Path) -> None:
    server = sums()
    model = ScriptedModel([call("sums__trace"), say("Done.")])
    async with Runtime.open(settings_of(tmp_path)) as runtime:
        result = await runtime.run(Agent(model, tools=[server]), "Go.")
        node = (await runtime.store_of().log.branch(result.thread_id, 2))[-1]
    used = recorded.one("execute_tool sums__trace")
    body = node.calls[0].body
    assert body is not None and f"{trace_of(used):032x}".encode() in body


@pytest.mark.parametrize("name", WIRES)
async def test_the_native_wires(recorded: Recorded, tmp_path: Path, name: str) -> None:
    make, provider = WIRES[name]
    played = make()
    settings = settings_of(tmp_path, observational_memory=False)
    async with (
        StrictServer(played.provider, functools.partial(script, steps=3)) as server,
        Runtime.open(settings) as runtime,
    ):
        await runtime.run(played.agent(server, NativeModel), "Look at all parts.")
    chats = recorded.named("chat ")
    assert len(chats) == 3
    for one in chats:
        about = facts(one)
        assert about["gen_ai.provider.name"] == provider
        assert about["gen_ai.request.model"] == played.model.rpartition("/")[2]
        assert about["gen_ai.usage.input_tokens"] > 0
        assert about["gen_ai.response.time_to_first_chunk"] > 0
        assert about["gen_ai.response.finish_reasons"]
