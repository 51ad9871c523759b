"""Anthropic's Messages API: what it streams, and what it refuses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from agent_runtime.testing.loopback import Json, halves
from agent_runtime.testing.providers.anthropic_requests import check_request
from agent_runtime.testing.providers.server import Call, Provider, Say, Think, Turn, bare, refuse_if

_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
_THINKING = ("thinking", "redacted_thinking")


class Anthropic(Provider):
    """The provider.

    Args:
        thinking: it thinks, and demands its thinking back as it was.
        bound: it demands none of an earlier answer, but that nothing before it has changed.
    """

    def __init__(self, *, thinking: bool, bound: bool = False) -> None:
        self.thinking = thinking
        self.bound = bound
        self._now: Sequence[object] = ()
        self._before: dict[bytes, bytes] = {}
        self.answers: dict[bytes, list[Json]] = {}

    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""
        error = {"type": "invalid_request_error", "message": text}
        return {"type": "error", "error": error, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}

    def prompt(self, body: Json) -> Sequence[object]:
        """Return what the prompt consists of, in order."""
        return [body.get("tools"), body.get("system"), *body["messages"]]

    # What it refuses

    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Look at a request."""
        check_request(body, headers)
        messages: list[Json] = [
            {**one, "content": _blocks(one["content"])} for one in body["messages"]
        ]
        refuse_if(not messages or messages[0]["role"] != "user", "messages: first must be user")
        for n, message in enumerate(messages):
            alternates = message["role"] == ("assistant" if n % 2 else "user")
            refuse_if(not alternates, f"messages.{n}: roles must alternate")
            self._check_blocks(n, message)
            if message["role"] == "user":
                self._check_results(n, message, messages[n - 1] if n else None)
        refuse_if(messages[-1]["role"] != "user", "the conversation must end with a user message")
        self._check_loop(messages)
        self._now = self.prompt(body)
        for n, message in enumerate(messages):
            if self.bound and any(block["type"] in _THINKING for block in message["content"]):
                same = self._before[_said(message["content"])] == _digest(self._now[: n + 2])
                refuse_if(
                    not same,
                    f"messages.{n}.content.0: `thinking` block is bound to a different "
                    "conversation",
                )

    def _check_blocks(self, n: int, message: Json) -> None:
        refuse_if(not message["content"], f"messages.{n}: content must be non-empty")
        for i, block in enumerate(message["content"]):
            where = f"messages.{n}.content.{i}"
            own = block["type"] in (*_THINKING, "tool_use")
            refuse_if(own and message["role"] == "user", f"{where}: {block['type']} of a user")
            asked = block["type"] == "tool_result"
            refuse_if(asked and message["role"] != "user", f"{where}: `tool_result` of an answer")
        if message["role"] == "assistant":
            self._check_answer(n, message["content"])

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

    def _check_results(self, n: int, message: Json, before: Json | None) -> None:
        content: list[Json] = message["content"]
        calls = [b["id"] for b in (before or {"content": []})["content"] if b["type"] == "tool_use"]
        refuse_if(not all(map(_ID.match, calls)), f"messages.{n - 1}: tool_use.id: bad pattern")
        results = [b["tool_use_id"] for b in content if b["type"] == "tool_result"]
        missing = [one for one in calls if one not in results]
        refuse_if(
            missing,
            f"messages.{n - 1}: `tool_use` ids were found without `tool_result` blocks "
            f"immediately after: {', '.join(missing)}.",
        )
        strange = [one for one in results if one not in calls]
        refuse_if(
            strange or len(results) != len(set(results)),
            f"messages.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {strange}",
        )
        first = [block["type"] for block in content[: len(results)]]
        refuse_if(first != ["tool_result"] * len(results), f"messages.{n}: results come first")

    def _check_loop(self, messages: list[Json]) -> None:
        """Refuse a tool loop under way of which an answer does not begin with its thinking."""
        if not self.thinking or self.bound or self.foreign:
            return
        begins = max(
            n
            for n, one in enumerate(messages)
            if one["role"] == "user" and not any(b["type"] == "tool_result" for b in one["content"])
        )
        for n in range(begins + 1, len(messages), 2):
            kind = messages[n]["content"][0]["type"]
            refuse_if(
                kind not in _THINKING,
                f"messages.{n}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
                f"found `{kind}`. When `thinking` is enabled, a final `assistant` message must "
                "start with a thinking block (preceeding the lastmost set of `tool_use` and "
                "`tool_result` blocks).",
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
    """Return a block as it has to come back, as it begins, and its deltas."""
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


def _blocks(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Json]", content)


def _anonymous(block: Json) -> Any:
    return {key: one for key, one in cast("Json", bare(block)).items() if key != "id"}


def _digest(prompt: Sequence[object]) -> bytes:
    return hashlib.sha256(orjson.dumps(bare([*prompt]))).digest()


def _said(content: Sequence[Json]) -> bytes:
    """Return what an answer is known by: its texts and calls."""
    known = [_anonymous(block) for block in content if block["type"] not in _THINKING]
    return orjson.dumps(known, option=orjson.OPT_SORT_KEYS)
