"""The contract of questions to people, and of approvals."""

from __future__ import annotations

import anyio
import pytest

from agent_runtime_storage import (
    Commit,
    Finish,
    Lease,
    NewApproval,
    NewQuestion,
    NotFound,
    QuestionClosed,
    ThreadBusy,
    UserStore,
)
from tests.storage.helpers import OTHER, begin, exchange, new_run

QUESTION = NewQuestion("q1", 2, 0, "approval", {"tool": "shell"}, 3600.0)
SUSPENDED = Finish("suspended", "awaiting_user")


async def suspend(user: UserStore, *questions: NewQuestion) -> Lease:
    """Suspend a run with questions of its open exchange; return its last lease."""
    lease = await begin(user)
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "shell", "b"),)))
    await user.runs.commit(lease, Commit(finish=SUSPENDED, questions=questions))
    return lease


async def test_a_question_is_stored_with_the_suspension_of_its_run(user: UserStore) -> None:
    await suspend(user, QUESTION)

    [question] = await user.questions.list()
    assert question == await user.questions.get("q1")
    assert (question.thread_id, question.run_id, question.node_id, question.position) == (
        "t1", "r1", 2, 0,
    )  # fmt: skip
    assert (question.status, question.body, question.answer) == ("open", {"tool": "shell"}, {})
    assert question.expires_at - question.asked_at == pytest.approx(3600)
    run = await user.runs.get("r1")
    assert (run.status, run.owner, run.lease_live) == ("suspended", None, False)
    assert (await user.threads.get("t1")).active_run == "r1"


async def test_the_first_answer_counts(user: UserStore) -> None:
    await suspend(user, QUESTION)

    answered = await user.questions.answer("q1", {"allow": True})

    assert (answered.status, answered.answer) == ("answered", {"allow": True})
    with pytest.raises(QuestionClosed, match="was answered before") as refused:
        await user.questions.answer("q1", {"allow": False})
    assert refused.value.status == "answered"
    assert (await user.questions.get("q1")).answer == {"allow": True}


async def test_one_of_many_concurrent_answers_counts(user: UserStore) -> None:
    await suspend(user, QUESTION)
    accepted: list[int] = []

    async def answer(number: int) -> None:
        try:
            await user.questions.answer("q1", {"number": number})
        except QuestionClosed:
            return
        accepted.append(number)

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(answer, number)

    assert len(accepted) == 1
    assert (await user.questions.get("q1")).answer == {"number": accepted[0]}


async def test_a_late_answer_is_refused(user: UserStore) -> None:
    await suspend(user, NewQuestion("q1", 2, 0, "text", {}, 0.0))

    with pytest.raises(QuestionClosed, match="expired") as refused:
        await user.questions.answer("q1", {"text": "x"})

    assert refused.value.status == "expired"
    assert (await user.questions.get("q1")).status == "expired"
    assert await user.questions.list(status="open") == []
    assert [question.id for question in await user.questions.list(status="expired")] == ["q1"]


async def test_a_run_that_ends_withdraws_its_questions(user: UserStore) -> None:
    await suspend(user, QUESTION)
    lease = await user.runs.take_lease("r1", OTHER, seconds=60, replaces=1)
    with pytest.raises(QuestionClosed, match="does not wait"):
        await user.questions.answer("q1", {})

    await user.runs.commit(lease, Commit(finish=Finish("cancelled", "cancelled")))

    assert (await user.questions.get("q1")).status == "withdrawn"
    with pytest.raises(QuestionClosed, match="withdrawn"):
        await user.questions.answer("q1", {"allow": True}, remember=NewApproval("a1", "shell"))
    assert await user.questions.approvals("t1") == []


async def test_a_run_with_a_requested_cancel_accepts_no_answer(user: UserStore) -> None:
    await suspend(user, QUESTION)
    await user.runs.cancel("r1")

    with pytest.raises(QuestionClosed):
        await user.questions.answer("q1", {"allow": True})

    assert (await user.questions.get("q1")).status == "open"


async def test_questions_are_listed_by_thread_run_and_status(user: UserStore) -> None:
    await suspend(user, QUESTION, NewQuestion("q2", 2, 1, "text", {}, 3600.0))
    await begin(user, "r2", "t2")
    await user.questions.answer("q1", {})

    assert [question.id for question in await user.questions.list(thread_id="t1")] == ["q1", "q2"]
    assert [question.id for question in await user.questions.list(run_id="r1", status="open")] == [
        "q2"
    ]
    assert [question.id for question in await user.questions.list(limit=1)] == ["q2"]
    assert await user.questions.list(run_id="r2") == await user.questions.list(thread_id="t2") == []


async def test_an_approval_applies_to_its_thread_until_it_is_revoked(user: UserStore) -> None:
    await suspend(user, QUESTION)
    await user.threads.ensure("t2")

    await user.questions.answer("q1", {}, remember=NewApproval("a1", "shell", {"command": "ls *"}))

    [allowed] = await user.questions.approvals("t1")
    assert (allowed.id, allowed.tool, allowed.arguments) == ("a1", "shell", {"command": "ls *"})
    assert await user.questions.approvals("t2") == []
    with pytest.raises(NotFound):
        await user.questions.revoke_approval("t2", "a1")
    await user.questions.revoke_approval("t1", "a1")
    assert await user.questions.approvals("t1") == []
    with pytest.raises(NotFound):
        await user.questions.approvals("nowhere")


async def test_an_approval_can_be_given_for_another_thread(user: UserStore) -> None:
    await suspend(user, QUESTION)
    await user.threads.ensure("t2")

    with pytest.raises(NotFound, match="nowhere"):
        await user.questions.answer("q1", {}, remember=NewApproval("a1", "shell", {}, "nowhere"))
    assert (await user.questions.get("q1")).status == "open"
    await user.questions.answer("q1", {}, remember=NewApproval("a1", "shell", {}, "t2"))

    assert await user.questions.approvals("t1") == []
    assert [approval.id for approval in await user.questions.approvals("t2")] == ["a1"]


async def test_no_approval_can_be_given_for_another_owners_thread(
    user: UserStore, stranger: UserStore
) -> None:
    await user.threads.ensure("private")
    await suspend(stranger, QUESTION)

    with pytest.raises(NotFound):
        await stranger.questions.answer(
            "q1", {}, remember=NewApproval("a1", "shell", {}, "private")
        )

    assert await user.questions.approvals("private") == []


async def test_a_busy_thread_names_the_question_that_its_run_waits_for(user: UserStore) -> None:
    lease = await suspend(user, QUESTION)

    with pytest.raises(ThreadBusy, match="question q1") as refused:
        await user.runs.begin(new_run("r2", "t1"))
    assert refused.value.run_id == lease.run_id
    await user.questions.answer("q1", {})
    with pytest.raises(ThreadBusy, match="it is suspended"):
        await user.runs.begin(new_run("r2", "t1"))


async def test_questions_are_private_to_their_owner(user: UserStore, stranger: UserStore) -> None:
    await suspend(user, QUESTION)
    await begin(stranger)

    with pytest.raises(NotFound):
        await stranger.questions.get("q1")
    with pytest.raises(NotFound):
        await stranger.questions.answer("q1", {"allow": True}, remember=NewApproval("a1", "shell"))

    assert await stranger.questions.list() == await stranger.questions.list(run_id="r1") == []
    assert await stranger.questions.approvals("t1") == []
    assert (await user.questions.get("q1")).status == "open"


async def test_approvals_are_deleted_with_their_thread(user: UserStore) -> None:
    await suspend(user, QUESTION)
    await user.questions.answer("q1", {}, remember=NewApproval("a1", "shell"))

    await user.upkeep.delete_thread("t1")

    with pytest.raises(NotFound):
        await user.questions.get("q1")
    await user.threads.ensure("t1")
    assert await user.questions.approvals("t1") == []
