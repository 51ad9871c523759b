"""What Anthropic's Messages API refuses in a request.

Reference: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agent_runtime.models.base import Json
from agent_runtime.models.file_limits.admission import FileSize
from agent_runtime.models.file_limits.providers import file_limits_of
from agent_runtime.models.wire.rules.refusal import refuse_files, refuse_if

_FIELDS = {
    "cache_control",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
}
_MARKED = {"type", "cache_control"}
_BLOCKS = {
    "text": {*_MARKED, "text"},
    "image": {*_MARKED, "source"},
    "document": {*_MARKED, "source", "title", "context", "citations"},
    "tool_use": {*_MARKED, "id", "name", "input"},
    "tool_result": {*_MARKED, "tool_use_id", "content", "is_error"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
_IN_RESULTS = ("text", "image", "document")
_MEDIA = {
    "image": ("image/png", "image/jpeg", "image/gif", "image/webp"),
    "document": ("application/pdf",),
}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THINKING = ("thinking", "redacted_thinking")


@dataclass(frozen=True)
class _Model:
    """What one model takes.

    Attributes:
        thinking: the types of `thinking` that it takes.
        most: the most tokens of an answer.
    """

    thinking: tuple[str, ...]
    efforts: tuple[str, ...] = ()
    most: int = 128_000
    samples: bool = False
    forced: bool = True


_EFFORTS = ("low", "medium", "high", "max")
_ALL = (*_EFFORTS, "xhigh")
_MODELS = {
    "claude-3-5": _Model((), most=8192, samples=True),
    "claude-opus-4-2025": _Model(("enabled", "disabled"), most=32_000, samples=True),
    "claude-sonnet-4-5": _Model(("enabled", "disabled"), most=64_000, samples=True),
    "claude-haiku-4-5": _Model(("enabled", "disabled"), most=64_000, samples=True),
    "claude-sonnet-4-6": _Model(("enabled", "disabled", "adaptive"), _EFFORTS, samples=True),
    "claude-opus-4-6": _Model(("enabled", "disabled", "adaptive"), _EFFORTS, samples=True),
    "claude-opus-4-7": _Model(("disabled", "adaptive"), _ALL),
    "claude-sonnet-5": _Model(("disabled", "adaptive"), _ALL),
    "claude-opus-5": _Model(("disabled", "adaptive"), _ALL),
    "claude-haiku-5-5": _Model(("disabled", "adaptive"), _ALL),
    "claude-sonnet-5-5": _Model(("between_tools", "adaptive"), _ALL, forced=False),
    "claude-opus-5-5": _Model(("adaptive",), _ALL, forced=False),
    "claude-fable-5-1": _Model(("adaptive",), _ALL, forced=False),
}


def check_request(body: Json, *, samples: bool = True) -> None:
    """Check the body of a request.

    Args:
        samples: whether the API's version takes sampling parameters at all.

    Raises:
        RefusedError: the API would refuse it.
    """
    for name in ("model", "max_tokens", "messages"):
        refuse_if(name not in body, f"{name}: Field required")
    for name in set(body) - _FIELDS:
        refuse_if(True, f"{name}: Extra inputs are not permitted")
    _check_tools(body)
    _check_marks(body)
    for where, block in _blocks(body):
        _check_block(where, block)
    limits = file_limits_of("anthropic", body["model"], 1 << 30)
    refuse_files((size for _, block in _blocks(body) for size in _files(block)), limits)
    messages = turns_of(body)
    _check_turns(messages)
    thinking = cast("Json", body.get("thinking") or {})
    if thinking.get("type") == "enabled":
        check_tool_loop(messages)
    names = [name for name in _MODELS if body["model"].startswith(name)]
    # A model that is not in the table may take anything.
    if names:
        # The longest prefix is the most specific.
        _check_settings(body, _MODELS[max(names, key=len)], samples=samples)


def is_known(model: str) -> bool:
    """Return whether it is known what a model takes."""
    return model.startswith(tuple(_MODELS))


def turns_of(body: Json) -> list[Json]:
    """Return the messages of a request, each with its content as blocks."""
    return [{**one, "content": _listed(one["content"])} for one in body["messages"]]


def check_tool_loop(messages: Sequence[Json], *, each: bool = False) -> None:
    """Check that the tool loop under way, which is one turn of the model, begins with thinking.

    Models that think within a budget demand it; those that think adaptively do not.  A model need
    not think again between its calls.

    Args:
        each: whether each answer of the loop has to begin with thinking, because each did.
    """
    begins = 1 + max(n for n, one in enumerate(messages) if _begins_loop(one))
    for n in range(begins, len(messages) if each else min(begins + 1, len(messages)), 2):
        kind = messages[n]["content"][0]["type"]
        refuse_if(
            kind not in _THINKING,
            f"messages.{n}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{kind}`. When `thinking` is enabled, a final `assistant` message must "
            "start with a thinking block (preceeding the lastmost set of `tool_use` and "
            "`tool_result` blocks).",
        )


def _begins_loop(message: Json) -> bool:
    results = any(block["type"] == "tool_result" for block in message["content"])
    return message["role"] == "user" and not results


def _check_turns(messages: Sequence[Json]) -> None:
    refuse_if(not messages or messages[0]["role"] != "user", "messages: first must be user")
    for n, message in enumerate(messages):
        alternates = message["role"] == ("assistant" if n % 2 else "user")
        refuse_if(not alternates, f"messages.{n}: roles must alternate")
        refuse_if(not message["content"], f"messages.{n}: content must be non-empty")
        for i, block in enumerate(message["content"]):
            where = f"messages.{n}.content.{i}"
            own = block["type"] in (*_THINKING, "tool_use")
            refuse_if(own and message["role"] == "user", f"{where}: {block['type']} of a user")
            asked = block["type"] == "tool_result"
            refuse_if(asked and message["role"] != "user", f"{where}: `tool_result` of an answer")
        if message["role"] == "user":
            _check_results(n, message, messages[n - 1] if n else None)
        else:
            refuse_if(
                message["content"][-1]["type"] in _THINKING,
                f"messages.{n}: The final block in an assistant message cannot be `thinking`.",
            )
    refuse_if(messages[-1]["role"] != "user", "the conversation must end with a user message")


def _check_results(n: int, message: Json, before: Json | None) -> None:
    content: list[Json] = message["content"]
    calls = [b["id"] for b in (before or {"content": []})["content"] if b["type"] == "tool_use"]
    wrong = not all(map(_ID.fullmatch, calls))
    refuse_if(wrong, f"messages.{n - 1}: tool_use.id: bad pattern")
    twice = len(calls) != len(set(calls))
    refuse_if(twice, f"messages.{n - 1}: `tool_use` ids must be unique")
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


def _check_tools(body: Json) -> None:
    tools = cast("list[Json]", body.get("tools") or [])
    names = [tool["name"] for tool in tools]
    refuse_if(len(names) != len(set(names)), "tools: Tool names must be unique.")
    for n, tool in enumerate(tools):
        schema, where = tool["input_schema"], f"tools.{n}.custom"
        refuse_if(not _TOOL_NAME.fullmatch(tool["name"]), f"{where}.name: bad pattern")
        refuse_if(schema.get("type") != "object", f"{where}.input_schema.type: Field required")
        refuse_if(
            schema.keys() & {"oneOf", "allOf", "anyOf"},
            f"{where}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the "
            "top level",
        )


def _check_marks(body: Json) -> None:
    marks = list(_marks([body.get("tools"), body.get("system"), body["messages"]]))
    refuse_if(
        len(marks) > 4,
        f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.",
    )
    for mark in marks:
        known = mark.get("type") == "ephemeral" and mark.get("ttl", "5m") in ("5m", "1h")
        refuse_if(not known, f"cache_control: {mark}")
    hours = [mark.get("ttl") == "1h" for mark in marks]
    refuse_if(
        hours != sorted(hours, reverse=True),
        "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block",
    )


def _marks(value: object) -> Any:
    """Yield the cache breakpoints of a prompt; those in a tool's input are data."""
    if isinstance(value, dict):
        block = cast("Json", value)
        if "cache_control" in block:
            yield block["cache_control"]
        yield from _marks(block.get("content"))
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _marks(one)


def _blocks(body: Json) -> list[tuple[str, Json]]:
    found: list[tuple[str, Json]] = []
    system = body.get("system", "-")
    for i, block in enumerate(_listed(system)):
        refuse_if(block["type"] != "text", f"system.{i}: text only")
        found.append((f"system.{i}", block))
    for n, message in enumerate(body["messages"]):
        refuse_if(set(message) != {"role", "content"}, f"messages.{n}: {sorted(message)}")
        found += [
            (f"messages.{n}.content.{i}", block)
            for i, block in enumerate(_listed(message["content"]))
        ]
    return found


def _check_block(where: str, block: Json) -> None:
    kind = block.get("type", "")
    refuse_if(kind not in _BLOCKS, f"{where}: Input tag {kind!r} does not match")
    extra = set(block) - _BLOCKS[kind]
    refuse_if(extra, f"{where}.{kind}: Extra inputs are not permitted: {extra}")
    if kind == "text":
        refuse_if(not block["text"], f"{where}: text content blocks must be non-empty")
        refuse_if(not block["text"].strip(), f"{where}: text must contain non-whitespace text")
    elif kind == "tool_use":
        right = isinstance(block["input"], dict)
        refuse_if(not right, f"{where}.tool_use.input: Input should be a valid dictionary")
        refuse_if(not _TOOL_NAME.fullmatch(block["name"]), f"{where}.tool_use.name: bad pattern")
    elif kind == "thinking":
        refuse_if("signature" not in block, f"{where}.thinking.signature: Field required")
    elif kind in _MEDIA:
        _check_source(where, kind, block["source"])
    elif kind == "tool_result":
        inner = _listed(block.get("content", []))
        for i, one in enumerate(inner):
            refuse_if(one["type"] not in _IN_RESULTS, f"{where}.content.{i}: {one['type']}")
            _check_block(f"{where}.content.{i}", one)
        if block.get("is_error"):
            refuse_if(not inner, f"{where}: content cannot be empty if `is_error` is true")
            texts = all(one["type"] == "text" for one in inner)
            refuse_if(not texts, f"{where}: all content must be type `text` if `is_error` is true")


def _check_source(where: str, kind: str, source: Json) -> None:
    if source["type"] == "base64":
        refuse_if(set(source) != {"type", "media_type", "data"}, f"{where}.source: {set(source)}")
        refuse_if(source["media_type"] not in _MEDIA[kind], f"{where}: {source['media_type']}")
        base64.b64decode(source["data"], validate=True)
    else:
        refuse_if(set(source) != {"type", "url"}, f"{where}.source: {set(source)}")
        refuse_if(not source["url"].startswith("https://"), f"{where}: Only HTTPS URLs")


def _files(block: Json) -> Iterator[FileSize]:
    """Yield the sizes of the files in a block."""
    kind = block.get("type")
    if kind == "tool_result":
        for one in _listed(block.get("content", [])):
            yield from _files(one)
    elif kind == "image" or kind == "document":
        source: Json = block["source"]
        yield FileSize(kind, source.get("media_type", ""), len(source.get("data", "")))


def _check_settings(body: Json, model: _Model, *, samples: bool) -> None:
    limit = body["max_tokens"]
    refuse_if(not 1 <= limit <= model.most, f"max_tokens: {limit} > {model.most}")
    thinking = cast("Json", body.get("thinking") or {})
    kind = thinking.get("type")
    refuse_if(kind and kind not in model.thinking, f"thinking.type.{kind} is not supported")
    effort = cast("Json", body.get("output_config") or {}).get("effort")
    refuse_if(effort and effort not in model.efforts, f"output_config.effort: {effort}")
    if kind == "enabled":
        budget = thinking["budget_tokens"]
        refuse_if(budget < 1024, "thinking.enabled.budget_tokens: should be at least 1024")
        refuse_if(budget >= limit, "`max_tokens` must be greater than `thinking.budget_tokens`")
    sampled = {"temperature", "top_p", "top_k"} & body.keys()
    taken = model.samples and samples
    refuse_if(sampled and not taken, f"{sampled}: not supported on this model")
    refuse_if(
        {"temperature", "top_p"} <= sampled,
        "`temperature` and `top_p` cannot both be specified for this model.",
    )
    heat, top_p = body.get("temperature", 1), body.get("top_p", 1)
    refuse_if(not 0 <= heat <= 1, "temperature: range: 0..1")
    if kind in ("enabled", "adaptive"):
        refuse_if(heat != 1, "`temperature` may only be set to 1 when thinking is enabled")
        refuse_if(top_p < 0.95, "`top_p` must be at least 0.95 when thinking is enabled")
    choice = cast("Json", body.get("tool_choice") or {"type": "auto"})
    refuse_if("tool_choice" in body and not body.get("tools"), "tool_choice without tools")
    forcing = choice["type"] in ("any", "tool")
    refuse_if(forcing and not model.forced, "tool_choice: not supported on this model")
    refuse_if(
        forcing and kind == "enabled", "Thinking may not be enabled when tool_choice forces use"
    )
    allowed = {
        "auto": {"disable_parallel_tool_use"},
        "any": {"disable_parallel_tool_use"},
        "tool": {"disable_parallel_tool_use", "name"},
        "none": set[str](),
    }[choice["type"]]
    refuse_if(set(choice) - allowed - {"type"}, f"tool_choice: {choice}")
    stop = cast("list[str]", body.get("stop_sequences") or ["-"])
    refuse_if(
        not all(map(str.strip, stop)),
        "stop_sequences: each stop sequence must contain non-whitespace",
    )
    tier = body.get("service_tier", "auto")
    refuse_if(tier not in ("auto", "standard_only"), f"service_tier: {tier}")


def _listed(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Json]", content)
