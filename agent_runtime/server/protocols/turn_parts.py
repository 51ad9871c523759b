"""Translate the events of a turn into its parts, reading from the log what they refer to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
import orjson

from agent_runtime.delegation.tool import NAME as DELEGATE
from agent_runtime.events import Event
from agent_runtime.human.questions import Question
from agent_runtime.log.run_spec import RunSpec, delegation_record
from agent_runtime.messages import (
    AssistantMessage,
    ToolResult,
    call_place,
    decode_message,
    decode_result,
)
from agent_runtime.runtime import Runtime
from agent_runtime.server.protocols import parts
from agent_runtime.server.protocols.asked import asked_below, watch_below
from agent_runtime.server.protocols.following import following
from agent_runtime.server.protocols.live import LiveEvents
from agent_runtime.server.protocols.parts import Part
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.log import ACTIVE, Run
from agent_runtime_storage.contract.records.usage import UsageTotal

_AHEAD = 100
"""How many events after an end are searched for the run's resumption."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A run, or a part of one, as one request of a client sees it.

    Attributes:
        after: the id of the thread's last event before it.
        steps: how many steps the run had made by then, unless its (re)start is part of the turn.
        begun: whether the run is at work already, so that its (re)start is no part of the turn.
        waiting: whether nothing will happen: the run is over, or still waits for a person.
    """

    user: str
    thread_id: str
    run_id: str
    after: int
    steps: int = 0
    waiting: bool = False
    begun: bool = False


@asynccontextmanager
async def turn_parts(
    runtime: Runtime, live: LiveEvents, turn: Turn
) -> AsyncGenerator[AsyncIterator[Part]]:
    """Give the parts of a turn until it ends: the existing ones, then each as it happens.

    A part of the log comes once, in order, in whatever process the run works.
    """
    translation = _Translation(runtime, turn)

    async def of_waiting() -> AsyncGenerator[Part]:
        yield parts.Begun(turn.run_id, turn.thread_id, True)
        yield await translation.standing()

    async def of_events(events: AsyncIterator[Event]) -> AsyncGenerator[Part]:
        begun, early = turn.begun, list[Part]()
        if begun:
            yield parts.Begun(turn.run_id, turn.thread_id, True)
        async for event in events:
            async for part in translation.of(event):
                if isinstance(part, parts.Begun):
                    # Clients take one beginning, and nothing before it.
                    if not begun:
                        begun = True
                        yield part
                        for one in early:
                            yield one
                elif not begun and isinstance(part, parts.Asked):
                    early.append(part)
                else:
                    yield part
                if isinstance(part, parts.Suspended | parts.Over):
                    return

    if turn.waiting:
        async with aclosing(of_waiting()) as given:
            yield given
        return
    place = turn.user, turn.thread_id
    async with (
        following(runtime, live, *place, turn.after, translation.watch_below) as events,
        aclosing(of_events(events)) as given,
    ):
        yield given


class _Translation:
    """The state of a translation: the open step, and the text that was given of it."""

    def __init__(self, runtime: Runtime, turn: Turn) -> None:
        self._runtime = runtime
        self._turn = turn
        self._store: UserStore = runtime.store_of(turn.user)
        self._step = 0
        self._next = turn.steps + 1
        self._attempt = 0
        self._text: dict[bool, str] = {}
        self._delegates = anyio.Event()
        self._asked: set[str] = set()

    async def watch_below(self, tell: Callable[[Event], None]) -> None:
        """Pass on the questions of runs below those of the turn's thread, until cancelled."""
        run = await self._store.runs.get(self._turn.run_id)
        if RunSpec.of(run).workflow:
            # Its nodes delegate without a call.
            self._delegates.set()

        def asked(question: Question) -> None:
            data = {"id": question.id, "kind": question.kind}
            tell(Event("question", question.thread_id, question.run_id, data=data))

        await watch_below(self._store, self._turn.thread_id, self._delegates, asked)

    async def of(self, event: Event) -> AsyncGenerator[Part]:
        turn = self._turn
        if event.thread_id != turn.thread_id:
            async for part in self._of_child(event):
                yield part
            return
        if event.run_id != turn.run_id:
            return
        async for part in self._of_own(event):
            yield part

    async def _of_own(self, event: Event) -> AsyncGenerator[Part]:
        data = event.data
        match event.kind:
            case "run-start":
                self._next = int(data.get("steps") or 0) + 1
                yield parts.Begun(event.run_id, event.thread_id, bool(data.get("resumed")))
            case "text-delta" | "reasoning-delta":
                for part in self._piece(self._next, event.kind == "reasoning-delta", data["text"]):
                    yield part
            case "model-retry" | "model-fallback":
                for part in self._void():
                    yield part
                yield parts.Other(event)
            case "answer":
                async for part in self._answer(event):
                    yield part
            case "tool-progress":
                yield parts.Progressed(
                    data["call_id"], data["done"], data.get("total"), data.get("message") or ""
                )
            case "tool-finish":
                result = await self._result(data["call_id"])
                yield parts.Returned(data["call_id"], data["tool"], result)
            case "plan":
                plan = await self._runtime.plans.current(event.thread_id, user=self._turn.user)
                if plan is not None:
                    yield parts.Planned(plan)
            case "run-suspend":
                if not await self._resumed_after(event):
                    for part in (*self._void(), *self._end_step()):
                        yield part
                    yield await self.suspended()
            case "run-finish":
                if not await self._resumed_after(event):
                    for part in (*self._void(), *self._end_step()):
                        yield part
                    yield await self._over(await self._store.runs.get(event.run_id))
            case "question" | "tool-start":
                # The call has been given with its answer, and questions come with the end.
                return
            case _:
                yield parts.Other(event)

    # Steps and texts

    def _begin_step(self, step: int) -> Iterator[Part]:
        if step != self._step:
            yield from self._end_step()
            self._step, self._attempt = step, 0
            yield parts.StepBegun(step)

    def _end_step(self) -> Iterator[Part]:
        if self._step:
            yield parts.StepEnded(self._step)
            self._step = 0

    def _message(self) -> str:
        again = f"-{self._attempt}" if self._attempt else ""
        return f"{self._turn.run_id}-{self._step}{again}"

    def _piece(self, step: int, reasoning: bool, text: str) -> Iterator[Part]:
        yield from self._begin_step(step)
        if not reasoning:
            yield from self._end(reasoning=True)
        self._text[reasoning] = self._text.get(reasoning, "") + text
        yield parts.TextPiece(self._message(), text, reasoning)

    def _end(self, *, reasoning: bool, void: bool = False) -> Iterator[Part]:
        if self._text.pop(reasoning, ""):
            yield parts.Ended(self._message(), reasoning, void)

    def _void(self) -> Iterator[Part]:
        """End what was given of an answer that failed."""
        if self._text:
            yield from self._end(reasoning=True, void=True)
            yield from self._end(reasoning=False, void=True)
            self._attempt += 1

    async def _answer(self, event: Event) -> AsyncGenerator[Part]:
        assert event.node_id is not None
        node = await self._store.log.node(event.thread_id, event.node_id)
        message = decode_message(node.body)
        if not isinstance(message, AssistantMessage):
            return
        step, given = int(event.data["step"]), self._text.get(False, "")
        self._next = step + 1
        # The pieces may be of an attempt whose retry was not seen; then they are not the answer's
        # beginning.
        if not message.text.startswith(given) and given.strip() != message.text.strip():
            for part in self._void():
                yield part
            given = ""
        elif not given and not self._text and message.reasoning:
            for part in self._piece(step, True, message.reasoning):
                yield part
        # All of it if no piece was seen, as when the answer came before this request.
        if rest := message.text[len(given) :]:
            for part in self._piece(step, False, rest):
                yield part
        for part in (
            *self._begin_step(step),
            *self._end(reasoning=True),
            *self._end(reasoning=False),
        ):
            yield part
        if any(call.name == DELEGATE for call in message.calls):
            self._delegates.set()
        for call in message.calls:
            yield parts.Called(self._message(), call)

    async def _result(self, call_id: str) -> ToolResult:
        row = await self._store.log.call(self._turn.thread_id, *call_place(call_id))
        return decode_result(row.body)

    # Sub-agents: only what this process sees of them; their results are those of their calls.

    async def _of_child(self, event: Event) -> AsyncGenerator[Part]:
        if event.kind == "question":
            async for part in self._question(str(event.data["id"])):
                yield part
        elif event.kind == "run-start" and (parent := event.data.get("parent")):
            record = delegation_record(await self._store.runs.get(event.run_id))
            own = parent == self._turn.run_id
            yield parts.ChildBegun(
                event.run_id,
                str(event.data["agent"]),
                str(event.data.get("task_key") or ""),
                "" if own else str(parent),
                record.call if record and own else "",
            )
        elif event.kind in ("run-finish", "run-suspend"):
            data = event.data
            yield parts.ChildEnded(event.run_id, data["status"], str(data.get("detail") or ""))

    async def _question(self, question_id: str) -> AsyncGenerator[Part]:
        question = Question.of(await self._store.questions.get(question_id))
        if question.status == "open" and question.id not in self._asked:
            self._asked.add(question.id)
            yield parts.Asked(question)

    # The end

    async def _resumed_after(self, event: Event) -> bool:
        """Return whether the run went on after this end."""
        later = await self._store.events.list(event.thread_id, after=event.id, limit=_AHEAD)
        return any(one.kind == "run-start" and one.run_id == event.run_id for one in later)

    async def standing(self) -> parts.Suspended | parts.Over:
        """Return how the run stands, which will not go on by itself."""
        run = await self._store.runs.get(self._turn.run_id)
        return await (self.suspended() if run.status in ACTIVE else self._over(run))

    async def suspended(self) -> parts.Suspended:
        run_id = self._turn.run_id
        run = await self._store.runs.get(run_id)
        questions = await self._runtime.questions(
            run_id=run_id, user=self._turn.user, background=False
        )
        usage, apart = await self._usage(), await self._apart(questions)
        reason = run.stop_reason or "interrupted"
        return parts.Suspended(reason, run.detail, tuple(questions), usage, apart)

    async def _over(self, run: Run) -> parts.Over:
        output = orjson.loads(run.output) if run.output else None
        usage, apart = await self._usage(), await self._apart(())
        reason = run.stop_reason or "error"
        return parts.Over(run.status, reason, run.detail, output, usage, apart)

    async def _apart(self, awaited: Sequence[Question]) -> tuple[Question, ...]:
        ids = {one.id for one in awaited}
        found = await asked_below(self._store, self._turn.thread_id)
        return tuple(one for one in found if one.id not in ids)

    async def _usage(self) -> UsageTotal:
        rows = await self._store.spending.usage_by_purpose(root_run_id=self._turn.run_id)
        return UsageTotal.of(rows.values())
