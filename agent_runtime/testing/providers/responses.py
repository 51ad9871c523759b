"""OpenAI's Responses API: what it streams, and what it refuses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from agent_runtime.testing.loopback import Json, halves
from agent_runtime.testing.providers.server import (
    Call,
    Provider,
    RefusedError,
    Say,
    Think,
    Turn,
    refuse_if,
)

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_FIELDS = {
    "model",
    "instructions",
    "tools",
    "input",
    "stream",
    "store",
    "max_output_tokens",
    "include",
    "prompt_cache_key",
    "prompt_cache_options",
    "reasoning",
    "temperature",
    "top_p",
    "text",
    "service_tier",
    "tool_choice",
    "parallel_tool_calls",
    "metadata",
}
_ITEMS = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": {"type", "call_id", "name", "arguments", "id", "status"},
    "function_call_output": {"type", "call_id", "output", "id", "status"},
    "reasoning": {"type", "id", "summary", "encrypted_content", "content", "status"},
}
_PARTS = {
    "input_text": {"type", "text", "prompt_cache_breakpoint"},
    "input_image": {"type", "image_url", "detail", "prompt_cache_breakpoint"},
    "input_file": {"type", "filename", "file_data", "prompt_cache_breakpoint"},
    "output_text": {"type", "text", "annotations", "logprobs"},
    "refusal": {"type", "refusal"},
}
_PREFIXES = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_"}
_TOP_LEVEL = ("oneOf", "anyOf", "allOf", "enum", "not")


class Responses(Provider):
    """The provider, which stores nothing and gives its reasoning encrypted.

    Args:
        efforts: what the model takes; the first is the default.
        phased: whether the model's messages have phases, which it needs back.
        plain_results: results are texts only, as at xAI.

    Attributes:
        issued: the answers' items, by what they are known by.
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
        return {one["id"] for whole in self.issued.values() for one in whole if _is_reasoning(one)}

    def refusal(self, text: str) -> Json:
        """Return the body of a refusal."""
        error = {"message": text, "type": "invalid_request_error", "param": "input", "code": None}
        return {"error": error}

    def prompt(self, body: Json) -> Sequence[object]:
        """Return what the prompt consists of, in order."""
        return [body.get("tools"), body.get("instructions"), *body["input"]]

    # What it refuses

    def check(self, body: Json, headers: Mapping[str, str]) -> None:
        """Look at a request."""
        key = headers.get("authorization", "").startswith("Bearer ")
        refuse_if(not key, "You didn't provide an API key.")
        for name in body.keys() - _FIELDS:
            raise RefusedError(f"Unknown parameter: '{name}'.")
        refuse_if(body.get("store") is not False, "store: nothing may be stored here")
        refuse_if(body.get("stream") is not True, "stream: only streams here")
        self._now = body
        self._check_settings(body)
        self._check_tools(body)
        given: list[Json] = body["input"]
        refuse_if(not given, "Invalid 'input': empty array.")
        for n, item in enumerate(given):
            _check_fields(f"input[{n}]", item, _ITEMS)
            self._check_item(n, item)
        _check_calls(given)
        _check_ids(given)
        for n, item in enumerate(given):
            self._check_pairs(n, item, given)
        self._check_answers(given)

    def _check_settings(self, body: Json) -> None:
        most = body.get("max_output_tokens", 16)
        refuse_if(
            most < 16,
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, "
            f"but got {most} instead.",
        )
        taken = self.efforts or ("none",)
        effort = body.get("reasoning", {}).get("effort", taken[0])
        refuse_if(
            effort not in taken,
            f"Unsupported value: '{effort}' is not supported with the '{body['model']}' model.",
        )
        refuse_if("reasoning" in body and not self.efforts, "Unsupported parameter: 'reasoning'")
        for name in ("temperature", "top_p"):
            refuse_if(
                name in body and effort != "none",
                f"Unsupported parameter: '{name}' is not supported with this model.",
            )
        refuse_if(
            "include" in body and not self.efforts,
            "Encrypted content is not supported with this model.",
        )
        verbosity = body.get("text", {}).get("verbosity", "medium")
        refuse_if(verbosity not in ("low", "medium", "high"), "Invalid 'text.verbosity'")
        long = len(body.get("prompt_cache_key", "")) > 64
        refuse_if(long, "Invalid 'prompt_cache_key': string too long.")

    def _check_tools(self, body: Json) -> None:
        tools: list[Json] = body.get("tools") or []
        names = [tool["name"] for tool in tools]
        refuse_if(len(names) != len(set(names)), "Tool names must be unique.")
        for n, tool in enumerate(tools):
            known = {"type", "name", "description", "parameters", "strict"}
            refuse_if(tool.keys() - known, f"Unknown parameter: 'tools[{n}]'")
            refuse_if(not _NAME.match(tool["name"]), f"Invalid 'tools[{n}].name'")
            _check_schema(tool)
        choice = body.get("tool_choice")
        refuse_if(
            choice not in (None, "auto", "none") and not tools,
            "Tool choice 'required' must be specified with 'tools' parameter.",
        )
        if isinstance(choice, dict):
            named = cast("Json", choice)["name"]
            refuse_if(named not in names, f"Tool choice '{named}' not found in 'tools' parameter.")

    def _check_item(self, n: int, item: Json) -> None:
        where = f"input[{n}]"
        if item["type"] == "message":
            role = item["role"]
            refuse_if(role not in ("user", "assistant", "developer"), f"Invalid '{where}.role'")
            kinds = ("output_text", "refusal") if role == "assistant" else ("input_",)
            _check_content(f"{where}.content", item["content"], kinds)
            phase = item.get("phase")
            refuse_if(phase and role != "assistant", f"Unknown parameter: '{where}.phase'.")
            refuse_if(phase and not self.phased, f"Unknown parameter: '{where}.phase'.")
            lost = self.phased and role == "assistant" and not phase
            refuse_if(lost, f"'{where}.phase' was lost")
        elif item["type"] == "function_call":
            refuse_if(not _NAME.match(item["name"]), f"Invalid '{where}.name'")
            refuse_if(not isinstance(item["arguments"], str), f"Invalid '{where}.arguments'")
            right = isinstance(orjson.loads(item["arguments"]), dict)
            refuse_if(not right, f"Invalid '{where}.arguments': no object")
        elif item["type"] == "function_call_output":
            output = item["output"]
            listed = isinstance(output, list)
            refuse_if(listed and self.plain_results, f"Invalid type for '{where}.output'.")
            if listed:
                _check_content(f"{where}.output", cast("list[Json]", output), ("input_",))
        else:
            missing = "summary" not in item
            refuse_if(missing, f"Missing required parameter: '{where}.summary'.")
            self._check_encrypted(item)

    def _check_encrypted(self, item: Json) -> None:
        identity = item.get("id", "")
        encrypted = item.get("encrypted_content")
        refuse_if(
            not encrypted,
            f"Item with id '{identity}' not found. Items are not persisted when `store` is set to "
            "false. Try again with `store` set to true, or remove this item from your input.",
        )
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
        """The model that is asked; encrypted content is bound to it."""
        return str(self._now.get("model", ""))

    def _all(self) -> list[Json]:
        return [one for whole in self.issued.values() for one in whole]

    def _check_pairs(self, n: int, item: Json, given: list[Json]) -> None:
        """Refuse reasoning without the item that it led to, and the reverse."""
        identity: str = item.get("id", "")
        if _is_reasoning(item):
            follows = given[n + 1] if n + 1 < len(given) else {}
            wanted = self._after.get(identity, {})
            made = follows.get("role", "assistant") == "assistant"
            right = made and follows.get("type") in ("message", "function_call", "reasoning")
            if "id" in follows:
                right = follows["id"] == wanted.get("id")
            refuse_if(
                not right,
                f"Item '{identity}' of type 'reasoning' was provided without its required "
                "following item.",
            )
        elif identity:
            refuse_if(identity not in self._before, f"Item with id '{identity}' not found.")
            wanted = self._before[identity] or {}
            last = given[n - 1] if n else {}
            refuse_if(
                _is_reasoning(wanted) and last.get("id") != wanted["id"],
                f"Item '{identity}' of type '{item['type']}' was provided without its required "
                f"'reasoning' item: '{wanted.get('id')}'.",
            )

    def _check_answers(self, given: list[Json]) -> None:
        """Refuse answers that were never made, or that came back changed."""
        answer: list[Json] = []
        for item in [*given, {"type": "end"}]:
            if _is_reasoning(item) or _is_made(item):
                answer.append(item)
            elif answer:
                self._check_answer(answer)
                answer = []

    def _check_answer(self, answer: list[Json]) -> None:
        made = self.issued.get(_known(answer))
        if made is None:
            refuse_if(not self.foreign, f"this was never answered: {answer}")
            signed = any("id" in one or _is_reasoning(one) for one in answer)
            refuse_if(signed, f"another model's answer with ids: {answer}")
            return
        phases = [one.get("phase") for one in made if one["type"] == "message"]
        given = [one.get("phase") for one in answer if one["type"] == "message"]
        refuse_if(phases != given, f"a phase was changed: {given} instead of {phases}")
        order = [one.get("id") for one in made]
        given = [one["id"] for one in answer if "id" in one]
        if all("id" not in one or _is_reasoning(one) for one in answer):
            # Items without ids may follow any reasoning.
            order = [one["id"] for one in made if _is_reasoning(one)]
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
            if _is_reasoning(item):
                self._models[item["encrypted_content"]] = self.model
                self._after[item["id"]] = made[index + 1]
        self.issued[_known(made)] = made
        return events_of(events, self._response(n), made)

    def _response(self, n: int) -> Json:
        about: Json = {"id": f"resp_{n}", "object": "response", "created_at": 1, "error": None}
        echoed = ("instructions", "tools", "model", "max_output_tokens", "store")
        return about | {name: self._now.get(name) for name in echoed}

    def _item(self, part: Think | Say | Call, number: str, *, called: bool) -> Json:
        # As long as the provider's.
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
    """Return a whole stream as bytes: its beginning, these events, its end and what follows it."""
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
    if _is_reasoning(item):
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


def _is_reasoning(item: Json) -> bool:
    return item.get("type") == "reasoning"


def _is_made(item: Json) -> bool:
    """Return whether a model made an item."""
    return item.get("role") == "assistant" or item.get("type") == "function_call"


def _check_fields(where: str, item: Json, known: Mapping[str, set[str]]) -> None:
    kind = item.get("type", "message")
    refuse_if(kind not in known, f"Invalid value: '{kind}' at '{where}.type'.")
    for name in item.keys() - known[kind]:
        raise RefusedError(f"Unknown parameter: '{where}.{name}'.")


def _check_content(where: str, content: str | list[Json], kinds: tuple[str, ...]) -> None:
    refuse_if(not content, f"Invalid '{where}': empty content.")
    if isinstance(content, str):
        return
    for n, part in enumerate(content):
        _check_fields(f"{where}[{n}]", part, _PARTS)
        refuse_if(
            not part["type"].startswith(kinds),
            f"Invalid value: '{part['type']}'. Supported values are: {kinds}. ({where}[{n}])",
        )
        if part["type"] in ("input_text", "output_text"):
            refuse_if(not part["text"], f"Invalid '{where}[{n}].text': empty string.")
        if part["type"] == "input_image":
            right = part["image_url"].startswith(("https://", "data:image/"))
            refuse_if(not right, f"Invalid '{where}[{n}].image_url'. Expected a valid URL.")
        if part["type"] == "input_file":
            right = part["file_data"].startswith("data:application/pdf;base64,")
            refuse_if(not right, f"Invalid '{where}[{n}].file_data'.")


def _check_schema(tool: Json) -> None:
    schema: Json = tool["parameters"]
    where = f"Invalid schema for function '{tool['name']}'"
    refuse_if(schema.get("type") != "object", f"{where}: schema must be a JSON Schema of 'object'")
    refuse_if("properties" not in schema, f"{where}: object schema missing properties.")
    refuse_if(schema.keys() & set(_TOP_LEVEL), f"{where}: must not have these at the top level")
    # A tool is strict unless the request says that it is not.
    if tool.get("strict") is not False:
        _check_strict(where, schema)


def _check_strict(where: str, schema: Any) -> None:
    if isinstance(schema, list):
        for one in cast("list[Any]", schema):
            _check_strict(where, one)
    if not isinstance(schema, dict):
        return
    found = cast("Json", schema)
    refuse_if("allOf" in found, f"{where}: 'allOf' is not permitted.")
    if found.get("type") == "object":
        closed = found.get("additionalProperties") is False
        refuse_if(not closed, f"{where}: 'additionalProperties' is required to be false.")
        whole = set(found.get("required", ())) == set(found.get("properties", ()))
        refuse_if(not whole, f"{where}: 'required' must include every key in properties.")
    for one in found.values():
        _check_strict(where, one)


def _check_calls(given: Sequence[Json]) -> None:
    waiting: list[str] = []
    for n, item in enumerate(given):
        if "call_id" not in item:
            continue
        call = item["call_id"]
        long = not 1 <= len(call) <= 64
        refuse_if(long, f"Invalid 'input[{n}].call_id': string too long.")
        if item["type"] == "function_call":
            waiting.append(call)
            continue
        missing = call not in waiting
        refuse_if(missing, f"No tool call found for function call output with call_id {call}.")
        waiting.remove(call)
    refuse_if(waiting, f"No tool output found for function call {waiting[:1]}.")


def _check_ids(given: Sequence[Json]) -> None:
    seen: set[str] = set()
    for n, item in enumerate(given):
        if "id" not in item:
            continue
        identity = item["id"]
        right = _NAME.match(identity) and identity.startswith(_PREFIXES[item["type"]])
        refuse_if(not right, f"Invalid 'input[{n}].id': '{identity}'.")
        refuse_if(identity in seen, f"Duplicate item found with id {identity}.")
        seen.add(identity)


def _known(answer: Sequence[Json]) -> bytes:
    """Return what an answer is known by: its texts and calls."""
    texts = [part["text"] for one in answer if "content" in one for part in one["content"]]
    calls = [
        [one["name"], orjson.loads(one["arguments"])]
        for one in answer
        if one["type"] == "function_call"
    ]
    return orjson.dumps(["".join(texts), calls], option=orjson.OPT_SORT_KEYS)
