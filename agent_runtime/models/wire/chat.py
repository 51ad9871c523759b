"""OpenAI's Chat Completions, and the many servers that are compatible with it.

Reference: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from agent_runtime.messages import PromptMessage
from agent_runtime.models.answer import AnswerBuilder
from agent_runtime.models.base import (
    FilePart,
    Json,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    RawCall,
    TokenUsage,
)
from agent_runtime.models.file_parts import after_results
from agent_runtime.models.openai_format import (
    FOLLOWS,
    Dialect,
    cache_key,
    parts_of,
    tools_of,
    user_content,
    with_names,
)
from agent_runtime.models.reasoning_replay import ReasoningReplay
from agent_runtime.models.tool_call_stream import ToolCallAssembler, arguments_text
from agent_runtime.models.wire.base import (
    Piece,
    ServerEvent,
    StreamFailedError,
    Target,
    WireRequest,
    items,
    join,
    load_object,
    merge,
)
from agent_runtime.models.wire.openai_models import traits_of
from agent_runtime.models.wire.servers import server_of
from agent_runtime_config.request_settings import Effort

_END = b"[DONE]"
_EFFORTS: dict[Effort, Effort] = {"xhigh": "high", "max": "high"}
"""What servers that know only three levels of effort are sent instead."""


class ChatWire:
    """The wire of one model."""

    def __init__(self, target: Target) -> None:
        server = server_of(target.provider)
        assert server is not None
        self._target = target
        self._server = server
        self._dialect = Dialect(
            model=target.name,
            provider=target.provider,
            takes=target.takes,
            marks=target.marks,
            host="" if target.own_host else urlsplit(target.base_url).hostname or "",
        )
        self._replay = self._dialect.returns
        # OpenAI's names mean its models at other hosts, too: gateways pass them on.
        openai = target.provider == "openai"
        self._traits = traits_of(target.model, target.entry) if openai else None
        # Compatible servers know the older name.
        self._limit_field = server.output_limit if target.own_host else "max_tokens"
        self._url = f"{target.base_url}/chat/completions"

    # To the wire

    def piece(self, message: PromptMessage, files: Sequence[FilePart], *, mark: bool) -> Piece:
        """Encode a message."""
        shown = files or [FilePart(file) for file in message.files]
        mark = mark and self._target.marks
        if message.role == "assistant":
            text = with_names(message.text, shown, self._dialect, inside=False)
            return Piece("assistant", items(self._assistant(message, text, mark=mark)))
        if message.role != "tool":
            return Piece(
                message.role, items(user_content(message, shown, self._dialect, mark=mark))
            )
        data = items(user_content(message, shown, self._dialect, mark=mark))
        parts: list[Json] = []
        if after_results(self._target.provider):
            # A tool message takes text only: its files follow the exchange's last result.
            parts = parts_of(shown, self._dialect)
        return Piece("tool", data, following=items(*parts))

    def tools(self, request: ModelRequest) -> bytes:
        """Encode the request's tools."""
        return orjson.dumps(tools_of(request.tools))

    def request(self, request: ModelRequest, pieces: Sequence[Piece], tools: bytes) -> WireRequest:
        """Return the request."""
        target, settings, server = self._target, request.settings, self._server
        limit = min(request.max_output, target.max_output or request.max_output)
        body: Json = {
            "model": target.model,
            "messages": join([*_with_following(pieces)]),
            "stream": True,
            # Without it most servers report no usage, which budgets are settled by.
            "stream_options": {"include_usage": True},
            self._limit_field: limit,
        }
        if request.tools:
            body["tools"] = orjson.Fragment(tools)
        ignored = self._set(body, settings, bool(request.tools))
        # Equal prefixes reach the same machine, and with it the same cache.
        if request.session and server.routes and target.own_host:
            body["prompt_cache_key"] = cache_key(request.session)
        body = merge(body, settings.extra_body)
        headers = {**settings.extra_headers}
        if target.key:
            # The settings' headers win, for gateways that want another scheme.
            headers = {"authorization": f"Bearer {target.key}"} | headers
        return WireRequest(self._url, headers, orjson.dumps(body), tuple(ignored))

    def _set(self, body: Json, settings: ModelSettings, has_tools: bool) -> Iterator[str]:
        """Add the settings to the body; return the names of those that are not taken."""
        server = self._server
        ignored: list[str] = []
        for name in ("temperature", "top_p"):
            value = getattr(settings, name)
            if value is not None and self._takes_sampling(settings):
                body[name] = value
            elif value is not None:
                ignored.append(name)
        for name in ("seed", "service_tier", "verbosity"):
            if (value := getattr(settings, name)) is not None:
                body[name] = value
        if settings.stop:
            body["stop"] = list(settings.stop)
        if settings.reasoning is not None and not self._set_reasoning(body, settings.reasoning):
            ignored.append("reasoning")
        choice = settings.tool_choice
        if choice is not None and has_tools:
            # All servers know these two; the others only where the table says so.
            if choice in ("auto", "none"):
                body["tool_choice"] = choice
            elif not server.choices:
                ignored.append("tool_choice")
            elif choice == "required":
                body["tool_choice"] = choice
            else:
                body["tool_choice"] = {"type": "function", "function": {"name": choice}}
        if settings.parallel_calls is not None and has_tools:
            body["parallel_tool_calls"] = settings.parallel_calls
        if settings.cache_ttl is not None and not self._target.marks:
            ignored.append("cache_ttl")
        return iter(ignored)

    def _takes_sampling(self, settings: ModelSettings) -> bool:
        """Return whether sampling parameters may be sent: not to OpenAI's models that reason."""
        if self._traits is None:
            return True
        asked = settings.reasoning
        return self._traits.takes_sampling(None if asked is None else self._traits.effort(asked))

    def _set_reasoning(self, body: Json, reasoning: Effort | int) -> bool:
        """Ask for an amount of reasoning; return whether the server can be asked."""
        form = self._server.reasoning
        if form == "object":
            key = "max_tokens" if isinstance(reasoning, int) else "effort"
            body["reasoning"] = {key: reasoning}
            return True
        if self._traits is not None:
            effort = self._traits.effort(reasoning)
        elif form == "none" or isinstance(reasoning, int):
            effort = None
        else:
            effort = _EFFORTS.get(reasoning, reasoning)
        if effort is not None:
            body["reasoning_effort"] = effort
        return effort is not None

    def _assistant(self, message: PromptMessage, text: str, *, mark: bool) -> Json:
        # Some servers refuse an empty text, others one that is missing without calls.
        shown: Any = text if text.strip() else (None if message.calls else "")
        if mark and shown:
            cached = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
            shown = [cached]
        wire: Json = {"role": "assistant", "content": shown}
        if message.calls:
            wire["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": orjson.dumps(call.arguments).decode(),
                    },
                }
                for call in message.calls
            ]
        opaque: Json = {}
        if message.opaque is not None and message.opaque.model == self._target.name:
            opaque = message.opaque.data
        # OpenRouter's form holds signatures, so it goes back instead of the plain text.
        if details := opaque.get("reasoning_details"):
            wire["reasoning_details"] = details
            return wire
        replay = self._replay
        given = "reasoning_content" in opaque
        if (given and replay.reasoning != "never") or (
            message.calls and replay.reasoning == "always"
        ):
            wire["reasoning_content"] = opaque.get("reasoning_content", "")
        return wire

    # From the stream

    def decoder(self) -> ChatDecoder:
        """Return a decoder for one answer."""
        return ChatDecoder(self._target.name, self._replay)


def _with_following(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield the pieces, and after each exchange's results a user message with their files."""
    following: list[bytes] = []
    for piece in pieces:
        if following and piece.role != "tool":
            yield _following(following)
            following = []
        yield piece
        if piece.following:
            following.append(piece.following)
    if following:
        yield _following(following)


def _following(parts: list[bytes]) -> Piece:
    content = orjson.Fragment(b"[" + b",".join([orjson.dumps(FOLLOWS), *parts]) + b"]")
    return Piece("user", items({"role": "user", "content": content}))


class ChatDecoder:
    """Reads the chunks of one answer.

    Compatible servers differ: reasoning under three names, usage in the last chunk or in one of its
    own or nowhere, no end marker, one JSON object instead of a stream.
    """

    def __init__(self, model: str, replay: ReasoningReplay) -> None:
        self._builder = AnswerBuilder(model)
        self._calls = ToolCallAssembler()
        self._replay = replay
        self._reasons = False
        self._details: list[Json] = []
        self._ended = False

    @property
    def finished(self) -> bool:
        """Whether the end marker arrived."""
        return self._ended

    def feed(self, event: ServerEvent) -> Iterator[ModelEvent]:
        """Read a chunk; yield its deltas."""
        if event.data == _END:
            self._ended = True
            return
        chunk = load_object(event.data)
        if chunk.get("error"):
            raise StreamFailedError(chunk)
        builder = self._builder
        if not builder.reported_model and isinstance(chunk.get("model"), str):
            builder.reported_model = chunk["model"]
        if usage := chunk.get("usage"):
            builder.usage = _usage(usage, chunk.get("service_tier"))
        choices = chunk.get("choices")
        if choices:
            # The last chunk has the usage and no choice; several answers are never asked for.
            choice = choices[0]
            delta = choice.get("delta") or choice.get("message")
            if delta:
                yield from self._delta(delta)
            if word := choice.get("finish_reason"):
                builder.word = str(word)

    def _delta(self, delta: Json) -> Iterator[ModelEvent]:
        reasoning = delta.get("reasoning_content")
        # Some servers send both names with the same text.
        if reasoning is None:
            reasoning = delta.get("reasoning")
        if isinstance(reasoning, str):
            self._reasons = True
            yield from self._builder.think(reasoning)
        for detail in delta.get("reasoning_details") or ():
            _join_detail(self._details, detail)
        if content := delta.get("content"):
            if isinstance(content, str):
                yield from self._builder.say(content)
            else:
                yield from self._parts(content)
        if refusal := delta.get("refusal"):
            self._builder.refusal += str(refusal)
        for fragment in delta.get("tool_calls") or ():
            function: Json = fragment.get("function") or {}
            self._calls.add_piece(
                fragment.get("index") or 0,
                fragment.get("id") or "",
                function.get("name") or "",
                arguments_text(function.get("arguments")),
            )
        for image in delta.get("images") or ():
            self._builder.files.append(str(image["image_url"]["url"]))

    def _parts(self, parts: Sequence[Json]) -> Iterator[ModelEvent]:
        """Read text in parts, of which some may be thinking."""
        for part in parts:
            if part.get("type") == "thinking":
                inner = part.get("thinking") or ""
                texts = [inner] if isinstance(inner, str) else [p.get("text", "") for p in inner]
                for text in texts:
                    yield from self._builder.think(text)
            else:
                yield from self._builder.say(part.get("text") or "")

    def answer(self) -> ModelAnswer:
        """Return the whole answer, without its cost.

        Raises:
            ModelProtocolError: the stream broke off, or the answer is empty.
        """
        builder = self._builder
        calls = self._calls.opened
        builder.calls = [RawCall(call.name, "".join(call.arguments)) for call in calls]
        if self._details:
            builder.data["reasoning_details"] = self._details
        if self._reasons and self._replay.reasoning != "never":
            builder.data["reasoning_content"] = builder.reasoning
        return builder.answer()


def _join_detail(details: list[Json], piece: Json) -> None:
    """Add a piece of OpenRouter's reasoning; pieces of one index are one entry."""
    last = details[-1] if details else None
    if last is None or last.get("index") != piece.get("index") or last["type"] != piece["type"]:
        details.append(dict(piece))
        return
    for name, value in piece.items():
        if name in ("text", "summary", "data") and isinstance(value, str):
            last[name] = (last.get(name) or "") + value
        elif value is not None:
            last[name] = value


def _usage(usage: Json, service: object) -> TokenUsage:
    details: Json = usage.get("prompt_tokens_details") or {}
    answered: Json = usage.get("completion_tokens_details") or {}
    # DeepSeek and Moonshot report cached tokens in fields of their own.
    cached = (
        details.get("cached_tokens")
        or usage.get("prompt_cache_hit_tokens")
        or usage.get("cached_tokens")
        or 0
    )
    written = details.get("cache_write_tokens") or usage.get("cache_creation_input_tokens") or 0
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    reasoning = answered.get("reasoning_tokens") or 0
    if reasoning and (usage.get("total_tokens") or 0) >= prompt + completion + reasoning:
        # xAI charges reasoning on top of the completion, others as a part of it.
        completion += reasoning
    return TokenUsage(
        prompt=prompt,
        completion=completion,
        cached=cached,
        cache_write=written,
        reasoning=reasoning,
        audio=details.get("audio_tokens") or 0,
        image=details.get("image_tokens") or 0,
        audio_output=answered.get("audio_tokens") or 0,
        image_output=answered.get("image_tokens") or 0,
        service=service if isinstance(service, str) else "",
    )
