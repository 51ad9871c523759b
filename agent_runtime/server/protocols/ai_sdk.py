"""The UI message stream of Vercel's AI SDK (v5 and later), for `useChat` and its like.

`POST /ai-sdk/{agent}` takes what `DefaultChatTransport` sends; the chat's id names the thread.
`GET /ai-sdk/{agent}/{chat}/stream` gives the answer in progress from its beginning, or 204.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_runtime.server.protocols import parts
from agent_runtime.server.protocols.answers import described
from agent_runtime.server.protocols.parts import Part
from agent_runtime.server.protocols.streams import (
    ProtocolStream,
    Write,
    event_of,
    invalid,
    problem,
    read_json,
    text_of,
)
from agent_runtime.server.protocols.turn_parts import Turn
from agent_runtime.server.protocols.turns import ClientTurns, Message, UserTurns
from agent_runtime_storage.contract.records.usage import UsageTotal

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
DONE = b"data: [DONE]\n\n"
_FINISH = {"completed": "stop", "length": "length", "content_filter": "content-filter"}


def ai_sdk_routes(turns: ClientTurns) -> list[Route]:
    """Return the routes of the AI SDK."""

    async def chat(request: Request) -> Response:
        try:
            body = await read_json(request, _checked)
            mine = turns.of(request, streaming=True)
            turn = await _turn(mine, request.path_params["agent"], body)
        except Exception as error:
            return problem(error)
        return _streamed(mine, turn)

    async def resume(request: Request) -> Response:
        try:
            mine = turns.of(request, streaming=True)
            turn = await mine.active(request.path_params["chat"])
        except Exception as error:
            return problem(error)
        return Response(status_code=204) if turn is None else _streamed(mine, turn)

    return [
        Route("/ai-sdk/{agent}", chat, methods=["POST"]),
        Route("/ai-sdk/{agent}/{chat}/stream", resume, methods=["GET"]),
    ]


def _streamed(turns: UserTurns, turn: Turn) -> Response:
    async def produce(write: Write) -> None:
        stream = UiMessageStream(turn)
        try:
            async with turns.parts(turn) as given:
                async for part in given:
                    for chunk in stream.of(part):
                        await write(event_of(chunk))
        except Exception as error:
            await write(event_of({"type": "error", "errorText": text_of(error)}))
        await write(DONE)

    return ProtocolStream(produce, HEADERS)


# What the client sends


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    messages = body.get("messages")
    if not isinstance(body.get("id"), str) or not body["id"]:
        raise ValueError("`id`, the chat's id, is missing.")
    if not isinstance(messages, list) or not messages:
        raise ValueError("`messages` is missing or empty.")
    for message in cast("list[Any]", messages):
        if not isinstance(message, dict):
            raise ValueError("a message is no object.")
        found = cast("dict[str, Any]", message)
        listed: Any = found.get("parts")
        if not isinstance(listed, list) or not isinstance(found.get("role"), str):
            raise ValueError("a message has no role or no parts.")
        if not all(isinstance(one, dict) for one in cast("list[Any]", listed)):
            raise ValueError("a part of a message is no object.")
    if not isinstance(body.get("answers") or {}, dict):
        raise ValueError("`answers` is no object.")
    return body


async def _turn(turns: UserTurns, agent: str, body: dict[str, Any]) -> Turn:
    thread, messages = body["id"], body["messages"]
    last = messages[-1]
    answers = _answers(last)
    answers.update(body.get("answers") or {})
    if answers:
        return await turns.answer(thread, answers)
    if body.get("trigger") == "regenerate-message":
        return await turns.regenerate(agent, thread)
    if last["role"] != "user":
        raise invalid(
            "The messages end with one of the assistant, which answers no question.",
            cure="Add the user's message.",
        )
    replaces = 0
    if body.get("messageId"):
        replaces = sum(one["role"] == "user" for one in messages)
    # An edited message keeps its id.
    digest = hashlib.sha256(orjson.dumps(last["parts"])).hexdigest()
    request = f"ai-sdk:{last.get('id')}:{digest}"
    return await turns.begin(agent, _message(last), thread, request=request, replaces=replaces)


def _message(message: dict[str, Any]) -> Message:
    texts: list[str] = []
    files: list[str] = []
    for part in message["parts"]:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "file", "url": str(url)}:
                files.append(url)
            case _:
                # Data of the application's own.
                continue
    if not any(one.strip() for one in texts) and not files:
        raise invalid("The user's message is empty.", cure="Write a text.")
    return Message("\n\n".join(texts), tuple(files))


def _answers(message: dict[str, Any]) -> dict[str, object]:
    """Return the answers in an assistant's message: of approvals, and results of `ask_user`."""
    if message["role"] != "assistant":
        return {}
    answers: dict[str, object] = {}
    # What came before the last step has been answered.
    steps = [i for i, one in enumerate(message["parts"]) if one.get("type") == "step-start"]
    for part in message["parts"][steps[-1] if steps else 0 :]:
        match part:
            case {"state": "approval-responded", "approval": {"id": str(key)}}:
                given = part["approval"]
                reason = given.get("reason") or ""
                answers[key] = {"allow": given.get("approved"), "reason": reason}
            case {"state": "output-available" | "output-error"} if _is_question(part):
                answers[part["toolCallId"]] = part.get("output", part.get("errorText"))
            case _:
                continue
    return answers


def _is_question(part: dict[str, Any]) -> bool:
    name = part.get("toolName") or str(part.get("type", "")).removeprefix("tool-")
    return name == "ask_user" and isinstance(part.get("toolCallId"), str)


# What it gets


class UiMessageStream:
    """Writes the parts of a turn as chunks of a UI message."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._open: set[str] = set()
        self._begun = False

    def of(self, part: Part) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a part."""
        match part:
            case parts.Begun(run_id, thread_id, resumed):
                yield from self._start(run_id, thread_id, resumed)
            case parts.StepBegun():
                yield {"type": "start-step"}
            case parts.StepEnded():
                yield {"type": "finish-step"}
            case parts.TextPiece(message, text, reasoning):
                kind, name = ("reasoning", f"{message}-r") if reasoning else ("text", message)
                if name not in self._open:
                    self._open.add(name)
                    yield {"type": f"{kind}-start", "id": name}
                yield {"type": f"{kind}-delta", "id": name, "delta": text}
            case parts.Ended(message, reasoning, void):
                kind, name = ("reasoning", f"{message}-r") if reasoning else ("text", message)
                self._open.discard(name)
                yield {"type": f"{kind}-end", "id": name}
                if void:
                    yield _data("void", {"id": name}, f"void-{name}")
            case parts.Called(_, call):
                named = {"toolCallId": call.id, "toolName": call.name, "dynamic": True}
                yield {"type": "tool-input-start", **named}
                yield {"type": "tool-input-available", **named, "input": call.arguments}
            case parts.Returned():
                yield _output(part)
            case parts.Progressed(call_id, done, total, message):
                progress = {"toolCallId": call_id, "done": done, "total": total, "message": message}
                yield _data("progress", progress, f"progress-{call_id}")
            case parts.Planned(plan):
                yield _data("plan", plan.to_json(), "plan")
            case parts.ChildBegun(run_id, name, task_key):
                child = {"runId": run_id, "name": name, "taskKey": task_key, "status": "running"}
                yield _data("sub-agent", child, run_id)
            case parts.ChildEnded(run_id, status, detail):
                ended = {"runId": run_id, "status": status, "detail": detail}
                yield _data("sub-agent", ended, run_id)
            case parts.Other(event):
                happened = {"kind": event.kind, **event.data}
                yield _data("event", happened, "") | {"transient": True}
            case parts.Suspended() | parts.Over():
                yield from self._end(part)

    def _start(self, run_id: str, thread_id: str, resumed: bool) -> Iterator[dict[str, Any]]:
        if not self._begun:
            self._begun = True
            metadata = {"runId": run_id, "threadId": thread_id}
            # An answer's request continues the message that the client has: it keeps its id.
            own = {} if resumed else {"messageId": run_id}
            yield {"type": "start", **own, "messageMetadata": metadata}

    def _end(self, part: parts.Suspended | parts.Over) -> Iterator[dict[str, Any]]:
        reason = "other"
        if isinstance(part, parts.Suspended):
            for question in part.questions:
                yield _data("question", described(question), question.id)
                own = question.thread_id == self._turn.thread_id
                if question.kind == "approval" and own:
                    yield {
                        "type": "tool-approval-request",
                        "approvalId": question.id,
                        "toolCallId": question.call_id,
                    }
            reason = "tool-calls" if part.questions else reason
        elif part.status == "cancelled":
            yield {"type": "abort", "reason": part.detail or "The run was cancelled."}
            return
        elif part.status == "failed":
            detail = part.detail or f"The run ended: {part.stop_reason}."
            yield {"type": "error", "errorText": detail}
            reason = "error"
        else:
            reason = _FINISH.get(part.stop_reason, "other")
        metadata = {"stopReason": part.stop_reason, "usage": _usage(part.usage)}
        yield {"type": "finish", "finishReason": reason, "messageMetadata": metadata}


def _output(part: parts.Returned) -> dict[str, Any]:
    called = {"toolCallId": part.call_id}
    match part.result.outcome:
        case "ok":
            output = {"output": part.result.text, "dynamic": True}
            return {"type": "tool-output-available", **called, **output}
        case _:
            # Also a refusal, so that its reason is read; `tool-output-denied` has no place for it.
            error = {"errorText": part.result.text, "dynamic": True}
            return {"type": "tool-output-error", **called, **error}


def _data(name: str, value: object, key: str) -> dict[str, Any]:
    return {"type": f"data-{name}", "data": value} | ({"id": key} if key else {})


def _usage(used: UsageTotal) -> dict[str, int]:
    return {
        "inputTokens": used.prompt_tokens,
        "outputTokens": used.completion_tokens,
        "cachedInputTokens": used.cached_tokens,
    }
