"""Read the streams of OpenAI's Responses API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias, cast

import orjson

from agent_runtime.models.answer import AnswerBuilder
from agent_runtime.models.base import Json, ModelAnswer, ModelEvent, RawCall, TokenUsage
from agent_runtime.models.wire.base import ServerEvent, StreamFailedError, load_object

OutputItem: TypeAlias = list[Any]
"""An item of an answer, as opaque data keeps it: its kind, what it is, and its id.

That is `["reasoning", number, id]`, `["call", number, id]`, `["text", text, id, phase]`, or
`["other", whole, id]`.  A text is empty if it is the whole text of the answer, and an id is None if
the provider gave none that it takes back.
"""
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
"""An id that the provider takes back; some servers between it and us make longer ones."""

_SKIPPED = frozenset(
    {
        # They repeat the request, or what the deltas brought.
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.done",
        "response.refusal.done",
        "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.done",
    }
)
_ENDS = ("response.completed", "response.incomplete")
# Failures in a stream have no status; these would come back with every retry.
_REQUEST_ERRORS = (
    "context_length_exceeded",
    "invalid_encrypted_content",
    "invalid_prompt",
    "invalid_request_error",
    "model_not_found",
    "string_above_max_length",
    "unsupported_parameter",
    "unsupported_value",
)


class ResponsesDecoder:
    """Reads the stream of one answer.

    An item counts as its last event has it.  Events of several items may alternate.
    """

    def __init__(self, model: str) -> None:
        self._builder = AnswerBuilder(model)
        self._arguments: dict[int, list[str]] = {}
        self._begun: dict[int, Json] = {}
        self._done: dict[int, Json] = {}
        # The items whose text, or whose readable reasoning, came in deltas.
        self._said: set[int] = set()
        self.finished = False

    def feed(self, event: ServerEvent) -> Iterator[ModelEvent]:
        """Read an event; yield its deltas.

        Raises:
            StreamFailedError: the provider reports a failure.
            ValueError: the event is not what the provider's API defines.
        """
        if self.finished or event.name in _SKIPPED:
            return iter(())
        sent = load_object(event.data)
        kind = sent.get("type") or event.name
        if sent.get("object") == "response":
            # The answer of a server that does not stream.
            kind, sent = f"response.{sent.get('status')}", {"response": sent}
        try:
            return self._read(kind, sent)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an event of this API: {error!r}") from None

    def _read(self, kind: str, sent: Json) -> Iterator[ModelEvent]:
        if kind == "response.output_text.delta":
            self._said.add(sent["output_index"])
            return self._builder.say(_piece(sent))
        if kind == "response.function_call_arguments.delta":
            self._arguments.setdefault(sent["output_index"], []).append(_piece(sent))
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._said.add(sent["output_index"])
            return self._builder.think(_piece(sent))
        elif kind == "response.reasoning_summary_part.added":
            # Each part is a paragraph of its own.
            return self._builder.think("\n\n" if self._builder.reasoning else "")
        elif kind == "response.function_call_arguments.done":
            self._arguments[sent["output_index"]] = [str(sent["arguments"])]
        elif kind == "response.refusal.delta":
            self._builder.refusal += _piece(sent)
        elif kind == "response.output_item.added":
            self._begun[sent["output_index"]] = dict(sent["item"])
        elif kind == "response.output_item.done":
            return self._item(sent["output_index"], dict(sent["item"]))
        elif kind in _ENDS:
            return self._end(kind, sent["response"])
        else:
            _check_failed(kind, sent)
        return iter(())

    def _item(self, index: int, item: Json) -> Iterator[ModelEvent]:
        """Add a whole item; yield what of it did not come in deltas."""
        self._done[index] = item
        texts: list[str] = []
        if item["type"] == "message":
            parts = cast("list[Json]", item.get("content") or [])
            texts = [part["text"] for part in parts if part["type"] == "output_text"]
            item["text"] = "".join(texts)
            if not self._builder.refusal:
                refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
                self._builder.refusal = "".join(refusals)
        elif item["type"] == "reasoning":
            texts = [part["text"] for part in cast("list[Json]", item.get("summary") or [])]
        # It came in deltas already.
        if index in self._said:
            return iter(())
        self._said.add(index)
        if item["type"] == "message":
            return self._builder.say("".join(texts))
        return self._builder.think("\n\n".join(texts))

    def _end(self, kind: str, response: Json) -> Iterator[ModelEvent]:
        """Read the last event; yield the deltas of items that no other event brought."""
        deltas: list[ModelEvent] = []
        for index, item in enumerate(cast("list[Json]", response.get("output") or [])):
            if index not in self._done:
                deltas += self._item(index, dict(item))
        for index, item in self._begun.items():
            if index not in self._done and item["type"] == "function_call":
                # An answer that was cut off may leave its last call open.
                self._done[index] = item
        builder = self._builder
        builder.reported_model = str(response.get("model") or "")
        builder.usage = _usage(response.get("usage"), response.get("service_tier"))
        builder.data = self._output()
        details = cast("Json", response.get("incomplete_details") or {})
        builder.word = str(details.get("reason") or kind.removeprefix("response."))
        self.finished = True
        return iter(deltas)

    def _output(self) -> Json:
        """Add the calls to the answer; return the data that restores its items."""
        builder = self._builder
        order: list[OutputItem] = []
        reasoning: list[Json] = []
        for index, item in sorted(self._done.items()):
            kind, item_id = item["type"], item.get("id")
            if kind == "function_call":
                order.append(["call", len(builder.calls), item_id])
                builder.calls.append(RawCall(str(item["name"] or ""), self._written(index, item)))
            elif kind == "reasoning":
                order.append(["reasoning", len(reasoning), item_id])
                kept = {name: item.get(name) for name in ("id", "encrypted_content")}
                reasoning.append({"type": kind, **kept, "summary": item.get("summary") or []})
            elif kind == "message":
                order.append(["text", item["text"], item_id, item.get("phase")])
            elif kind == "image_generation_call":
                media = f"image/{item.get('output_format') or 'png'}"
                builder.files.append(f"data:{media};base64,{item['result']}")
                order.append(["made", None, None])
            else:
                # Such as a search at the provider; it goes back as it is.
                order.append(["other", item, item_id])
        return _data(order, reasoning) if not builder.refusal else {}

    def _written(self, index: int, item: Json) -> str:
        """Return a call's arguments; some servers send the object itself instead of text."""
        arguments = item.get("arguments") or "".join(self._arguments.get(index, ()))
        return arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()

    def answer(self) -> ModelAnswer:
        """Return the whole answer, without its cost.

        Raises:
            ModelProtocolError: the stream broke off, or the answer is empty.
        """
        return self._builder.answer()


def _data(order: list[OutputItem], reasoning: list[Json]) -> Json:
    """Return what restores an answer's items, as far as the provider takes them back.

    Reasoning and the ids of items go back all or none: an item that refers to a missing one is
    refused.
    """
    texts = [item for item in order if item[0] == "text"]
    whole = all(one["encrypted_content"] for one in reasoning)
    whole = whole and all(item[0] != "made" for item in order)
    if not whole:
        reasoning = []
        order = [item for item in order if item[0] in ("text", "call")]
    whole = whole and all(isinstance(one[2], str) and ID.fullmatch(one[2]) for one in order)
    whole = whole and all(item[1] for item in texts)
    kept: list[OutputItem] = []
    for kind, what, item_id, *about in order:
        if kind == "text" and not what:
            continue
        text = "" if kind == "text" and len(texts) == 1 else what
        kept.append([kind, text, item_id if whole else None, *about])
    data: Json = {"items": kept} if kept else {}
    return {**data, "reasoning_items": reasoning} if reasoning else data


def _check_failed(kind: str, sent: Json) -> None:
    """Raise a failure that an event reports; events of unknown types are ignored."""
    if kind == "response.failed":
        sent = cast("Json", sent["response"])
    elif kind != "error" and (kind or "error" not in sent):
        return
    # OpenAI's error is flat, or in an object of its own; xAI's is a text next to its code.
    error = sent.get("error")
    if isinstance(error, str):
        raise StreamFailedError({"error": error, "code": sent.get("code")})
    about = cast("Json", error) if isinstance(error, dict) else sent
    body = {name: about.get(name) for name in ("code", "message", "param", "type")}
    if body["code"] in _REQUEST_ERRORS or body["type"] in _REQUEST_ERRORS:
        body["status"] = 400
    raise StreamFailedError({"error": body})


def _piece(sent: Json) -> str:
    piece = sent["delta"]
    if piece.__class__ is not str and piece is not None:
        raise ValueError("a delta that is no text")
    return piece or ""


def _usage(given: Json | None, service: object) -> TokenUsage | None:
    """Return the usage; None if none is reported, or none that can be billed by."""
    prompt, completion = ((given or {}).get(f"{way}_tokens") for way in ("input", "output"))
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return None
    details = cast("Json", (given or {}).get("input_tokens_details") or {})
    answered = cast("Json", (given or {}).get("output_tokens_details") or {})

    def count(part: Json, name: str) -> int:
        value = part.get(f"{name}_tokens")
        return value if isinstance(value, int) else 0

    return TokenUsage(
        prompt=prompt,
        completion=completion,
        cached=count(details, "cached"),
        cache_write=count(details, "cache_write"),
        reasoning=count(answered, "reasoning"),
        audio=count(details, "audio"),
        image=count(details, "image"),
        audio_output=count(answered, "audio"),
        image_output=count(answered, "image"),
        service=service if isinstance(service, str) else "",
    )
