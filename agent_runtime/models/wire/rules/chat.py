"""What OpenAI's Chat Completions refuse in a request.

Reference: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Any, cast

from agent_runtime.models.base import Json
from agent_runtime.models.wire.rules.refusal import RefusedError, refuse_if

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_ID = 40
_FIELDS = {
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_PARTS = {
    "system": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
_IMAGE = re.compile(r"https?://|data:image/(?:png|jpeg|gif|webp);base64,")


def check_request(body: Json, *, more: Set[str] = frozenset()) -> None:
    """Check the body of a request.

    Args:
        more: fields of assistants' messages that a compatible server takes in addition to OpenAI's.

    Raises:
        RefusedError: the API would refuse it.
    """
    for n, made in enumerate(body.get("tools") or []):
        wrong = made["type"] != "function" or not _NAME.fullmatch(made["function"]["name"])
        refuse_if(wrong, f"Invalid 'tools[{n}].function.name'")
    messages: list[Json] = body["messages"]
    refuse_if(not messages, "Invalid 'messages': empty array.")
    waiting: list[str] = []
    for n, message in enumerate(messages):
        _check_fields(n, message, more)
        if message["role"] == "tool":
            refuse_if(
                message["tool_call_id"] not in waiting,
                "Invalid parameter: messages with role 'tool' must be a response to a "
                "preceeding message with 'tool_calls'.",
            )
            waiting.remove(message["tool_call_id"])
            continue
        _check_answered(waiting)
        asked: list[Json] = message.get("tool_calls") or []
        waiting = [call["id"] for call in asked]
    _check_answered(waiting)


def _check_fields(n: int, message: Json, more: Set[str]) -> None:
    role = message["role"]
    refuse_if(role not in _FIELDS, f"Invalid value: '{role}' at 'messages[{n}].role'.")
    taken: Set[str] = _FIELDS[role]
    if role == "assistant":
        taken = taken | more
        calls: list[Json] | None = message.get("tool_calls")
        refuse_if(calls == [], f"[] is too short - 'messages.{n}.tool_calls'")
        empty = not calls and not message.get("content")
        refuse_if(empty, f"Invalid value for 'content': expected a string, got null. ({n})")
        made: list[Json] = calls or []
        for i, call in enumerate(made):
            _check_call(f"messages[{n}].tool_calls[{i}]", call)
    for name in message.keys() - taken:
        raise RefusedError(
            f"Additional properties are not allowed ('{name}' was unexpected) - 'messages.{n}'"
        )
    content: Any = message.get("content")
    wrong = role != "assistant" and not isinstance(content, str | list)
    refuse_if(wrong, f"Invalid type for 'messages[{n}].content'")
    if isinstance(content, list):
        refuse_if(not content, f"[] is too short - 'messages.{n}.content'")
        for i, part in enumerate(cast("list[Json]", content)):
            _check_part(f"messages[{n}].content[{i}]", part, _PARTS[role])


def _check_part(where: str, part: Json, kinds: Sequence[str]) -> None:
    kind = part.get("type")
    refuse_if(kind not in kinds, f"Invalid value: '{kind}' at '{where}.type'.")
    if kind == "image_url":
        url = str(part["image_url"]["url"])
        refuse_if(not _IMAGE.match(url), f"Invalid '{where}.image_url.url'.")


def _check_answered(waiting: Sequence[str]) -> None:
    refuse_if(
        waiting,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
        f"{', '.join(waiting)}",
    )


def _check_call(where: str, call: Json) -> None:
    wrong = call.get("type") != "function" or not _NAME.fullmatch(call["function"]["name"])
    refuse_if(wrong, f"Invalid '{where}.function.name': string does not match pattern.")
    long = len(call["id"]) > _LONGEST_ID
    refuse_if(long, f"Invalid '{where}.id': string too long. Expected at most 40 characters.")
    text: Any = call["function"]["arguments"]
    refuse_if(not isinstance(text, str), f"Invalid type for '{where}.function.arguments'")
    refuse_if(call.keys() - {"id", "type", "function"}, f"{where}: unknown fields")
