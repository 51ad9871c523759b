"""Functions of a workflow that need an approval: the run waits, and nothing runs unasked."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from agent_runtime import (
    Agent,
    Decision,
    Question,
    Runtime,
    ScriptedModel,
    Settings,
    ToolContext,
    Workflow,
    WorkflowContext,
    tool,
)
from agent_runtime.errors import NodeFailed, QuestionClosed, QuestionsOpen
from agent_runtime.models.scripted import call, say
from agent_runtime.tools.base import REFUSED
from agent_runtime_storage.contract.records.log import LeaseOwner

ran: list[str] = []
FILE = pytest.mark.backends("file")


@pytest.fixture(autouse=True)
def forget() -> None:
    """Clear the record of calls."""
    ran.clear()


@tool(needs_approval=True)
def ship(version: str, mode: str = "production") -> str:
    """Ship a version."""
    ran.append(version)
    return f"{version} in {mode}"


def check(version: str) -> str:
    """Check a version."""
    ran.append(f"checked {version}")
    return "checked"


@Workflow
async def release(w: WorkflowContext) -> list[Any]:
    """Check and ship at once, then check again."""
    both = await w.gather(w.call("ship", ship, "7"), w.call("check", check, "7"))
    return [*both, await w.call("check", check, "8")]


@pytest.mark.backends("file", "postgres")
@pytest.mark.parametrize("allow", [True, False])
async def test_a_function_waits_for_its_approval(database_url: str, allow: bool) -> None:
    settings = Settings(database_url=database_url)
    async with Runtime.open(settings) as runtime:
        waits = await runtime.run(release, "Go.", thread="t")
        [question] = waits.questions
        assert (waits.status, waits.stop_reason) == ("suspended", "awaiting_user")
        assert (question.tool, question.text) == ("ship", "May the workflow release call ship?")
        # All that it would be called with, defaults included.
        assert question.arguments == {"version": "7", "mode": "production"}
        assert ran == ["checked 7"]
        with pytest.raises(QuestionsOpen):
            await runtime.resume(waits.run_id, release)

    async with Runtime.open(settings) as runtime:
        assert await runtime.answer(question.id, Decision(allow, "Because."))
        assert [run.id for run in (await runtime.sweep()).resumable] == [waits.run_id]
        if allow:
            result = await runtime.resume(waits.run_id, release)
            assert result.require_output() == ["7 in production", "checked", "checked"]
            # Each ran once, the shipped one after the answer.
            assert ran == ["checked 7", "7", "checked 8"]
        else:
            with pytest.raises(NodeFailed, match=r"did not allow this call.*Because\."):
                await runtime.resume(waits.run_id, release)
            assert ran == ["checked 7"]


@FILE
async def test_a_workflow_that_ended_by_a_refusal_asks_anew_when_it_is_resumed(
    runtime: Runtime,
) -> None:
    waits = await runtime.run(release, "Go.", thread="t")
    await runtime.answer(waits.questions[0].id, False)
    with pytest.raises(NodeFailed):
        await runtime.resume(waits.run_id, release)

    again = await runtime.resume(waits.run_id, release)

    [question] = again.questions
    assert question.id != waits.questions[0].id and ran == ["checked 7"]
    await runtime.answer(question.id, True)
    assert (await runtime.resume(waits.run_id, release)).ok
    assert ran == ["checked 7", "7", "checked 8"]


@FILE
async def test_an_approval_holds_for_one_iteration_with_these_arguments(runtime: Runtime) -> None:
    @Workflow
    async def loop(w: WorkflowContext) -> list[str]:
        return [await w.call("ship", ship, str(number)) for number in range(3)]

    asked: list[Any] = []

    async def allow(question: Question) -> Decision:
        asked.append((question.arguments["version"], list(ran)))
        return Decision(True)

    result = await runtime.run(loop, "Go.", on_question=allow)
    assert result.require_output() == [f"{number} in production" for number in range(3)]
    # Each was asked about before it ran.
    assert asked == [("0", []), ("1", ["0"]), ("2", ["0", "1"])]


@FILE
async def test_an_approval_for_the_thread_covers_the_same_node_of_the_same_workflow(
    runtime: Runtime,
) -> None:
    async def loop(w: WorkflowContext) -> list[str]:
        return [await w.call("ship", ship, str(number)) for number in range(3)]

    questions: list[Question] = []

    async def always(question: Question) -> Decision:
        questions.append(question)
        return Decision(True, remember=True)

    result = await runtime.run(Workflow(loop, name="loop"), "Go.", thread="t", on_question=always)
    assert result.ok and len(questions) == 1
    [kept] = await runtime.approvals("t")
    assert (kept.tool, kept.agent) == ("ship", "workflow loop")
    # Another workflow on the thread asks.
    other = await runtime.run(Workflow(loop, name="other"), "Go.", thread="t")
    assert len(other.questions) == 1


@FILE
async def test_what_changed_since_the_answer_is_asked_about_again(runtime: Runtime) -> None:
    def flow(effect: str) -> Workflow:
        @tool(needs_approval=True)
        def act() -> str:
            """Act."""
            ran.append(effect)
            return effect

        async def acting(w: WorkflowContext) -> str:
            return await w.call("act", act)

        return Workflow(acting, name="acting")

    waits = await runtime.run(flow("delete one"), "Go.")
    await runtime.answer(waits.questions[0].id, True)
    again = await runtime.resume(waits.run_id, flow("delete all"))
    assert ran == [] and again.status == "suspended"
    await runtime.answer(again.questions[0].id, True)
    assert (await runtime.resume(waits.run_id, flow("delete all"))).ok
    assert ran == ["delete all"]


@FILE
async def test_rules_of_the_settings_ask_about_plain_functions(database_url: str) -> None:
    settings = Settings(database_url=database_url, approve="check:version=8*")
    async with Runtime.open(settings) as runtime:
        waits = await runtime.run(release, "Go.")
        await runtime.answer(waits.questions[0].id, True)
        again = await runtime.resume(waits.run_id, release)
        [question] = again.questions
        assert (question.tool, question.arguments) == ("check", {"version": "8"})
        assert ran == ["checked 7", "7"]
    # A setting that is taken back does not let pass what a person was asked about.
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        await runtime.answer(question.id, False)
        with pytest.raises(NodeFailed, match="did not allow"):
            await runtime.resume(waits.run_id, release)
    assert ran == ["checked 7", "7"]


def pay(amount: int, to: str = "bank") -> str:
    """Pay an amount."""
    ran.append(f"{amount} to {to}")
    return "paid"


@FILE
@pytest.mark.parametrize("way", ["partial", "closure"])
async def test_what_a_function_holds_is_shown_or_bound(database_url: str, way: str) -> None:
    def flow(amount: int) -> Workflow:
        def captured() -> str:
            return pay(amount)

        function = partial(pay, amount) if way == "partial" else captured

        async def paying(w: WorkflowContext) -> str:
            return await w.call("node", function)

        return Workflow(paying, name="paying")

    # By the function's own name, whatever the node is called.
    rule = "pay:amount=5*" if way == "partial" else "captured"
    async with Runtime.open(Settings(database_url=database_url, approve=rule)) as runtime:
        waits = await runtime.run(flow(5), "Go.")
        [question] = waits.questions
        assert question.arguments == ({"amount": 5, "to": "bank"} if way == "partial" else {})
        await runtime.answer(question.id, True)
        # Changed since, it is asked about again.
        again = await runtime.resume(waits.run_id, flow(5000))
        assert len(again.questions) == 1 and ran == []
        await runtime.answer(again.questions[0].id, False)
        with pytest.raises(NodeFailed):
            await runtime.resume(waits.run_id, flow(5000))
    assert ran == []


@FILE
async def test_a_rule_about_an_argument_that_the_function_has_not_asks(database_url: str) -> None:
    settings = Settings(database_url=database_url, approve="check:verison=8")
    async with Runtime.open(settings) as runtime:
        waits = await runtime.run(release, "Go.")
    assert sorted(one.tool for one in waits.questions) == ["check", "ship"] and ran == []


@FILE
async def test_a_rule_that_may_match_no_node_is_warned_of(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Which nodes there will be is not known when the run begins, so it is no error."""
    settings = Settings(database_url=database_url, approve="chekc,bash,write_file:path=/etc/*")
    async with Runtime.open(settings) as runtime:
        await runtime.run(release, "Go.")
    [warned] = [one.message for one in caplog.records if "AGENT_RUNTIME_APPROVE" in one.message]
    assert "in rule 1: chekc" in warned and "or a node that name" in warned


@FILE
async def test_a_nested_workflows_function_suspends_all_above(runtime: Runtime) -> None:
    async def outer(w: WorkflowContext) -> Any:
        return await w.workflow("inner", release, "Go.")

    flow = Workflow(outer, name="outer")
    waits = await runtime.run(flow, "Go.", thread="t")
    assert await runtime.questions(thread="t") == list(waits.questions)
    assert await runtime.answer(waits.questions[0].id, True)
    result = await runtime.resume(waits.run_id, flow)
    assert result.require_output() == ["7 in production", "checked", "checked"]


@FILE
async def test_where_nobody_can_be_asked_the_call_is_refused(runtime: Runtime) -> None:
    @tool
    async def through(context: ToolContext) -> str:
        """Run the workflow from a tool, which cannot wait."""
        return str((await context.run_agent(release, "Go.")).status)

    model = ScriptedModel([call("through"), say("Done.")])
    result = await runtime.run(Agent(model, tools=[through]), "Go.")
    runs = await runtime.store.of("local").runs.list(root_run_id=result.run_id)
    assert result.ok and ran == ["checked 7"]
    assert any(REFUSED in run.detail for run in runs)


@pytest.mark.backends("file", "postgres")
async def test_an_answer_after_the_workflow_was_cancelled_is_refused(database_url: str) -> None:
    async with Runtime.open(Settings(database_url=database_url)) as runtime:
        waits = await runtime.run(release, "Go.", thread="t")
        assert await runtime.cancel(waits.run_id) == [waits.run_id]
        with pytest.raises(QuestionClosed, match="withdrawn"):
            await runtime.answer(waits.questions[0].id, True)
        # The approval of a run that was cancelled is void: it asks again.
        again = await runtime.resume(waits.run_id, release)
        assert again.questions and again.questions[0].id != waits.questions[0].id
        assert ran == ["checked 7"]


@FILE
async def test_an_approval_outlives_a_process_that_dies_before_the_function_ran(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = await runtime.run(release, "Go.", thread="t")
    await runtime.answer(waits.questions[0].id, True)
    runs = runtime.store.of("local").runs

    async def die(*args: Any, **more: Any) -> Any:
        """Lose the lease, as a process does that is killed here."""
        run = await runs.get(waits.run_id)
        dead = LeaseOwner(host="there", boot="b2", pid=200, started="s2")
        await runs.take_lease(run.id, dead, seconds=1e-9, replaces=run.epoch)
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("agent_runtime.run.tool_calls._ParallelCalls.run", die)
        with pytest.raises(Exception, match=r"."):
            await runtime.resume(waits.run_id, release)
    assert ran == ["checked 7"]
    result = await runtime.resume(waits.run_id, release, rerun={"ship"})
    assert result.ok and ran == ["checked 7", "7", "checked 8"]
