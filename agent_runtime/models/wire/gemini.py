"""Gemini's `generateContent`: its requests, and the reading of its stream."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson

from agent_runtime.messages import PromptMessage, ToolCall, encodable
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
from agent_runtime.models.openai_format import FOLLOWS
from agent_runtime.models.wire.base import (
    Piece,
    ServerEvent,
    StreamFailedError,
    Target,
    WireRequest,
    items,
    join,
    load,
    merge,
)
from agent_runtime.models.wire.gemini_files import TakenFiles, fits_result, split
from agent_runtime.models.wire.gemini_models import family_of
from agent_runtime.models.wire.gemini_schema import reduced

_UNSIGNED = base64.b64encode(b"skip_thought_signature_validator").decode()
"""Google's documented signature for a call that another model made, or that lost its own."""
_FOLLOWS = Piece("user", items({"text": FOLLOWS["text"]}))
_CONTINUE: Json = {"role": "user", "parts": [{"text": "Continue."}]}
"""Where a prompt would begin or end with an answer, which Gemini refuses."""
_UNNAMEABLE = re.compile(r"[^a-zA-Z0-9_.:-]|^(?![a-zA-Z_])")
_LONGEST_NAME = 64
# Gemini refuses a request with more.
_MOST_STOPS = 5
_CONTINUATION = "CONTINUATION"
_NOT_YET = "FINISH_REASON_UNSPECIFIED"


class GeminiWire:
    """The wire of one model."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._family = family_of(target.model, target.entry)
        # Gemma's first generations refuse system instructions.
        instructed = target.entry.get("supports_system_messages") is not False
        self._system = "system" if instructed else "user"
        self._takes = TakenFiles(target.takes, resolutions=self._family.signs)

    # What is sent

    def piece(self, message: PromptMessage, files: Sequence[FilePart], *, mark: bool) -> Piece:
        """Encode a message; Gemini caches without marks."""
        files = files or [FilePart(file) for file in message.files]
        if message.role == "assistant":
            return Piece("model", items(*self._answer(message, files)))
        if message.role == "tool":
            return self._result(message, files)
        parts, text = split(message.text, files, self._takes)
        role = self._system if message.role == "system" else "user"
        return Piece(role, items(*([{"text": text}] if text else []), *parts))

    def request(self, request: ModelRequest, pieces: Sequence[Piece], tools: bytes) -> WireRequest:
        """Return the request."""
        settings, ignored = request.settings, list[str]()
        body: Json = {"contents": _contents(pieces)}
        if system := [piece for piece in pieces if piece.role == "system" and piece.data]:
            body["systemInstruction"] = {"parts": join(system)}
        if request.tools:
            body["tools"] = orjson.Fragment(tools)
            if choice := _tool_config(request, ignored):
                body["toolConfig"] = {"functionCallingConfig": choice}
        body["generationConfig"] = self._config(request, ignored)
        if settings.service_tier:
            body["serviceTier"] = settings.service_tier
        ignored += _unknown(settings)
        headers = {"x-goog-api-key": self._target.key} if self._target.key else {}
        return WireRequest(
            self._url(),
            {**headers, **settings.extra_headers},
            orjson.dumps(merge(body, settings.extra_body)),
            tuple(ignored),
        )

    def tools(self, request: ModelRequest) -> bytes:
        """Encode the request's tools."""
        declared: list[Json] = []
        for tool in request.tools:
            one: Json = {"name": tool.name, "description": tool.description}
            # An object without properties is refused; without a schema there are no arguments.
            if tool.parameters.get("properties"):
                one["parametersJsonSchema"] = reduced(tool.parameters)
            declared.append(one)
        return orjson.dumps([{"functionDeclarations": declared}] if declared else [])

    def decoder(self) -> GeminiDecoder:
        """Return a decoder for one answer."""
        return GeminiDecoder(self._target.name)

    def _url(self) -> str:
        model = self._target.model
        path = model if "/" in model else f"models/{model}"
        return f"{self._target.base_url}/{path}:streamGenerateContent?alt=sse"

    def _config(self, request: ModelRequest, ignored: list[str]) -> Json:
        settings, target = request.settings, self._target
        most = min(request.max_output, target.max_output or request.max_output)
        config: Json = {"maxOutputTokens": most}
        sampling = {"temperature": settings.temperature, "top_p": settings.top_p}
        for name, value in sampling.items():
            if value is not None and self._family.samples:
                config["topP" if name == "top_p" else name] = value
            elif value is not None:
                ignored.append(name)
        if settings.seed is not None:
            config["seed"] = settings.seed
        if settings.stop:
            config["stopSequences"] = settings.stop[:_MOST_STOPS]
            if len(settings.stop) > _MOST_STOPS:
                ignored.append("stop")
        if (thinking := self._family.thinking(settings.reasoning, most)) is not None:
            config["thinkingConfig"] = thinking
        elif settings.reasoning is not None:
            ignored.append("reasoning")
        return config

    def _result(self, message: PromptMessage, files: Sequence[FilePart]) -> Piece:
        parts, text = split(message.text, files, self._takes)
        inside: list[Json] = []
        after: list[Json] = []
        for part in parts:
            (inside if self._family.signs and fits_result(part) else after).append(part)
        key = "output" if message.outcome == "ok" else "error"
        response: Json = {
            "id": message.call_id,
            "name": _name(message.name),
            "response": {key: text},
        }
        if inside:
            response["parts"] = inside
        return Piece("tool", items({"functionResponse": response}), following=items(*after))

    def _answer(self, message: PromptMessage, files: Sequence[FilePart]) -> list[Json]:
        """Return the parts of an answer: as the model made them, if its data is of this model."""
        opaque: Json = {}
        if message.opaque is not None and message.opaque.model == self._target.name:
            opaque = message.opaque.data
        signatures = cast("list[str | None]", opaque.get("signatures") or [])
        calls = [
            _call(call, signature)
            for call, signature in itertools.zip_longest(message.calls, signatures)
            if call is not None
        ]
        # Of parallel calls only the first is signed, and only its signature is checked.
        if calls and self._family.signs:
            calls[0].setdefault("thoughtSignature", _UNSIGNED)
        parts = _ordered(message.text, calls, opaque)
        # Files that the model made do not go back to it.
        if names := split("", files, TakenFiles())[1]:
            first = next((n for n, part in enumerate(parts) if "functionCall" in part), len(parts))
            parts.insert(first, {"text": names})
        return parts


class GeminiDecoder:
    """Reads the stream of one answer, which may be spread over several requests.

    The stream has no end marker: an answer is whole at its end if it has a finish reason.
    """

    finished = False

    def __init__(self, model: str) -> None:
        self._builder = AnswerBuilder(model)
        self._signatures: list[str | None] = []
        self._order: list[_Run] = []
        self._usage: Json = {}
        self._spent = TokenUsage(0, 0)
        self._token = ""
        self._resumed = ""
        self._unsaved = False

    def feed(self, event: ServerEvent) -> Iterator[ModelEvent]:
        """Read an event; return its deltas.

        Raises:
            StreamFailedError: the provider reports a failure.
            ValueError: the event is not what the API defines.
        """
        value = load(event.data)
        # Google's servers wrap some errors, and streams that are no events, into an array.
        chunks = cast("list[Any]", value) if isinstance(value, list) else [value]
        events: list[ModelEvent] = []
        try:
            for chunk in chunks:
                self._read(chunk, events)
            return iter(events)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"an event of another form: {error}") from None

    def next_request(self, sent: WireRequest) -> WireRequest | None:
        """Return the request that continues the answer after its stream ended; None for no more.

        The deltas of the next stream continue those of the last.

        Args:
            sent: the answer's first request.
        """
        ended = self._builder.word
        # A token stands for the answer up to its chunk: what followed would be streamed again.
        goes_on = ended == _CONTINUATION or (not ended and not self._unsaved)
        # A token that was used already would repeat the same stream.
        if not goes_on or not self._token or self._token == self._resumed:
            return None
        # The next stream counts from zero.
        self._spent, self._usage = self._total(), {}
        self._resumed = self._token
        self._builder.word = ""
        # Put before the last brace, so that megabytes of prompt are not encoded again.
        token = b',"continuationToken":' + orjson.dumps(self._token)
        return replace(sent, body=sent.body[:-1] + token + b"}")

    def answer(self) -> ModelAnswer:
        """Return the whole answer, without its cost.

        Raises:
            ModelProtocolError: the stream broke off, or the answer is empty.
        """
        total = self._total()
        self._builder.usage = total if total.prompt or total.completion else None
        self._builder.data = self._data()
        return self._builder.answer()

    def _read(self, chunk: Json, events: list[ModelEvent]) -> None:
        if chunk.get("error"):
            raise StreamFailedError(chunk)
        if candidates := chunk.get("candidates"):
            candidate: Json = candidates[0]
            content: Json = candidate.get("content") or {}
            parts: list[Json] = content.get("parts") or []
            for part in parts:
                self._part(part, events)
            if token := candidate.get("continuationToken"):
                self._token, self._unsaved = str(token), False
            elif parts:
                self._unsaved = True
            word = candidate.get("finishReason")
            if word and word != _NOT_YET:
                self._builder.word = str(word)
        usage = chunk.get("usageMetadata")
        if isinstance(usage, dict):
            # Each chunk has the sums so far.
            self._usage = cast("Json", usage)
        if model := chunk.get("modelVersion"):
            self._builder.reported_model = str(model)
        feedback: Json = chunk.get("promptFeedback") or {}
        if blocked := feedback.get("blockReason"):
            self._builder.word = f"content_filter: {blocked}"

    def _part(self, part: Json, events: list[ModelEvent]) -> None:
        signature = part.get("thoughtSignature")
        text = part.get("text")
        if text is not None:
            if part.get("thought"):
                events += self._builder.think(text)
                kind = "thought" if signature else ""
            else:
                events += self._builder.say(text)
                kind = "text" if text or signature else ""
            if kind:
                self._note(kind, text, signature)
        elif (call := part.get("functionCall")) is not None:
            self._builder.calls.append(RawCall(str(call["name"]), _dumped(call.get("args"))))
            self._signatures.append(signature)
            self._order.append(_Run("call", []))
        elif (blob := part.get("inlineData")) is not None and not part.get("thought"):
            self._builder.files.append(f"data:{blob['mimeType']};base64,{blob['data']}")

    def _note(self, kind: str, text: str, signature: str | None) -> None:
        """Note a text; one with a signature stays alone, because the signature is for it."""
        last = self._order[-1] if self._order else None
        if signature or last is None or last.kind != kind or last.signature:
            self._order.append(_Run(kind, [text], signature))
        else:
            last.texts.append(text)

    def _total(self) -> TokenUsage:
        """Return what was used so far: each request of an answer is billed on its own."""
        usage, spent = self._usage, self._spent
        prompt = _count(usage, "promptTokenCount", "toolUsePromptTokenCount")
        completion = _count(usage, "candidatesTokenCount", "thoughtsTokenCount")
        return TokenUsage(
            prompt=spent.prompt + prompt,
            completion=spent.completion + completion,
            cached=spent.cached + _count(usage, "cachedContentTokenCount"),
            reasoning=spent.reasoning + _count(usage, "thoughtsTokenCount"),
            audio=spent.audio + _of_kind(usage, "promptTokensDetails", "AUDIO"),
            cached_audio=spent.cached_audio + _of_kind(usage, "cacheTokensDetails", "AUDIO"),
            image=spent.image + _of_kind(usage, "promptTokensDetails", "IMAGE"),
            audio_output=spent.audio_output + _of_kind(usage, "candidatesTokensDetails", "AUDIO"),
            image_output=spent.image_output + _of_kind(usage, "candidatesTokensDetails", "IMAGE"),
        )

    def _data(self) -> Json:
        """Return what goes back with the answer; see `_ordered`."""
        data: Json = {}
        if any(self._signatures):
            data["signatures"] = self._signatures
        kinds = [run.kind for run in self._order]
        signed = any(run.signature for run in self._order)
        if signed or kinds != sorted(kinds, reverse=True):
            data["parts"] = [run.stored() for run in self._order]
        return data


@dataclass(slots=True)
class _Run:
    """Neighbours in an answer that are sent back as one part."""

    kind: str
    texts: list[str]
    signature: str | None = None

    def stored(self) -> list[Any]:
        """Return its kind, its text or the length of that, and its signature."""
        text = encodable("".join(self.texts))
        if self.kind == "call":
            return [self.kind]
        return [self.kind, len(text) if self.kind == "text" else text, self.signature or ""]


def _contents(pieces: Sequence[Piece]) -> list[Json]:
    """Return the contents: results are alone in theirs, with the files that belong to them after.

    Gemini takes a content with anything next to results for one of the model's.
    """
    contents: list[Json] = []
    for role, run in itertools.groupby(filter(_is_content, pieces), key=_role):
        neighbours = list(run)
        spoken = "model" if role == "model" else "user"
        contents.append({"role": spoken, "parts": join(neighbours)})
        if files := [Piece("user", one.following) for one in neighbours if one.following]:
            contents.append({"role": "user", "parts": join([_FOLLOWS, *files])})
    if not contents or contents[0]["role"] == "model":
        contents.insert(0, _CONTINUE)
    if contents[-1]["role"] == "model":
        contents.append(_CONTINUE)
    return contents


def _is_content(piece: Piece) -> bool:
    return bool(piece.data) and piece.role != "system"


def _role(piece: Piece) -> str:
    return piece.role


def _ordered(text: str, calls: Sequence[Json], opaque: Json) -> list[Json]:
    """Return an answer's texts and calls, in the model's order if that is known.

    The order has the kind of each part, the length of a text, and its signature.  It is void if
    the text or the calls are not the model's own any more.
    """
    order = cast("list[list[Any]]", opaque.get("parts") or [])
    lengths = sum(one[1] for one in order if one[0] == "text")
    number = sum(one[0] == "call" for one in order)
    # The text or the calls were changed since, as by masking: then the order has no meaning.
    if not order or lengths != len(text) or number != len(calls):
        return [*([{"text": text}] if text.strip() else []), *calls]
    parts: list[Json] = []
    at, waiting = 0, iter(calls)
    for kind, *rest in order:
        if kind == "call":
            parts.append(next(waiting))
            continue
        part: Json = {"text": rest[0], "thought": True}
        if kind == "text":
            part = {"text": text[at : at + rest[0]]}
            at += rest[0]
        if rest[1]:
            part["thoughtSignature"] = rest[1]
        parts.append(part)
    return parts


def _call(call: ToolCall, signature: str | None) -> Json:
    used = {"id": call.id, "name": _name(call.name), "args": call.arguments}
    part: Json = {"functionCall": used}
    if signature:
        part["thoughtSignature"] = signature
    return part


def _name(name: str) -> str:
    """Return a tool's name with the characters that Gemini takes; models invent others."""
    return _UNNAMEABLE.sub("_", name)[:_LONGEST_NAME]


def _tool_config(request: ModelRequest, ignored: list[str]) -> Json:
    choice = request.settings.tool_choice
    if choice is None or choice == "auto":
        return {}
    if choice in ("required", "none"):
        return {"mode": "ANY" if choice == "required" else "NONE"}
    if any(tool.name == choice for tool in request.tools):
        return {"mode": "ANY", "allowedFunctionNames": [choice]}
    ignored.append("tool_choice")
    return {}


def _unknown(settings: ModelSettings) -> Iterator[str]:
    """Yield the settings that Gemini knows nothing of."""
    if settings.parallel_calls is False:
        yield "parallel_calls"
    if settings.verbosity is not None:
        yield "verbosity"
    if settings.cache_ttl is not None:
        yield "cache_ttl"


def _dumped(arguments: Any) -> str:
    if arguments is None:
        return "{}"
    try:
        return orjson.dumps(arguments).decode()
    except TypeError:
        # Half of a surrogate pair, or a number beyond 64 bits.
        return encodable(json.dumps(arguments, ensure_ascii=False))


def _of_kind(usage: Json, name: str, kind: str) -> int:
    """Return the tokens of one modality in a list of counts."""
    listed = cast("list[Json]", usage.get(name) or [])
    return sum(_count(one, "tokenCount") for one in listed if one.get("modality") == kind)


def _count(usage: Json, *names: str) -> int:
    counts = (usage.get(name) for name in names)
    return sum(count for count in counts if isinstance(count, int))
