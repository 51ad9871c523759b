"""From a model's raw answer to what the log holds: something every provider takes back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import orjson

from agent_runtime.errors import ModelProtocolError
from agent_runtime.messages import AssistantMessage, ToolCall, call_id, encodable
from agent_runtime.models.base import ModelAnswer, RawCall

MAX_CALLS = 128
"""More parallel calls than that in one answer are a model run wild."""
MAX_DEPTH = 64
"""Arguments nested deeper than that are taken for text that is no JSON."""
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def normalise_answer(answer: ModelAnswer, seq: int, cut: str | None = None) -> AssistantMessage:
    """Return the answer as node `seq` of the log holds it.

    Call ids are ours.  Arguments that are no JSON object become an empty one, with what the model
    wrote kept beside.  Names get the characters that providers take.

    Args:
        cut: what to say of a call that is not whole, where the answer was cut; None where not.

    Raises:
        ModelProtocolError: it is empty though it is at its end, or has more calls than any task
            needs.
    """
    empty = not answer.calls and not answer.text.strip() and not answer.files
    if empty and answer.finish in ("stop", "tool_calls", "pause"):
        raise ModelProtocolError(
            f"{answer.model} gave an empty answer.", cure="Try again, or use another model."
        )
    if len(answer.calls) > MAX_CALLS:
        raise ModelProtocolError(
            f"{answer.model} made {len(answer.calls)} calls in one answer, more than {MAX_CALLS}.",
            cure="Try again, or use another model.",
        )
    calls = [_call(raw, seq, index) for index, raw in enumerate(answer.calls)]
    if cut is not None:
        last = len(calls) - 1
        for index, call in enumerate(calls):
            raw = answer.calls[index].arguments
            # Only of the last one may nothing have come: an earlier one needs no arguments.
            if call.raw is not None or (index == last and not raw.strip()):
                calls[index] = replace(call, raw=call.raw or "", cut=cut)
    return AssistantMessage(
        text=encodable(answer.text),
        calls=tuple(calls),
        reasoning=encodable(answer.reasoning),
        opaque=answer.opaque and replace(answer.opaque, data=_encodable(answer.opaque.data)),
    )


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {key: _encodable(one) for key, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_encodable(one) for one in cast("list[Any]", value)]
    return value


def _call(raw: RawCall, seq: int, index: int) -> ToolCall:
    name = _BAD_NAME.sub("_", raw.name)[:64] or "unnamed"
    arguments = parse_object(raw.arguments)
    if arguments is None:
        return ToolCall(call_id(seq, index), name, {}, raw=encodable(raw.arguments))
    return ToolCall(call_id(seq, index), name, arguments)


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that the text is; an empty text is an empty one; None for neither.

    None, too, for one that is nested deeper than every codec on the way can take.
    """
    if not text.strip():
        return {}
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or _too_deep(cast("dict[str, Any]", value)):
        return None
    return cast("dict[str, Any]", value)


def _too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for one in level for inner in _inner(one)]
        if not level:
            return False
    return True


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()
