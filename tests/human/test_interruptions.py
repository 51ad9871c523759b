"""A person decides what is to become of calls and nodes that were interrupted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from agent_runtime import (
    Accept,
    Agent,
    Fail,
    NodeFailed,
    Rerun,
    RunResult,
    ScriptedModel,
    ToolContext,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.errors import AgentRuntimeError, ConfigError, InvalidAnswer, LeaseLost
from agent_runtime.human.interruptions import Resolution
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from tests.delegation.helpers import is_child, step
from tests.human.interrupting import interrupt
from tests.support.worlds import Play, World

pytestmark = pytest.mark.backends("file")
crashes: list[str] = []
"""The names whose next call is interrupted."""
ran: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    """Clear the record of calls."""
    ran.clear()
    crashes.clear()


@tool
async def fetch(name: str, context: ToolContext) -> str:
    """Fetch something."""
    ran.append(name)
    if name in crashes:
        crashes.remove(name)
        await interrupt(context.store, context.run_id)
    return f"{name} fetched"


send = tool(fetch.function, name="send", needs_approval=True)
OPTIONS: Mapping[str, dict[str, Any]] = {
    "rerun": {"rerun": {"fetch"}},
    "accept": {"accept": {"fetch": {"size": 3}}},
    "fail": {"fail": {"fetch": "It never arrived."}},
    "fail, no reason": {"fail": {"fetch"}},
}
ANSWERS: Mapping[str, Resolution] = {
    "rerun": Rerun(),
    "accept": Accept({"size": 3}),
    "fail": Fail("It never arrived."),
    "fail, no reason": Fail(),
}
FAILED = "A person decided that this counts as failed."
RESULTS = {
    "rerun": ("ok", "a fetched"),
    "accept": ("ok", '{"size":3}'),
    "fail": ("error", f"{FAILED} They say: It never arrived."),
    "fail, no reason": ("error", FAILED),
}
WAYS = pytest.mark.parametrize("way", list(OPTIONS))


async def _crash(world: World, agent: Agent, *names: str) -> str:
    crashes[:] = names
    with pytest.raises(LeaseLost):
        await world.run(agent, thread="t")
    assert crashes == []
    return world.run_id


@WAYS
async def test_an_interrupted_call_becomes_what_the_resume_says(play: Play, way: str) -> None:
    agent = Agent(tools=[fetch])
    async with play([call("fetch", name="a"), say("Done.")]) as world:
        run_id = await _crash(world, agent, "a")
        [interrupted] = await world.runtime.interrupted(run_id)
        assert (interrupted.name, interrupted.arguments) == ("fetch", {"name": "a"})

        assert (await world.runtime.resume(run_id, agent, **OPTIONS[way])).ok

        assert await world.results("t") == [RESULTS[way]]
        assert ran == (["a", "a"] if way == "rerun" else ["a"])
        assert await world.runtime.interrupted(run_id) == []
        starts = [one for one in await world.store.events.list("t") if one.kind == "run-start"]
        assert starts[-1].data["decided"] == {interrupted.call_id: way.partition(",")[0]}


@WAYS
async def test_an_interrupted_call_becomes_what_a_person_answers(play: Play, way: str) -> None:
    agent = Agent(tools=[fetch], asking=True)
    async with play([call("fetch", name="a"), say("Done.")]) as world:
        run_id = await _crash(world, agent, "a")
        suspended = await world.runtime.resume(run_id, agent)
        [question] = suspended.questions
        assert (suspended.status, question.kind, question.tool) == (
            "suspended", "interrupted", "fetch",
        )  # fmt: skip
        assert question.arguments == {"name": "a"} and ran == ["a"]
        values = (object(), "x" * 200_000, 10**30, [float("nan")])
        for wrong in (True, "rerun", *map(Accept, values)):
            with pytest.raises(InvalidAnswer):
                await world.runtime.answer(question.id, wrong)
        await world.runtime.answer(question.id, ANSWERS[way])

        assert (await world.runtime.resume(run_id, agent)).ok

        assert await world.results("t") == [RESULTS[way]]
        assert ran == (["a", "a"] if way == "rerun" else ["a"])


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("asking", [True, False])
async def test_a_call_that_is_to_run_again_waits_for_a_new_approval(
    play: Play, asking: bool, allow: bool
) -> None:
    """The rule is new, or the tool has changed, since the call was interrupted."""
    agent = Agent(tools=[fetch], asking=asking)
    now = Agent(tools=[tool(fetch.function, name="fetch", needs_approval=True)], asking=asking)
    async with play([call("fetch", name="a"), say("Done.")]) as world:
        run_id = await _crash(world, agent, "a")
        if asking:
            [question] = (await world.runtime.resume(run_id, now)).questions
            await world.runtime.answer(question.id, Rerun())
            [question] = (await world.runtime.resume(run_id, now)).questions
        else:
            [question] = (await world.runtime.resume(run_id, now, rerun={"fetch"})).questions
        assert question.kind == "approval" and ran == ["a"]
        await world.runtime.answer(question.id, allow)

        assert (await world.runtime.resume(run_id, now)).ok

        [(outcome, _)] = await world.results("t")
        assert (outcome, ran) == (("ok", ["a", "a"]) if allow else ("refused", ["a"]))


@pytest.mark.backends("file", "postgres")
async def test_an_answer_counts_for_one_resume_only(play: Play) -> None:
    agent = Agent(tools=[fetch], asking=True)
    async with play([call("fetch", name="a"), say("Done.")]) as world:
        run_id = await _crash(world, agent, "a")
        [question] = (await world.runtime.resume(run_id, agent)).questions
        await world.runtime.answer(question.id, Rerun())
        crashes.append("a")
        with pytest.raises(LeaseLost):
            await world.runtime.resume(run_id, agent)

        [again] = (await world.runtime.resume(run_id, agent)).questions

        assert again.id != question.id and ran == ["a", "a"]
        await world.runtime.answer(again.id, Accept("Here."))
        assert (await world.runtime.resume(run_id, agent)).ok
        assert await world.results("t") == [("ok", "Here.")] and ran == ["a", "a"]


async def test_without_an_answer_in_time_the_effect_stays_unverified(play: Play) -> None:
    agent = Agent(tools=[fetch], asking=True)
    settings = {"answer_timeout": 1e-9}
    async with play([call("fetch", name="a"), say("Done.")], settings=settings) as world:
        run_id = await _crash(world, agent, "a")
        assert (await world.runtime.resume(run_id, agent)).status == "suspended"
        assert (await world.runtime.resume(run_id, agent)).ok
        [(outcome, _)] = await world.results("t")
        assert outcome == "interrupted" and ran == ["a"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rerun": {"fetsh"}}, "No interrupted call"),
        ({"rerun": "fetch"}, "is a text"),
        ({"fail": "fetch"}, "is a text"),
        ({"rerun": {"fetch"}, "fail": {"fetch"}}, "two decisions"),
        ({"accept": {"fetch": object()}}, "cannot be stored"),
        ({"rerun": {"fetch"}}, "names several"),
        ({"accept": {"other": 1}}, "No interrupted call"),
    ],
)
async def test_a_decision_that_is_not_clear_changes_nothing(
    play: Play, options: dict[str, Any], problem: str
) -> None:
    both = calls(raw_call("fetch", name="a"), raw_call("fetch", name="b"))
    interrupted = anyio.Event()

    async def crash_together(context: ToolContext, name: str) -> str:
        ran.append(name)
        if len(ran) == 2:
            await interrupt(context.store, context.run_id)
            interrupted.set()
        await interrupted.wait()
        return name

    agent = Agent(tools=[tool(crash_together, name="fetch")])
    async with play([both, say("Done.")]) as world:
        with pytest.raises(LeaseLost):
            await world.run(agent, thread="t")
        before = await world.row()
        with pytest.raises(ConfigError, match=problem) as raised:
            await world.runtime.resume(world.run_id, agent, **options)
        assert raised.value.cure and await world.row() == before and ran == ["a", "b"]


async def test_an_approved_call_is_asked_about_and_may_run_again(play: Play) -> None:
    agent = Agent(tools=[send], asking=True)
    async with play([call("send", name="a"), say("Done.")]) as world:
        [approval] = (await world.run(agent, thread="t")).questions
        await world.runtime.answer(approval.id, True)
        crashes.append("a")
        with pytest.raises(LeaseLost):
            await world.resume(agent)
        [question] = (await world.resume(agent)).questions
        assert question.kind == "interrupted"
        await world.runtime.answer(question.id, Rerun())
        assert (await world.resume(agent)).ok and ran == ["a", "a"]


# Workflows


async def _node(w: WorkflowContext, name: str) -> str:
    ran.append(name)
    if name in crashes:
        crashes.remove(name)
        await interrupt(w.deps, w.run_id)
    return f"{name} fetched"


async def _untyped(w: WorkflowContext, name: str) -> Any:
    return await _node(w, name)


async def _number(w: WorkflowContext, name: str) -> int:
    await _node(w, name)
    return 7


def _flow(function: Callable[..., Any] = _node, *, asking: bool = False) -> Workflow:
    async def flow(w: WorkflowContext) -> list[Any]:
        first = await w.call("before", _node, w, "before")
        return [first, await w.call("fetch", function, w, "a"), await w.call("last", _node, w, "z")]

    return Workflow(flow, asking=asking)


async def _start(world: World, flow: Workflow) -> str:
    crashes.append("a")
    events = world.events.append
    with pytest.raises(LeaseLost):
        await world.runtime.run(flow, "Go.", thread="t", deps=world.store, on_event=events)
    return world.run_id


async def _go_on(world: World, flow: Workflow, **options: Any) -> RunResult:
    return await world.runtime.resume(world.run_id, flow, deps=world.store, **options)


VALUES = {"rerun": "a fetched", "accept": {"size": 3}}


@WAYS
async def test_an_interrupted_node_becomes_what_the_resume_says(play: Play, way: str) -> None:
    async with play([]) as world:
        flow = _flow()
        run_id = await _start(world, flow)
        # Twice, as whoever reads the error resumes with what it says.
        for _ in range(2):
            with pytest.raises(NodeFailed, match="unverified") as failed:
                await _go_on(world, flow)
            assert "rerun={'fetch'}" in failed.value.cure
        [interrupted] = await world.runtime.interrupted(run_id)
        assert (interrupted.name, interrupted.arguments["iteration"]) == ("fetch", 1)
        options = OPTIONS[way]
        if way == "accept":
            # No annotation of the function may refuse it.
            flow = _flow(_untyped)
        if way in VALUES:
            assert (await _go_on(world, flow, **options)).require_output()[1] == VALUES[way]
            assert ran == ["before", *(["a", "a"] if way == "rerun" else ["a"]), "z"]
        else:
            with pytest.raises(NodeFailed, match="counts as failed"):
                await _go_on(world, flow, **options)
            assert ran == ["before", "a"]
        assert await world.runtime.interrupted(run_id) == []


async def test_a_value_that_does_not_fit_the_node_is_not_recorded(play: Play) -> None:
    async with play([]) as world:
        flow = _flow(_number)
        await _start(world, flow)
        with pytest.raises(ConfigError, match="does not allow"):
            await _go_on(world, flow, accept={"fetch": "seven"})
        result = await _go_on(world, flow, accept={"fetch": 8})
        assert result.output == ["before fetched", 8, "z fetched"] and ran == ["before", "a", "z"]


@WAYS
async def test_a_workflow_that_asks_waits_for_the_answer(play: Play, way: str) -> None:
    async with play([]) as world:
        flow = _flow(_untyped, asking=True)
        run_id = await _start(world, flow)
        [question] = (await _go_on(world, flow)).questions
        assert (question.kind, question.tool) == ("interrupted", "fetch") and ran == ["before", "a"]
        with pytest.raises(AgentRuntimeError, match="waits for answers"):
            await _go_on(world, flow)
        await world.runtime.answer(question.id, ANSWERS[way])
        if way in VALUES:
            assert (await _go_on(world, flow)).require_output()[1] == VALUES[way]
            assert ran == ["before", *(["a", "a"] if way == "rerun" else ["a"]), "z"]
        else:
            with pytest.raises(NodeFailed, match="counts as failed"):
                await _go_on(world, flow)
        assert await world.runtime.interrupted(run_id) == []


async def test_a_node_that_is_interrupted_again_is_asked_about_again(play: Play) -> None:
    async with play([], settings={"answer_timeout": 3600}) as world:
        flow = _flow(asking=True)
        await _start(world, flow)
        [question] = (await _go_on(world, flow)).questions
        await world.runtime.answer(question.id, Rerun())
        crashes.append("a")
        with pytest.raises(LeaseLost):
            await _go_on(world, flow)
        [again] = (await _go_on(world, flow)).questions
        assert again.id != question.id and ran == ["before", "a", "a"]
        await world.runtime.answer(again.id, Rerun())
        assert (await _go_on(world, flow)).ok and ran == ["before", "a", "a", "a", "z"]


@tool
async def post(name: str, context: ToolContext) -> str:
    """Post something; the first time the process dies, and with it the whole tree of runs."""
    ran.append(name)
    if name in crashes:
        crashes.remove(name)
        run = await context.store.runs.get(context.run_id)
        # The root first, and no end before both: a root that sees its child lose a lease goes on.
        with anyio.CancelScope(shield=True):
            for run_id in (run.root_run_id, run.id):
                await interrupt(context.store, run_id)
    return f"{name} posted"


def order(*tools: str) -> Any:
    """Return a call that delegates a task."""
    return raw_call("delegate", role="worker", instructions="Work.", tools=list(tools))


def working(request: ModelRequest) -> Scripted:
    """Delegate to one sub-agent after another, or post as one of them."""
    done = step(request)
    if is_child(request):
        return say("Posted.") if done else calls(raw_call("post", name="a"))
    return say("Done.") if done else calls(order("post"))


@pytest.mark.parametrize("named", ["by name", "by id"])
@pytest.mark.parametrize("way", ["rerun", "accept", "fail"])
async def test_an_interrupted_call_of_a_sub_agent_is_decided_with_its_root(
    play: Play, way: str, named: str
) -> None:
    agent = Agent(tools=[post], delegation=True)
    async with play(working) as world:
        crashes.append("a")
        with pytest.raises(LeaseLost):
            await world.run(agent, thread="t")
        [root] = await world.store.runs.list(thread_id="t")
        [child] = await world.store.runs.list(parent_run_id=root.id)

        delegating, posting = await world.runtime.interrupted(root.id)
        assert (delegating.name, delegating.run_id) == ("delegate", root.id)
        assert (posting.name, posting.run_id) == ("post", child.id)
        # Both are the first call of their thread, so the id alone names the root's own.
        assert posting.call_id == delegating.call_id != posting.id
        with pytest.raises(ConfigError, match=f"called 'send'.* post \\({posting.id}\\)"):
            await world.runtime.resume(root.id, agent, rerun={"send"})

        name = "post" if named == "by name" else posting.id
        given: dict[str, Any] = {"rerun": {name}, "accept": {name: "Seen."}, "fail": {name: "No."}}
        assert (await world.runtime.resume(root.id, agent, **{way: given[way]})).ok

        expected = {
            "rerun": ("ok", "a posted"),
            "accept": ("ok", "Seen."),
            "fail": ("error", f"{FAILED} They say: No."),
        }
        assert await world.results(child.thread_id) == [expected[way]]
        assert ran == (["a", "a"] if way == "rerun" else ["a"])
        assert await world.runtime.interrupted(root.id) == []


async def test_a_call_of_a_workflow_s_agent_is_decided_with_the_workflow(play: Play) -> None:
    poster = Agent(ScriptedModel([call("post", name="a"), say("Posted.")] * 2), tools=[post])

    async def flow(context: WorkflowContext) -> str:
        return str(await context.agent("poster", poster))

    workflow = Workflow(flow)
    async with play() as world:
        crashes.append("a")
        with pytest.raises(LeaseLost):
            await world.runtime.run(workflow, "Post.", thread="t")
        [root] = await world.store.runs.list(thread_id="t")
        node, posting = await world.runtime.interrupted(root.id)
        assert (node.name, posting.name, ran) == ("poster", "post", ["a"])

        assert (await world.runtime.resume(root.id, workflow, rerun={"post"})).ok

        child = await world.store.runs.get(posting.run_id)
        assert await world.results(child.thread_id) == [("ok", "a posted")]
        assert ran == ["a", "a"]


async def test_a_call_may_have_any_argument_called_iteration(play: Play) -> None:
    """The arguments of a workflow's nodes have one, which is a number."""

    @tool
    async def repeat(iteration: list[int], context: ToolContext) -> str:
        """Die with the process."""
        await interrupt(context.store, context.run_id)
        return str(iteration)

    async with play([call("repeat", iteration=[1])]) as world:
        with pytest.raises(LeaseLost):
            await world.run(Agent(tools=[repeat]), thread="t")
        [found] = await world.runtime.interrupted(world.run_id)
        assert found.arguments == {"iteration": [1]}
