"""Questions to people, and the approvals that people granted."""

from __future__ import annotations

import orjson

from agent_runtime_storage.contract.errors import Conflict, QuestionClosed, StoreInDoubt
from agent_runtime_storage.contract.records.log import JsonObject
from agent_runtime_storage.contract.records.questions import (
    ApprovalRow,
    NewApproval,
    QuestionRow,
    QuestionStatus,
)
from agent_runtime_storage.drivers.protocol import BatchMissed, Row
from agent_runtime_storage.log.queue import announce_work
from agent_runtime_storage.queries.owner import OwnerScope, encode_json, not_found

_CURE = "See which questions are open; to say something else, steer the run or start a new one."


class SqlQuestions:
    """`QuestionStore` over SQL."""

    def __init__(self, scope: OwnerScope) -> None:
        self._scope = scope

    async def get(self, question_id: str) -> QuestionRow:
        rows = await self._scope.read("question", id=question_id)
        if not rows:
            raise not_found("question", question_id)
        return to_question(rows[0])

    async def list(
        self,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        status: QuestionStatus | None = None,
        limit: int = 100,
    ) -> list[QuestionRow]:
        filters = {"thread_id": thread_id, "status": status, "limit": max(limit, 0)}
        if run_id is not None:
            rows = await self._scope.read("questions_of_run", run_id=run_id, **filters)
        elif thread_id is not None:
            rows = await self._scope.read("questions_of_thread", **filters)
        else:
            name = "questions_open" if status == "open" else "questions"
            rows = await self._scope.read(name, **filters)
        # The queries return the newest first, so that the limit leaves out the oldest.
        return [to_question(row) for row in reversed(rows)]

    async def answer(
        self, question_id: str, answer: JsonObject, *, remember: NewApproval | None = None
    ) -> QuestionRow:
        question = await self.get(question_id)
        text = encode_json(answer, "answer")
        place = await self._scope.read("run_place", run_id=question.run_id)
        root = str(place[0][1]) if place else question.run_id
        batch = [
            self._scope.statement("answer", {"id": question_id, "answer": text}, rows=1),
            # An export in progress, and a deletion of idle threads, have to notice the answer.
            self._scope.statement("touch_thread", {"thread_id": question.thread_id}, rows=1),
        ]
        if remember is not None:
            values = {
                "thread_id": remember.thread_id or question.thread_id,
                "id": remember.id,
                "tool": remember.tool,
                "arguments": encode_json(remember.arguments, "arguments' patterns"),
                "binding": remember.binding,
                "agent": remember.agent,
            }
            batch.append(self._scope.statement("remember_approval", values))
        batch.append(
            self._scope.statement(
                "queue_answered", {"root_run_id": root, "run_id": question.run_id}
            )
        )
        try:
            await self._scope.batch(batch, thread=question.thread_id, tree=root)
        except StoreInDoubt:
            # The same answer of somebody else is as good.
            stored = await self.get(question_id)
            if (stored.status, stored.answer) != ("answered", orjson.loads(text)):
                raise
        except BatchMissed as error:
            raise question_closed_error(await self.get(question_id)) from error
        except Conflict:
            # The approval's foreign key fails if its own thread does not exist.
            if remember is not None and remember.thread_id is not None:
                await self._scope.require_thread(remember.thread_id)
            raise
        self._scope.announce(question.thread_id)
        announce_work(self._scope.driver)
        return await self.get(question_id)

    async def approvals(self, thread_id: str) -> list[ApprovalRow]:
        rows = await self._scope.read("approvals", thread_id=thread_id)
        if not rows:
            await self._scope.require_thread(thread_id)
        return [
            ApprovalRow(thread, identity, tool, orjson.loads(arguments), at, binding, agent)
            for thread, identity, tool, arguments, at, binding, agent in rows
        ]

    async def revoke_approval(self, thread_id: str, approval_id: str) -> None:
        key = {"thread_id": thread_id, "id": approval_id}
        try:
            forget = self._scope.statement("forget_approval", key, rows=1)
            await self._scope.batch([forget], thread=thread_id)
        except BatchMissed as error:
            raise not_found("approval", approval_id) from error


def to_question(row: Row) -> QuestionRow:
    """Decode `question_select`."""
    *place, kind, body, status, answer, asked_at, expires_at, answered_at = row
    return QuestionRow(
        *place,
        kind=kind,
        body=orjson.loads(body),
        status=status,
        answer=orjson.loads(answer),
        asked_at=asked_at,
        expires_at=expires_at,
        answered_at=answered_at,
    )


def question_closed_error(question: QuestionRow) -> QuestionClosed:
    """Return the error for an answer to a question that is no longer open."""
    reason = {
        "answered": "was answered before",
        "expired": "has expired; its run takes that for a refusal",
        "withdrawn": "was withdrawn: its run is over",
    }.get(question.status, "belongs to a run that does not wait for an answer")
    return QuestionClosed(f"Question {question.id} {reason}.", status=question.status, cure=_CURE)
