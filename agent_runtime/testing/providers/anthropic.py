"""Anthropic's Messages API: how it streams, and which requests it refuses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from agent_runtime.models.wire.rules.messages import (
    check_request,
    check_tool_loop,
    is_known,
    turns_of,
)
from agent_runtime.testing.loopback import Json, halves
from agent_runtime.testing.providers.server import Call, Provider, Say, Think, Turn, bare, refuse_if

_VERSIONS = ("2023-06-01", "2026-10-21")
_THINKING = ("thinking", "redacted_thinking")


class Anthropic(Provider):
    """Plays Anthropic's Messages API.

    Args:
        thinking: whether answers contain thinking, which later requests must repeat unchanged.
        bound: whether later requests may omit thinking, but not change anything before it.
    """

    def __init__(self, *, thinking: bool, bound: bool = False) -> None:
        self.thinking = thinking
        self.bound = bound
        self._now: Sequence[object] = ()
        self._before: dict[bytes, bytes] = {}
        # By texts and calls: an answer comes back without its thinking if other models may read
        # it.
        self.answers: dict[bytes, list[Json]] = {}

    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""
        error = {"type": "invalid_request_error", "message": text}
        return {"type": "error", "error": error, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}

    def prompt(self, body: Json) -> Sequence[object]:
        """Return the parts of the prompt, in order."""
        return [body.get("tools"), body.get("system"), *body["messages"]]

    # What it refuses

    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Check a request."""
        known = "x-api-key" in headers or headers.get("authorization", "").startswith("Bearer ")
        refuse_if(not known, "x-api-key header is required")
        version = headers.get("anthropic-version")
        wrong = version not in _VERSIONS
        refuse_if(wrong, f"anthropic-version: {version!r} is not a valid version")
        check_request(body, samples=version == _VERSIONS[0])
        refuse_if(not is_known(body["model"]), f"model: {body['model']}")
        messages = turns_of(body)
        for n, message in enumerate(messages):
            if message["role"] == "assistant":
                self._check_answer(n, message["content"])
        if self.thinking and not self.bound and not self.foreign:
            check_tool_loop(messages, each=True)
        self._now = self.prompt(body)
        for n, message in enumerate(messages):
            if self.bound and any(block["type"] in _THINKING for block in message["content"]):
                same = self._before[_said(message["content"])] == _digest(self._now[: n + 2])
                refuse_if(
                    not same,
                    f"messages.{n}.content.0: `thinking` block is bound to a different "
                    "conversation",
                )

    def _check_answer(self, n: int, content: list[Json]) -> None:
        known = self.answers.get(_said(content))
        if known is None:
            signed = any(block["type"] in _THINKING for block in content)
            refuse_if(signed or not self.foreign, f"messages.{n}: this was never answered")
            return
        thinking = any(block["type"] in _THINKING for block in content)
        wanted = known if thinking else [one for one in known if one["type"] not in _THINKING]
        same = [_anonymous(block) for block in content] == wanted
        refuse_if(
            not same,
            f"messages.{n}: `thinking` or `redacted_thinking` blocks in the latest assistant "
            "message cannot be modified. These blocks must remain as they were in the original "
            "response.",
        )

    # What it streams

    def stream(self, turn: Turn, n: int) -> list[bytes]:
        """Return the events of an answer."""
        shown = [part for part in turn if self.thinking or not isinstance(part, Think)]
        blocks: list[Json] = []
        usage = {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        message = {"id": f"msg_{n}", "type": "message", "role": "assistant", "model": "claude"}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None}
        start = {**message, "usage": {**usage, "output_tokens": 1}}
        events: list[Json] = [{"type": "message_start", "message": start}]
        for index, part in enumerate(shown):
            whole, begun, deltas = _block(part, f"{n}_{index}")
            blocks.append(whole)
            events.append({"type": "content_block_start", "index": index, "content_block": begun})
            events += [{"type": "ping"}] if index == 0 else []
            events += [
                {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
            ]
            events.append({"type": "content_block_stop", "index": index})
        self.answers[_said(blocks)] = blocks
        self._before[_said(blocks)] = _digest(self._now)
        called = any(isinstance(part, Call) for part in turn)
        delta = {"stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 89}})
        events.append({"type": "message_stop"})
        return [
            b"event: %s\ndata: %s\n\n" % (one["type"].encode(), orjson.dumps(one)) for one in events
        ]


def _block(part: Think | Say | Call, identity: str) -> tuple[Json, Json, list[Json]]:
    """Return a block as later requests must repeat it, its start, and its deltas."""
    if isinstance(part, Call):
        whole: Json = {"type": "tool_use", "name": part.name, "input": dict(part.arguments)}
        text = orjson.dumps(part.arguments).decode()
        pieces: list[Json] = [{"type": "input_json_delta", "partial_json": ""}]
        pieces += [{"type": "input_json_delta", "partial_json": one} for one in halves(text)]
        return whole, {**whole, "id": f"toolu_{identity}", "input": {}}, pieces
    if isinstance(part, Say):
        pieces = [{"type": "text_delta", "text": one} for one in halves(part.text)]
        return {"type": "text", "text": part.text}, {"type": "text", "text": ""}, pieces
    if part.hidden:
        whole = {"type": "redacted_thinking", "data": f"{part.text}+{identity}=="}
        return whole, whole, []
    pieces = [{"type": "thinking_delta", "thinking": one} for one in halves(part.text)]
    signature = f"Eq{identity}/{part.text.encode().hex()[:40]}=="
    pieces.append({"type": "signature_delta", "signature": signature})
    whole = {"type": "thinking", "thinking": part.text, "signature": signature}
    return whole, {"type": "thinking", "thinking": "", "signature": ""}, pieces


def _anonymous(block: Json) -> Any:
    return {key: one for key, one in cast("Json", bare(block)).items() if key != "id"}


def _digest(prompt: Sequence[object]) -> bytes:
    return hashlib.sha256(orjson.dumps(bare([*prompt]))).digest()


def _said(content: Sequence[Json]) -> bytes:
    """Return the key of an answer: its texts and calls."""
    known = [_anonymous(block) for block in content if block["type"] not in _THINKING]
    return orjson.dumps(known, option=orjson.OPT_SORT_KEYS)
