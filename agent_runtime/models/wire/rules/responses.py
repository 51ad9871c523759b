"""What OpenAI's Responses API refuses in a request.

Reference: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson

from agent_runtime.models.base import Json
from agent_runtime.models.wire.rules.refusal import RefusedError, refuse_if

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


@dataclass(frozen=True, slots=True)
class ResponsesModel:
    """What a model takes.

    Attributes:
        efforts: the first is the default; empty if it takes none, None if they are not known.
        phased: whether its messages have phases, which it needs back; None if not known.
        plain_results: whether results are texts only, as at xAI.
    """

    efforts: Sequence[str] | None = None
    phased: bool | None = None
    plain_results: bool = False


def check_request(body: Json, model: ResponsesModel) -> None:
    """Check the body of a request that stores nothing at the provider.

    Raises:
        RefusedError: the API would refuse it.
    """
    for name in body.keys() - _FIELDS:
        raise RefusedError(f"Unknown parameter: '{name}'.")
    refuse_if(body.get("store") is not False, "store: nothing may be stored here")
    refuse_if(body.get("stream") is not True, "stream: only streams here")
    _check_settings(body, model.efforts)
    _check_tools(body)
    given: list[Json] = body["input"]
    refuse_if(not given, "Invalid 'input': empty array.")
    for n, item in enumerate(given):
        _check_fields(f"input[{n}]", item, _ITEMS)
        _check_item(n, item, model)
        _check_follows(n, item, given)
    _check_calls(given)
    _check_ids(given)


def is_reasoning(item: Json) -> bool:
    """Return whether an item is the model's reasoning."""
    return item.get("type") == "reasoning"


def _check_follows(n: int, item: Json, given: Sequence[Json]) -> None:
    """Check that reasoning stands before something that the model made."""
    if not is_reasoning(item):
        return
    follows = given[n + 1] if n + 1 < len(given) else {}
    made = follows.get("role", "assistant") == "assistant"
    right = made and follows.get("type") in ("message", "function_call", "reasoning")
    refuse_if(
        not right,
        f"Item '{item.get('id', '')}' of type 'reasoning' was provided without its required "
        "following item.",
    )


def _check_settings(body: Json, efforts: Sequence[str] | None) -> None:
    most = body.get("max_output_tokens", 16)
    refuse_if(
        most < 16,
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, "
        f"but got {most} instead.",
    )
    if efforts is None:
        return
    taken = efforts or ("none",)
    effort = body.get("reasoning", {}).get("effort", taken[0])
    refuse_if(
        effort not in taken,
        f"Unsupported value: '{effort}' is not supported with the '{body['model']}' model.",
    )
    refuse_if("reasoning" in body and not efforts, "Unsupported parameter: 'reasoning'")
    for name in ("temperature", "top_p"):
        refuse_if(
            name in body and effort != "none",
            f"Unsupported parameter: '{name}' is not supported with this model.",
        )
    refuse_if(
        "include" in body and not efforts,
        "Encrypted content is not supported with this model.",
    )
    verbosity = body.get("text", {}).get("verbosity", "medium")
    refuse_if(verbosity not in ("low", "medium", "high"), "Invalid 'text.verbosity'")
    long = len(body.get("prompt_cache_key", "")) > 64
    refuse_if(long, "Invalid 'prompt_cache_key': string too long.")


def _check_tools(body: Json) -> None:
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


def _check_item(n: int, item: Json, model: ResponsesModel) -> None:
    where = f"input[{n}]"
    if item["type"] == "message":
        role = item["role"]
        refuse_if(role not in ("user", "assistant", "developer"), f"Invalid '{where}.role'")
        kinds = ("output_text", "refusal") if role == "assistant" else ("input_",)
        _check_content(f"{where}.content", item["content"], kinds)
        phase = item.get("phase")
        refuse_if(phase and role != "assistant", f"Unknown parameter: '{where}.phase'.")
        refuse_if(phase and model.phased is False, f"Unknown parameter: '{where}.phase'.")
        lost = model.phased and role == "assistant" and not phase
        refuse_if(lost, f"'{where}.phase' was lost")
    elif item["type"] == "function_call":
        refuse_if(not _NAME.match(item["name"]), f"Invalid '{where}.name'")
        refuse_if(not isinstance(item["arguments"], str), f"Invalid '{where}.arguments'")
        right = isinstance(orjson.loads(item["arguments"]), dict)
        refuse_if(not right, f"Invalid '{where}.arguments': no object")
    elif item["type"] == "function_call_output":
        output = item["output"]
        listed = isinstance(output, list)
        refuse_if(listed and model.plain_results, f"Invalid type for '{where}.output'.")
        if listed:
            _check_content(f"{where}.output", cast("list[Json]", output), ("input_",))
    else:
        missing = "summary" not in item
        refuse_if(missing, f"Missing required parameter: '{where}.summary'.")
        refuse_if(
            not item.get("encrypted_content"),
            f"Item with id '{item.get('id', '')}' not found. Items are not persisted when `store` "
            "is set to false. Try again with `store` set to true, or remove this item from your "
            "input.",
        )


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
