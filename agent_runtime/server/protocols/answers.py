"""Read the answers that clients give to questions; an unclear one allows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from agent_runtime.errors import InvalidAnswer
from agent_runtime.human.interruptions import Accept, Fail, Rerun
from agent_runtime.human.questions import Answer, Decision, Question

_YES = ("yes", "y", "true", "allow", "approve", "approved")
_NO = ("no", "n", "false", "deny", "reject", "rejected", "denied")

FORMS: Mapping[str, Mapping[str, Any]] = {
    "approval": {
        "type": "object",
        "properties": {
            "allow": {"type": "boolean"},
            "reason": {"type": "string"},
            "remember": {"type": "boolean"},
        },
        "required": ["allow"],
    },
    "interrupted": {
        "type": "object",
        "properties": {
            "rerun": {"const": True},
            "accept": {},
            "fail": {"type": "string"},
        },
        "minProperties": 1,
        "maxProperties": 1,
    },
    "text": {"type": "string"},
}


def form_of(question: Question) -> dict[str, Any]:
    """Return the JSON schema of the answers to a question."""
    choices = {"type": "string", "enum": list(question.choices)}
    match question.kind:
        case "single":
            return choices
        case "multiple":
            return {"type": "array", "items": choices, "minItems": 1, "uniqueItems": True}
        case "continue":
            return dict(FORMS["approval"])
        case kind:
            return dict(FORMS[kind])


def described(question: Question) -> dict[str, Any]:
    """Return a question as JSON, with the schema of its answers."""
    return {
        "id": question.id,
        "digest": question.digest,
        "kind": question.kind,
        "text": question.text,
        "choices": list(question.choices),
        "tool": question.tool,
        "arguments": dict(question.arguments),
        "pattern": dict(question.pattern),
        "why": question.why,
        "call_id": question.call_id,
        "run_id": question.run_id,
        "role": question.role,
        "task_key": question.task_key,
        "expires_at": question.expires_at,
        "answer_schema": form_of(question),
    }


def answer_of(question: Question, value: object) -> Answer:
    """Return the answer that a client's JSON gives.

    A text that holds JSON counts as that, where the question does not ask for a text.

    Raises:
        InvalidAnswer: it is not what the question asks for.
    """
    # Some protocols carry only text: what is no text is then JSON within it.
    if isinstance(value, str) and question.kind not in ("text", "single"):
        value = _parsed(value)
    match question.kind:
        case "approval" | "continue":
            return _decision(question, value)
        case "interrupted":
            return _resolution(question, value)
        case "multiple" if isinstance(value, list):
            return [str(one) for one in cast("list[object]", value)]
        case "single" | "multiple" | "text" if isinstance(value, str):
            return value
        case _:
            raise _invalid(question)


def _decision(question: Question, value: object) -> Decision:
    if isinstance(value, str) and value.strip().lower() in (*_YES, *_NO):
        value = value.strip().lower() in _YES
    if isinstance(value, bool):
        return Decision(value)
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    # AG-UI's clients and the AI SDK say `approved`.
    allow = given.get("allow", given.get("approved"))
    reason, remember = given.get("reason") or "", given.get("remember", False)
    if not isinstance(allow, bool) or not isinstance(reason, str):
        raise _invalid(question)
    if not isinstance(remember, bool | dict):
        raise _invalid(question)
    return Decision(allow, reason, cast("bool | dict[str, str]", remember))


def _resolution(question: Question, value: object) -> Answer:
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    match given:
        case {"rerun": True, **others} if not others:
            return Rerun()
        case {"accept": accepted, **others} if not others:
            return Accept(accepted)
        case {"fail": str(reason), **others} if not others:
            return Fail(reason)
        case _:
            raise _invalid(question)


def _parsed(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _invalid(question: Question) -> InvalidAnswer:
    form = orjson.dumps(form_of(question)).decode()
    return InvalidAnswer(
        f"The answer to question {question.id} is not what it asks for.",
        cure=f"Answer with JSON of this schema: {form}.",
    )
