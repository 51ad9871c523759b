"""The UI message stream of Vercel's AI SDK (v5 and later), for `useChat` and its like.

`POST /ai-sdk/{agent}` takes what `DefaultChatTransport` sends; the chat's id names the thread.
`GET /ai-sdk/{agent}/{chat}/stream` gives the answer in progress from its beginning, or 204.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

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
    invalid,
    problem,
    read_json,
    stream_of,
    text_of,
)
from agent_runtime.server.protocols.turn_parts import Turn
from agent_runtime.server.protocols.turns import ClientTurns, UserTurns
from agent_runtime_storage.contract.records.usage import UsageTotal

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
DONE = b"data: [DONE]\n\n"
ASK_USER = "ask_user"
_CALLS = ("approval", "text", "single", "multiple")
"""The kinds of questions that a call asks, and its result answers."""
_FINISH = {"completed": "stop", "length": "length", "content_filter": "content-filter"}


def ai_sdk_routes(turns: ClientTurns) -> list[Route]:
    """Return the routes of the AI SDK."""

    async def chat(request: Request) -> Response:
        try:
            body = await read_json(request, _checked)
            mine = turns.of(request, streaming=True)
            turn = await _turn(mine, request.path_params["agent"], body)
            settled = await _settled(mine, turn, _answers(body["messages"][-1]))
        except Exception as error:
            return problem(error)
        return _streamed(mine, turn, settled)

    async def resume(request: Request) -> Response:
        try:
            mine = turns.of(request, streaming=True)
            chat = request.path_params["chat"]
            turn = await mine.active(chat) or await mine.asking(chat)
        except Exception as error:
            return problem(error)
        # What `useChat` expects when there is no stream to resume.
        return Response(status_code=204) if turn is None else _streamed(mine, turn)

    return [
        Route("/ai-sdk/{agent}", chat, methods=["POST"]),
        Route("/ai-sdk/{agent}/{chat}/stream", resume, methods=["GET"]),
    ]


def _streamed(turns: UserTurns, turn: Turn, settled: Sequence[Question] = ()) -> Response:
    stream = UiMessageStream(turn, settled)
    return stream_of(
        turns.parts(turn),
        lambda part: map(event_of, stream.of(part)),
        lambda error: event_of({"type": "error", "errorText": text_of(error)}),
        end=DONE,
        headers=HEADERS,
    )


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
        # The client edits a message: it sends the history up to it, and the count says which one
        # it is.
        replaces = sum(one["role"] == "user" for one in messages)
    # An edited message keeps its id.
    digest = hashlib.sha256(orjson.dumps(last["parts"])).hexdigest()
    request = f"ai-sdk:{last.get('id')}:{digest}"
    return await turns.begin(agent, _message(last), thread, request=request, replaces=replaces)


async def _settled(turns: UserTurns, turn: Turn, answers: Mapping[str, object]) -> list[Question]:
    """Return the approvals that a request decided, of calls that are not in the turn's thread."""
    found = [await turns.question(key) for key, given in answers.items() if isinstance(given, dict)]
    return [one for one in found if one.thread_id != turn.thread_id and one.kind == "approval"]


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
    return name == ASK_USER and isinstance(part.get("toolCallId"), str)


# What it gets


class UiMessageStream:
    """Writes the parts of a turn as chunks of a UI message.

    A question of a run below, whose call is in no message, is shown as a call of its own, so that
    clients ask and answer as they do for the turn's own.

    Args:
        settled: questions of runs below that were decided before the turn.
    """

    def __init__(self, turn: Turn, settled: Sequence[Question] = ()) -> None:
        self._turn = turn
        self._settled = settled
        self._asked: set[str] = set()
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
            case parts.Asked(question):
                yield from self._question(question)
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
            for one in self._settled:
                yield _shown(one)
                said = "allowed" if one.answer.get("allow") else "not allowed"
                output = {"output": f"The call is {said}.", "dynamic": True}
                yield {"type": "tool-output-available", "toolCallId": one.id, **output}

    def _question(self, question: Question) -> Iterator[dict[str, Any]]:
        if question.id in self._asked:
            # Shown again, it would undo what the person has answered meanwhile.
            return
        self._asked.add(question.id)
        yield _data("question", described(question), question.id)
        call = question.call_id
        if question.thread_id != self._turn.thread_id and question.kind in _CALLS:
            call = question.id
            yield _shown(question)
        if question.kind == "approval":
            yield {"type": "tool-approval-request", "approvalId": question.id, "toolCallId": call}

    def _end(self, part: parts.Suspended | parts.Over) -> Iterator[dict[str, Any]]:
        for question in part.apart:
            yield from self._question(question)
        reason = "other"
        if isinstance(part, parts.Suspended):
            for question in part.questions:
                yield from self._question(question)
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


def _shown(question: Question) -> dict[str, Any]:
    """Return the chunk of a call that stands for a question of a run below."""
    asks = {"question": question.text, "kind": question.kind, "choices": list(question.choices)}
    approval = question.kind == "approval"
    return {
        "type": "tool-input-available",
        "toolCallId": question.id,
        "toolName": question.tool if approval else ASK_USER,
        "input": dict(question.arguments) if approval else asks,
        "dynamic": True,
    }


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
