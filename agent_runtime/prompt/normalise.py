"""Turn a model's raw answer into a message that every provider accepts in later prompts."""

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
"""An answer with more parallel calls is rejected as a malfunction of the model."""
MAX_DEPTH = 64
"""Arguments nested deeper than this count as invalid JSON."""
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def normalise_answer(answer: ModelAnswer, seq: int, cut: str | None = None) -> AssistantMessage:
    """Return the answer as node `seq` of the log.

    Call ids are ours.  Arguments that are not a JSON object become `{}`, and `raw` has the model's
    text.  Characters of tool names that providers refuse are replaced.

    Args:
        cut: the error result of incomplete calls, if the answer was truncated.

    Raises:
        ModelProtocolError: the answer is complete but empty, or has more than `MAX_CALLS` calls.
    """
    empty = not answer.calls and not answer.text.strip() and not answer.files
    # Other finish reasons explain why nothing came; the run reacts to them.
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
            # No text is an incomplete call only at the end; earlier calls have no arguments then.
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
    # What providers accept: the next prompt repeats the name, even of a tool that does not exist.
    name = _BAD_NAME.sub("_", raw.name)[:64] or "unnamed"
    arguments = parse_object(raw.arguments)
    if arguments is None:
        return ToolCall(call_id(seq, index), name, {}, raw=encodable(raw.arguments))
    return ToolCall(call_id(seq, index), name, arguments)


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a text; an empty text gives {}.

    None for other JSON, invalid JSON, or an object nested deeper than `MAX_DEPTH`.
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
    # Level by level: recursion could itself be too deep, and so could later encoders'.
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
