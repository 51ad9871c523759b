"""Servers that are compatible with OpenAI's Chat Completions, except for their quirks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from agent_runtime.testing.loopback import Json, halves
from agent_runtime.testing.providers.openai import OpenAI
from agent_runtime.testing.providers.server import Call, Say, Think, Turn


@dataclass(frozen=True, slots=True)
class Quirks:
    """What a compatible server does differently; by default nothing.

    Attributes:
        index: the index of calls: left out, or 0 for all of them.
        ids: the ids of calls: left out, the same for all of an answer, or new with each fragment.
        usage: where usage is: in a chunk of its own, in the last chunk with a choice, null in all
            chunks, or nowhere.
        finish: whether the answer ends with a finish reason.
        done: whether the stream ends with the marker `[DONE]`.
        reasoning: the field of reasoning; empty for none.
        arguments: whether the arguments of calls are sent as text or as an object.
        whole: whether the answer is one JSON object instead of a stream.
        failure: the text of an error in the middle of the stream; empty for none.
        comments: how many keep-alive comments come before the answer.
        bytewise: whether each byte is sent by itself.
        surrogates: whether surrogate pairs are split between deltas.
        crlf: whether lines end with carriage return and line feed.
    """

    index: Literal["own", "none", "zero"] = "own"
    ids: Literal["own", "none", "same", "new"] = "own"
    usage: Literal["own", "last", "null", "none"] = "own"
    finish: bool = True
    done: bool = True
    reasoning: Literal["", "reasoning_content", "reasoning", "reasoning_details"] = ""
    arguments: Literal["text", "object"] = "text"
    whole: bool = False
    failure: str = ""
    comments: int = 0
    bytewise: bool = False
    surrogates: bool = False
    crlf: bool = False


class Compatible(OpenAI):
    """Plays a compatible server with quirks; it refuses what OpenAI refuses.

    It accepts its reasoning back in the field in which it sent it.
    """

    def __init__(self, quirks: Quirks | None = None) -> None:
        self.quirks = quirks or Quirks()
        if self.quirks.reasoning:
            # Servers that know only one of the two names ignore the other.
            self.more = frozenset({self.quirks.reasoning, "reasoning_content"})

    @property
    def media_type(self) -> str:
        """The content type of answers."""
        return "application/json" if self.quirks.whole else "text/event-stream"

    def stream(self, turn: Turn, n: int) -> list[bytes]:
        """Return the pieces of the answer's body."""
        quirks = self.quirks
        if quirks.whole:
            body = orjson.dumps(self._whole(turn, n))
            return [body[: len(body) // 2], body[len(body) // 2 :]]
        frames = list(self._frames(turn, n))
        if quirks.failure:
            error = {"message": quirks.failure, "type": "server_error", "code": None}
            frames = [*frames[: len(frames) // 2], {"error": error}]
        end = b"\r\n" if quirks.crlf else b"\n"
        pieces = [b": keep-alive" + end * 2] * quirks.comments
        pieces += [b"data: " + _dumps(frame) + end * 2 for frame in frames]
        if quirks.done and not quirks.failure:
            pieces.append(b"data: [DONE]" + end * 2)
        if quirks.bytewise:
            pieces = [bytes([one]) for piece in pieces for one in piece]
        return pieces

    def _frames(self, turn: Turn, n: int) -> Iterator[Json]:
        quirks = self.quirks
        calls = [part for part in turn if isinstance(part, Call)]
        thought = "".join(part.text for part in turn if isinstance(part, Think))
        text = "".join(part.text for part in turn if isinstance(part, Say))
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += self.reasoning(thought)
        deltas += [{"content": part} for part in self._split(text)]
        deltas += [{"tool_calls": fragments} for fragments in self.calls(calls, n)]
        frame: Json = {"id": f"chatcmpl-{n}", "object": "chat.completion.chunk", "created": 1}
        frame |= {"model": "m"}
        if quirks.usage in ("own", "null"):
            frame["usage"] = None
        for delta in deltas:
            yield frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        if quirks.finish:
            choice: Json = {
                "index": 0,
                "delta": {},
                "finish_reason": "tool_calls" if calls else "stop",
            }
            last: Json = {"usage": _USAGE} if quirks.usage == "last" else {}
            yield frame | {"choices": [choice]} | last
        if quirks.usage == "own":
            yield frame | {"choices": [], "usage": _USAGE}

    def reasoning(self, text: str) -> list[Json]:
        """Return the deltas that show the model's reasoning."""
        field = self.quirks.reasoning
        if not field:
            return []
        return [{"content": None, field: self._reasoning(part)} for part in self._split(text)]

    def _reasoning(self, text: str) -> Any:
        if self.quirks.reasoning != "reasoning_details":
            return text
        return [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]

    def calls(self, calls: Sequence[Call], n: int) -> Iterator[list[Json]]:
        """Yield the fragments of each chunk."""
        number = 0
        for index, call in enumerate(calls):
            functions: list[Json] = [{"name": call.name, "arguments": ""}]
            if self.quirks.arguments == "object":
                functions = [self._function(call)]
            else:
                text = orjson.dumps(call.arguments).decode()
                functions += [{"arguments": part} for part in self._split(text)]
            for i, function in enumerate(functions):
                number += 1
                head = self._head(index, f"call_{n}_{index}", number, first=i == 0)
                yield [{**head, "function": function}]

    def _head(self, index: int, identity: str, number: int, *, first: bool) -> Json:
        """Return index, id and type of a fragment."""
        quirks = self.quirks
        head: Json = {}
        if quirks.index != "none":
            head["index"] = index if quirks.index == "own" else 0
        if quirks.ids == "new":
            head["id"] = f"{identity}_{number}"
        elif first and quirks.ids != "none":
            head["id"] = "call_1" if quirks.ids == "same" else identity
        return head | ({"type": "function"} if first else {})

    def _whole(self, turn: Turn, n: int) -> Json:
        """Return the answer as one object."""
        calls = [part for part in turn if isinstance(part, Call)]
        text = "".join(part.text for part in turn if isinstance(part, Say))
        message: Json = {"role": "assistant", "content": text or None}
        thought = "".join(part.text for part in turn if isinstance(part, Think))
        if thought and self.quirks.reasoning:
            message[self.quirks.reasoning] = self._reasoning(thought)
        if calls:
            message["tool_calls"] = [
                self._head(i, f"call_{n}_{i}", i, first=True) | {"function": self._function(call)}
                for i, call in enumerate(calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole: Json = {"id": f"chatcmpl-{n}", "object": "chat.completion", "created": 1}
        usage: Json = {} if self.quirks.usage in ("null", "none") else _USAGE
        return whole | {"model": "m", "choices": [choice], "usage": usage or None}

    def _function(self, call: Call) -> Json:
        arguments: Mapping[str, Any] | str = call.arguments
        if self.quirks.arguments == "text":
            arguments = orjson.dumps(arguments).decode()
        return {"name": call.name, "arguments": arguments}

    def _split(self, text: str) -> list[str]:
        """Return a text in pieces, which may split a pair of surrogates."""
        if not self.quirks.surrogates:
            return halves(text)
        units = text.encode("utf-16-le", "surrogatepass")
        # The first half of a pair, by the high byte of its code unit.
        ends = [i for i in range(0, len(units), 2) if 0xD8 <= units[i + 1] <= 0xDB]
        cut = ends[0] + 2 if ends else len(units) // 4 * 2
        parts = (units[:cut], units[cut:])
        return [part.decode("utf-16-le", "surrogatepass") for part in parts if part]


_USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}


def _dumps(value: Json) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # orjson refuses half of a surrogate pair; such a server escapes it.
        return json.dumps(value).encode()
