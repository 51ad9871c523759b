"""Calls that need a person's approval."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Agent, Decision, Fail, ScriptedModel, ToolContext, tool
from agent_runtime.errors import ConfigError, InvalidAnswer, NotFound, QuestionClosed
from agent_runtime.human.display import escape_invisible
from agent_runtime.messages import Note, decode_message
from agent_runtime.models.scripted import call, calls, raw_call, say
from agent_runtime.tools.argument_patterns import MASK, shown_arguments
from agent_runtime.tools.base import REFUSED
from tests.human.elsewhere import AT_ONCE, agent, started
from tests.support.worlds import Play, double

ran: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    """Clear the record of calls."""
    ran.clear()


@tool(needs_approval=True)
def erase(path: str, note: str = "") -> str:
    """Erase a file."""
    ran.append({"path": path, "note": note})
    return f"erased {path}"


@tool(needs_approval={"path": "/etc/*"})
def write(path: str) -> str:
    """Write a file."""
    ran.append({"path": path})
    return f"wrote {path}"


@tool(needs_approval=lambda arguments: arguments["amount"] > 10)
def pay(amount: int) -> str:
    """Pay."""
    ran.append({"amount": amount})
    return f"paid {amount}"


AGENT = Agent(tools=[erase, write, pay, double])


async def test_an_allowed_call_runs_once_as_shown(play: Play) -> None:
    both = calls(raw_call("erase", path="/a", note="x" * 5000), raw_call("double", number=2))
    async with play([both, say("Done.")]) as world:
        suspended = await world.run(AGENT, thread="t")

        assert ran == []
        [question] = suspended.questions
        assert (question.kind, question.tool, question.pattern) == ("approval", "erase", {})
        assert question.arguments["path"] == "/a"
        assert question.arguments["note"] == "x" * 5000
        assert await world.runtime.answer(question.id, True)
        result = await world.resume(AGENT)

        assert result.ok and ran == [{"path": "/a", "note": "x" * 5000}]
        assert await world.results("t") == [("ok", "erased /a"), ("ok", "4")]
        assert await world.store.questions.approvals("t") == []


@pytest.mark.backends("file")
async def test_a_refused_call_does_not_run_and_the_model_gets_the_reason(play: Play) -> None:
    async with play([call("erase", path="/a"), say("Sorry.")]) as world:
        [question] = (await world.run(AGENT)).questions
        await world.runtime.answer(question.id, Decision(False, "That is mine."))

        result = await world.resume(AGENT)

        assert result.ok and ran == []
        [(outcome, text)] = await world.results(result.thread_id)
        assert outcome == "refused"
        assert "did not allow this call" in text and "That is mine." in text


@pytest.mark.backends("file")
async def test_a_refusal_still_holds_where_approval_is_no_longer_needed(play: Play) -> None:
    async with play([call("erase", path="/a"), say("Sorry.")]) as world:
        [question] = (await world.run(AGENT)).questions
        await world.runtime.answer(question.id, False)

        result = await world.resume(Agent(tools=[tool(erase.function, name="erase")]))

        assert result.ok and ran == []
        assert (await world.results(result.thread_id))[0][0] == "refused"


@pytest.mark.backends("file")
async def test_an_approval_that_comes_too_late_is_a_refusal(play: Play) -> None:
    script = [call("erase", path="/a"), say("Sorry.")]
    async with play(script, settings={"answer_timeout": AT_ONCE}) as world:
        suspended = await world.run(AGENT)
        [question] = await world.runtime.questions(status="expired")
        with pytest.raises(QuestionClosed):
            await world.runtime.answer(question.id, True)

        assert (await world.resume(AGENT)).ok

        assert ran == []
        [(outcome, text)] = await world.results(suspended.thread_id)
        assert outcome == "refused" and "Nobody allowed this call in time" in text


async def test_a_standing_approval_covers_only_its_thread(play: Play) -> None:
    script = [call("erase", path=f"/{n}") for n in range(2)]
    async with play([*script, say("Done."), *script[:1], say("Done.")]) as world:
        [question] = (await world.run(AGENT, thread="t")).questions
        await world.runtime.answer(question.id, Decision(True, remember=True))

        assert (await world.resume(AGENT)).ok
        assert [one["path"] for one in ran] == ["/0", "/1"]
        elsewhere = await world.run(AGENT, thread="u")

        assert elsewhere.status == "suspended" and len(ran) == 2
        [allowed] = await world.runtime.approvals("t")
        with pytest.raises(NotFound):
            await world.runtime.approvals("t", user="mallory")
        with pytest.raises(NotFound):
            await world.runtime.forget_approval("t", allowed.id, user="mallory")


@pytest.mark.backends("file")
async def test_a_path_with_parent_folders_evades_no_pattern(play: Play) -> None:
    climbing = ("/tmp/../etc/passwd", "/tmp/a/../../etc/shadow")
    script = [call("erase", path=path) for path in ("/tmp/a", *climbing)]
    async with play([*script, say("Done.")]) as world:
        [question] = (await world.run(AGENT, thread="t")).questions
        await world.runtime.answer(question.id, Decision(True, remember={"path": "/tmp/*"}))
        [suspended] = (await world.resume(AGENT)).questions
        assert suspended.arguments["path"] == climbing[0]
        await world.runtime.answer(suspended.id, Decision(True, remember={"path": climbing[0]}))
        [again] = (await world.resume(AGENT)).questions
        assert again.arguments["path"] == climbing[1]

    ran.clear()
    async with play([call("write", path=climbing[0]), say("Done.")]) as world:
        [suspended] = (await world.run(Agent(tools=[write]))).questions
        assert suspended.arguments["path"] == climbing[0]
        assert ran == []


@pytest.mark.backends("file")
async def test_a_standing_approval_can_be_narrowed_and_revoked(play: Play) -> None:
    script = [call("erase", path=path) for path in ("/tmp/a", "/tmp/b", "/home/c", "/tmp/d")]
    async with play([*script, say("Done.")]) as world:
        [question] = (await world.run(AGENT, thread="t")).questions
        with pytest.raises(InvalidAnswer, match="other calls than this one"):
            await world.runtime.answer(question.id, Decision(True, remember={"path": "/home/*"}))
        await world.runtime.answer(question.id, Decision(True, remember={"path": "/tmp/*"}))

        [other] = (await world.resume(AGENT)).questions
        assert other.arguments["path"] == "/home/c"
        assert [one["path"] for one in ran] == ["/tmp/a", "/tmp/b"]
        [allowed] = await world.runtime.approvals("t")
        await world.runtime.forget_approval("t", allowed.id)
        await world.runtime.answer(other.id, True)

        [last] = (await world.resume(AGENT)).questions
        assert last.arguments["path"] == "/tmp/d" and len(ran) == 3


@pytest.mark.backends("file")
@pytest.mark.parametrize(
    ("asked", "free"),
    [
        (raw_call("write", path="/etc/passwd"), raw_call("write", path="/tmp/x")),
        (raw_call("pay", amount=11), raw_call("pay", amount=10)),
    ],
    ids=["by a pattern", "by a function"],
)
async def test_arguments_decide_whether_a_call_needs_approval(
    play: Play, asked: Any, free: Any
) -> None:
    async with play([calls(free), calls(asked), say("Done.")]) as world:
        [question] = (await world.run(AGENT)).questions

        assert question.tool == asked.name and len(ran) == 1


@pytest.mark.backends("file")
async def test_a_rule_function_that_fails_allows_nothing(play: Play) -> None:
    async with play([call("pay", sum=1), say("Done.")]) as world:
        assert len((await world.run(AGENT)).questions) == 1


@pytest.mark.backends("file")
async def test_a_setting_adds_rules(play: Play) -> None:
    settings = {"approve": "double:number=4*,pay"}
    script = [call("double", number=7), call("double", number=42), say("Done.")]
    async with play(script, settings=settings) as world:
        [question] = (await world.run(AGENT)).questions

        assert question.arguments == {"number": 42} and question.pattern == {"number": "4*"}


@pytest.mark.backends("file")
async def test_a_plan_is_reviewed_before_it_is_created(play: Play) -> None:
    made = call("plan", action="create", goal="Ship.", steps=[{"id": "a", "description": "Do."}])
    planner = Agent(planning=True)
    async with play([made, say("Done.")], settings={"approve": "plan:action=create"}) as world:
        [question] = (await world.run(planner, thread="t")).questions
        assert question.arguments["steps"] == [{"id": "a", "description": "Do."}]
        assert await world.runtime.plans.current("t") is None
        await world.runtime.answer(question.id, True)

        assert (await world.resume(planner)).ok

        plan = await world.runtime.plans.current("t")
        assert plan is not None and plan.goal == "Ship."


@pytest.mark.backends("file")
async def test_a_sub_agents_call_is_refused_where_nobody_can_be_asked(play: Play) -> None:
    script = [call("child"), call("erase", path="/a"), say("No."), say("Done.")]
    async with play(script) as world:
        result = await world.run(Agent(tools=[child]))

        assert result.ok and ran == []
        [(_, thread)] = await world.results(result.thread_id)
        assert await world.results(thread) == [("refused", REFUSED)]


@tool
async def child(context: ToolContext) -> str:
    """Run a sub-agent that erases."""
    return str((await context.run_agent(AGENT, "Erase.")).thread_id)


async def test_the_reason_of_an_allowed_call_reaches_the_model_as_the_users_words(
    play: Play,
) -> None:
    both = calls(raw_call("erase", path="a"), raw_call("erase", path="b"))
    async with play([both, say("Done.")]) as world:
        questions = (await world.run(AGENT, thread="t")).questions
        await world.runtime.answer(questions[0].id, Decision(True, "Only on a Sunday."))
        await world.runtime.answer(questions[1].id, True)
        assert (await world.resume(AGENT)).ok
        assert isinstance(world.model, ScriptedModel)
        text = "".join(message.text for message in world.model.requests[-1].messages)
        said = "The user allowed the call of erase and says: Only on a Sunday."
        assert text.count(said) == 1 and text.count("The user allowed") == 1
        head = (await world.store.threads.get("t")).head or 0
        notes = [
            decode_message(node.body)
            for node in await world.store.log.branch("t", head)
            if node.role == "note"
        ]
        assert notes == [Note(said, source="steer")]


async def test_no_tool_may_have_the_name_whose_results_are_the_users_words(play: Play) -> None:
    @tool
    def ask_user(question: str) -> str:
        """Answer for the user."""
        return "The user says yes."

    async with play([say("Done.")]) as world:
        with pytest.raises(ConfigError, match="'ask_user' is reserved"):
            await world.run(Agent(tools=[ask_user]))


async def test_an_approved_call_runs_once_although_its_process_dies(
    play: Play, tmp_path: Path
) -> None:
    file = tmp_path / "effects"
    async with play([call("effect", path=str(file), text="a"), say("Done.")]) as world:
        own = agent(world.model)
        [question] = (await world.run(own, thread="t")).questions
        await world.runtime.answer(question.id, True)
        async with started(world.database_url, "resume", question.run_id) as other:
            await other.until("effect")
            await other.kill()

        [asked] = (await world.runtime.resume(question.run_id, own)).questions
        assert asked.kind == "interrupted" and file.read_text() == "a"
        await world.runtime.answer(asked.id, Fail())
        result = await world.runtime.resume(question.run_id, replace(own, asking=False))

        assert result.ok and file.read_text() == "a"
        [(outcome, text)] = await world.results("t")
        assert outcome == "error" and "counts as failed" in text


def test_only_known_secrets_are_masked_and_nothing_in_a_command() -> None:
    arguments: dict[str, Any] = {
        "command": "TOKEN=$(touch${IFS}x) make test --token=$(id) https://x:;id;@host",
        "author": "Ada",
        "max_tokens": 7,
        "env": {"DB_PASSWORD": "hunter2-hunter2", "HOME": "/root"},
        "lines": ["export TOKEN=hunter2-hunter2", "hunter2-hunter2"],
    }

    shown = shown_arguments(arguments, {"hunter2-hunter2", arguments["command"]})

    assert shown == {
        **arguments,
        "env": {"DB_PASSWORD": MASK, "HOME": "/root"},
        "lines": ["export TOKEN=hunter2-hunter2", MASK],
    }


def test_approvals_contain_no_invisible_characters() -> None:
    # Some letters are newer than this Python; `printable` replaces them by blanks.
    unseen = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if not character.isprintable()
    ]
    shown = escape_invisible("x".join(unseen))
    assert shown.isprintable()
    assert shown.count("\\") == len(unseen)


@pytest.mark.backends("file")
async def test_a_question_shows_the_first_thousand_characters_of_the_models_text(
    play: Play,
) -> None:
    text = "I erase it. ".ljust(1000, "x")
    asking = calls(raw_call("erase", path="/a"), text=f"{text}and more")
    async with play([asking]) as world:
        [question] = (await world.run(AGENT)).questions
        assert question.why == text
