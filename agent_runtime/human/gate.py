"""Which calls of an exchange have to wait for a person, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_runtime.errors import ToolError
from agent_runtime.human.approval_rules import (
    binding_of,
    call_digest,
    concerned,
    given_of,
    pattern_of,
)
from agent_runtime.human.ask_user import NOBODY, AskUser, asked
from agent_runtime.human.display import known_secrets
from agent_runtime.human.pause import PAUSED
from agent_runtime.human.questions import Question, allows, refusal_of, result_of_question
from agent_runtime.human.waiting import AwaitingHuman, may_wait, questions_of
from agent_runtime.log.run_log import Exchange, RunLog, finish_event
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.messages import ToolCall, ToolResult, encodable
from agent_runtime.tools.argument_patterns import covers, shown_arguments
from agent_runtime.tools.base import REFUSED, Tool
from agent_runtime_config import Settings
from agent_runtime_config.approvals import ApprovalRule, approval_rules
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.question_records import ApprovalRow, NewQuestion, QuestionKind
from agent_runtime_storage.contract.records import Commit, Finish, Lease, NewEvent
from agent_runtime_storage.contract.store import UserStore

MAX_WHY = 1000
"""How many characters are shown of what the model said with a call."""


@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A call that can run."""

    index: int
    call: ToolCall
    tool: Tool


@dataclass(slots=True)
class GateResult:
    """The calls of an exchange that can run, once people were looked for.

    Attributes:
        done: results of calls that do not run.
        waiting: how many calls wait for an answer; nothing else of the exchange is left then.
        new: the questions of those that have not been asked yet.
    """

    ready: list[ReadyCall]
    done: dict[int, ToolResult]
    waiting: int = 0
    new: list[NewQuestion] = field(default_factory=list[NewQuestion])


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that may have to wait for a person.

    Attributes:
        given: its arguments as the tool takes them.
        pattern: by which pattern of these it needs an approval; None if it needs none any more.
    """

    one: ReadyCall
    given: Mapping[str, Any]
    pattern: Mapping[str, str] | None

    @property
    def digest(self) -> str:
        """What an answer is bound to."""
        return call_digest(self.one.tool, self.one.call, self.given)


@dataclass(frozen=True, slots=True)
class Gate:
    """Stands between the calls of a run and their tools.

    Attributes:
        rules: the settings' rules on what needs an approval.
        seconds: how long a question stays open.
        reopened: the exchange with which a resumed run begins; it alone may have questions.
        secrets: what questions do not show.
    """

    log: RunLog
    rules: Sequence[ApprovalRule]
    seconds: float
    reopened: int | None = None
    secrets: frozenset[str] = frozenset()

    @classmethod
    def of(cls, log: RunLog, settings: Settings) -> Gate:
        """Return the gate of a run."""
        reopened = log.exchange.seq if log.exchange is not None else None
        rules = approval_rules(settings.approve)
        return cls(log, rules, settings.answer_timeout, reopened, known_secrets(settings))

    async def sort(self, exchange: Exchange, found: GateResult) -> GateResult:
        """Say which of the calls that could run may, by what people have answered so far.

        What was asked stays asked, also where nobody would ask any more, and what was allowed is
        so for the same call of the same tool alone: also for one that was started before a crash.
        """
        gated = GateResult([], found.done)
        known = await self._known(exchange)
        asking: list[ApprovalRequest] = []
        for one in found.ready:
            asked = isinstance(one.tool, AskUser) or one.index in known
            if not asked and not concerned(one.tool, self.rules):
                gated.ready.append(one)
                continue
            given = given_of(one.tool, one.call.arguments)
            pattern = pattern_of(one.tool, given, self.rules)
            if pattern is None and not asked:
                gated.ready.append(one)
            else:
                asking.append(ApprovalRequest(one, given, pattern))
        if asking and not await may_wait(self.log.store, self.log.lease.run_id):
            for each in asking:
                text = NOBODY if isinstance(each.one.tool, AskUser) else REFUSED
                gated.done[each.one.index] = ToolResult(text, outcome="refused")
        elif asking:
            await self._ask(exchange, asking, known, gated)
        return gated

    async def _known(self, exchange: Exchange) -> dict[int, tuple[Question, str]]:
        """Return what was asked last for calls of the exchange, by their places in it.

        With each the digest of what was shown.
        """
        if exchange.seq != self.reopened:
            return {}
        rows = await self.log.store.questions(run_id=self.log.lease.run_id, limit=10_000)
        return {
            row.position: (Question.of(row), str(row.body.get("digest", "")))
            for row in rows
            if row.node_id == exchange.seq
            and row.position is not None
            and row.status != "withdrawn"
        }

    async def _ask(
        self,
        exchange: Exchange,
        asking: Sequence[ApprovalRequest],
        known: Mapping[int, tuple[Question, str]],
        gated: GateResult,
    ) -> None:
        allowed, asker = await self._allowed(), await self._asker()
        for each in asking:
            one = each.one
            question, digest = known.get(one.index, (None, ""))
            if question is not None and question.status == "open":
                gated.waiting += 1
            elif isinstance(one.tool, AskUser):
                self._ask_user(exchange, one, question, gated)
            elif question is not None and not allows(question):
                gated.done[one.index] = refusal_of(question)
            elif (question is not None and digest == each.digest) or (
                question is None and is_allowed_for_thread(each, allowed)
            ):
                gated.ready.append(one)
            else:
                self._add(exchange, one, "approval", self._body(each) | asker, gated)

    def _body(self, asking: ApprovalRequest) -> dict[str, Any]:
        """Return what is kept of a question: what is shown, and what its answer is bound to."""
        name, given = asking.one.call.name, dict(asking.given)
        shown = shown_arguments(given, self.secrets)
        return {
            "text": f"May the agent call {name}?",
            "tool": name,
            "arguments": shown,
            "pattern": dict(asking.pattern or {}),
            "digest": asking.digest,
            "binding": binding_of(asking.one.tool),
            # The answer is compared with the values themselves, which the log has anyway.
            **({} if shown == given else {"given": given}),
        }

    async def _allowed(self) -> list[ApprovalRow]:
        """Return what is allowed: for a sub-agent what is so on the thread of its root, too."""
        store, lease = self.log.store, self.log.lease
        threads = dict.fromkeys((lease.thread_id, (await store.run(lease.root_run_id)).thread_id))
        return [row for thread in threads for row in await store.approvals(thread)]

    async def _asker(self) -> dict[str, str]:
        """Return what a question says of the sub-agent that asks."""
        run = await self.log.store.run(self.log.lease.run_id)
        record = delegation_record(run)
        return {"role": run.agent, "task_key": record.key} if record is not None else {}

    def _ask_user(
        self, exchange: Exchange, one: ReadyCall, question: Question | None, gated: GateResult
    ) -> None:
        if question is not None:
            gated.done[one.index] = result_of_question(question)
            return
        try:
            text, kind, choices = asked(one.call.arguments)
        except ToolError as error:
            gated.done[one.index] = ToolResult(str(error), outcome="error")
            return
        body = {"text": text, "choices": choices}
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
        """Suspend the run until its questions are answered; they are asked by the same commit.

        Args:
            below: what sub-agents wait for; if one is paused, so is the run.
        """
        finish = PAUSED if any(one.paused for one in below) else _awaiting(gated.waiting, below)
        await self.log.write(
            Commit(
                release=self.log.reserved,
                finish=finish,
                questions=tuple(gated.new),
                events=(*map(question_event, gated.new), finish_event(finish)),
            )
        )
        return finish


def _awaiting(own: int, below: Sequence[AwaitingHuman]) -> Finish:
    what: list[str] = []
    if own:
        what.append("the answer to a question" if own == 1 else f"answers to {own} questions")
    if below:
        asking = "a sub-agent that asks" if len(below) == 1 else f"{len(below)} sub-agents that ask"
        what.append(asking)
    return Finish("suspended", "awaiting_user", f"It waits for {' and '.join(what)}.")


def is_allowed_for_thread(asking: ApprovalRequest, allowed: Sequence[ApprovalRow]) -> bool:
    """Return whether a call is allowed for the rest of its thread, of this very tool."""
    tool = asking.one.tool
    named = [one for one in allowed if one.tool == tool.name]
    if not named:
        return False
    binding = binding_of(tool)
    return any(
        one.binding == binding and covers(one.arguments, asking.given, tool.folder) for one in named
    )


def question_event(question: NewQuestion) -> NewEvent:
    """Return the event that tells of a question."""
    data = {"id": question.id, "kind": question.kind}
    told = ("call_id", "tool", "role", "task_key")
    data |= {name: question.body[name] for name in told if name in question.body}
    return NewEvent("question", question.node_id, data)


async def waits_for(store: UserStore, lease: Lease) -> tuple[Question, ...]:
    """Return the open questions of a run, and of the sub-agents below it."""
    return tuple(await questions_of(store, lease.run_id))
