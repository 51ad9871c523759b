"""Questions to people, and the approvals that their answers grant.

A question is asked by the commit that suspends its run, and only there.  Answering needs no lease:
it is a compare-and-set on the open question of a run that is still suspended.  A run that ends
withdraws its questions in the same transaction.
"""

from __future__ import annotations

from typing import Protocol

from agent_runtime_storage.contract.records.log import JsonObject
from agent_runtime_storage.contract.records.questions import (
    ApprovalRow,
    NewApproval,
    QuestionRow,
    QuestionStatus,
)


class QuestionStore(Protocol):
    """The questions and approvals of one owner."""

    async def get(self, question_id: str) -> QuestionRow:
        """Return the question; raise `NotFound` if there is none."""
        ...

    async def list(
        self,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        status: QuestionStatus | None = None,
        limit: int = 100,
    ) -> list[QuestionRow]:
        """Return the newest questions that match every given filter, oldest first."""
        ...

    async def answer(
        self, question_id: str, answer: JsonObject, *, remember: NewApproval | None = None
    ) -> QuestionRow:
        """Answer an open question and grant the approval `remember`, both or neither.

        Raises:
            NotFound: this owner has no such question.
            QuestionClosed: it is answered, expired or withdrawn, or its run no longer waits.
        """
        ...

    async def approvals(self, thread_id: str) -> list[ApprovalRow]:
        """Return the approvals of a thread, in the order of granting. Raises `NotFound`."""
        ...

    async def revoke_approval(self, thread_id: str, approval_id: str) -> None:
        """Revoke an approval of a thread. Raises `NotFound`."""
        ...
