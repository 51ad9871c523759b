"""From a model's raw answer to what the log holds: something every provider takes back."""

from __future__ import annotations

import re
from typing import Any, cast

import orjson

from .errors import ModelProtocolError, ModelRejected
from .messages import AssistantMessage, ToolCall, call_id
from .models.base import ModelAnswer, RawCall

MAX_CALLS = 128
"""More parallel calls than that in one answer are a model run wild."""
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def normalise(answer: ModelAnswer, seq: int) -> AssistantMessage:
    """Return the answer as node `seq` of the log holds it.

    Call ids are ours.  Arguments that are no JSON object become an empty one, with what the model
    wrote kept beside.  Names get the characters that providers take.

    Raises:
        ModelRejected: the provider's content filter left nothing of it.
        ModelProtocolError: it is empty, or has more calls than any task needs.
    """
    if not answer.calls and not answer.text.strip():
        if answer.finish == "content_filter":
            raise ModelRejected(
                f"{answer.model}'s content filter withheld the answer.", cure="Rephrase the task."
            )
        raise ModelProtocolError(
            f"{answer.model} gave an empty answer.", cure="Try again, or use another model."
        )
    if len(answer.calls) > MAX_CALLS:
        raise ModelProtocolError(
            f"{answer.model} made {len(answer.calls)} calls in one answer, more than {MAX_CALLS}.",
            cure="Try again, or use another model.",
        )
    return AssistantMessage(
        text=answer.text,
        calls=tuple(_call(raw, seq, index) for index, raw in enumerate(answer.calls)),
        reasoning=answer.reasoning,
        opaque=answer.opaque,
    )


def _call(raw: RawCall, seq: int, index: int) -> ToolCall:
    name = _BAD_NAME.sub("_", raw.name)[:64] or "unnamed"
    arguments = parse_object(raw.arguments)
    if arguments is None:
        return ToolCall(call_id(seq, index), name, {}, raw=raw.arguments)
    return ToolCall(call_id(seq, index), name, arguments)


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that the text is; an empty text is an empty one; None for neither."""
    if not text.strip():
        return {}
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
