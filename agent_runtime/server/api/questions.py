"""Questions that runs wait for, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request

from agent_runtime.human.interruptions import Accept, Fail, Rerun
from agent_runtime.human.questions import Answer, Decision, Question
from agent_runtime.human.waiting import resumed_by_itself
from agent_runtime.server.access import runtime_of, store_of, user_of
from agent_runtime.server.api.schemas import Input, Json, Name, Output, Text
from agent_runtime.server.operations import operation
from agent_runtime.server.problems import ServiceError
from agent_runtime_storage import QuestionKind, QuestionStatus


class QuestionOut(Output):
    """A question, with all that a person should see before they answer."""

    id: str
    digest: str = Field(description="Of all that is shown; the answer names it.")
    thread_id: str
    run_id: str
    kind: QuestionKind
    text: str
    choices: list[str]
    tool: str
    arguments: Json
    pattern: dict[str, str]
    why: str
    role: str
    task_key: str
    status: QuestionStatus
    asked_at: float
    expires_at: float


class QuestionList(Output):
    """Questions, oldest first."""

    questions: list[QuestionOut]


class QuestionsQuery(Input):
    """Which questions; those that are open by default."""

    thread_id: Name | None = None
    run_id: Name | None = None
    status: Literal["open", "answered", "expired", "withdrawn", "all"] = "open"


@operation("GET", "/questions", tag="questions")
async def list_questions(request: Request, query: QuestionsQuery) -> QuestionList:
    """List the questions of a thread, a run (with its sub-agents), or all threads."""
    found = await runtime_of(request).questions(
        thread=query.thread_id,
        run_id=query.run_id,
        status=None if query.status == "all" else query.status,
        user=user_of(request),
    )
    return QuestionList(questions=[QuestionOut.model_validate(one) for one in found])


@operation("GET", "/questions/{question_id}", tag="questions")
async def get_question(request: Request, question_id: str) -> QuestionOut:
    """Return a question."""
    row = await store_of(request).questions.get(question_id)
    return QuestionOut.model_validate(Question.of(row))


class AnswerBody(Input):
    """The answer to a question; which fields it needs depends on the question's kind."""

    digest: Annotated[str, Field(min_length=64, max_length=64)] = Field(
        description="The digest of the question that was shown."
    )
    text: Text | None = Field(default=None, description="Of `text`.")
    choices: Annotated[list[str], Field(min_length=1)] | None = Field(
        default=None, description="Of `single` and `multiple`."
    )
    allow: bool | None = Field(default=None, description="Of `approval` and `continue`.")
    reason: str = Field(default="", description="Said to the model with a decision.")
    remember: bool | dict[str, str] = Field(
        default=False, description="Whether similar calls are allowed for the rest of the thread."
    )
    action: Literal["rerun", "accept", "fail"] | None = Field(
        default=None, description="Of `interrupted`."
    )
    value: Any = Field(default=None, description="Of `accept`, the result.")


class Answered(Output):
    """An answer that is stored."""

    resumable: bool = Field(description="Whether the run waits for nothing more: resume it now.")
    run_id: str = Field(description="The run to resume: the tree's root, or a background task's.")


@operation("POST", "/questions/{question_id}/answer", tag="questions")
async def answer_question(request: Request, question_id: str, body: AnswerBody) -> Answered:
    """Answer a question as it was shown; the first answer counts, and nothing resumes by itself."""
    store = store_of(request)
    question = Question.of(await store.questions.get(question_id))
    # What a person approves is exactly what they saw; the run may have changed the call since.
    if question.digest != body.digest:
        raise ServiceError(
            409,
            "stale-question",
            "The answer is to a question that was shown otherwise.",
            cure="Look at the question again; what would run may have changed.",
        )
    resumable = await runtime_of(request).answer(question_id, _answer(body), user=user_of(request))
    root = (await resumed_by_itself(store, await store.runs.get(question.run_id))).id
    return Answered(resumable=resumable, run_id=root)


def _answer(body: AnswerBody) -> Answer:
    given = [one for one in (body.text, body.choices, body.allow, body.action) if one is not None]
    if len(given) != 1:
        raise ServiceError(
            422, "invalid-request", "The answer needs one of text, choices, allow and action.",
            cure="Give the one that the question's kind asks for.",
        )  # fmt: skip
    if body.action is not None:
        made = {"rerun": Rerun(), "accept": Accept(body.value), "fail": Fail(body.reason)}
        return made[body.action]
    if body.allow is not None:
        return Decision(body.allow, body.reason, body.remember)
    # A choice of `single` as well: it takes a list of one.
    return body.text if body.text is not None else list(body.choices or ())


OPERATIONS = (list_questions, get_question, answer_question)
"""The operations of this module."""
