"""Convert messages into OpenAI's form, which litellm takes, and its chunks into our events.

Pure: no I/O, and litellm is not imported.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson

from agent_runtime.messages import (
    FileKind,
    PromptMessage,
    ToolCall,
    ToolSpec,
)
from agent_runtime.models.answer import AnswerBuilder
from agent_runtime.models.base import (
    FilePart,
    Json,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    RawCall,
    TokenUsage,
)
from agent_runtime.models.catalog import CACHE_MARKS
from agent_runtime.models.file_parts import after_results, in_results, part_of
from agent_runtime.models.reasoning_replay import ReasoningReplay, reasoning_replay_of
from agent_runtime.models.tokens import placeholder
from agent_runtime.models.tool_call_stream import ToolCallAssembler

_MARK: Json = {"type": "ephemeral"}
FOLLOWS: Json = {"type": "text", "text": "The files of the tool results above:"}
_REPLAYED = ("thinking_blocks", "reasoning_items")
"""Fields of a model's reasoning that litellm gives and takes back unchanged."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form in which one model takes its messages.

    Attributes:
        model: our name of it; opaque data goes back to the model of the same name.
        provider: litellm's name of its provider.
        takes: the kinds of files that the model takes.
        marks: whether cache breakpoints may be sent.
        host: of its base URL; empty for the provider's own address.
    """

    model: str
    provider: str
    takes: frozenset[FileKind] = frozenset()
    marks: bool = False
    host: str = ""

    @property
    def returns(self) -> ReasoningReplay:
        """Which parts of its reasoning the model gets back."""
        return reasoning_replay_of(self.model, self.provider, self.host)


def messages_of(request: ModelRequest, dialect: Dialect) -> list[Json]:
    """Return the request's messages in OpenAI's form, with cache breakpoints if allowed.

    If a provider takes no files in tool results, they follow the exchange's results in a user
    message.  Mistral refuses a user's message right after a result.
    """
    marked = set(request.marks[-CACHE_MARKS:]) if dialect.marks else set[int]()
    wire: list[Json] = []
    following: list[Json] = []
    for index, message in enumerate(request.messages):
        if message.role != "tool" and following:
            wire.append({"role": "user", "content": [FOLLOWS, *following]})
            following = []
        files = request.files.get(index) or [FilePart(file) for file in message.files]
        if message.role == "tool" and after_results(dialect.provider):
            following += parts_of(files, dialect)
        wire.append(_message(message, files, dialect, mark=index in marked))
    if following:
        wire.append({"role": "user", "content": [FOLLOWS, *following]})
    return list(_with_turns(wire)) if dialect.provider == "mistral" else wire


def _with_turns(wire: Iterable[Json]) -> Iterator[Json]:
    """Yield the messages, with a short answer between a result and a user's message."""
    last = ""
    for message in wire:
        if (last, message["role"]) == ("tool", "user"):
            yield {"role": "assistant", "content": "OK."}
        last = message["role"]
        yield message


def tools_of(tools: Sequence[ToolSpec]) -> list[Json]:
    """Return the tools in OpenAI's form, as copies: litellm changes schemas in place."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": copy.deepcopy(tool.parameters)
                or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def cache_key(session: str) -> str:
    """Return the key by which a provider routes equal prompts to the same cache.

    A hash, because providers show it in their logs, and a thread's id may say who its user is.
    """
    return hashlib.sha256(session.encode()).hexdigest()[:32]


def _message(
    message: PromptMessage, files: Sequence[FilePart], dialect: Dialect, *, mark: bool
) -> Json:
    if message.role == "assistant":
        text = with_names(message.text, files, dialect, inside=False)
        return _assistant(message, text, dialect, mark=mark)
    return user_content(message, files, dialect, mark=mark)


def user_content(
    message: PromptMessage, files: Sequence[FilePart], dialect: Dialect, *, mark: bool
) -> Json:
    """Return a message that is not the model's, with the files that it can show."""
    inside = message.role != "tool" or in_results(dialect.provider)
    parts = parts_of(files, dialect) if inside else []
    text = with_names(message.text, files, dialect, inside=inside)
    content: list[Json] = [{"type": "text", "text": text}] if text or not parts else []
    content += parts
    if message.role == "tool":
        wire: Json = {"role": "tool", "tool_call_id": message.call_id}
        wire["content"] = content if parts else text
        return wire | {"cache_control": _MARK} if mark else wire
    if mark and text.strip():
        content[0]["cache_control"] = _MARK
    plain = len(content) == 1 and "cache_control" not in content[0] and not parts
    return {"role": message.role, "content": text if plain else content}


def parts_of(files: Iterable[FilePart], dialect: Dialect) -> list[Json]:
    """Return the files that the model can be shown, as parts of a message."""
    parts = (part_of(one, dialect.provider, dialect.takes) for one in files)
    return [part for part in parts if part is not None]


def with_names(text: str, files: Iterable[FilePart], dialect: Dialect, *, inside: bool) -> str:
    """Return a message's text with the names of files that are not sent as parts.

    The content of a text document follows its name.
    """
    lines = [text] if text else []
    for one in files:
        if inside and part_of(one, dialect.provider, dialect.takes) is not None:
            continue
        lines.append(placeholder(one.file, one.problem))
        if one.text and not one.problem:
            lines += [one.text, "[end of file]"]
    return "\n".join(lines)


def _assistant(message: PromptMessage, said: str, dialect: Dialect, *, mark: bool) -> Json:
    # None if there are only calls: litellm replaces a blank string by filler text.
    text = said if said.strip() else None
    wire: Json = {"role": "assistant", "content": text}
    if mark and text:
        wire["content"] = [{"type": "text", "text": text, "cache_control": _MARK}]
    opaque: Json = {}
    if message.opaque is not None and message.opaque.model == dialect.model:
        opaque = message.opaque.data
    returns = dialect.returns
    if returns.ordered and (parts := _ordered(message, said, opaque, mark=mark)):
        # litellm sends blocks under this name first and unchanged.
        return {**wire, "content": None, "provider_specific_fields": {"compaction_blocks": parts}}
    if message.calls:
        signatures = [*cast("list[str | None]", opaque.get("signatures") or [])]
        signatures += [None] * (len(message.calls) - len(signatures))
        wire["tool_calls"] = list(map(_call, message.calls, signatures))
    if returns.blocks:
        wire |= {key: copy.deepcopy(opaque[key]) for key in _REPLAYED if key in opaque}
    given = "reasoning_content" in opaque
    if (given and returns.reasoning != "never") or (
        message.calls and returns.reasoning == "always"
    ):
        wire["reasoning_content"] = opaque.get("reasoning_content", "")
    return wire


def _ordered(message: PromptMessage, said: str, opaque: Json, *, mark: bool) -> list[Json]:
    """Return Anthropic's blocks of an answer in their original order.

    Empty if that is litellm's order (thinking, text, calls), or if the text is not the model's
    own any more.
    """
    order = cast("list[tuple[str, Any]]", opaque.get("order") or [])
    # The text was changed since, by masking or by names of files: then the order has no meaning.
    if "".join(text for kind, text in order if kind == "text") != said:
        return []
    parts: list[Json] = []
    for kind, which in order:
        if kind == "thinking":
            parts.append(copy.deepcopy(opaque["thinking_blocks"][which]))
        elif kind == "call":
            call = message.calls[int(which)]
            used = {"id": call.id, "name": call.name, "input": copy.deepcopy(call.arguments)}
            parts.append({"type": "tool_use", **used})
        elif which.strip():
            parts.append({"type": "text", "text": which})
    texts = [part for part in parts if part["type"] == "text"]
    if mark and texts:
        texts[-1]["cache_control"] = _MARK
    return parts


def _call(call: ToolCall, signature: str | None) -> Json:
    arguments = orjson.dumps(call.arguments).decode()
    wire: Json = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
    if signature:
        wire["provider_specific_fields"] = {"thought_signature": signature}
    return wire


class Collector:
    """Gathers the chunks of one stream into an answer."""

    def __init__(self, model: str, returns: ReasoningReplay | None = None) -> None:
        self._returns = returns or ReasoningReplay(reasoning="given", ordered=True)
        self._builder = AnswerBuilder(model)
        self._calls = ToolCallAssembler()
        self._blocks: list[Json] = []
        self._order: list[list[Any]] = []
        self._reasons = False
        self._items: list[Json] = []

    def add(self, chunk: Any) -> Iterator[ModelEvent]:
        """Add one chunk of litellm's stream; yield its deltas."""
        builder = self._builder
        builder.reported_model = getattr(chunk, "model", None) or builder.reported_model
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            builder.usage = _usage(usage, getattr(chunk, "service_tier", None))
        for choice in _list(chunk, "choices")[:1]:
            if choice.delta is not None:
                yield from self._delta(choice.delta)

    def _delta(self, delta: Any) -> Iterator[ModelEvent]:
        reasoning = getattr(delta, "reasoning_content", None)
        self._reasons = self._reasons or reasoning is not None
        yield from self._builder.think(reasoning or "")
        for block in _list(delta, "thinking_blocks"):
            if _join(self._blocks, _plain(block)):
                self._order.append(["thinking", len(self._blocks) - 1])
        if delta.content:
            self._say(delta.content)
            yield from self._builder.say(delta.content)
        for fragment in _list(delta, "tool_calls"):
            if self._calls.add(fragment):
                self._order.append(["call", len(self._calls.opened) - 1])
        self._items += map(_plain, _list(delta, "reasoning_items"))
        for image in map(_plain, _list(delta, "images")):
            self._builder.files.append(str(image["image_url"]["url"]))

    def _say(self, piece: str) -> None:
        if not self._order or self._order[-1][0] != "text":
            self._order.append(["text", []])
        self._order[-1][1].append(piece)

    def answer(self, word: str, *, refusal: str = "", reported: bool) -> ModelAnswer:
        """Return the whole answer, without its cost.

        Args:
            word: the provider's finish reason; empty if the stream broke off.
            refusal: the text that the provider marked as a refusal.
            reported: whether the usage is the provider's, not litellm's estimate.

        Raises:
            ModelProtocolError: the stream ended in the middle, or the answer is empty though
                nothing kept the model from answering.
        """
        builder, calls = self._builder, self._calls.opened
        builder.word, builder.refusal = word, refusal
        builder.calls = [RawCall(call.name, "".join(call.arguments)) for call in calls]
        if not reported:
            builder.usage = None
        if builder.finish in ("length", "window"):
            self._drop_cut_thinking()
        builder.data = self._replay_data([call.signature for call in calls])
        return builder.answer()

    def _drop_cut_thinking(self) -> None:
        """Remove thinking that was cut off before its signature; no provider takes it back."""
        last = self._blocks[-1] if self._order and self._order[-1][0] == "thinking" else {}
        if last.get("type") == "thinking" and not last.get("signature"):
            self._blocks.pop()
            self._order.pop()

    def _replay_data(self, signatures: list[str | None]) -> Json:
        """Return the data to send back; other data would only be counted."""
        data: Json = {}
        returns = self._returns
        if self._blocks and returns.blocks:
            data["thinking_blocks"] = self._blocks
            order = [[kind, "".join(it) if kind == "text" else it] for kind, it in self._order]
            if returns.ordered and not is_usual([kind for kind, _ in order]):
                data["order"] = order
        if self._items and returns.blocks:
            data["reasoning_items"] = self._items
        if self._reasons and returns.reasoning != "never":
            data["reasoning_content"] = self._builder.reasoning
        if any(signatures):
            data["signatures"] = signatures
        return data


def is_usual(kinds: Sequence[str]) -> bool:
    """Return whether an answer has its thinking first, then one text, then its calls."""
    usual = ("thinking", "text", "call")
    return list(kinds) == sorted(kinds, key=usual.index) and kinds.count("text") <= 1


def _list(value: object, name: str) -> list[Any]:
    return cast("list[Any]", getattr(value, name, None) or [])


def _join(blocks: list[Json], piece: Json) -> bool:
    """Add a piece of reasoning; return whether it begins a block.  A signature ends its block."""
    last = blocks[-1] if blocks else None
    if (
        last is None
        or last.get("signature")
        or last.get("type") != "thinking"
        or piece.get("type") != "thinking"
    ):
        blocks.append({key: value for key, value in piece.items() if value is not None})
        return True
    thinking = piece.get("thinking") or ""
    if piece.get("signature"):
        # A signature's piece has no text, or repeats that of the whole block.
        last["thinking"] = thinking or last.get("thinking") or ""
        last["signature"] = piece["signature"]
    else:
        last["thinking"] = (last.get("thinking") or "") + thinking
    return False


def _plain(value: Any) -> Json:
    return cast("Json", value if isinstance(value, dict) else value.model_dump(exclude_none=True))


def _usage(usage: Any, service: object) -> TokenUsage:
    details = getattr(usage, "prompt_tokens_details", None)
    answered = getattr(usage, "completion_tokens_details", None)
    by_ttl = getattr(details, "cache_creation_token_details", None)
    from_cache = getattr(details, "cached_tokens_details", None)

    def count(part: Any, name: str) -> int:
        return getattr(part, f"{name}_tokens", None) or 0

    cached = count(details, "cached")
    return TokenUsage(
        prompt=usage.prompt_tokens or 0,
        completion=usage.completion_tokens or 0,
        cached=cached or count(usage, "cache_read_input"),
        cache_write=count(usage, "cache_creation_input") or count(details, "cache_write"),
        cache_write_hour=count(by_ttl, "ephemeral_1h_input"),
        reasoning=count(answered, "reasoning"),
        audio=count(details, "audio"),
        cached_audio=count(from_cache, "audio"),
        image=count(details, "image"),
        audio_output=count(answered, "audio"),
        image_output=count(answered, "image"),
        service=service if isinstance(service, str) else "",
        factors=tuple(
            word.lower()
            for name in ("inference_geo", "speed")
            if isinstance(word := getattr(usage, name, None), str)
        ),
    )
