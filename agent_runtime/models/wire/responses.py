"""OpenAI's Responses API, which xAI and Azure offer too.

Nothing is stored at the provider: each request has the whole input, with the model's reasoning,
encrypted, next to the messages and calls that it belongs to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import orjson

from agent_runtime.messages import PromptMessage, ToolSpec
from agent_runtime.models.base import (
    FilePart,
    Json,
    ModelRequest,
    ModelSettings,
)
from agent_runtime.models.file_parts import part_of
from agent_runtime.models.openai_format import FOLLOWS, Dialect, with_names
from agent_runtime.models.wire.base import (
    Piece,
    Target,
    WireRequest,
    items,
    merge,
)
from agent_runtime.models.wire.openai_models import traits_of
from agent_runtime.models.wire.responses_stream import ID, OutputItem, ResponsesDecoder

_LEAST_OUTPUT = 16
"""OpenAI refuses a lower limit of output tokens."""
_ROUTED = ("openai", "azure", "xai")
_BREAKPOINT: Json = {"mode": "explicit"}
# OpenAI refuses these at the top of a tool's schema.
_NO_SCHEMA = ("oneOf", "anyOf", "allOf", "enum", "not")


class ResponsesWire:
    """The wire of one model."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._traits = traits_of(target.model, target.entry)
        self._dialect = Dialect(model=target.name, provider=target.provider, takes=target.takes)
        # xAI documents text only inside of results.
        self._files_in_results = target.provider != "xai"
        self._marks = target.marks and bool(target.entry.get("supports_prompt_cache_breakpoint"))

    # Messages

    def piece(self, message: PromptMessage, files: Sequence[FilePart], *, mark: bool) -> Piece:
        """Encode a message as input items; a system message as its text only."""
        if message.role == "system":
            return Piece("system", orjson.dumps(message.text))
        files = files or [FilePart(file) for file in message.files]
        if message.role == "assistant":
            return Piece("assistant", items(*self._answer(message, self._named(message, files))))
        parts: list[Json] = []
        unsent: list[FilePart] = []
        for one in files:
            part = _part(one, self._target)
            if part is None:
                unsent.append(one)
            else:
                parts.append(part)
        text = self._named(message, unsent)
        if message.role == "tool":
            return self._result(message.call_id, text, parts, mark=mark)
        content = [_text(text), *parts] if text else parts
        if not content:
            return Piece("user", b"")
        self._mark(content, mark)
        return Piece("user", items({"type": "message", "role": "user", "content": content}))

    def _named(self, message: PromptMessage, files: Sequence[FilePart]) -> str:
        """Return a message's text with the names of files that are not sent."""
        return with_names(message.text, files, self._dialect, inside=False)

    def _result(self, call: str, text: str, parts: list[Json], *, mark: bool) -> Piece:
        output: str | list[Json] = text
        inside = parts if self._files_in_results else []
        if inside or (self._marks and text):
            # With marks always a list, so that a mark that moves changes nothing else.
            output = [_text(text), *inside] if text else inside
            self._mark(output, mark)
        item = {"type": "function_call_output", "call_id": call, "output": output}
        return Piece("tool", items(item), following=b"" if inside else items(*parts))

    def _mark(self, content: list[Json], mark: bool) -> None:
        if mark and self._marks:
            content[-1] = {**content[-1], "prompt_cache_breakpoint": _BREAKPOINT}

    def _answer(self, message: PromptMessage, said: str) -> Iterator[Json]:
        """Yield an answer's items: as this model made them, or else its text and calls."""
        opaque: Json = {}
        if message.opaque is not None and message.opaque.model == self._target.name:
            opaque = message.opaque.data
        made: list[OutputItem] = []
        if order := opaque.get("items"):
            made = _restored(order, opaque, message, said)
        elif not message.files and len(kept := _reasoning(opaque)) == 1:
            # litellm keeps no order: of several items it is unknown what each belongs to.
            made = kept
        if all(item[0] == "reasoning" for item in made):
            made += [["text", said]] if said else []
            made += [["call", number] for number in range(len(message.calls))]
        while made and made[-1][0] == "reasoning":
            # Reasoning without what it led to is refused.
            made.pop()
        for kind, what, *about in made:
            item_id, phase = (*about, None, None)[:2]
            if kind == "text":
                yield self._message(what, item_id, phase or self._phase(message))
            elif kind == "call":
                yield _call(message, what, item_id)
            else:
                yield what

    def _phase(self, message: PromptMessage) -> str:
        """Return the phase of an answer of which none is known: another model's, or an old one."""
        if not self._traits.phases:
            return ""
        return "commentary" if message.calls else "final_answer"

    def _message(self, text: str, item_id: str | None, phase: str) -> Json:
        item: Json = {"type": "message", "role": "assistant"}
        if item_id:
            item |= {"id": item_id, "status": "completed"}
        if phase:
            item["phase"] = phase
        part: Json = {"type": "output_text", "text": text, "annotations": []}
        return {**item, "content": [part]}

    # Requests

    def tools(self, request: ModelRequest) -> bytes:
        """Encode the tools; none is strict, because that demands all parameters of a tool."""
        return orjson.dumps([_tool(one) for one in request.tools])

    def request(self, request: ModelRequest, pieces: Sequence[Piece], tools: bytes) -> WireRequest:
        """Return the request."""
        target, settings = self._target, request.settings
        system, given = _split(pieces)
        most = max(request.max_output, _LEAST_OUTPUT)
        body: Json = {"model": target.model}
        if system:
            body["instructions"] = orjson.Fragment(system)
        if request.tools:
            body["tools"] = orjson.Fragment(tools)
        # Tools and instructions first: what changes least begins the cached prefix.
        body |= {
            "input": orjson.Fragment(given),
            "stream": True,
            "store": False,
            "max_output_tokens": min(most, target.max_output or most),
        }
        if self._traits.reasons:
            # Models before this became the default do not return it otherwise.
            body["include"] = ["reasoning.encrypted_content"]
        if request.session and target.provider in _ROUTED and self._routes:
            # Hashed, because a thread's id may be longer than the field takes.
            key = hashlib.sha256(request.session.encode()).hexdigest()
            body["prompt_cache_key"] = key[:32]
        ignored = self._apply(settings, request, body)
        return WireRequest(
            url=f"{target.base_url}/responses",
            headers=self._headers() | _lower(settings.extra_headers),
            body=orjson.dumps(merge(body, settings.extra_body)),
            ignored=tuple(ignored),
        )

    @property
    def _routes(self) -> bool:
        # Azure has no address of its own; other servers may refuse a field that they do not know.
        return self._target.own_host or self._target.provider == "azure"

    def _headers(self) -> dict[str, str]:
        key = self._target.key
        if key and self._target.provider == "azure":
            return {"api-key": key}
        return {"authorization": f"Bearer {key}"} if key else {}

    def _apply(self, settings: ModelSettings, request: ModelRequest, body: Json) -> list[str]:
        """Add the settings to a request; return the names of those that the model does not take."""
        traits = self._traits
        # The API has no field for them.
        unknown = ("seed", "stop", "cache_ttl")
        ignored = [name for name in unknown if getattr(settings, name) not in (None, ())]
        effort = None
        if settings.reasoning is not None:
            effort = traits.effort(settings.reasoning)
            if effort is not None:
                body["reasoning"] = {"effort": effort}
            elif traits.reasons or settings.reasoning not in ("none", 0):
                ignored.append("reasoning")
        for name in ("temperature", "top_p"):
            value = getattr(settings, name)
            if value is None:
                continue
            if traits.takes_sampling(effort):
                body[name] = value
            else:
                ignored.append(name)
        if settings.verbosity is not None:
            if settings.verbosity in traits.verbosities:
                body["text"] = {"verbosity": settings.verbosity}
            else:
                ignored.append("verbosity")
        if settings.service_tier is not None:
            body["service_tier"] = settings.service_tier
        if request.tools:
            ignored += self._apply_to_tools(settings, request.tools, body)
        return ignored

    def _apply_to_tools(
        self, settings: ModelSettings, tools: Sequence[ToolSpec], body: Json
    ) -> Iterator[str]:
        """Add the settings for tools; yield the names of those that are left out."""
        choice = settings.tool_choice
        if choice in ("auto", "required", "none"):
            body["tool_choice"] = choice
        elif any(tool.name == choice for tool in tools):
            body["tool_choice"] = {"type": "function", "name": choice}
        elif choice is not None:
            yield "tool_choice"
        if settings.parallel_calls is not None:
            if self._traits.parallel:
                body["parallel_tool_calls"] = settings.parallel_calls
            else:
                yield "parallel_calls"

    def decoder(self) -> ResponsesDecoder:
        """Return a decoder for one answer."""
        return ResponsesDecoder(self._target.name)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _split(pieces: Sequence[Piece]) -> tuple[bytes, bytes]:
    """Return the instructions, which may be empty, and the input of a prompt."""
    first = 1 if pieces and pieces[0].role == "system" else 0
    parts: list[bytes] = []
    following: list[bytes] = []
    for piece in pieces[first:]:
        if following and piece.role != "tool":
            parts.append(_following(following))
            following = []
        if piece.role == "system":
            parts.append(_developer(piece.data))
        elif piece.data:
            parts.append(piece.data)
        if piece.following:
            following.append(piece.following)
    if following:
        parts.append(_following(following))
    system = pieces[0].data if first else b""
    if not parts and system:
        # An input without items is refused.
        return b"", b"[" + _developer(system) + b"]"
    return system, b"[" + b",".join(parts) + b"]"


def _developer(text: bytes) -> bytes:
    return b'{"type":"message","role":"developer","content":' + text + b"}"


def _following(files: Sequence[bytes]) -> bytes:
    content = b",".join((orjson.dumps(_text(FOLLOWS["text"])), *files))
    return b'{"type":"message","role":"user","content":[' + content + b"]}"


def _text(text: str) -> Json:
    return {"type": "input_text", "text": text}


def _part(shown: FilePart, target: Target) -> Json | None:
    """Return a file as a part of an input item; None if it is only named, or is text."""
    part = part_of(shown, target.provider, target.takes) or {"type": ""}
    if part["type"] == "image_url":
        image = part["image_url"]
        detail = image.get("detail", "auto")
        return {"type": "input_image", "image_url": image["url"], "detail": detail}
    if part["type"] == "file" and "filename" in part["file"]:
        return {"type": "input_file", **part["file"]}
    # The API takes no audio and no video.
    return None


def _call(message: PromptMessage, number: int, item_id: str | None) -> Json:
    call = message.calls[number]
    arguments = orjson.dumps(call.arguments).decode()
    item: Json = {"type": "function_call", "call_id": call.id, "name": call.name}
    return {**item, "arguments": arguments, **({"id": item_id} if item_id else {})}


def _tool(tool: ToolSpec) -> Json:
    schema = {key: value for key, value in tool.parameters.items() if key not in _NO_SCHEMA}
    parameters: Json = {"type": "object", "properties": {}, **schema}
    about = {"type": "function", "name": tool.name, "description": tool.description}
    return {**about, "parameters": parameters, "strict": False}


def _restored(
    order: list[OutputItem], opaque: Json, message: PromptMessage, said: str
) -> list[OutputItem]:
    """Return an answer's items in their original order; none if its texts or calls differ now.

    A text may be masked or extended since; among several, it is unknown which one.
    """
    texts = [item[1] for item in order if item[0] == "text"]
    calls = [item[1] for item in order if item[0] == "call"]
    if len(texts) == 1 and said:
        texts = [said]
    if calls != list(range(len(message.calls))) or "".join(texts) != said:
        return []
    reasoning = _reasoning(opaque)
    made: list[OutputItem] = []
    for kind, what, *about in order:
        if kind == "reasoning":
            made += reasoning[what : what + 1]
        else:
            made.append([kind, texts.pop(0) if kind == "text" else what, *about])
    return made


def _reasoning(opaque: Json) -> list[OutputItem]:
    """Return an answer's reasoning as items; each needs its summary, even an empty one."""
    stored = cast("list[Json]", opaque.get("reasoning_items") or [])
    if not all(one.get("encrypted_content") for one in stored):
        # The provider would look for it among what it stored.
        return []
    made: list[OutputItem] = []
    for one in stored:
        item: Json = {"type": "reasoning", "summary": one.get("summary") or []}
        if ID.fullmatch(str(one.get("id"))):
            item["id"] = one["id"]
        made.append(["reasoning", {**item, "encrypted_content": one["encrypted_content"]}])
    return made
