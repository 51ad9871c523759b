"""What servers ask the user during a call, as questions of the call, and the answers for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
)

from agent_runtime.messages import encodable
from agent_runtime.tools.mcp.definitions import clean
from agent_runtime.tools.mcp.server import is_web_page
from agent_runtime.tools.questions import AwaitingAnswers, ToolAnswer, ToolQuestion

ACCEPT, DECLINE, YES, NO = "accept", "decline", "yes", "no"
MAX_MESSAGE = 2000
MAX_URL = 2000
MAX_QUESTIONS, MAX_FIELDS, MAX_CHOICES, MAX_ROUNDS = 5, 20, 20, 10
MAX_CHOICE = 200
MAX_STATE = 64 << 10
"""The most bytes of what a server wants back with the answers."""
NOBODY = "The server asks the user something before it goes on, and nobody can be asked from here."

Property = Mapping[str, Any]


class NotAskable(Exception):
    """A server wants something that people are not asked for; the text says what."""


@dataclass(frozen=True, slots=True)
class ElicitationReply:
    """What a call that is made again brings along.

    Attributes:
        responses: by the server's keys.
        round: how often the server, or a person's unusable answer, led to a question.
        again: questions to ask again, since their answers are not usable.
    """

    responses: Mapping[str, ElicitResult] = field(default_factory=dict[str, ElicitResult])
    state: str | None = None
    round: int = 0
    again: tuple[ToolQuestion, ...] = ()


def reply_of(answers: Sequence[ToolAnswer]) -> ElicitationReply:
    """Return what the answers of the last round say to the server."""
    if not answers:
        return ElicitationReply()
    last: int = max(one.state["round"] for one in answers)
    own = [one for one in answers if one.state["round"] == last]
    # Answers of the round before stay usable, where only others were asked again.
    found: dict[str, ElicitResult] = {}
    again: list[ToolQuestion] = []
    for one in own:
        key = one.state["key"]
        found |= {name: ElicitResult(**kept) for name, kept in one.state["kept"].items()}
        try:
            found[key] = _result(one.text, one.state["properties"], one.state["required"])
        except ValueError as error:
            if last >= MAX_ROUNDS:
                # The last round: the server decides what follows from no answer.
                found[key] = ElicitResult(action="cancel")
            else:
                again.append(_question(one.state["asked"], one.state, f"Not usable: {error}. "))
    if again:
        kept = {name: value.model_dump(exclude_none=True) for name, value in found.items()}
        again = [
            ToolQuestion(
                one.kind, one.text, one.choices, {**one.state, "round": last + 1, "kept": kept}
            )
            for one in again
        ]
    return ElicitationReply(found, own[0].state["request_state"], last, tuple(again))


def awaiting(
    result: InputRequiredResult, who: str, done: int, mask: Callable[[str], str]
) -> AwaitingAnswers:
    """Return the questions that a server's requests are.

    Args:
        who: what asks, for the beginning of a question.
        done: how many rounds there were.

    Raises:
        NotAskable: it requests something else, or too much.
    """
    requests = result.input_requests or {}
    if not requests:
        raise NotAskable("to be called again and again")
    if done >= MAX_ROUNDS:
        raise NotAskable(f"more than {MAX_ROUNDS} rounds of questions")
    # Also that it can be stored: a key or a state may be no valid text.
    size = len(_dumped([*requests, result.request_state]))
    if len(requests) > MAX_QUESTIONS or size > MAX_STATE:
        raise NotAskable("more questions, or more state, than one call may have")
    questions: list[ToolQuestion] = []
    for key, request in requests.items():
        if not isinstance(request, ElicitRequest):
            raise NotAskable(request.method)
        asked, properties, required = _form(request.params)
        state: dict[str, Any] = {
            "round": done + 1,
            "key": key,
            "request_state": result.request_state,
            "properties": properties,
            "required": required,
            "asked": mask(f"{who} asks: {asked}"),
            "kept": {},
        }
        questions.append(_question(state["asked"], state))
    text = encodable(" ".join((NOBODY, *(one.text for one in questions))))
    return AwaitingAnswers(text, questions=tuple(questions))


def _form(
    params: ElicitRequestFormParams | ElicitRequestURLParams,
) -> tuple[str, dict[str, Property], list[str]]:
    """Return the message, the properties that are asked for, and which of them are required."""
    message = clean(params.message)[:MAX_MESSAGE]
    if isinstance(params, ElicitRequestURLParams):
        if len(params.url) > MAX_URL:
            # Cut, it would lead elsewhere.
            raise NotAskable(f"an address of more than {MAX_URL:,} characters opened")
        if not is_web_page(params.url):
            raise NotAskable("something else than a web page opened")
        return f"{message}\nOpen {clean(params.url)} and then answer.", {}, []
    schema = params.requested_schema
    given: object = schema.get("properties", {})
    properties = cast("dict[str, Property]", given) if isinstance(given, dict) else {}
    if not all(map(_is_usable, properties.values())):
        raise NotAskable("fields that the protocol does not have")
    if len(properties) > MAX_FIELDS or len(_dumped(properties)) > MAX_STATE:
        raise NotAskable("more fields than a question may have")
    required: object = schema.get("required", [])
    names = cast("list[object]", required) if isinstance(required, list) else []
    return message, properties, [one for one in properties if one in names]


def _is_usable(about: object) -> bool:
    """Return whether a property is an object, and its values, if it names them, are a list."""
    known = cast("dict[str, object]", about) if isinstance(about, dict) else None
    return known is not None and isinstance(known.get("enum", []), list)


def _dumped(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # A number beyond 64 bits, or text that is none; neither can be stored.
        raise NotAskable("values that cannot be stored") from None


def _question(asked: str, state: Mapping[str, Any], problem: str = "") -> ToolQuestion:
    properties: dict[str, Property] = state["properties"]
    choices = _choices(properties)
    if choices:
        return ToolQuestion("single", problem + asked, choices, state)
    fields = [
        f"- {clean(name)} ({clean(str(one.get('type', 'string')))[:40]}"
        f"{'' if name in state['required'] else ', optional'})"
        f"{': ' + clean(str(one['description']))[:300] if one.get('description') else ''}"
        for name, one in properties.items()
    ]
    how = "the value" if len(properties) == 1 else "a JSON object of these"
    lines = [problem + asked, *fields, f"Answer with {how}, or `{DECLINE}`."]
    return ToolQuestion("text", "\n".join(lines), (), state)


def _choices(properties: Mapping[str, Property]) -> tuple[str, ...]:
    """Return the choices of a question that has some; empty for a text."""
    if not properties:
        return (ACCEPT, DECLINE)
    if len(properties) > 1:
        return ()
    [only] = properties.values()
    if only.get("type") == "boolean":
        return (YES, NO, DECLINE)
    given: object = only.get("enum")
    values = cast("list[object]", given) if isinstance(given, list) else []
    # Only values that are shown as they are: the answer has to be one of them, character for
    # character.
    plain = [one for one in values if isinstance(one, str) and one == clean(one).strip()]
    # Distinct, and none of them is the word that declines.
    usable = plain and len(plain) == len(values) == len({*plain, DECLINE}) - 1
    fits = len(plain) < MAX_CHOICES and all(0 < len(one) <= MAX_CHOICE for one in plain)
    return (*plain, DECLINE) if usable and fits else ()


def _result(
    answer: str | None, properties: Mapping[str, Property], required: Sequence[str]
) -> ElicitResult:
    """Return an answer as the server reads it. Raises `ValueError` if it does not fit."""
    if answer is None:
        return ElicitResult(action="cancel")
    text = answer.strip()
    if text.lower() == DECLINE:
        return ElicitResult(action="decline")
    if not properties:
        return ElicitResult(action="accept", content={})
    if len(properties) == 1:
        [(name, only)] = properties.items()
        return ElicitResult(action="accept", content={name: _value(name, text, only)})
    try:
        given: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    if not isinstance(given, dict):
        raise ValueError("it is not a JSON object")
    values = cast("dict[str, object]", given)
    for problem, names in (
        ("it lacks", [one for one in required if one not in values]),
        ("it is not asked for", [one for one in values if one not in properties]),
    ):
        if names:
            raise ValueError(f"{problem}: {', '.join(map(clean, names))}")
    content = {name: _value(name, one, properties[name]) for name, one in values.items()}
    return ElicitResult(action="accept", content=content)


def _value(name: str, given: object, about: Property) -> Any:
    """Return a value in its property's type. Raises `ValueError`."""
    kind = about.get("type", "string")
    value = given
    try:
        if kind == "boolean" and isinstance(given, str):
            value = {YES: True, "true": True, NO: False, "false": False}[given.lower()]
        elif kind == "integer" and isinstance(given, str):
            value = int(given)
        elif kind == "number" and isinstance(given, str):
            value = float(given)
        elif kind == "array" and isinstance(given, str):
            value = [one.strip() for one in given.split(",") if one.strip()]
    except (KeyError, ValueError):
        raise ValueError(f"{clean(name)} is not of the type {kind}") from None
    if not _is_of(value, kind) or ("enum" in about and value not in about["enum"]):
        raise ValueError(f"{clean(name)} is not of the type {kind}, or not one of its values")
    return value


def _is_of(value: object, kind: object) -> bool:
    # In Python True is an integer too.
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    if kind in ("integer", "number"):
        number = isinstance(value, int) or (kind == "number" and isinstance(value, float))
        return number and math.isfinite(cast("float", value))
    if kind == "array":
        return isinstance(value, list) and all(
            isinstance(one, str) for one in cast("list[object]", value)
        )
    return isinstance(value, str)
