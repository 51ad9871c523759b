"""OpenAI's Chat Completions, and servers that are compatible with them up to a point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from agent_runtime.models.wire.rules.chat import check_request
from agent_runtime.testing.loopback import Json, halves
from agent_runtime.testing.providers.server import (
    Call,
    Provider,
    Say,
    Think,
    Turn,
    refuse_if,
)


class OpenAI(Provider):
    """Plays OpenAI itself, which sends no reasoning and accepts none."""

    more: frozenset[str] = frozenset()
    """Further fields of assistant messages that it accepts."""

    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""
        error = {"message": text, "type": "invalid_request_error", "param": None, "code": None}
        return {"error": error}

    def prompt(self, body: Json) -> Sequence[object]:
        """Return the parts of the prompt, in order."""
        return [body.get("tools"), *body["messages"]]

    # What it refuses

    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Check a request."""
        key = headers.get("authorization", "").startswith("Bearer ")
        refuse_if(not key, "You didn't provide an API key.")
        check_request(body, more=self.more)
        for n, message in enumerate(body["messages"]):
            if message["role"] == "assistant":
                self.check_answer(n, message)

    def check_answer(self, n: int, message: Json) -> None:
        """Check an answer of this model."""

    # What it streams

    def stream(self, turn: Turn, n: int) -> list[bytes]:
        """Return the events of an answer."""
        calls = [part for part in turn if isinstance(part, Call)]
        deltas: list[Json] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += self.reasoning("".join(one.text for one in turn if isinstance(one, Think)))
        text = "".join(one.text for one in turn if isinstance(one, Say))
        deltas += [{"content": part} for part in halves(text)]
        deltas += [{"tool_calls": fragments} for fragments in self.calls(calls, n)]
        choices: list[Json] = [{"index": 0, "delta": one, "finish_reason": None} for one in deltas]
        end = "tool_calls" if calls else "stop"
        choices.append({"index": 0, "delta": {}, "finish_reason": end})
        frame: Json = {"id": f"chatcmpl-{n}", "object": "chat.completion.chunk", "created": 1}
        frame |= {"model": "m", "service_tier": "default", "system_fingerprint": None}
        usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
        frames = [{**frame, "choices": [choice], "usage": None} for choice in choices]
        frames.append({**frame, "choices": [], "usage": usage})
        return [b"data: %s\n\n" % orjson.dumps(one) for one in frames] + [b"data: [DONE]\n\n"]

    def reasoning(self, text: str) -> list[Json]:
        """Return the deltas that show the model's reasoning."""
        return []

    def calls(self, calls: Sequence[Call], n: int) -> Iterator[list[Json]]:
        """Yield the fragments of each chunk."""
        for index, call in enumerate(calls):
            head = {"index": index, "id": f"call_{n}_{index}", "type": "function"}
            yield [{**head, "function": {"name": call.name, "arguments": ""}}]
            for piece in halves(_arguments(call)):
                yield [{"index": index, "function": {"arguments": piece}}]


class Quirky(OpenAI):
    """Plays a compatible server that requires its reasoning back, and streams calls in odd ways.

    Each of its own calls must come back with its reasoning unchanged; a call of another model must
    not come with reasoning that this server sent.
    """

    more = frozenset({"reasoning_content"})

    def __init__(self) -> None:
        self.thoughts: dict[bytes, str] = {}

    def check_answer(self, n: int, message: Json) -> None:
        """Check an answer of this model."""
        made: list[Json] = message.get("tool_calls") or []
        functions = [call["function"] for call in made]
        calls = [(one["name"], orjson.loads(one["arguments"])) for one in functions]
        if not calls:
            return
        refuse_if(
            "reasoning_content" not in message,
            "thinking is enabled but reasoning_content is missing in assistant tool call message "
            f"at index {n}",
        )
        known = self.thoughts.get(_known(calls))
        refuse_if(not self.foreign and known is None, f"messages[{n}]: never made: {calls}")
        changed = message["reasoning_content"].strip() != (known or "")
        refuse_if(changed, f"messages[{n}].reasoning_content: was changed")

    def stream(self, turn: Turn, n: int) -> list[bytes]:
        """Return the events of an answer."""
        thought = "".join(one.text for one in turn if isinstance(one, Think))
        calls = [(one.name, one.arguments) for one in turn if isinstance(one, Call)]
        self.thoughts[_known(calls)] = thought
        return super().stream(turn, n)

    def reasoning(self, text: str) -> list[Json]:
        """Return the deltas that show the model's reasoning."""
        return [{"content": None, "reasoning_content": part} for part in halves(text)]

    def calls(self, calls: Sequence[Call], n: int) -> Iterator[list[Json]]:
        """Yield the fragments of each chunk, in a different way at each turn."""
        ways = (self._zero, self._indexless, self._repeating, self._whole, self._made_up)
        yield from ways[n // 6 % len(ways)](calls, n)

    def _zero(self, calls: Sequence[Call], n: int) -> Iterator[list[Json]]:
        for chunk in super().calls(calls, n):
            yield [{**one, "index": 0} for one in chunk]

    def _indexless(self, calls: Sequence[Call], n: int) -> Iterator[list[Json]]:
        for chunk in super().calls(calls, n):
            yield [{key: it for key, it in one.items() if key != "index"} for one in chunk]

    def _repeating(self, calls: Sequence[Call], n: int) -> Iterator[list[Json]]:
        for i, call in enumerate(calls):
            for piece in halves(_arguments(call)):
                function = {"name": call.name, "arguments": piece}
                yield [{"index": 0, "id": f"c{n}_{i}", "type": "function", "function": function}]

    def _whole(self, calls: Sequence[Call], n: int) -> Iterator[list[Json]]:
        for call in calls:
            function = {"name": call.name, "arguments": _arguments(call)}
            yield [{"index": 0, "id": "", "type": "function", "function": function}]

    def _made_up(self, calls: Sequence[Call], n: int) -> Iterator[list[Json]]:
        for i, chunk in enumerate(super().calls(calls, n)):
            yield [{**one, "id": f"chatcmpl-tool-{n}-{i}"} for one in chunk]


def _arguments(call: Call) -> str:
    return orjson.dumps(call.arguments).decode()


def _known(calls: Sequence[tuple[str, Any]]) -> bytes:
    return orjson.dumps(calls, option=orjson.OPT_SORT_KEYS)
