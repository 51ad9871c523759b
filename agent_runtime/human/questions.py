"""Questions to people: what is asked, what an answer may be, and what the model is told of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from agent_runtime.errors import InvalidAnswer
from agent_runtime.messages import ToolResult, encodable
from agent_runtime.tools.argument_patterns import covers
from agent_runtime_storage.contract.question_records import (
    QuestionKind,
    QuestionRow,
    QuestionStatus,
)

MAX_ANSWER = 100_000
"""How many characters the text of an answer may have."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person.

    Attributes:
        kind: `single` and `multiple` choice, `text`, `approval` of a call, or `continue`: whether a
            run that makes no progress goes on.
        call_id: of the call that asks; empty for `continue`.
        text: what is asked.
        choices: of `single` and `multiple`.
        tool: of an `approval`, the tool that is to be called.
        arguments: of an `approval`, all that it is to be called with, defaults too; only a value
            that is a secret of this process is masked.  They are as the model wrote them: show them
            by `agent_runtime.people.showing.shown_value` where text could hide or forge something.
        pattern: of an `approval`, what `remember=True` allows for the rest of the thread: by
            argument the pattern of its value; empty for every call of the tool.
        why: what the model said with the call.
        role, task_key: of the sub-agent that asks; empty if the run itself does.
        status: `open`, `answered`, `expired` or `withdrawn` (its run ended first).
        answer: as it is kept; empty unless it is answered.
        asked_at, expires_at: seconds since the epoch, by the database's clock.
    """

    id: str
    thread_id: str
    run_id: str
    kind: QuestionKind
    call_id: str
    text: str
    choices: tuple[str, ...]
    tool: str
    arguments: Mapping[str, Any]
    pattern: Mapping[str, str]
    why: str
    status: QuestionStatus
    answer: Mapping[str, Any]
    asked_at: float
    expires_at: float
    role: str = ""
    task_key: str = ""

    @classmethod
    def of(cls, row: QuestionRow) -> Question:
        """Return a question as the store has it."""
        body = row.body
        return cls(
            id=row.id,
            thread_id=row.thread_id,
            run_id=row.run_id,
            kind=row.kind,
            call_id=str(body.get("call_id", "")),
            text=str(body.get("text", "")),
            choices=tuple(body.get("choices", ())),
            tool=str(body.get("tool", "")),
            arguments=body.get("arguments", {}),
            pattern=body.get("pattern", {}),
            why=str(body.get("why", "")),
            status=row.status,
            answer=row.answer,
            asked_at=row.asked_at,
            expires_at=row.expires_at,
            role=str(body.get("role", "")),
            task_key=str(body.get("task_key", "")),
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to an `approval`, or to whether a run is to `continue`.

    Args:
        allow: whether the call is made, or the run goes on.
        reason: told to the model, whatever is decided.
        remember: of an approval, whether calls like it need no approval on this thread any more:
            True for those of the question's `pattern`, or by argument the pattern of its value.
    """

    allow: bool
    reason: str = ""
    remember: bool | Mapping[str, str] = field(default=False)


Answer: TypeAlias = str | bool | Sequence[str] | Decision
"""A choice or a text; choices; or a decision, of which a `bool` is the short form."""

OnQuestion: TypeAlias = Callable[[Question], Awaitable[Answer | None]]
"""Asks a person; None leaves the question open, and the run suspended.

So does a cancellation, or an error, while it asks.
"""


def encode_answer(
    question: Question, answer: Answer, arguments: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an answer as it is kept.

    Args:
        arguments: of an approval, those of the call where they are not shown as they are.

    Raises:
        InvalidAnswer: it is not what the question asks for.
    """
    if question.kind in ("approval", "continue"):
        return _decision(question, answer, question.arguments if arguments is None else arguments)
    if question.kind == "text":
        if not isinstance(answer, str) or not answer.strip():
            raise _invalid(question, "is no text", "Answer with a text.")
        return {"text": _text(question, answer)}
    given = [answer] if isinstance(answer, str) else answer
    if isinstance(given, bool | Decision) or not given:
        raise _invalid(question, "is no choice", _choices(question))
    for one in given:
        if one not in question.choices:
            raise _invalid(question, "is not among the choices", _choices(question))
    if len(set(given)) != len(given):
        raise _invalid(question, "names a choice twice", _choices(question))
    if question.kind == "single" and len(given) > 1:
        raise _invalid(question, "names several choices", "Choose one.")
    return {"choices": list(given)}


def _decision(question: Question, answer: Answer, given: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(answer, bool):
        answer = Decision(answer)
    if not isinstance(answer, Decision):
        raise _invalid(question, "is neither yes nor no", "Answer with True, False or a Decision.")
    decided: dict[str, Any] = {"allow": answer.allow, "reason": _text(question, answer.reason)}
    if answer.remember is False:
        return decided
    if question.kind != "approval" or not answer.allow:
        raise _invalid(question, "cannot be remembered", "Remember only what is allowed.")
    if answer.remember is True:
        return decided | {"remember": dict(question.pattern)}
    if not covers(answer.remember, given):
        problem = "is to be remembered for other calls than this one"
        raise _invalid(question, problem, "Widen its patterns.")
    return decided | {"remember": dict(answer.remember)}


def _text(question: Question, text: str) -> str:
    if len(text) > MAX_ANSWER:
        cure = f"Answer in at most {MAX_ANSWER:,} characters; attach the rest as a file later."
        raise _invalid(question, f"has {len(text):,} characters", cure)
    return encodable(text)


def _choices(question: Question) -> str:
    return "The choices are: " + "; ".join(question.choices) + "."


def _invalid(question: Question, problem: str, cure: str) -> InvalidAnswer:
    return InvalidAnswer(f"The answer to question {question.id} {problem}.", cure=cure)


def result_of_question(question: Question) -> ToolResult:
    """Return what the model is told of a question of its own that is not open any more."""
    if question.status != "answered":
        return ToolResult(
            "Nobody answered in time. Decide yourself if you can do so safely, and say what you "
            "assumed; else end the task and say what is missing.",
            outcome="refused",
        )
    if question.kind == "text":
        return ToolResult(str(question.answer["text"]))
    return ToolResult("\n".join(cast("list[str]", question.answer["choices"])))


def refusal_of(question: Question) -> ToolResult:
    """Return what the model is told of a call that was not allowed."""
    if question.status != "answered":
        text = "Nobody allowed this call in time. It was not made."
    else:
        reason = str(question.answer.get("reason", "")).strip()
        text = "The user did not allow this call. It was not made."
        text += f" They say: {reason}" if reason else ""
    return ToolResult(text, outcome="refused")


def allows(question: Question) -> bool:
    """Return whether the call that asks may be made."""
    return question.status == "answered" and bool(question.answer.get("allow"))
