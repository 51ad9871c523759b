"""Workflows through the runtime: nodes, what they share, how they run and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from agent_runtime import (
    Agent,
    Event,
    MemoryMode,
    NodeFailed,
    Runtime,
    ScriptedModel,
    Settings,
    ToolContext,
    Workflow,
    WorkflowContext,
    count_messages_tokens,
    tool,
)
from agent_runtime.errors import ConfigError, Conflict, ModelRejected, NotFound, WorkflowDiverged
from agent_runtime.messages import (
    AssistantMessage,
    PromptMessage,
    UserMessage,
    decode_message,
)
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import call, say
from agent_runtime_storage import UserStore
from agent_runtime_storage.records import Run

pytestmark = pytest.mark.backends("file")


@pytest.fixture
async def runtime(database_url: str) -> AsyncGenerator[Runtime]:
    """A runtime over a database of the test's own."""
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        yield runtime


def local(runtime: Runtime) -> UserStore:
    """Return the store as the runs' owner sees it."""
    return runtime.store.of("local")


def answering(*answers: str, name: str = "agent") -> Agent:
    """Return an agent that gives these answers, one a run."""
    return Agent(ScriptedModel([say(one) for one in answers]), name=name)


def echo(request: ModelRequest) -> str:
    """Answer with all that was said to the agent, its instructions left out."""
    return " | ".join(one.text for one in request.messages[1:])


ECHO = Agent(ScriptedModel(echo), name="echo")


async def sent(runtime: Runtime, run_id: str) -> list[str]:
    """Return what is said on the thread of a run, oldest first."""
    run = await local(runtime).run(run_id)
    thread = await local(runtime).thread(run.thread_id)
    nodes = await local(runtime).branch(thread.id, thread.head or 0)
    return [decode_message(node.body).text for node in nodes]


def texts(said: tuple[UserMessage | AssistantMessage, ...]) -> list[str]:
    """Return the texts of messages."""
    return [one.text for one in said]


# What nodes share


async def test_the_shared_state_gains_one_message_an_agent_and_the_trace_stays_in_its_thread(
    runtime: Runtime,
) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(ScriptedModel([call("look"), call("look"), say("Found.")]), tools=[look])
    states: list[list[str]] = []

    @Workflow
    async def flow(w: WorkflowContext) -> None:
        await w.agent("find", agent)
        states.append(texts(w.messages))
        await w.call("count", len, "four")
        states.append(texts(w.messages))
        assert w.node_outputs == {"find": "Found.", "count": 4}

    result = await runtime.run(flow, "Go.")
    assert states == [["Go.", "Found."]] * 2
    [child] = await local(runtime).runs(parent_run_id=result.run_id)
    assert (child.root_run_id, child.spec["node"], child.steps) == (result.run_id, "find", 3)
    assert await sent(runtime, child.id) == ["Go.", "", "", "Found."]
    assert await sent(runtime, result.run_id) == ["Go.", "", "", "(no result)"]


async def test_a_child_is_given_the_last_message_or_a_nodes_output_or_nothing(
    runtime: Runtime,
) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> list[str]:
        await w.call("facts", dict, moon=1)
        await w.agent("first", answering("First."))
        given = [await w.agent("a", ECHO)]
        given.append(await w.agent("b", ECHO, input_source="node_output", source_node_id="first"))
        given.append(await w.agent("c", ECHO, input_source="node_output", source_node_id="facts"))
        given.append(await w.agent("d", ECHO, input_source="none"))
        given.append(await w.agent("e", ECHO, "Just this."))
        with pytest.raises(ConfigError, match="no output of a node 'nowhere'") as error:
            await w.agent("f", ECHO, input_source="node_output", source_node_id="nowhere")
        assert "facts, first" in error.value.cure
        return given

    result = await runtime.run(flow, "Go.")
    assert result.output == ["First.", "First.", '{"moon":1}', "(no input)", "Just this."]


async def test_a_child_begins_with_no_messages_unless_it_is_to_see_the_shared_ones(
    runtime: Runtime,
) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> list[str]:
        alone = await w.agent("alone", ECHO, "And?")
        return [alone, await w.agent("seeing", ECHO, "And?", history=True)]

    await runtime.run(flow, "One.", thread="t")
    result = await runtime.run(flow, "Two.", thread="t")
    assert result.output == ["And?", 'One. | ["And?","One. | And? | And?"] | Two. | And? | And?']


async def test_runs_inside_a_run_inherit_what_is_known_of_the_user(runtime: Runtime) -> None:
    @tool
    async def who(context: ToolContext) -> str:
        """Say who the user is."""
        return str(context.user_context["name"])

    def agent() -> Agent:
        model = ScriptedModel(
            lambda request: request.messages[-1].text if len(request.messages) > 2 else call("who")
        )
        return Agent(model, tools=[who])

    @Workflow
    async def inner(w: WorkflowContext) -> list[str]:
        return [w.user_context["name"], await w.agent("agent", agent())]

    @Workflow
    async def outer(w: WorkflowContext) -> list[Any]:
        return [await w.agent("agent", agent()), await w.workflow("inner", inner)]

    result = await runtime.run(outer, "Who?", user_context={"name": "Ada"})
    assert result.output == ["Ada", ["Ada", "Ada"]]


async def test_a_workflow_as_a_node_has_a_thread_and_a_state_of_its_own(runtime: Runtime) -> None:
    @Workflow
    async def inner(w: WorkflowContext) -> dict[str, Any]:
        await w.agent("write", answering("Inner text."))
        assert texts(w.messages) == ["First.", "Inner text."]
        return {"text": w.node_outputs["write"], "input": w.input}

    @Workflow
    async def outer(w: WorkflowContext) -> list[str]:
        await w.agent("write", answering("First."))
        value = await w.workflow("inner", inner)
        assert value == w.node_outputs["inner"] == {"text": "Inner text.", "input": "First."}
        assert w.node_outputs["write"] == "First."
        empty = await w.workflow("nothing", Workflow(_input, name="input"), input_source="none")
        return [*texts(w.messages), empty]

    async def _input(w: WorkflowContext) -> str:
        return w.input

    result = await runtime.run(outer, "Go.")
    assert result.output == [
        "Go.",
        "First.",
        '{"text":"Inner text.","input":"First."}',
        "(no result)",
        "",
    ]
    runs = {run.agent: run for run in await local(runtime).runs(root_run_id=result.run_id)}
    assert runs["inner"].parent_run_id == result.run_id
    assert len({run.thread_id for run in runs.values()}) == len(runs)


# Values


class Point(BaseModel):
    """A value."""

    x: int
    y: int = 0


@dataclass
class Pair:
    """Another one."""

    left: str
    right: set[int]


def pair(left: str) -> Pair:
    """Return a pair, from a thread."""
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    return Pair(left, {2, 1})


async def move(point: Point, by: int) -> Point:
    """Move a point."""
    return Point(x=point.x + by)


async def test_values_are_what_they_were_after_a_resume(runtime: Runtime) -> None:
    model = ScriptedModel([call("final_result", x=7)])
    seen: list[list[Any]] = []
    broken = True

    @Workflow
    async def flow(w: WorkflowContext) -> None:
        point: Point = await w.agent("find", Agent(model, output_type=Point))
        moved = await w.call("move", move, point, by=3)
        both = await w.call("pair", pair, "1")
        digits = await w.call("digits", str, 12)
        seen.append([point, moved, both, digits])
        if broken:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await runtime.run(flow, "Go.", thread="t")
    [run] = await local(runtime).runs(thread_id="t")
    broken = False
    await runtime.resume(run.id, flow)
    expected = [Point(x=7), Point(x=10), Pair("1", {1, 2}), "12"]
    assert seen == [expected, expected]
    assert len(model.requests) == 1


def kind_of(value: object) -> str:
    """Return the name of a value's type."""
    return type(value).__name__


async def test_what_json_cannot_hold_is_no_value_of_a_node(runtime: Runtime) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> str:
        with pytest.raises(NodeFailed, match="JSON cannot hold") as failed:
            await w.call("bad", object)
        assert isinstance(failed.value.__cause__, ConfigError)
        # As an argument it is known by its type.
        return await w.call("good", kind_of, object())

    assert (await runtime.run(flow, "Go.")).output == "object"


# Loops and branches


async def test_a_node_in_a_loop_has_iterations(runtime: Runtime) -> None:
    scores = iter([0.2, 0.5, 0.9])

    @Workflow
    async def flow(w: WorkflowContext) -> list[Any]:
        while (await w.call("score", next, scores)) < 0.8:
            await w.agent("improve", answering(f"Version {len(w.outputs('improve')) + 1}."))
        return [w.outputs("score"), w.outputs("improve"), w.outputs("none")]

    result = await runtime.run(flow, "Go.")
    assert result.output == [[0.2, 0.5, 0.9], ["Version 1.", "Version 2."], []]
    children = await local(runtime).runs(parent_run_id=result.run_id)
    assert sorted(run.spec["iteration"] for run in children) == [1, 2]


async def test_nodes_beside_each_other_run_at_once_and_come_back_in_order(
    runtime: Runtime,
) -> None:
    met = asyncio.Barrier(3)

    async def meet(number: int) -> int:
        # None of them can end before all have begun.
        await met.wait()
        await anyio.sleep(0.01 * (3 - number))
        return number

    @Workflow
    async def flow(w: WorkflowContext) -> list[int]:
        async def branch(number: int) -> int:
            first = await w.call("meet", meet, number)
            return first + await w.call("meet", meet, number)

        values = await w.gather(*(branch(number) for number in range(3)))
        assert w.outputs("meet") == [0, 1, 2, 0, 1, 2]
        return values

    with anyio.fail_after(30):
        result = await runtime.run(flow, "Go.")
    assert result.output == [0, 2, 4]
    thread = await local(runtime).thread(result.thread_id)
    nodes = await local(runtime).branch(thread.id, thread.head or 0)
    assert [len(node.calls) for node in nodes] == [0, 3, 3, 0]


async def test_branches_may_branch_and_one_that_fails_ends_the_others(runtime: Runtime) -> None:
    async def fail() -> None:
        raise LookupError("nothing there")

    @Workflow
    async def flow(w: WorkflowContext) -> list[Any]:
        async def deeper(number: int) -> list[int]:
            return await w.gather(*(w.call("n", int, f"{number}{one}") for one in range(2)))

        values = await w.gather(*map(deeper, range(2)), deeper(5))
        assert await w.gather() == []
        with pytest.raises(NodeFailed, match="LookupError: nothing there") as failed:
            await w.gather(w.call("fail", fail), w.call("n", int, "7"))
        assert isinstance(failed.value.__cause__, LookupError)
        return [*values, await w.call("last", str, "end")]

    result = await runtime.run(flow, "Go.")
    assert result.output == [[0, 1], [10, 11], [50, 51], "end"]


async def test_nodes_of_a_task_group_of_the_flows_own_run_in_turn(runtime: Runtime) -> None:
    at_work = 0

    async def alone(number: int) -> int:
        nonlocal at_work
        at_work += 1
        await anyio.lowlevel.checkpoint()
        at_work -= 1
        return number + at_work

    @Workflow
    async def flow(w: WorkflowContext) -> list[int]:
        found: list[int] = []

        async def one(number: int) -> None:
            found.append(await w.call(f"node{number}", alone, number))

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(one, number)
        return sorted(found)

    assert len((await runtime.run(flow, "Go.")).output) == 3


# Ends


async def test_a_node_that_failed_last_runs_again_when_the_run_is_resumed(
    runtime: Runtime,
) -> None:
    agent = Agent(ScriptedModel([ModelRejected("refused"), say("Now.")]), name="writer")
    tries: list[str] = []

    async def fail(name: str) -> None:
        tries.append(name)
        raise ValueError(name)

    @Workflow
    async def flow(w: WorkflowContext) -> str:
        for name in ("a", "b"):
            with pytest.raises(NodeFailed, match=f"ValueError: {name}"):
                await w.call("fail", fail, name)
        return await w.agent("write", agent, "Write.")

    with pytest.raises(NodeFailed, match="'write' failed: ModelRejected: refused") as failed:
        await runtime.run(flow, "Go.", thread="t")
    assert isinstance(failed.value.__cause__, ModelRejected)
    [run] = await local(runtime).runs(thread_id="t")
    assert (run.status, run.stop_reason) == ("failed", "error")
    result = await runtime.resume(run.id, flow)
    # What the workflow had coped with stays as it was; the agent went on in its own run.
    assert (result.output, tries) == ("Now.", ["a", "b"])
    assert len(await local(runtime).runs(parent_run_id=run.id)) == 1


@pytest.mark.parametrize("stage", ["steps", "limit"])
async def test_an_agent_that_stops_short_is_a_failed_node(runtime: Runtime, stage: str) -> None:
    endless = Agent(ScriptedModel([call("nothing")] * 9), max_steps=2, name="endless")

    @Workflow
    async def flow(w: WorkflowContext) -> str:
        with pytest.raises(NodeFailed) as failed:
            await w.agent("work", endless)
        return failed.value.stop_reason

    if stage == "steps":
        assert (await runtime.run(flow, "Go.")).output == "max_steps"
        return
    limited = Workflow(flow.flow, max_steps=2)

    @Workflow
    async def endless_flow(w: WorkflowContext) -> None:
        while True:
            await w.call("again", int)

    result = await runtime.run(Workflow(endless_flow.flow, max_steps=3), "Go.")
    assert (result.status, result.stop_reason, result.steps) == ("failed", "max_steps", 3)
    resumed = await runtime.resume(result.run_id, Workflow(endless_flow.flow, max_steps=3))
    assert resumed.steps == 6
    assert (await runtime.run(limited, "Go.", thread="limited")).output == "max_steps"


async def test_the_budget_of_the_tree_ends_it(database_url: str) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> None:
        while True:
            await w.agent("say", Agent(ScriptedModel([say("Words.")], max_output=500)))

    settings = Settings(database_url=database_url, budget_tokens=3000)
    async with Runtime.open(settings) as runtime:
        result = await runtime.run(flow, "Go.")
        root = await local(runtime).run(result.run_id)
    assert (result.status, result.stop_reason) == ("failed", "budget")
    used = result.usage.prompt_tokens + result.usage.completion_tokens
    assert 0 < root.settled.tokens == used <= 3000
    assert root.reserved.tokens == 0


async def test_a_cancel_reaches_every_run_inside_and_a_resume_goes_on(runtime: Runtime) -> None:
    began, hanging = anyio.Event(), True

    @tool(idempotent=True)
    async def hang() -> str:
        """Hang until the run is resumed."""
        began.set()
        if hanging:
            await anyio.sleep_forever()
        return "over"

    def respond(request: ModelRequest) -> Any:
        return say("Deep.") if request.messages[-1].role == "tool" else call("hang")

    @Workflow
    async def inner(w: WorkflowContext) -> str:
        return await w.agent("deep", Agent(ScriptedModel(respond), tools=[hang]))

    ran: list[str] = []

    @Workflow
    async def outer(w: WorkflowContext) -> str:
        await w.call("before", ran.append, "before")
        text: str = await w.workflow("inner", inner)
        await w.call("after", ran.append, "after")
        return text

    async with anyio.create_task_group() as group:

        async def run() -> None:
            result = await runtime.run(outer, "Go.", thread="t")
            assert (result.status, result.stop_reason) == ("cancelled", "cancelled")

        group.start_soon(run)
        await began.wait()
        [at_work] = await local(runtime).runs(thread_id="t")
        assert len(await runtime.cancel(at_work.id)) == 3
    [root] = await local(runtime).runs(thread_id="t")
    runs = await local(runtime).runs(root_run_id=root.id)
    assert [run.status for run in runs] == ["cancelled"] * 3
    hanging = False
    assert (await runtime.resume(root.id, outer)).output == "Deep."
    runs = await local(runtime).runs(root_run_id=root.id)
    assert [run.status for run in runs] == ["succeeded"] * 3
    assert ran == ["before", "after"]


async def test_a_workflow_that_runs_itself_is_stopped(runtime: Runtime) -> None:
    async def deeper(w: WorkflowContext) -> Any:
        return await w.workflow("self", Workflow(deeper))

    with pytest.raises(NodeFailed, match="nested deeper than 10 runs"):
        await runtime.run(Workflow(deeper), "Go.", thread="t")
    [root] = await local(runtime).runs(thread_id="t")
    assert len(await local(runtime).runs(root_run_id=root.id)) == 11


# Whether a resumed run is the same


async def failing_after(runtime: Runtime, flow: Workflow) -> Run:
    """Run a workflow on a thread of its own until it fails; return its run."""
    with pytest.raises(ValueError, match="later"):
        await runtime.run(flow, "Go.", thread="t")
    [run] = await local(runtime).runs(thread_id="t")
    return run


async def later(w: WorkflowContext) -> None:
    """Ask for two nodes, then fail."""
    await w.call("a", int, 1)
    await w.call("b", int, 2)
    raise ValueError("later")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([("a", 1), ("c", 3)], "has the node 'b'"),
        ([("a", 1), ("b", 3)], "'b' .* other input"),
        ([("a", 1)], "did not ask for it"),
        ([("b", 2), ("a", 1)], None),
    ],
)
async def test_a_workflow_that_asks_for_something_else_than_before_is_stopped(
    runtime: Runtime, asked: list[tuple[str, int]], told: str | None
) -> None:
    run = await failing_after(runtime, Workflow(later))

    async def other(w: WorkflowContext) -> str:
        for name, value in asked:
            try:
                await w.call(name, int, value)
            except Exception:
                return "swallowed"
        return "done"

    if told is None:
        assert (await runtime.resume(run.id, Workflow(other))).output == "done"
        return
    with pytest.raises(WorkflowDiverged, match=told) as error:
        await runtime.resume(run.id, Workflow(other))
    assert "deterministic" in error.value.cure
    assert (await local(runtime).run(run.id)).status == "failed"


async def test_bad_workflows_and_nodes_are_told() -> None:
    with pytest.raises(ConfigError, match="no async function"):
        Workflow(lambda w: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="'my flow' is no name"):
        Workflow(later, name="my flow")
    with pytest.raises(ConfigError, match="negative"):
        Workflow(later, history_messages=-1)


async def test_a_bad_name_of_a_node_is_told_before_anything_runs(runtime: Runtime) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> None:
        with pytest.raises(ConfigError, match="'no name' is no name for a node"):
            await w.call("no name", int)
        with pytest.raises(ConfigError, match="'' is no name for a node"):
            await w.agent("", ECHO)

    assert (await runtime.run(flow, "Go.")).steps == 0


# The thread of a user and a workflow


async def test_a_user_and_a_workflow_have_one_thread_whose_turns_are_kept_once(
    runtime: Runtime,
) -> None:
    histories: list[list[str]] = []

    @Workflow
    async def chat(w: WorkflowContext) -> str:
        histories.append(texts(w.history))
        await w.call("nothing", int)
        return await w.agent("answer", answering(f"Answer {len(w.history)}."))

    first, second = [await runtime.run(chat, text) for text in ("Hello.", "More.")]
    assert first.thread_id == second.thread_id
    other = await runtime.run(chat, "Hello.", user="ada")
    assert histories == [[], ["Hello.", "Answer 0."], []]
    renamed = await runtime.run(Workflow(chat.flow, name="other"), "Hello.")
    apart = await runtime.run(Workflow(chat.flow, name="chat", one_thread=False), "Hello.")
    assert len({first.thread_id, renamed.thread_id, apart.thread_id}) == 3
    with pytest.raises(NotFound):
        await runtime.store.of("ada").run(first.run_id)
    assert (await runtime.store.of("ada").run(other.run_id)).thread_id == other.thread_id
    thread = await local(runtime).thread(first.thread_id)
    nodes = await local(runtime).branch(thread.id, thread.head or 0)
    said = [(one.role, decode_message(one.body).text) for one in nodes if one.kind == "message"]
    assert said == [
        ("user", "Hello."),
        ("assistant", "Answer 0."),
        ("user", "More."),
        ("assistant", "Answer 2."),
    ]
    assert all(node.tokens > 0 for node in nodes)


async def test_the_thread_is_found_by_all_who_look_at_once(database_url: str) -> None:
    @Workflow
    async def chat(w: WorkflowContext) -> str:
        return w.thread_id

    found: list[str] = []

    async def ask(runtime: Runtime) -> None:
        with anyio.fail_after(60):
            while True:
                try:
                    found.append((await runtime.run(chat, "Hello.")).output)
                except Conflict:
                    await anyio.lowlevel.checkpoint()
                else:
                    return

    settings = Settings(database_url=database_url)
    async with (
        Runtime.open(settings) as one,
        Runtime.open(settings) as two,
        anyio.create_task_group() as group,
    ):
        for runtime in (one, two, one, two):
            group.start_soon(ask, runtime)
    assert len(found) == 4 and len(set(found)) == 1
    async with Runtime.open(settings) as runtime:
        assert [one.id for one in await local(runtime).threads()] == [found[0]]


async def test_the_history_that_is_loaded_has_limits(runtime: Runtime) -> None:
    histories: list[list[str]] = []

    async def chat(w: WorkflowContext) -> str:
        histories.append(texts(w.history))
        for _ in range(4):
            await w.call("busy", int)
        return "word " * 40 if w.input == "Long." else "Yes."

    async def turn(text: str, **limits: Any) -> list[str]:
        await runtime.run(Workflow(chat, **limits), text, thread="t")
        return histories[-1]

    for number in range(12):
        await turn(f"{number}")
    # 20 messages are ten turns; with an odd limit, it begins at a message of the user.
    assert [one for one in await turn("Long.") if one != "Yes."] == [
        str(number) for number in range(2, 12)
    ]
    assert await turn("?", history_messages=3) == ["Long.", "word " * 40]
    assert await turn("?", history_messages=5) == ["Long.", "word " * 40, "?", "Yes."]
    assert await turn("?", history_tokens=40) == ["?", "Yes."] * 2
    assert await turn("?", history_messages=0) == []


async def test_the_history_that_an_agent_sees_is_cut_to_its_window_before_each_call(
    runtime: Runtime,
) -> None:
    model = ScriptedModel([say("Short.")], window=8_000)

    @Workflow
    async def chat(w: WorkflowContext) -> str:
        if w.input != "And now?":
            return "An answer. " * 400
        said = [PromptMessage("user", one.text) for one in w.messages]
        assert count_messages_tokens(said) > 8_000
        return await w.agent("answer", Agent(model), history=True)

    for number in range(8):
        await runtime.run(chat, f"Question {number}.")
    assert (await runtime.run(chat, "And now?")).output == "Short."
    request = model.requests[0]
    assert count_messages_tokens(request.messages) <= 6_000
    assert request.messages[-1].text == "And now?"
    assert "Question 7." in "".join(one.text for one in request.messages)


async def test_an_agent_can_go_on_with_a_workflows_thread(database_url: str) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> str:
        await w.call("work", str, "what it gave")
        return "Answer."

    model = ScriptedModel([say("Gone on.")])
    async with Runtime.open(Settings(database_url=database_url, last_messages=4)) as runtime:
        for _ in range(6):
            await runtime.run(flow, "Go.", thread="t")
        assert (await runtime.run(Agent(model), "Then?", thread="t")).output == "Gone on."
        events = await local(runtime).events("t")
    assert [one.text for one in model.requests[0].messages][-2:] == ["Answer.", "Then?"]
    # A run does not read all that came before: what prompts begin with moves on with the turns.
    assert [one.data["cause"] for one in events if one.kind == "activation"].count("messages") >= 1
    assert len(model.requests[0].messages) < 6 * 4


async def test_a_workflow_streams_the_events_of_its_nodes(runtime: Runtime) -> None:
    @Workflow
    async def flow(w: WorkflowContext) -> str:
        await w.call("count", len, "four")
        return await w.agent("write", answering("Text."))

    events: list[Event] = []
    async with runtime.stream(flow, "Go.") as stream:
        async for event in stream:
            events.append(event)
    assert stream.result.output == "Text."
    own = [one for one in events if one.run_id == stream.run_id]
    assert [one.kind for one in own if one.kind.startswith(("run", "tool"))] == [
        "run-start",
        "tool-start",
        "tool-finish",
        "tool-start",
        "tool-finish",
        "run-finish",
    ]
    assert [one.data["tool"] for one in own if one.kind == "tool-start"] == ["count", "write"]
    assert [one.kind for one in events].count("run-start") == 2


async def test_an_agent_with_a_nodes_memory_goes_on_from_its_iterations(runtime: Runtime) -> None:
    agent = Agent(ScriptedModel(echo), name="critic", memory=MemoryMode.NODE)

    @Workflow
    async def flow(w: WorkflowContext) -> list[str]:
        return [await w.agent("critic", agent, text) for text in ("One?", "Two?")]

    assert (await runtime.run(flow, "Go.")).output == ["One?", "One? | One? | Two?"]
    assert (await runtime.run(flow, "Go.")).output[0].startswith("One? | One? | Two? | One?")
