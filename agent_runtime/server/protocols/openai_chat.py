"""OpenAI's chat completions over threads: `POST /v1/chat/completions`, `GET /v1/models`.

A thread is named by `metadata.thread`, `conversation`, or the header `X-Thread-Id`; the response
names it by the same header, percent-encoded, and by `conversation`.  The thread has the history, so
of the messages only those after the assistant's last one are new.

Tools run here and are not shown.  A question to a person is a call of the function `ask_user` or
`approve`, whose id is the question's; the message of role `tool` that answers it resumes the run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, unquote
from uuid import UUID

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_runtime.human.questions import Question
from agent_runtime.server.protocols import parts
from agent_runtime.server.protocols.answers import described
from agent_runtime.server.protocols.client_message import Message
from agent_runtime.server.protocols.parts import Part
from agent_runtime.server.protocols.streams import (
    event_of,
    headers_of,
    invalid,
    read_json,
    status_of,
    stream_of,
    text_of,
)
from agent_runtime.server.protocols.turn_parts import Turn
from agent_runtime.server.protocols.turns import TEXT, ClientTurns, UserTurns
from agent_runtime_storage.contract.records.usage import UsageTotal

THREAD = "x-thread-id"
REQUEST = "idempotency-key"
DONE = b"data: [DONE]\n\n"
_IN_HEADER = "".join(chr(code) for code in range(33, 127) if chr(code) != "%")
ANSWERED = "The answer is noted. The background task goes on."
"""The text of the completion that follows an answer to a background task."""
_FINISH = {"length": "length", "max_steps": "length", "content_filter": "content_filter"}
_TYPES = {400: "invalid_request_error", 404: "not_found_error", 409: "conflict_error",
          429: "rate_limit_error"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Completion:
    """A request for a completion.

    Attributes:
        digest: of the messages, which names a request with a history: sent twice, it is one.
    """

    model: str
    thread: str
    message: Message | None
    answers: Mapping[str, object]
    digest: str
    has_history: bool
    stream: bool
    include_usage: bool


def openai_routes(turns: ClientTurns) -> list[Route]:
    """Return the routes that the OpenAI SDK uses."""

    async def models(request: Request) -> Response:
        turns.of(request)
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": "agent-runtime"}
            for name in turns.agents
        ]
        return _json({"object": "list", "data": listed})

    async def completions(request: Request) -> Response:
        try:
            asked = await read_json(request, _completion)
            mine = turns.of(request, streaming=True)
            thread = asked.thread or unquote(request.headers.get(THREAD, ""))
            turn = await _turn(mine, asked, thread, request.headers.get(REQUEST, ""))
            # A header holds ASCII without line breaks, and an id any text.
            named = {THREAD: quote(turn.thread_id, safe=_IN_HEADER)}
            reply = CompletionWriter(asked, turn)
            if asked.stream:
                return stream_of(
                    mine.parts(turn),
                    lambda part: map(event_of, reply.chunks(part)),
                    lambda error: event_of(_error_body(error)),
                    end=DONE,
                    headers=named,
                )
            async with mine.parts(turn) as given:
                async for part in given:
                    reply.take(part)
        except Exception as error:
            return _error(error)
        return _json(reply.whole(), status=reply.status, headers=named)

    return [
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/chat/completions", completions, methods=["POST"]),
    ]


async def _turn(turns: UserTurns, asked: Completion, thread: str, request: str) -> Turn:
    if asked.has_history and not thread:
        raise invalid(
            "The messages have a history, and name no thread.",
            cure=f"Name the thread of the first response (header {THREAD}).",
        )
    if asked.answers:
        return await turns.answer(thread, asked.answers)
    # A first message without a key is a new conversation each time: the same words may be meant
    # twice.  With other words a key is that of another request, which must not be lost.
    named = request or asked.has_history
    key = f"openai:{request}{TEXT}{asked.digest}" if named else ""
    if key and not thread:
        # The same for each attempt; the client learns it from the response only.
        thread = str(UUID(bytes=hashlib.sha256(key.encode()).digest()[:16]))
    return await turns.begin(asked.model, asked.message, thread, request=key)


# The request


def _completion(body: dict[str, Any]) -> Completion:
    messages: Any = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("`messages` is missing or empty.")
    if not isinstance(body.get("model"), str):
        raise ValueError("`model`, the agent's name, is missing.")
    if body.get("n") not in (None, 1):
        raise ValueError("`n` must be 1.")
    found = [_message(one) for one in cast("list[Any]", messages)]
    history = [i for i, one in enumerate(found) if one["role"] == "assistant"]
    new = found[history[-1] + 1 :] if history else found
    users = [_said(one) for one in new if one["role"] == "user"]
    answers = {str(one.get("tool_call_id")): _text(one) for one in new if one["role"] == "tool"}
    if not users and not answers:
        raise ValueError("the messages do not end with one of the user, or an answer.")
    if users and answers:
        raise ValueError("answers to questions and a new message came together.")
    texts = "\n\n".join(one.text for one in users)
    files = tuple(url for one in users for url in one.files)
    options: Any = body.get("stream_options")
    usage = isinstance(options, dict) and bool(cast("dict[str, Any]", options).get("include_usage"))
    return Completion(
        model=body["model"],
        thread=_thread(body),
        message=Message(texts, files) if users else None,
        answers=answers,
        digest=hashlib.sha256(orjson.dumps(found)).hexdigest(),
        has_history=bool(history),
        stream=bool(body.get("stream")),
        include_usage=usage,
    )


def _message(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a message is no object.")
    message = cast("dict[str, Any]", value)
    if not isinstance(message.get("role"), str):
        raise ValueError("a message has no role.")
    return message


def _thread(body: dict[str, Any]) -> str:
    metadata: Any = body.get("metadata")
    conversation: Any = body.get("conversation")
    if isinstance(conversation, dict):
        conversation = cast("dict[str, Any]", conversation).get("id")
    named = cast("dict[str, Any]", metadata).get("thread") if isinstance(metadata, dict) else None
    given = named or conversation or ""
    if not isinstance(given, str):
        raise ValueError("the thread's id is no text.")
    return given


def _said(message: dict[str, Any]) -> Message:
    files: list[str] = []
    content: Any = message.get("content")
    for part in cast("list[Any]", content) if isinstance(content, list) else []:
        match part:
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                files.append(url)
            case {"type": "file", "file": {"file_data": str(url)}}:
                files.append(url)
            case {"type": "text"}:
                continue
            case _:
                raise ValueError("a part of a message is neither a text nor an image nor a file.")
    return Message(_text(message), tuple(files))


def _text(message: dict[str, Any]) -> str:
    content: Any = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError("a message has no content.")
    found = cast("list[Any]", content)
    return "\n\n".join(str(one["text"]) for one in found if _is_text(one))


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(cast("dict[str, Any]", part).get("text"), str)


# The response


class CompletionWriter:
    """Writes the parts of a turn as a completion, whole or in chunks."""

    def __init__(self, asked: Completion, turn: Turn) -> None:
        self._asked = asked
        self._turn = turn
        self._created = int(time.time())
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._message = ""
        self._end: parts.Suspended | parts.Over | None = None

    def take(self, part: Part) -> list[dict[str, Any]]:
        """Take a part in; return what it adds to the message."""
        match part:
            case parts.Begun() if not self._texts:
                return [{"role": "assistant", "content": ""}]
            case parts.TextPiece(reasoning=True):
                self._reasoning.append(part.text)
                return [{"reasoning_content": part.text}]
            case parts.TextPiece():
                # Texts of several steps, and one that began again, are paragraphs.
                before = "\n\n" if self._texts and part.message != self._message else ""
                self._message = part.message
                self._texts.append(before + part.text)
                return [{"content": before + part.text}]
            case parts.Suspended() | parts.Over():
                self._end = part
                said: list[dict[str, Any]] = []
                if self._turn.waiting and isinstance(part, parts.Over):
                    # The run was over before: this answered what a background task asks.
                    self._texts.append(ANSWERED)
                    said = [{"content": ANSWERED}]
                calls = [{"index": i, **_call(one)} for i, one in enumerate(_asked(part))]
                return [*said, {"tool_calls": calls}] if calls else said
            case _:
                return []

    def chunks(self, part: Part) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a part."""
        for delta in self.take(part):
            yield self._chunk(delta, None)
        if self._end is None:
            return
        if failure := self._failure():
            yield failure
            return
        yield self._chunk({}, self._finish())
        if self._asked.include_usage:
            yield self._head("chat.completion.chunk") | {
                "choices": [],
                "usage": _usage(self._end.usage),
            }

    @property
    def status(self) -> int:
        """The HTTP status of the whole completion."""
        return 200 if self._failure() is None else 502

    def whole(self) -> dict[str, Any]:
        """Return the completion, or the error that ended the run."""
        assert self._end is not None
        if failure := self._failure():
            return failure
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts) or None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if asked := _asked(self._end):
            message["tool_calls"] = [*map(_call, asked)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish()}
        return self._head("chat.completion") | {
            "choices": [choice],
            "usage": _usage(self._end.usage),
        }

    def _failure(self) -> dict[str, Any] | None:
        """Return the error that ended the run; None if it has an answer or asks something."""
        end = self._end
        stopped = isinstance(end, parts.Suspended) and not _asked(end)
        ended = isinstance(end, parts.Over) and end.status != "succeeded"
        if end is None or not (stopped or ended) or end.stop_reason in _FINISH:
            return None
        message = end.detail or f"The run ended: {end.stop_reason}."
        return {"error": {"message": message, "type": "run_error", "param": None,
                          "code": end.stop_reason}}  # fmt: skip

    def _finish(self) -> str:
        if self._end is not None and _asked(self._end):
            return "tool_calls"
        return _FINISH.get(self._end.stop_reason, "stop") if self._end else "stop"

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._turn.run_id}",
            "object": kind,
            "created": self._created,
            "model": self._asked.model,
            "conversation": {"id": self._turn.thread_id},
        }

    def _chunk(self, delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self._head("chat.completion.chunk") | {"choices": [choice]}


def _asked(end: parts.Suspended | parts.Over) -> tuple[Question, ...]:
    """Return what is asked at the end of a turn, also by background tasks."""
    own = end.questions if isinstance(end, parts.Suspended) else ()
    return (*own, *end.apart)


def _call(question: Question) -> dict[str, Any]:
    # Questions are calls of tools: the one way in which this protocol lets a model wait for
    # somebody.
    name = "approve" if question.kind in ("approval", "continue") else "ask_user"
    arguments = orjson.dumps(described(question), default=str).decode()
    return {
        "id": question.id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _usage(used: UsageTotal) -> dict[str, Any]:
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.prompt_tokens + used.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
    }


def _json(value: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def _error(error: Exception) -> Response:
    return _json(_error_body(error), status=status_of(error), headers=headers_of(error))


def _error_body(error: Exception) -> dict[str, Any]:
    kind = _TYPES.get(status_of(error), "server_error")
    code = type(error).__name__ if kind != "server_error" else "server_error"
    return {"error": {"message": text_of(error), "type": kind, "param": None, "code": code}}
