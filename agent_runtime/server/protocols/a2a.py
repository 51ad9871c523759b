"""Agent2Agent (A2A) 1.0 by JSON-RPC: a run as a task, a thread as its context.

`POST /a2a/{agent}` takes the methods of the protocol; the card of the first agent is at
`/.well-known/agent-card.json`, that of each below its own path.  A message that is sent again, by
its id, is the same task, so a client that lost its connection repeats its request, or subscribes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from importlib.metadata import version
from typing import Any, cast

import anyio
import orjson
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_runtime.errors import AgentRuntimeError, InvalidAnswer, InvalidFile, NotFound
from agent_runtime.human.questions import Question
from agent_runtime.server.problems import ServiceError
from agent_runtime.server.protocols import parts
from agent_runtime.server.protocols.answers import described
from agent_runtime.server.protocols.client_message import Message
from agent_runtime.server.protocols.streams import (
    ProtocolStream,
    Write,
    event_of,
    problem,
    read_json,
    status_of,
    text_of,
)
from agent_runtime.server.protocols.turn_parts import Turn
from agent_runtime.server.protocols.turns import ClientTurns, UserTurns
from agent_runtime_storage.contract.records.log import Run

CARD_PATH = AGENT_CARD_WELL_KNOWN_PATH
VERSION = "1.0"
# Seconds that a cancellation is awaited, so that the answer mostly shows the task as cancelled.
_CANCEL_SECONDS = 10.0
_STREAMING = ("SendStreamingMessage", "SubscribeToTask")
_REQUESTS: dict[str, Any] = {
    "SendMessage": pb.SendMessageRequest,
    "SendStreamingMessage": pb.SendMessageRequest,
    "GetTask": pb.GetTaskRequest,
    "CancelTask": pb.CancelTaskRequest,
    "SubscribeToTask": pb.SubscribeToTaskRequest,
}
_UNSUPPORTED = (
    "ListTasks", "GetExtendedAgentCard", "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
)  # fmt: skip
_STATES = {
    "queued": pb.TASK_STATE_SUBMITTED,
    "running": pb.TASK_STATE_WORKING,
    "succeeded": pb.TASK_STATE_COMPLETED,
    "failed": pb.TASK_STATE_FAILED,
    "cancelled": pb.TASK_STATE_CANCELED,
}

_MOVING = (pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING)


def a2a_routes(turns: ClientTurns) -> list[Route]:
    """Return the routes of A2A; none if there is no agent."""
    if not turns.agents:
        return []
    first = next(iter(turns.agents))

    async def card(request: Request) -> Response:
        try:
            name = request.path_params.get("agent", first)
            turns.agent(name)
        except Exception as error:
            return problem(error)
        return Response(_json(_card(request, name)), media_type="application/json")

    async def call(request: Request) -> Response:
        identity: object = None
        try:
            body = await read_json(request, dict)
            identity = body.get("id")
            method, params = _checked(request, body)
            mine = turns.of(request, streaming=method not in ("GetTask", "CancelTask"))
            tasks = _Tasks(mine, request.path_params["agent"])
            turns.agent(tasks.agent)
            if method in _STREAMING:
                return await _streamed(tasks, method, params, identity)
            result = await tasks.answer(method, params)
        # Of the service, such as a missing token: an HTTP status, as no request of the protocol
        # came in.
        except ServiceError as error:
            return problem(error)
        except Exception as error:
            return Response(orjson.dumps(_failed(error, identity)), media_type="application/json")
        return Response(orjson.dumps(_succeeded(result, identity)), media_type="application/json")

    return [
        Route(CARD_PATH, card, methods=["GET"]),
        Route(f"/a2a/{{agent}}{CARD_PATH}", card, methods=["GET"]),
        Route("/a2a/{agent}", call, methods=["POST"]),
    ]


async def _streamed(tasks: _Tasks, method: str, params: Any, identity: object) -> Response:
    # Up to here a failure is an answer, not a stream.
    turn = await tasks.turn(method, params)

    async def produce(write: Write) -> None:
        try:
            async with aclosing(tasks.updates(turn)) as updates:
                async for update in updates:
                    await write(event_of(_succeeded(update, identity)))
        except Exception as error:
            await write(event_of(_failed(error, identity)))

    return ProtocolStream(produce)


class _Tasks:
    """The tasks of a user with one agent."""

    def __init__(self, turns: UserTurns, agent: str) -> None:
        self._turns = turns
        self.agent = agent

    async def answer(self, method: str, params: Any) -> Any:
        """Answer a method that is no stream."""
        if method == "SendMessage":
            turn = await self.turn(method, params)
            if not params.configuration.return_immediately:
                await self._ended(turn)
            return pb.SendMessageResponse(task=await self._task(turn.run_id))
        await self._run(params.id)
        if method == "CancelTask":
            await self._cancel(params.id)
        return await self._task(params.id)

    async def turn(self, method: str, params: Any) -> Turn:
        """Return the turn that a message begins, or that a subscription follows."""
        if method == "SubscribeToTask":
            run = await self._run(params.id)
            if run.status not in ("queued", "running", "suspended"):
                raise errors.UnsupportedOperationError("The task is over. Get it by `GetTask`.")
            found, turn = await self._turns.now(run.id)
            waits = found.status == "suspended"
            return Turn(turn.user, turn.thread_id, turn.run_id, turn.after, turn.steps, waits)
        message: pb.Message = params.message
        if message.task_id:
            return await self._continued(message)
        given = _message_of(message)
        body = message.SerializeToString(deterministic=True)
        digest = hashlib.sha256(body).hexdigest()[:32]
        # Without a context, the same message again has to find the thread that it began.
        thread = message.context_id or f"a2a-{digest}"
        request = f"a2a:{message.message_id}:{digest}"
        return await self._turns.begin(self.agent, given, thread, request=request)

    async def updates(self, turn: Turn) -> AsyncGenerator[pb.StreamResponse]:
        """Yield the task as it is, then what happens to it up to the end of the turn."""
        task = await self._task(turn.run_id)
        yield pb.StreamResponse(task=task)
        if turn.waiting or task.status.state not in _MOVING:
            return
        async with self._turns.parts(turn) as given:
            async for part in given:
                if isinstance(part, parts.Suspended | parts.Over):
                    break
                if news := parts.news_of(part):
                    shown = [part.question] if isinstance(part, parts.Asked) else []
                    found = _shown(shown) if shown else [pb.Part(text=news)]
                    said = _said(turn, found)
                    status = pb.TaskStatus(state=pb.TASK_STATE_WORKING, message=said)
                    yield _status_update(turn, status)
        task = await self._task(turn.run_id)
        for artifact in task.artifacts:
            update = pb.TaskArtifactUpdateEvent(
                task_id=turn.run_id, context_id=turn.thread_id, artifact=artifact, last_chunk=True
            )
            yield pb.StreamResponse(artifact_update=update)
        yield _status_update(turn, task.status)

    async def _continued(self, message: pb.Message) -> Turn:
        """Give a message to a task: the answer to its question, or steering while it works."""
        run = await self._run(message.task_id)
        if message.context_id and message.context_id != run.thread_id:
            raise errors.InvalidParamsError("The task belongs to another context.")
        # Of a task at work, whose sub-agent asks, a client may not have seen the question: only an
        # answer that names it is one.
        if _named_in(message) is not None or (
            run.status == "suspended" and await self._turns.waits_for(run.id)
        ):
            turn = await self._turns.answer(run.thread_id, await self._answers(message, run))
            # A sub-agent's or background task's own run may be named as a task.
            return turn if turn.run_id == run.id else (await self._turns.now(run.id))[1]
        if run.status not in ("queued", "running"):
            raise errors.UnsupportedOperationError(
                f"The task is {run.status} and takes no message. Send it with the context's id "
                "alone, which begins another task."
            )
        _, turn = await self._turns.now(run.id)
        text = _message_of(message).text
        await self._turns.runtime.steer(run.id, text, user=self._turns.user)
        return turn

    async def _answers(self, message: pb.Message, run: Run) -> dict[str, object]:
        """Return the answers of a message by question; an unclear one is refused later.

        Without a name an answer counts only for a text, and only if the task never asked anything
        else: an answer that comes late must not decide what its sender has not seen.
        """
        ever = await self._turns.runtime.questions(
            run_id=run.id, status=None, user=self._turns.user
        )
        if (named := _named_in(message)) is not None:
            answers, digests = named
            for one in ever:
                if digests.get(one.id, one.digest) != one.digest:
                    raise errors.InvalidParamsError(
                        f"Question {one.id} was shown otherwise: look at the task again."
                    )
            return answers
        texts = [part.text for part in message.parts if part.WhichOneof("content") == "text"]
        if len(texts) == len(message.parts) == 1:
            code, _, said = texts[0].strip().partition(" ")
            for one in ever:
                if code == _code(one):
                    return {one.id: said.strip()}
            if len(ever) == 1 and ever[0].kind == "text":
                return {ever[0].id: texts[0]}
        names = ", ".join(one.id for one in ever if one.status == "open")
        raise errors.InvalidParamsError(
            "The message does not name the question that it answers. Send one part of data: "
            f'{{"answers": {{ID: ANSWER}}}}, with these ids: {names}; or a text that begins with '
            "the question's code."
        )

    async def _cancel(self, run_id: str) -> None:
        run, turn = await self._turns.now(run_id)
        if run.status not in ("queued", "running", "suspended"):
            raise errors.TaskNotCancelableError(f"The task is {run.status}.")
        await self._turns.runtime.cancel(run_id, user=self._turns.user)
        with anyio.move_on_after(_CANCEL_SECONDS):
            await self._ended(turn)

    async def _ended(self, turn: Turn) -> None:
        async with self._turns.parts(turn) as given:
            async for _ in given:
                continue

    async def _run(self, run_id: str) -> Run:
        try:
            return await self._turns.run(run_id)
        except NotFound as error:
            raise errors.TaskNotFoundError(f"There is no task {run_id[:100]!r}.") from error

    async def _task(self, run_id: str) -> pb.Task:
        run = await self._run(run_id)
        asked: Sequence[Question] = ()
        if run.status == "suspended":
            asked = await self._turns.waits_for(run.id)
        status = pb.TaskStatus(state=_STATES.get(run.status, pb.TASK_STATE_WORKING))
        status.timestamp.FromMilliseconds(round(run.updated_at * 1000))
        turn = Turn(self._turns.user, run.thread_id, run.id, 0)
        if asked:
            status.state = pb.TASK_STATE_INPUT_REQUIRED
        # Also what the task does not wait for: sub-agents while others work, and background tasks.
        if shown := await self._turns.asked(run):
            status.message.CopyFrom(_said(turn, _shown(shown)))
        elif run.detail:
            status.message.CopyFrom(_said(turn, [pb.Part(text=run.detail)]))
        task = pb.Task(id=run.id, context_id=run.thread_id, status=status)
        if (output := self._turns.output(run)) is not None:
            part = pb.Part(text=output) if isinstance(output, str) else _data_part(output)
            task.artifacts.append(pb.Artifact(artifact_id=f"{run.id}-output", parts=[part]))
        return task


# What clients send


def _checked(request: Request, body: dict[str, Any]) -> tuple[str, Any]:
    """Return the method of a request and its parameters. Raises errors of the protocol."""
    asked = request.headers.get("a2a-version", VERSION)
    if asked != VERSION:
        raise errors.VersionNotSupportedError(f"This is A2A {VERSION}, not {asked[:20]!r}.")
    method: object = body.get("method")
    params: Any = body.get("params", {})
    if body.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise errors.InvalidRequestError("This is no request of JSON-RPC 2.0 with a method.")
    if method in _UNSUPPORTED:
        raise errors.UnsupportedOperationError(f"{method} is not supported.")
    if method not in _REQUESTS:
        raise errors.MethodNotFoundError(f"There is no method {method[:100]!r}.")
    try:
        read = json_format.ParseDict(params, _REQUESTS[method](), ignore_unknown_fields=True)
    except (json_format.ParseError, RecursionError, TypeError, ValueError) as error:
        raise errors.InvalidParamsError("The parameters are not those of the method.") from error
    if type(params) is not dict:
        raise errors.InvalidParamsError("The parameters are no object.")
    if "Message" in method and not read.message.message_id:
        raise errors.InvalidParamsError("The message has no `messageId`.")
    return method, read


def _message_of(message: pb.Message) -> Message:
    texts: list[str] = []
    files: list[str] = []
    for part in message.parts:
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
            case "url":
                files.append(part.url)
            case "raw":
                media_type = part.media_type or "application/octet-stream"
                files.append(f"data:{media_type};base64,{base64.b64encode(part.raw).decode()}")
            case "data":
                texts.append(orjson.dumps(_value(part)).decode())
            case _:
                continue
    if not any(one.strip() for one in texts) and not files:
        raise errors.InvalidParamsError("The message is empty: give it a part with text.")
    return Message("\n\n".join(texts), tuple(files))


def _named_in(message: pb.Message) -> tuple[dict[str, object], dict[str, Any]] | None:
    """Return the answers that a message gives by question, and the digests that it names."""
    for part in message.parts:
        if (named := _named(_value(part))) is not None:
            return named
    return None


def _named(value: object) -> tuple[dict[str, object], dict[str, Any]] | None:
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    answers, digests = given.get("answers"), given.get("digests")
    if not isinstance(answers, dict):
        return None
    shown = cast("dict[str, Any]", digests) if isinstance(digests, dict) else {}
    return cast("dict[str, object]", answers), shown


def _value(part: pb.Part) -> object:
    return json_format.MessageToDict(cast("Any", part.data)) if part.HasField("data") else None


# What they get


def _code(question: Question) -> str:
    """Return what a plain text begins with that answers a question as it was shown."""
    return f"#{question.digest[:8]}"


def _shown(asked: Sequence[Question]) -> list[pb.Part]:
    texts = [
        f"{one.text or f'Allow the call of {one.tool}?'} To answer by text, begin with {_code(one)}"
        for one in asked
    ]
    questions = {"questions": [described(one) for one in asked]}
    return [*(pb.Part(text=text) for text in texts), _data_part(questions)]


def _said(turn: Turn, found: Sequence[pb.Part]) -> pb.Message:
    content = b"".join(one.SerializeToString(deterministic=True) for one in found)
    return pb.Message(
        # By its content, so that whoever subscribes again recognises what they have.
        message_id=f"{turn.run_id}-{hashlib.sha256(content).hexdigest()[:16]}",
        context_id=turn.thread_id,
        task_id=turn.run_id,
        role=pb.ROLE_AGENT,
        parts=found,
    )


def _data_part(value: object) -> pb.Part:
    part = pb.Part()
    # Through JSON: what it does not have, such as an infinite number, becomes null.
    json_format.ParseDict(orjson.loads(orjson.dumps(value, default=str)), cast("Any", part.data))
    return part


def _status_update(turn: Turn, status: pb.TaskStatus) -> pb.StreamResponse:
    update = pb.TaskStatusUpdateEvent(task_id=turn.run_id, context_id=turn.thread_id, status=status)
    return pb.StreamResponse(status_update=update)


def _card(request: Request, name: str) -> pb.AgentCard:
    # Not `base_url`, which in a mounted application is that of the outer one.
    root = f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}"
    card = pb.AgentCard(
        name=name,
        description=f"The agent {name}, which works on long tasks and asks people.",
        version=version("agent-runtime-om"),
        supported_interfaces=[
            pb.AgentInterface(
                url=f"{root}/a2a/{name}", protocol_binding="JSONRPC", protocol_version=VERSION
            )
        ],
        capabilities=pb.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[pb.AgentSkill(id=name, name=name, description="Does tasks.", tags=["tasks"])],
    )
    service = getattr(request.app.state, "service", None)
    if service is None or service.authenticate is not None:
        scheme = pb.HTTPAuthSecurityScheme(scheme="bearer")
        card.security_schemes["token"].CopyFrom(pb.SecurityScheme(http_auth_security_scheme=scheme))
        card.security_requirements.append(
            pb.SecurityRequirement(schemes={"token": pb.StringList()})
        )
    return card


def _json(message: Any) -> bytes:
    return orjson.dumps(json_format.MessageToDict(message))


def _succeeded(result: Any, identity: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "result": json_format.MessageToDict(result)}


def _failed(error: Exception, identity: object) -> dict[str, Any]:
    match error:
        case errors.A2AError():
            kind, message = type(error), error.message
        case InvalidAnswer() | InvalidFile():
            kind, message = errors.InvalidParamsError, text_of(error)
        case NotFound():
            kind, message = errors.TaskNotFoundError, text_of(error)
        case AgentRuntimeError() if status_of(error) == 400:
            # Such as an id that no store can hold.
            kind, message = errors.InvalidParamsError, text_of(error)
        case AgentRuntimeError():
            kind, message = errors.UnsupportedOperationError, text_of(error)
        case _:
            kind, message = errors.InternalError, text_of(error)
    code = errors.JSON_RPC_ERROR_CODE_MAP.get(kind, -32603)
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}}
