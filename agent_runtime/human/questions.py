"""Questions to people: their form, the answers they accept, and the results the model gets."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from pydantic_core import to_json

from agent_runtime.errors import InvalidAnswer
from agent_runtime.human.interruptions import (
    KIND,
    Accept,
    Fail,
    Rerun,
    Resolution,
    encode_resolution,
)
from agent_runtime.messages import Note, ToolResult, encodable
from agent_runtime.tools.argument_patterns import covers
from agent_runtime_storage.contract.records.questions import (
    QuestionKind,
    QuestionRow,
    QuestionStatus,
)

MAX_ANSWER = 100_000
"""How many characters the text of an answer may have."""
ALLOWED = "The user allowed the call of {tool} and says: "
"""What the runtime puts before the reason of an approval."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person.

    Attributes:
        kind: `single` or `multiple` choice, `text`, `approval` of a call, `continue`: whether a
            run that makes no progress continues, or `interrupted`: what is to become of a call
            whose end was not recorded.
        call_id: of the call that asks; empty for `continue`.
        text: what is asked.
        choices: of `single` and `multiple`.
        tool: of an `approval` or `interrupted`, the tool to call, or the workflow's node.
        arguments: of these, all arguments of the call, with defaults; only a value that is
            a secret of this process is masked.  They are as the model wrote them: where text could
            hide or forge something, show them by `agent_runtime.human.display.shown_value`.
        pattern: of an `approval`, what `remember=True` allows for the rest of the thread: the
            pattern of each argument's value; empty for every call of the tool.
        why: the model's text with the call.
        role, task_key: of the sub-agent that asks; empty if the run itself does.
        status: `open`, `answered`, `expired` or `withdrawn` (its run ended first).
        answer: in its stored form; empty unless answered.
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

    @property
    def digest(self) -> str:
        """What identifies all that a person is shown before they answer."""
        shown = (self.id, self.kind, self.tool, self.arguments, self.text, self.choices)
        whole = to_json((*shown, self.pattern, self.why), serialize_unknown=True)
        return hashlib.sha256(whole).hexdigest()

    @classmethod
    def of(cls, row: QuestionRow) -> Question:
        """Return the question of a row."""
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
        allow: whether to make the call, or to continue the run.
        reason: shown to the model with either decision.
        remember: of an approval, whether similar calls need no more approval on this thread: True
            for those of the question's `pattern`, or a pattern for each argument's value.
    """

    allow: bool
    reason: str = ""
    remember: bool | Mapping[str, str] = field(default=False)


Answer: TypeAlias = str | bool | Sequence[str] | Decision | Resolution
"""A choice or a text; several choices; a decision, for which a `bool` is short; or what is to
become of an interrupted call: `Rerun()`, `Accept(value)` or `Fail(reason)`."""

OnQuestion: TypeAlias = Callable[[Question], Awaitable[Answer | None]]
"""Asks a person.

None, an error or a cancellation leaves the question open and the run suspended.
"""


def encode_answer(
    question: Question, answer: Answer, arguments: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an answer in its stored form.

    Args:
        arguments: of an approval, the call's own, if the question shows others.

    Raises:
        InvalidAnswer: it is not what the question asks for.
    """
    if question.kind in ("approval", "continue"):
        return _decision(question, answer, question.arguments if arguments is None else arguments)
    if question.kind == KIND:
        return _resolution(question, answer)
    if isinstance(answer, Rerun | Accept | Fail):
        raise _invalid(question, "decides about no interrupted call", "Answer what it asks.")
    if question.kind == "text":
        if not isinstance(answer, str) or not answer.strip():
            raise _invalid(question, "is not a text", "Answer with a text.")
        return {"text": _text(question, answer)}
    given = [answer] if isinstance(answer, str) else answer
    if isinstance(given, bool | Decision) or not given:
        raise _invalid(question, "is not a choice", _choices(question))
    for one in given:
        if one not in question.choices:
            raise _invalid(question, "is not among the choices", _choices(question))
    if len(set(given)) != len(given):
        raise _invalid(question, "names a choice twice", _choices(question))
    if question.kind == "single" and len(given) > 1:
        raise _invalid(question, "names several choices", "Choose one.")
    return {"choices": list(given)}


def _resolution(question: Question, answer: Answer) -> dict[str, Any]:
    if not isinstance(answer, Rerun | Accept | Fail):
        raise _invalid(
            question, "does not decide", "Answer with Rerun(), Accept(value) or Fail(reason)."
        )
    try:
        encoded = encode_resolution(answer)
    except ValueError as error:
        raise _invalid(question, f"is no JSON: {error}", "Accept plain values.") from error
    if len(to_json(encoded)) > MAX_ANSWER:
        cure = f"Accept at most {MAX_ANSWER:,} bytes of JSON."
        raise _invalid(question, "is too long", cure)
    return encoded


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
    # A pattern that excludes this very call was mistyped, or is meant for another one.
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
    """Return the result of a call of `ask_user` whose question is closed."""
    if question.status != "answered":
        return ToolResult(
            "Nobody answered in time. Decide yourself if that is safe, and say what you assumed; "
            "otherwise end the task and say what is missing.",
            outcome="refused",
        )
    if question.kind == "text":
        return ToolResult(str(question.answer["text"]))
    return ToolResult("\n".join(cast("list[str]", question.answer["choices"])))


def allowance_note(question: Question) -> Note | None:
    """Return the note with the reason that a person gave when allowing a call, if any."""
    reason = str(question.answer.get("reason", "")).strip()
    if question.kind != "approval" or not allows(question) or not reason:
        return None
    return Note(f"{ALLOWED.format(tool=question.tool)}{reason}", source="steer")


def refusal_of(question: Question) -> ToolResult:
    """Return the result of a call that was not allowed."""
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
