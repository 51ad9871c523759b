"""The part of the store's contract that is about people: questions, and what they allow.

A question is asked by the commit that suspends its run, and only there.  Its answer needs no lease:
it is a compare-and-set on the open question of a run that still waits.  A run that ends withdraws
its questions in the same transaction.
"""

from __future__ import annotations

from typing import Protocol

from agent_runtime_storage.contract.question_records import (
    ApprovalRow,
    NewApproval,
    QuestionRow,
    QuestionStatus,
)
from agent_runtime_storage.contract.records import JsonObject


class QuestionsContract(Protocol):
    """What `UserStore` has for questions and approvals."""

    async def question(self, question_id: str) -> QuestionRow:
        """Return the question. Raises `NotFound`."""
        ...

    async def questions(
        self,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        status: QuestionStatus | None = None,
        limit: int = 100,
    ) -> list[QuestionRow]:
        """Return the newest questions that match all that is given, in the order of asking."""
        ...

    async def answer(
        self, question_id: str, answer: JsonObject, *, remember: NewApproval | None = None
    ) -> QuestionRow:
        """Answer an open question, and allow what is to be remembered for its thread.

        Both or neither is written.

        Raises:
            NotFound: this owner has no such question.
            QuestionClosed: it is answered, expired or withdrawn, or its run does not wait any more.
        """
        ...

    async def approvals(self, thread_id: str) -> list[ApprovalRow]:
        """Return what is allowed on a thread, in the order in which it was. Raises `NotFound`."""
        ...

    async def forget_approval(self, thread_id: str, approval_id: str) -> None:
        """Allow something on a thread no more. Raises `NotFound`."""
        ...
