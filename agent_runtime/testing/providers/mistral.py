"""Mistral's chat completions: how they stream, and which requests they refuse."""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from agent_runtime.testing.loopback import Json, halves
from agent_runtime.testing.providers.openai import OpenAI
from agent_runtime.testing.providers.server import Call, Say, Think, Turn, refuse_if

_ID = re.compile(r"[a-zA-Z0-9]{9}")
_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "prefix"},
    "tool": {"role", "content", "tool_call_id", "name"},
}
_PARTS = ("text", "image_url", "document_url", "input_audio", "thinking", "file")
_OVERFLOW = 3051


class Mistral(OpenAI):
    """Plays Mistral's chat completions.

    Args:
        window: the most bytes of a prompt; 0 for no limit.
    """

    def __init__(self, *, window: int = 0) -> None:
        self.window = window

    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""
        code = _OVERFLOW if "maximum context length" in text else 3230
        kind = "invalid_request_message_order" if "role" in text else "invalid_request_error"
        return {"object": "error", "message": text, "type": kind, "param": None, "code": f"{code}"}

    # What it refuses

    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Check a request."""
        size = len(orjson.dumps(body["messages"]))
        refuse_if(
            self.window and size > self.window,
            f"Prompt contains {size} tokens, too large for model with {self.window} maximum "
            "context length",
        )
        messages: list[Json] = body["messages"]
        for n, message in enumerate(messages):
            _check_message(n, message)
            before = messages[n - 1]["role"] if n else ""
            refuse_if(
                before == "tool" and message["role"] == "user",
                "Unexpected role 'user' after role 'tool'",
            )
            late = message["role"] == "system" and before not in ("", "system")
            refuse_if(late, f"Unexpected role 'system' after role '{before}'")
        last = messages[-1]["role"]
        refuse_if(
            last not in ("user", "tool"),
            f"Expected last role User or Tool (or Assistant with prefix True) but got {last}",
        )
        plain: list[Json] = [_plain(message) for message in messages]
        super().check({**body, "messages": plain}, headers)

    # What it streams

    def stream(self, turn: Turn, n: int) -> list[bytes]:
        """Return the events of an answer."""
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        for part in turn:
            if isinstance(part, Think):
                deltas += [{"content": [_thought(one)]} for one in halves(part.text)]
            elif isinstance(part, Say):
                deltas += [{"content": one} for one in halves(part.text)]
        calls = [part for part in turn if isinstance(part, Call)]
        if calls:
            deltas.append(
                {"content": "", "tool_calls": [_call(i, n, one) for i, one in enumerate(calls)]}
            )
        choices: list[Json] = [{"index": 0, "delta": one, "finish_reason": None} for one in deltas]
        choices[-1]["finish_reason"] = "tool_calls" if calls else "stop"
        frame: Json = {"id": f"{n:032x}", "object": "chat.completion.chunk", "created": 1}
        frame["model"] = "mistral-large-latest"
        frames: list[Json] = [{**frame, "choices": [choice]} for choice in choices]
        frames[-1]["usage"] = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
        return [b"data: %s\n\n" % orjson.dumps(one) for one in frames] + [b"data: [DONE]\n\n"]


def _check_message(n: int, message: Json) -> None:
    role = message["role"]
    extra = message.keys() - _FIELDS[role]
    refuse_if(extra, f"Extra inputs are not permitted: messages.{n}.{role}.{sorted(extra)}")
    if isinstance(message.get("content"), list):
        for part in message["content"]:
            refuse_if(part["type"] not in _PARTS, f"messages.{n}: unknown part {part['type']}")
            extra = part.keys() & {"cache_control"}
            refuse_if(extra, f"Extra inputs are not permitted: messages.{n}.content.cache_control")
    calls: list[Json] = message.get("tool_calls") or []
    empty = role == "assistant" and not calls and not message.get("content")
    refuse_if(empty, "Assistant message must have either content or tool_calls, but not none.")
    for identity in [call["id"] for call in calls] + [message.get("tool_call_id", "aaaaaaaaa")]:
        refuse_if(
            not _ID.fullmatch(identity),
            f"Tool call id was {identity} but must be a-z, A-Z, 0-9, with a length of 9.",
        )


def _plain(message: Json) -> Json:
    """Return a message with only what OpenAI knows of it."""
    calls: list[Json] = message.get("tool_calls") or []
    known = {key: value for key, value in message.items() if key not in ("name", "prefix")}
    if calls:
        # The type may be left out, and an index may count the calls.
        known["tool_calls"] = [
            {"type": "function"} | {key: one for key, one in call.items() if key != "index"}
            for call in calls
        ]
    return known


def _thought(text: str) -> Json:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def _call(index: int, n: int, call: Call) -> Json:
    function = {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()}
    return {"id": f"{n:07}{index:02}", "function": function, "index": index}
