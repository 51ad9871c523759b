"""Contents of messages in the conventions' JSON, without what looks like a secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from agent_runtime.messages import PromptMessage, ToolCall
from agent_runtime.models.base import ModelAnswer
from agent_runtime.models.error_mapping import scrub
from agent_runtime.models.telemetry import conventions as names
from agent_runtime_config.log_filter import mask_secrets

MOST = 20_000
"""Characters of one text; the log keeps the whole, and a collector refuses large spans."""
_LONGEST_SECRET = 4_000
"""Characters beyond the end that are masked with a text."""
LAST_MESSAGES = 20
"""How many messages of a prompt are shown after the system's: earlier spans show the others."""


def shown(text: str) -> str:
    """Return a text as a span shows it: masked, and cut if it is long."""
    # Cut first: patterns must not run over a text of any length.  Cut again once it is masked: a
    # secret that goes over the end would be known by no pattern.
    masked = scrub(mask_secrets(text[: MOST + _LONGEST_SECRET]))
    # What no encoding has would keep all spans of a batch from their collector.
    masked = masked.encode("utf-8", "replace").decode()
    return masked if len(text) <= MOST else f"{masked[:MOST]}… ({len(text)} characters)"


def shown_json(value: object) -> str:
    """Return a value as JSON, as a span shows it; as Python writes it if JSON cannot hold it."""
    try:
        text = orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        # Such as a number beyond 64 bits, or what is nested deeply: the call itself must not fail.
        text = repr(value)
    return shown(text)


def request_contents(messages: Sequence[PromptMessage]) -> dict[str, str]:
    """Return the attributes of a prompt: its instructions and its last messages."""
    system = [_text(one.text) for one in messages if one.role == "system"]
    said = [one for one in messages if one.role != "system"][-LAST_MESSAGES:]
    return {
        names.SYSTEM_INSTRUCTIONS: orjson.dumps(system).decode(),
        names.INPUT_MESSAGES: orjson.dumps([_message(one) for one in said]).decode(),
    }


def answer_contents(answer: ModelAnswer) -> dict[str, str]:
    """Return the attribute of an answer."""
    parts = [_text(answer.text)] if answer.text else []
    parts += [
        {"type": "tool_call", "name": one.name, "arguments": shown(one.arguments)}
        for one in answer.calls
    ]
    message = {"role": "assistant", "parts": parts, "finish_reason": answer.finish}
    return {names.OUTPUT_MESSAGES: orjson.dumps([message]).decode()}


def _message(one: PromptMessage) -> dict[str, Any]:
    if one.role == "tool":
        part = {"type": "tool_call_response", "id": one.call_id, "response": shown(one.text)}
        return {"role": "tool", "parts": [part]}
    parts = [_text(one.text)] if one.text else []
    return {"role": one.role, "parts": [*parts, *map(_call, one.calls)]}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "content": shown(text)}


def _call(one: ToolCall) -> dict[str, str]:
    return {
        "type": "tool_call",
        "id": one.id,
        "name": one.name,
        "arguments": shown_json(one.arguments),
    }
