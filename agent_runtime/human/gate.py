"""The gate between a run's calls and their tools: calls that need a person wait for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from agent_runtime.errors import ToolError
from agent_runtime.human.approval_rules import (
    call_digest,
    given_of,
    may_need_approval,
    pattern_of,
)
from agent_runtime.human.ask_user import NOBODY, AskUser, parse_question
from agent_runtime.human.display import escape_invisible, known_secrets
from agent_runtime.human.interruptions import (
    KIND,
    Rerun,
    Resolution,
    answered_resolutions,
    resolved_result,
)
from agent_runtime.human.pause import PAUSED
from agent_runtime.human.questions import (
    Question,
    allowance_note,
    allows,
    refusal_of,
    result_of_question,
)
from agent_runtime.human.waiting import (
    AWAITING_CHILDREN,
    AwaitingHuman,
    may_wait,
    questions_of,
)
from agent_runtime.log.exchange import Exchange
from agent_runtime.log.run_log import CLOSED, RunLog, finish_event
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.messages import Note, ToolCall, ToolResult, encodable
from agent_runtime.tools.argument_patterns import covers, shown_arguments
from agent_runtime.tools.base import REFUSED, Tool
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.fingerprint import json_digest
from agent_runtime.tools.questions import AwaitingAnswers, ToolAnswer
from agent_runtime_config import Settings
from agent_runtime_config.approvals import ApprovalRule, approval_rules
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import Commit, Finish, Lease, NewEvent
from agent_runtime_storage.contract.records.questions import (
    ApprovalRow,
    NewQuestion,
    QuestionKind,
    QuestionRow,
)
from agent_runtime_storage.contract.store import UserStore

OF_TOOL = "of_tool"
"""In the body of a question that a call asks while it runs: what comes back with the answer."""
MAX_WHY = 1000
"""How many characters of the model's text a question shows."""
INTERRUPTED = (
    "The process died while it ran {name}, and nobody saw the end: the effect is unverified. Check "
    "what it did. Should it run again, do you accept a result for it, or did it fail?"
)


async def calls_that_asked(store: UserStore, run_id: str, node: int) -> set[int]:
    """Return the indices of an exchange's calls that asked a person something while they ran."""
    rows = await store.questions.list(run_id=run_id, limit=10_000)
    return {
        row.position
        for row in rows
        if row.node_id == node and row.position is not None and OF_TOOL in row.body
    }


@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A call that can run.

    Attributes:
        answers: to the questions that it asked when it ran before.
    """

    index: int
    call: ToolCall
    tool: Tool
    answers: tuple[ToolAnswer, ...] = ()


@dataclass(slots=True)
class GateResult:
    """The calls of an exchange, sorted by whether they can run.

    Attributes:
        ready: the calls that can run.
        done: results of calls that do not run.
        interrupted: calls that a dead process had started; `done` has what is known of each.
        waiting: how many calls wait for an answer.
        asked: calls (node, index) that ran, and ask something before they can go on.
        new: the questions that have not been asked yet.
    """

    ready: list[ReadyCall]
    done: dict[int, ToolResult]
    interrupted: Sequence[ReadyCall] = ()
    waiting: int = 0
    asked: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    new: list[NewQuestion] = field(default_factory=list[NewQuestion])


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that may have to wait for a person.

    Attributes:
        given: its arguments as the tool takes them.
        pattern: the pattern for which it needs an approval; None if it no longer needs one.
        folder: where it would run, if its tool says so.
    """

    ready: ReadyCall
    given: Mapping[str, Any]
    pattern: Mapping[str, str] | None
    folder: str = ""

    @property
    def digest(self) -> str:
        """The digest that an answer is bound to."""
        return call_digest(self.ready.tool, self.ready.call, self.given, self.folder)

    @property
    def text(self) -> str:
        """What a person is asked."""
        text = self.ready.tool.question()
        # Escaped, because the agent can make a folder of any name.
        return f"{text} It would run in {escape_invisible(self.folder)}." if self.folder else text


@dataclass(frozen=True, slots=True)
class Gate:
    """Sorts the calls of a run before they run, and suspends the run for questions.

    Attributes:
        rules: the settings' rules for approvals.
        seconds: how long a question stays open.
        reopened: the exchange that a resumed run begins with; only it can have questions already.
        secrets: values that questions mask.
        asks: whether a person is asked what is to become of interrupted calls.
    """

    log: RunLog
    rules: Sequence[ApprovalRule]
    seconds: float
    reopened: int | None = None
    secrets: frozenset[str] = frozenset()
    asks: bool = False

    @classmethod
    def of(cls, log: RunLog, settings: Settings, *, asks: bool) -> Gate:
        """Return the gate of a run."""
        reopened = log.exchange.seq if log.exchange is not None else None
        rules = approval_rules(settings.approve)
        secrets = known_secrets(settings)
        return cls(log, rules, settings.answer_timeout, reopened, secrets, asks)

    async def sort(
        self,
        exchange: Exchange,
        sorted_calls: GateResult,
        context: Callable[[str], ToolContext],
    ) -> GateResult:
        """Return which calls may run, by the answers so far.

        A question stays asked even if the rules no longer ask it.  An approval holds for the same
        call of the same tool only, including one that was started before a crash.

        Args:
            context: returns a tool's context, given the call's id.
        """
        gated = GateResult([], sorted_calls.done)
        again = await self._resolved(exchange, sorted_calls.interrupted, gated)
        known = await self._known(exchange)
        asking: list[ApprovalRequest] = []
        for one in (*sorted_calls.ready, *again):
            # A setting that changed while the run was suspended must not let a call pass that a
            # person was asked about.
            asked = isinstance(one.tool, AskUser) or one.index in known
            if not asked and not self.may_ask_about(one.tool):
                gated.ready.append(one)
                continue
            given = given_of(one.tool, one.call.arguments)
            pattern = pattern_of(one.tool, given, self.rules)
            if pattern is None and not asked:
                gated.ready.append(one)
            else:
                folder = await one.tool.working_folder(context(one.call.id))
                asking.append(ApprovalRequest(one, given, pattern, folder))
        if asking and not await may_wait(self.log.store, self.log.lease.run_id):
            for each in asking:
                text = NOBODY if isinstance(each.ready.tool, AskUser) else REFUSED
                gated.done[each.ready.index] = ToolResult(text, outcome="refused")
        elif asking:
            await self._ask(exchange, asking, known, gated)
        await self._add_answers(exchange, gated)
        return gated

    def may_ask_about(self, tool: Tool) -> bool:
        """Return whether a call of a tool may have to wait for a person."""
        return isinstance(tool, AskUser) or may_need_approval(tool, self.rules)

    async def _rows(self, exchange: Exchange) -> list[QuestionRow]:
        """Return the questions of the exchange's calls, oldest first."""
        # The exchange is new in this execution, so the store need not be asked at each step.
        if exchange.seq != self.reopened:
            return []
        rows = await self.log.store.questions.list(run_id=self.log.lease.run_id, limit=10_000)
        return [row for row in rows if row.node_id == exchange.seq and row.status != "withdrawn"]

    async def _known(self, exchange: Exchange) -> dict[int, tuple[Question, str]]:
        """Return the last question about each call of the exchange, with its digest, by index."""
        return {
            row.position: (Question.of(row), str(row.body.get("digest", "")))
            for row in await self._rows(exchange)
            if row.position is not None and row.kind != KIND and OF_TOOL not in row.body
        }

    async def _add_answers(self, exchange: Exchange, gated: GateResult) -> None:
        """Give calls the answers to what they asked; one with an open question waits on."""
        own = [row for row in await self._rows(exchange) if OF_TOOL in row.body]
        ready, gated.ready = gated.ready, []
        for one in ready:
            rows = [row for row in own if row.position == one.index]
            if any(row.status == "open" for row in rows):
                gated.waiting += 1
            else:
                gated.ready.append(replace(one, answers=tuple(map(_tool_answer, rows))))

    async def ask_for(
        self, exchange: Exchange, one: ReadyCall, asked: AwaitingAnswers, gated: GateResult
    ) -> None:
        """Add the questions of a call that ran."""
        _, asker = await self._asker()
        for question in asked.questions:
            body: dict[str, Any] = {"text": question.text, "choices": list(question.choices)}
            body |= {OF_TOOL: dict(question.state), **asker}
            self._add(exchange, one, question.kind, body, gated)
        # Counted by call.
        gated.waiting -= len(asked.questions) - 1
        gated.asked.append((exchange.seq, one.index))

    async def allowance_notes(self, exchange: Exchange) -> list[Note]:
        """Return a note for each reason that a person gave when allowing a call of the exchange."""
        known = await self._known(exchange)
        notes = (allowance_note(question) for _, (question, _) in sorted(known.items()))
        return [note for note in notes if note is not None]

    # Interrupted calls

    async def _resolved(
        self, exchange: Exchange, interrupted: Sequence[ReadyCall], gated: GateResult
    ) -> list[ReadyCall]:
        """Apply the answers about interrupted calls, or ask; return the calls to run again."""
        again: list[ReadyCall] = []
        decided = await self.resolutions() if interrupted else {}
        _, asker = await self._asker() if interrupted else ("", {})
        for one in interrupted:
            key = exchange.seq, one.index
            resolution = decided.get(key)
            if key not in decided:
                if await self.may_ask():
                    del gated.done[one.index]
                    self.ask_about(gated, *key, one.call, exchange.message.text, asker)
            elif isinstance(resolution, Rerun):
                del gated.done[one.index]
                again.append(one)
            elif resolution is not None:
                gated.done[one.index] = resolved_result(resolution)
        return again

    async def may_ask(self) -> bool:
        """Return whether a person is asked what is to become of interrupted calls."""
        return self.asks and await may_wait(self.log.store, self.log.lease.run_id)

    async def resolutions(self) -> dict[tuple[int, int], Resolution | None]:
        """Return what people decided about interrupted calls, by node and index."""
        return await answered_resolutions(self.log.store, self.log.lease)

    def ask_about(
        self,
        gated: GateResult,
        node: int,
        index: int,
        call: ToolCall,
        why: str = "",
        asker: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Add the question what is to become of an interrupted call."""
        body: dict[str, Any] = {
            "text": INTERRUPTED.format(name=call.name),
            "tool": call.name,
            "arguments": shown_arguments(call.arguments, self.secrets),
            "call_id": call.id,
            "why": encodable(why.strip()[:MAX_WHY]),
            "epoch": self.log.lease.epoch,
            **asker,
        }
        gated.waiting += 1
        gated.new.append(NewQuestion(new_id(), node, index, KIND, body, self.seconds))

    # Approvals

    async def _ask(
        self,
        exchange: Exchange,
        asking: Sequence[ApprovalRequest],
        known: Mapping[int, tuple[Question, str]],
        gated: GateResult,
    ) -> None:
        allowed, (agent, asker) = await self.allowed(), await self._asker()
        for each in asking:
            one = each.ready
            question, digest = known.get(one.index, (None, ""))
            if question is not None and question.status == "open":
                gated.waiting += 1
            elif isinstance(one.tool, AskUser):
                self._ask_user(exchange, one, question, asker, gated)
            elif question is not None and not allows(question):
                gated.done[one.index] = refusal_of(question)
            # The digest again: the tool or its defaults may have changed since the answer.
            elif (question is not None and digest == each.digest) or (
                question is None and is_allowed_for_thread(each, allowed, agent)
            ):
                gated.ready.append(one)
            else:
                body = self._body(each, agent) | asker
                if one.index in exchange.started:
                    # It is to run again, and the answer must not lead back to that question.
                    body["epoch"] = self.log.lease.epoch
                self._add(exchange, one, "approval", body, gated)

    def _body(self, asking: ApprovalRequest, agent: str) -> dict[str, Any]:
        """Return the stored body of a question: what it shows, and what its answer is bound to."""
        name, given = asking.ready.call.name, dict(asking.given)
        shown = shown_arguments(given, self.secrets)
        return {
            "text": asking.text,
            "tool": name,
            "arguments": shown,
            "pattern": dict(asking.pattern or {}),
            "digest": asking.digest,
            "binding": binding_of(asking.ready.tool, agent),
            "agent": agent,
            # The answer is compared with the unmasked values, which the log has anyway.
            **({} if shown == given else {"given": given}),
        }

    async def allowed(self) -> list[ApprovalRow]:
        """Return the approvals on the run's thread and, for a sub-agent, on its root's thread."""
        store, lease = self.log.store, self.log.lease
        # A person allows a call for the conversation, which is the root's thread.
        threads = dict.fromkeys(
            (lease.thread_id, (await store.runs.get(lease.root_run_id)).thread_id)
        )
        return [row for thread in threads for row in await store.questions.approvals(thread)]

    async def _asker(self) -> tuple[str, dict[str, str]]:
        """Return who asks: the agent, and the role and key of a sub-agent; none for a root."""
        run = await self.log.store.runs.get(self.log.lease.run_id)
        record = delegation_record(run)
        if record is None:
            return run.agent, {}
        # A model chooses the role; it must not be taken for the agent of that name.
        agent = f"sub-agent {run.agent}"
        return agent, {"role": run.agent, "task_key": record.key}

    def _ask_user(
        self,
        exchange: Exchange,
        one: ReadyCall,
        question: Question | None,
        asker: Mapping[str, str],
        gated: GateResult,
    ) -> None:
        if question is not None:
            gated.done[one.index] = result_of_question(question)
            return
        try:
            text, kind, choices = parse_question(one.call.arguments)
        except ToolError as error:
            gated.done[one.index] = ToolResult(str(error), outcome="error")
            return
        body: dict[str, Any] = {"text": text, "choices": choices, **asker}
        self._add(exchange, one, kind, body, gated)

    def _add(
        self,
        exchange: Exchange,
        one: ReadyCall,
        kind: QuestionKind,
        body: dict[str, Any],
        gated: GateResult,
    ) -> None:
        why = encodable(exchange.message.text.strip()[:MAX_WHY])
        body |= {"call_id": one.call.id, "why": why}
        gated.waiting += 1
        gated.new.append(NewQuestion(new_id(), exchange.seq, one.index, kind, body, self.seconds))

    async def suspend(self, gated: GateResult, below: Sequence[AwaitingHuman] = ()) -> Finish:
        """Suspend the run and ask its new questions, in one commit.

        Args:
            below: the calls that wait with sub-agents; if one of these is paused, so is the run,
                and if the closing runtime suspended one, so it does the run.
        """
        finish = _suspension(gated.waiting, below)
        await self.log.write(
            Commit(
                wait=tuple(gated.asked),
                # A suspended run may wait for days, and must not hold budget meanwhile.
                release=self.log.reserved,
                finish=finish,
                questions=tuple(gated.new),
                events=(*map(question_event, gated.new), finish_event(finish)),
            )
        )
        return finish


def _suspension(own: int, below: Sequence[AwaitingHuman]) -> Finish:
    reasons = {one.stop_reason for one in below}
    # A pause comes first: nothing but a person ends it, and a sweep continues what was closed.
    for finish in (PAUSED, CLOSED):
        if finish.stop_reason in reasons:
            return finish
    asking = [one for one in below if one.stop_reason != AWAITING_CHILDREN]
    if own or asking:
        return _awaiting(own, asking)
    many = "a sub-agent" if len(below) == 1 else f"{len(below)} sub-agents"
    return Finish("suspended", AWAITING_CHILDREN, f"It waits for {many} in the queue.")


def _awaiting(own: int, below: Sequence[AwaitingHuman]) -> Finish:
    reasons: list[str] = []
    if own:
        reasons.append("the answer to a question" if own == 1 else f"answers to {own} questions")
    if below:
        asking = "a sub-agent that asks" if len(below) == 1 else f"{len(below)} sub-agents that ask"
        reasons.append(asking)
    return Finish("suspended", "awaiting_user", f"It waits for {' and '.join(reasons)}.")


def binding_of(tool: Tool, agent: str) -> str:
    """Return what an approval for the rest of a thread is bound to: the tool and its agent."""
    return json_digest(tool.binding(), agent)


def is_allowed_for_thread(
    asking: ApprovalRequest, allowed: Sequence[ApprovalRow], agent: str
) -> bool:
    """Return whether an approval for the rest of the thread covers this agent's call."""
    tool = asking.ready.tool
    named = [one for one in allowed if one.tool == tool.name]
    if not named:
        return False
    # Computed only if a name matches: it digests the tool's code.
    binding = binding_of(tool, agent)
    return any(
        one.binding == binding and covers(one.arguments, asking.given, tool.folder) for one in named
    )


def _tool_answer(row: QuestionRow) -> ToolAnswer:
    choices: Sequence[Any] = row.answer.get("choices", ())
    text = row.answer.get("text", choices[0] if choices else None)
    return ToolAnswer(row.body[OF_TOOL], None if text is None else str(text))


def question_event(question: NewQuestion) -> NewEvent:
    """Return the event of a new question."""
    data = {"id": question.id, "kind": question.kind}
    names = ("call_id", "tool", "role", "task_key")
    data |= {name: question.body[name] for name in names if name in question.body}
    return NewEvent("question", question.node_id, data)


async def waits_for(store: UserStore, lease: Lease) -> tuple[Question, ...]:
    """Return the open questions of a run and of the sub-agents below it."""
    return tuple(await questions_of(store, lease.run_id))
