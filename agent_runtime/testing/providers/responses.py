"""OpenAI's Responses API: how it streams, and which requests it refuses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

import orjson

from agent_runtime.models.wire.rules.responses import (
    ResponsesModel,
    check_request,
    is_reasoning,
)
from agent_runtime.testing.loopback import Json, halves
from agent_runtime.testing.providers.server import (
    Call,
    Provider,
    Say,
    Think,
    Turn,
    refuse_if,
)


class Responses(Provider):
    """Plays the Responses API without stored responses; reasoning is encrypted.

    Args:
        efforts: the reasoning efforts that the model supports; the first is the default.
        phased: whether messages of the model have phases, which requests must repeat.
        plain_results: whether results of tools may be text only, as at xAI.

    Attributes:
        issued: the items of each answer, by the key of the answer.
        returned: the ids of the reasoning that came back.
    """

    def __init__(
        self,
        efforts: Sequence[str] = ("medium", "none", "low", "high", "xhigh", "max"),
        *,
        phased: bool = True,
        plain_results: bool = False,
    ) -> None:
        self.efforts = efforts
        self.phased = phased
        self.plain_results = plain_results
        self.issued: dict[bytes, list[Json]] = {}
        self.returned: set[str] = set()
        self._before: dict[str, Json | None] = {}
        self._after: dict[str, Json] = {}
        self._models: dict[str, str] = {}
        self._now: Json = {}

    @property
    def reasoned(self) -> set[str]:
        """The ids of the reasoning of all answers."""
        return {one["id"] for whole in self.issued.values() for one in whole if is_reasoning(one)}

    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""
        error = {"message": text, "type": "invalid_request_error", "param": "input", "code": None}
        return {"error": error}

    def prompt(self, body: Json) -> Sequence[object]:
        """Return the parts of the prompt, in order."""
        return [body.get("tools"), body.get("instructions"), *body["input"]]

    # What it refuses

    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Check a request."""
        key = headers.get("authorization", "").startswith("Bearer ")
        refuse_if(not key, "You didn't provide an API key.")
        takes = ResponsesModel(self.efforts, self.phased, self.plain_results)
        check_request(body, takes)
        self._now = body
        given: list[Json] = body["input"]
        for n, item in enumerate(given):
            if is_reasoning(item):
                self._check_encrypted(item)
            self._check_pairs(n, item, given)
        self._check_answers(given)

    def _check_encrypted(self, item: Json) -> None:
        identity = item.get("id", "")
        encrypted = item.get("encrypted_content")
        made = next((one for one in self._all() if one.get("encrypted_content") == encrypted), None)
        same = made is not None and identity in ("", made["id"])
        refuse_if(
            not same or self._models[str(encrypted)] != self.model,
            f"The encrypted content for item {identity} could not be verified. Reason: Encrypted "
            "content could not be decrypted or parsed.",
        )
        changed = made is not None and item["summary"] != made["summary"]
        refuse_if(changed, f"{identity}: the summary was changed")
        self.returned.add(identity)

    @property
    def model(self) -> str:
        """The model of the current request; encrypted content is bound to it."""
        return str(self._now.get("model", ""))

    def _all(self) -> list[Json]:
        return [one for whole in self.issued.values() for one in whole]

    def _check_pairs(self, n: int, item: Json, given: list[Json]) -> None:
        """Refuse reasoning without the item that it led to, and the reverse."""
        identity: str = item.get("id", "")
        if is_reasoning(item):
            follows = given[n + 1] if n + 1 < len(given) else {}
            wanted = self._after.get(identity, {})
            refuse_if(
                "id" in follows and follows["id"] != wanted.get("id"),
                f"Item '{identity}' of type 'reasoning' was provided without its required "
                "following item.",
            )
        elif identity:
            refuse_if(identity not in self._before, f"Item with id '{identity}' not found.")
            wanted = self._before[identity] or {}
            last = given[n - 1] if n else {}
            refuse_if(
                is_reasoning(wanted) and last.get("id") != wanted["id"],
                f"Item '{identity}' of type '{item['type']}' was provided without its required "
                f"'reasoning' item: '{wanted.get('id')}'.",
            )

    def _check_answers(self, given: list[Json]) -> None:
        """Refuse answers that were never given, or that were changed."""
        answer: list[Json] = []
        for item in [*given, {"type": "end"}]:
            if is_reasoning(item) or _is_made(item):
                answer.append(item)
            elif answer:
                self._check_answer(answer)
                answer = []

    def _check_answer(self, answer: list[Json]) -> None:
        made = self.issued.get(_known(answer))
        if made is None:
            refuse_if(not self.foreign, f"this was never answered: {answer}")
            signed = any("id" in one or is_reasoning(one) for one in answer)
            refuse_if(signed, f"another model's answer with ids: {answer}")
            return
        phases = [one.get("phase") for one in made if one["type"] == "message"]
        given = [one.get("phase") for one in answer if one["type"] == "message"]
        refuse_if(phases != given, f"a phase was changed: {given} instead of {phases}")
        order = [one.get("id") for one in made]
        given = [one["id"] for one in answer if "id" in one]
        if all("id" not in one or is_reasoning(one) for one in answer):
            # Items without ids may follow any reasoning item.
            order = [one["id"] for one in made if is_reasoning(one)]
        refuse_if(given and given != order, f"some of the items are missing: {given}")

    # What it streams

    def stream(self, turn: Turn, n: int) -> list[bytes]:
        """Return the events of an answer."""
        called = any(isinstance(part, Call) for part in turn)
        made = [self._item(part, f"{n:04}{i}", called=called) for i, part in enumerate(turn)]
        events: list[Json] = []
        for index, item in enumerate(made):
            events += _events(index, item)
            self._before[item["id"]] = made[index - 1] if index else None
            if is_reasoning(item):
                self._models[item["encrypted_content"]] = self.model
                self._after[item["id"]] = made[index + 1]
        self.issued[_known(made)] = made
        return events_of(events, self._response(n), made)

    def _response(self, n: int) -> Json:
        about: Json = {"id": f"resp_{n}", "object": "response", "created_at": 1, "error": None}
        echoed = ("instructions", "tools", "model", "max_output_tokens", "store")
        return about | {name: self._now.get(name) for name in echoed}

    def _item(self, part: Think | Say | Call, number: str, *, called: bool) -> Json:
        # As long as an id of the provider.
        identity = hashlib.sha256(number.encode()).hexdigest()[:50]
        if isinstance(part, Think):
            summary = [] if part.hidden else [{"type": "summary_text", "text": part.text}]
            secret = f"gAAAAA{part.text.encode().hex()}-{number}=="
            item: Json = {"id": f"rs_{identity}", "type": "reasoning", "summary": summary}
            return {**item, "encrypted_content": secret}
        if isinstance(part, Call):
            arguments = orjson.dumps(part.arguments).decode()
            item = {"id": f"fc_{identity}", "type": "function_call", "status": "completed"}
            return {**item, "call_id": f"call_{number}", "name": part.name, "arguments": arguments}
        content: Json = {
            "type": "output_text",
            "annotations": [],
            "logprobs": [],
            "text": part.text,
        }
        item = {"id": f"msg_{identity}", "type": "message", "status": "completed"}
        if self.phased:
            item["phase"] = "commentary" if called else "final_answer"
        return {**item, "role": "assistant", "content": [content]}


def events_of(events: Sequence[Json], response: Json, made: Sequence[Json]) -> list[bytes]:
    """Return a whole stream as bytes: its start, these events, its end and what follows."""
    details = {"input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2}}
    usage: Json = {"input_tokens": 9, "output_tokens": 7, "total_tokens": 16, **details}
    begun: Json = {**response, "status": "in_progress", "output": [], "usage": None}
    whole = {**response, "status": "completed", "output": [*made], "usage": usage}
    sent: list[Json] = [{"type": "response.created", "response": begun}]
    sent += [{"type": "response.in_progress", "response": begun}, *events]
    sent += [{"type": "response.completed", "response": whole}]
    sent += [{"type": "response.rate_limits.updated", "rate_limits": []}]
    return [sse({**one, "sequence_number": n}) for n, one in enumerate(sent)]


def sse(event: Json) -> bytes:
    """Return an event as it is streamed."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(event))


def _events(index: int, item: Json) -> list[Json]:
    """Return the events of an item."""
    at: Json = {"item_id": item["id"], "output_index": index}
    begun = dict(item)
    if is_reasoning(item):
        begun |= {"summary": [], "encrypted_content": "gAAAAAbegun"}
        events = [one for part in cast("list[Json]", item["summary"]) for one in _summary(at, part)]
    elif item["type"] == "function_call":
        begun |= {"arguments": "", "status": "in_progress"}
        kind = "response.function_call_arguments"
        events = [_delta(f"{kind}.delta", at, one) for one in halves(item["arguments"])]
        events.append({"type": f"{kind}.done", **at, "arguments": item["arguments"]})
    else:
        part: Json = item["content"][0]
        begun |= {"content": [], "status": "in_progress"}
        at |= {"content_index": 0}
        events = [{"type": "response.content_part.added", **at, "part": {**part, "text": ""}}]
        events += [_delta("response.output_text.delta", at, one) for one in halves(part["text"])]
        events.append({"type": "response.output_text.done", **at, "text": part["text"]})
        events.append({"type": "response.content_part.done", **at, "part": part})
    added: Json = {"type": "response.output_item.added", "output_index": index, "item": begun}
    return [
        added,
        *events,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _summary(at: Json, part: Json) -> list[Json]:
    at = {**at, "summary_index": 0}
    kind = "response.reasoning_summary"
    events: list[Json] = [{"type": f"{kind}_part.added", **at, "part": {**part, "text": ""}}]
    events += [_delta(f"{kind}_text.delta", at, one) for one in halves(part["text"])]
    events.append({"type": f"{kind}_text.done", **at, "text": part["text"]})
    return [*events, {"type": f"{kind}_part.done", **at, "part": part}]


def _delta(kind: str, at: Json, text: str) -> Json:
    return {"type": kind, **at, "delta": text, "obfuscation": "Xy7Bq2"}


def _is_made(item: Json) -> bool:
    """Return whether an item is from a model."""
    return item.get("role") == "assistant" or item.get("type") == "function_call"


def _known(answer: Sequence[Json]) -> bytes:
    """Return the key of an answer: its texts and calls."""
    texts = [part["text"] for one in answer if "content" in one for part in one["content"]]
    calls = [
        [one["name"], orjson.loads(one["arguments"])]
        for one in answer
        if one["type"] == "function_call"
    ]
    return orjson.dumps(["".join(texts), calls], option=orjson.OPT_SORT_KEYS)
