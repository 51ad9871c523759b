"""AG-UI 1.0: a run as a stream of typed events, questions as interrupts.

`POST /ag-ui/{agent}` takes a `RunAgentInput`.  The same `runId` again with the same message gives
the same run from its start, so a client that lost its connection posts its request again.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import quote

import orjson
from ag_ui.core import events as agui
from ag_ui.core import types
from ag_ui.encoder import EventEncoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_runtime.human.questions import Question
from agent_runtime.server.protocols import parts
from agent_runtime.server.protocols.answers import described, form_of
from agent_runtime.server.protocols.client_message import Message
from agent_runtime.server.protocols.parts import Part
from agent_runtime.server.protocols.streams import (
    invalid,
    problem,
    read_json,
    stream_of,
    text_of,
)
from agent_runtime.server.protocols.turn_parts import Turn
from agent_runtime.server.protocols.turns import TEXT, ClientTurns, UserTurns
from agent_runtime_storage.contract.records.usage import UsageTotal

VERSION = "1.0"


def ag_ui_routes(turns: ClientTurns) -> list[Route]:
    """Return the route of AG-UI."""

    async def run_agent(request: Request) -> Response:
        try:
            given = await read_json(request, types.RunAgentInput.model_validate)
            mine = turns.of(request, streaming=True)
            turn = await _turn(mine, request.path_params["agent"], given)
        except Exception as error:
            return problem(error)

        encoder, stream = EventEncoder(), AgUiStream(given)
        return stream_of(
            mine.parts(turn),
            lambda part: (encoder.encode(event).encode() for event in stream.of(part)),
            lambda error: encoder.encode(agui.RunErrorEvent(message=text_of(error))).encode(),
        )

    return [Route("/ag-ui/{agent}", run_agent, methods=["POST"])]


async def _turn(turns: UserTurns, agent: str, given: types.RunAgentInput) -> Turn:
    if given.resume:
        if abandoned := [one for one in given.resume if one.status == "cancelled"]:
            return await turns.abandon(given.thread_id, abandoned[0].interrupt_id)
        answers = {one.interrupt_id: one.payload for one in given.resume}
        return await turns.answer(given.thread_id, answers)
    # The client names its run: the same request, sent again, follows the turn that it began.
    key = f"ag-ui:{quote(given.run_id, safe='')}"
    message = _new_message(given.messages)
    if message is None:
        # It may hold already what the turn has said so far.
        if earlier := await turns.find(given.thread_id, key, any_text=True):
            return earlier
        raise invalid(
            "The messages do not end with one of the user.",
            cure="Add the user's message, or answer the interrupts by `resume`.",
        )
    # With other words it is another request, which must not be lost.
    said = orjson.dumps([message.text, message.files])
    key = f"{key}{TEXT}{hashlib.sha256(said).hexdigest()}"
    return await turns.begin(agent, message, given.thread_id, request=key)


def _new_message(messages: list[types.Message]) -> Message | None:
    """Return what the user says at the end, if anything; the thread has what came before."""
    texts: list[str] = []
    files: list[str] = []
    for message in reversed(messages):
        if isinstance(message, types.AssistantMessage | types.ToolMessage):
            break
        if not isinstance(message, types.UserMessage):
            continue
        given = message.content
        found = [types.TextPart(text=given)] if isinstance(given, str) else given
        texts[:0] = [one.text for one in found if isinstance(one, types.TextPart)]
        files[:0] = [_url(one.source) for one in found if not isinstance(one, types.TextPart)]
    return Message("\n\n".join(texts), tuple(files)) if texts or files else None


def _url(source: types.PartSource) -> str:
    match source:
        case types.UrlSource():
            return source.value
        case types.DataSource():
            return f"data:{source.mime_type};base64,{source.value}"
        case _:
            raise invalid(
                "A file is named by a provider's handle.", cure="Send its content, or its URL."
            )


class AgUiStream:
    """Writes the parts of a turn as AG-UI's events."""

    def __init__(self, given: types.RunAgentInput) -> None:
        self._given = given
        self._open: set[tuple[str, bool]] = set()
        self._children: dict[str, str] = {}
        self._begun: Counter[str] = Counter()
        self._asked: set[str] = set()
        self._planned = False

    def of(self, part: Part) -> Iterator[agui.BaseEvent]:
        """Yield the events of a part."""
        match part:
            case parts.Begun(run_id, thread_id):
                yield agui.RunStartedEvent(
                    thread_id=thread_id,
                    run_id=self._given.run_id,
                    protocol_version=VERSION,
                    metadata={"agent-runtime": {"runId": run_id}},
                )
            case parts.StepBegun(step):
                yield agui.StepStartedEvent(step_name=f"step {step}")
            case parts.StepEnded(step):
                yield agui.StepFinishedEvent(step_name=f"step {step}")
            case parts.TextPiece():
                yield from self._piece(part)
            case parts.Ended():
                yield from self._ended(part)
            case parts.Called(message, call):
                arguments = call.raw if call.raw is not None else _json(call.arguments)
                yield agui.ToolCallStartEvent(
                    tool_call_id=call.id, tool_call_name=call.name, parent_message_id=message
                )
                yield agui.ToolCallArgsEvent(tool_call_id=call.id, delta=arguments)
                yield agui.ToolCallEndEvent(tool_call_id=call.id)
            case parts.Progressed():
                yield _progress(part)
            case parts.Returned(call_id, _, result):
                yield agui.ToolCallResultEvent(
                    message_id=f"{call_id}-result",
                    tool_call_id=call_id,
                    content=result.text,
                    role="tool",
                    metadata={"outcome": result.outcome},
                )
            case parts.Planned(plan):
                yield self._plan(plan.to_json())
            case parts.ChildBegun() | parts.ChildEnded():
                yield from self._child(part)
            case parts.Asked(question):
                yield from self._question(question)
            case parts.Other(event):
                yield agui.CustomEvent(name=event.kind, value=dict(event.data))
            case parts.Suspended() | parts.Over():
                yield from self._end(part)

    def _piece(self, part: parts.TextPiece) -> Iterator[agui.BaseEvent]:
        message, reasoning = _id(part.message, part.reasoning), part.reasoning
        if (message, reasoning) not in self._open:
            self._open.add((message, reasoning))
            if reasoning:
                yield agui.ReasoningStartEvent(message_id=message)
                yield agui.ReasoningMessageStartEvent(message_id=message)
            else:
                yield agui.TextMessageStartEvent(message_id=message, role="assistant")
        if reasoning:
            yield agui.ReasoningMessageContentEvent(message_id=message, delta=part.text)
        else:
            yield agui.TextMessageContentEvent(message_id=message, delta=part.text)

    def _ended(self, part: parts.Ended) -> Iterator[agui.BaseEvent]:
        message = _id(part.message, part.reasoning)
        self._open.discard((message, part.reasoning))
        if part.reasoning:
            yield agui.ReasoningMessageEndEvent(message_id=message)
            yield agui.ReasoningEndEvent(message_id=message)
        else:
            yield agui.TextMessageEndEvent(message_id=message)
        if part.void:
            yield agui.CustomEvent(name="message-void", value={"messageId": message})

    def _plan(self, plan: dict[str, Any]) -> agui.BaseEvent:
        if self._planned:
            return agui.StateDeltaEvent(
                delta=cast("Any", [{"op": "replace", "path": "/plan", "value": plan}])
            )
        self._planned = True
        state = self._given.state
        before = cast("dict[str, Any]", state) if isinstance(state, dict) else {}
        return agui.StateSnapshotEvent(snapshot={**before, "plan": plan})

    def _child(self, part: parts.ChildBegun | parts.ChildEnded) -> Iterator[agui.BaseEvent]:
        if isinstance(part, parts.ChildBegun):
            self._begun[part.run_id] += 1
            # The protocol's ids are of one invocation; a sub-agent that asked is resumed.
            again = self._begun[part.run_id]
            name = part.run_id if again == 1 else f"{part.run_id}-{again}"
            self._children[part.run_id] = name
            yield agui.SubagentStartedEvent(
                subagent_run_id=name,
                name=part.name,
                description=part.task_key or None,
                parent_subagent_run_id=self._children.get(part.parent, part.parent) or None,
                parent_tool_call_id=part.call_id or None,
            )
        elif part.run_id in self._children:
            name = self._children.pop(part.run_id)
            if part.status in ("failed", "cancelled"):
                message = part.detail or part.status
                yield agui.SubagentErrorEvent(subagent_run_id=name, message=message)
            else:
                yield _finished(name, suspended=part.status == "suspended")

    def _question(self, question: Question) -> Iterator[agui.BaseEvent]:
        """Show a question for which the run does not end; `resume` answers it all the same."""
        if question.id not in self._asked:
            self._asked.add(question.id)
            value = _interrupt(question).model_dump(mode="json", by_alias=True, exclude_none=True)
            yield agui.CustomEvent(name="question", value=value)

    def _end(self, part: parts.Suspended | parts.Over) -> Iterator[agui.BaseEvent]:
        for question in part.apart:
            yield from self._question(question)
        # Clients expect an end for each that began; these go on in another request.
        for child in self._children.values():
            yield _finished(child, suspended=True)
        outcome: agui.RunFinishedOutcome | None = None
        match part:
            case parts.Suspended(questions=questions) if questions:
                outcome = agui.RunFinishedInterruptOutcome(interrupts=[*map(_interrupt, questions)])
            case parts.Over(status="succeeded"):
                outcome = agui.RunFinishedSuccessOutcome()
            case parts.Over(status="cancelled"):
                outcome = agui.RunFinishedCancelledOutcome()
            case _:
                message = part.detail or f"The run ended: {part.stop_reason}."
                yield agui.RunErrorEvent(
                    message=message, code=part.stop_reason, usage=[_usage(part.usage)]
                )
                return
        yield agui.RunFinishedEvent(
            thread_id=self._given.thread_id,
            run_id=self._given.run_id,
            result=part.output if isinstance(part, parts.Over) else None,
            outcome=outcome,
            usage=[_usage(part.usage)],
        )


def _id(message: str, reasoning: bool) -> str:
    return f"{message}-reasoning" if reasoning else message


def _progress(part: parts.Progressed) -> agui.BaseEvent:
    content = {
        "toolCallId": part.call_id,
        "done": part.done,
        "total": part.total,
        "message": part.message,
    }
    return agui.ActivitySnapshotEvent(
        message_id=f"{part.call_id}-progress", activity_type="tool-progress", content=content
    )


def _finished(child: str, *, suspended: bool) -> agui.BaseEvent:
    outcome = agui.SubagentFinishedSuspendedOutcome() if suspended else None
    return agui.SubagentFinishedEvent(subagent_run_id=child, outcome=outcome)


def _interrupt(question: Question) -> types.Interrupt:
    expires = question.expires_at
    until = datetime.fromtimestamp(expires, UTC).isoformat() if 0 < expires < math.inf else None
    return types.Interrupt(
        id=question.id,
        reason=question.kind,
        message=question.text or f"Allow the call of {question.tool}?",
        tool_call_id=question.call_id or None,
        response_schema=form_of(question),
        expires_at=until,
        metadata={"question": described(question)},
    )


def _usage(used: UsageTotal) -> agui.TokenUsage:
    return agui.TokenUsage(
        input_tokens=used.prompt_tokens,
        output_tokens=used.completion_tokens,
        total_tokens=used.prompt_tokens + used.completion_tokens,
        cached_input_tokens=used.cached_tokens,
        cache_write_input_tokens=used.cache_write_tokens,
    )


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
