"""Approvals of the functions that a workflow calls: its run is suspended until a person answers.

A call is known by its node and iteration, not by its place in the log: a resumed workflow makes it
again, in another exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_runtime.human.approval_rules import unordered
from agent_runtime.human.gate import Gate, GateResult, ReadyCall
from agent_runtime.human.questions import Question, allows, refusal_of
from agent_runtime.human.waiting import AwaitingHuman, may_wait
from agent_runtime.log.exchange import Exchange
from agent_runtime.messages import ToolResult
from agent_runtime.tools.argument_patterns import covers, shown_arguments
from agent_runtime.tools.base import REFUSED
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.fingerprint import json_digest
from agent_runtime.tools.questions import AwaitingAnswers
from agent_runtime.workflow.functions import FunctionCall
from agent_runtime.workflow.steps import Key, NodeIteration
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import Finish
from agent_runtime_storage.contract.records.questions import NewQuestion

NODE = "node"
"""In the body of a question: the node's name and iteration."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A call that may have to wait for a person; `digest` is what the answer is bound to."""

    ready: ReadyCall
    call: FunctionCall
    key: Key
    given: Mapping[str, Any]
    pattern: Mapping[str, str] | None
    binding: str

    @property
    def digest(self) -> str:
        asked = self.ready.call.arguments
        return json_digest(self.key, asked, unordered(dict(self.given)), self.binding)


@dataclass(frozen=True, slots=True)
class NodeGate:
    """The gate between the nodes of an exchange and their functions.

    Attributes:
        gate: of the run.
        workflow: the workflow's name.
        steps: the nodes, by the index of their calls.
    """

    gate: Gate
    workflow: str
    steps: Sequence[NodeIteration]

    async def sort(
        self,
        exchange: Exchange,
        sorted_calls: GateResult,
        context: Callable[[str], ToolContext],
    ) -> GateResult:
        """Return which nodes may run, by the answers so far.

        An approval holds for the iteration that it was asked for until that has a result, and as
        long as function and arguments are the same.
        """
        del context
        gated = GateResult([], sorted_calls.done)
        known = await self._known()
        asking: list[_Request] = []
        for one in sorted_calls.ready:
            call, key = self.steps[one.index].function, self.steps[one.index].key
            if call is None or not (key in known or call.may_need_approval(self.gate.rules)):
                gated.ready.append(one)
                continue
            arguments = call.arguments()
            pattern = call.pattern(arguments, self.gate.rules)
            # A setting that changed meanwhile must not let a call pass that a person was asked
            # about.
            if pattern is None and key not in known:
                gated.ready.append(one)
            else:
                binding = call.binding(self.workflow)
                asking.append(_Request(one, call, key, arguments.given, pattern, binding))
        if asking and not await may_wait(self.gate.log.store, self.gate.log.lease.run_id):
            for each in asking:
                gated.done[each.ready.index] = ToolResult(REFUSED, outcome="refused")
        elif asking:
            await self._ask(exchange, asking, known, gated)
        return gated

    async def _known(self) -> dict[Key, tuple[Question, str]]:
        """Return the last question about each node, with its digest, that its result came after."""
        # Of a node that has a result, the question is answered: it is asked about again.
        again = {
            step.key
            for step in self.steps
            if step.result is not None and step.result.outcome in ("cancelled", "interrupted")
        }
        if not again:
            return {}
        log = self.gate.log
        rows = await log.store.questions.list(run_id=log.lease.run_id, limit=10_000)
        found: dict[Key, tuple[Question, str]] = {}
        for row in rows:
            match row.body.get(NODE):
                case [str(name), int(iteration)] if row.kind == "approval":
                    # A withdrawn one ended with its run: what was asked before it is void, too.
                    found.pop((name, iteration), None)
                    if row.status != "withdrawn" and (name, iteration) in again:
                        digest = str(row.body.get("digest", ""))
                        found[name, iteration] = Question.of(row), digest
                case _:
                    continue
        return found

    async def _ask(
        self,
        exchange: Exchange,
        asking: Sequence[_Request],
        known: Mapping[Key, tuple[Question, str]],
        gated: GateResult,
    ) -> None:
        allowed = await self.gate.allowed()
        for each in asking:
            question, digest = known.get(each.key, (None, ""))
            if question is not None and question.status == "open":
                gated.waiting += 1
            elif question is not None and not allows(question):
                gated.done[each.ready.index] = refusal_of(question)
            # The digest again: the function or its defaults may have changed since the answer.
            elif (question is not None and digest == each.digest) or (
                question is None
                and any(
                    one.tool == each.call.node
                    and one.binding == each.binding
                    and covers(one.arguments, each.given, None)
                    for one in allowed
                )
            ):
                gated.ready.append(each.ready)
            else:
                gated.waiting += 1
                gated.new.append(self._question(exchange, each))

    def _question(self, exchange: Exchange, asking: _Request) -> NewQuestion:
        given, node = dict(asking.given), asking.call.node
        shown = shown_arguments(given, self.gate.secrets)
        function = str(getattr(asking.call.function, "__name__", node))
        which = node if node == function else f"{function} (node {node})"
        body: dict[str, Any] = {
            "text": f"May the workflow {self.workflow} call {which}?",
            "tool": node,
            "arguments": shown,
            "pattern": dict(asking.pattern or {}),
            "digest": asking.digest,
            "binding": asking.binding,
            "agent": f"workflow {self.workflow}",
            "call_id": asking.ready.call.id,
            "why": "",
            NODE: list(asking.key),
            # The answer is compared with the unmasked values, which the log has anyway.
            **({} if shown == given else {"given": given}),
        }
        index, seconds = asking.ready.index, self.gate.seconds
        return NewQuestion(new_id(), exchange.seq, index, "approval", body, seconds)

    async def ask_for(
        self, exchange: Exchange, one: ReadyCall, asked: AwaitingAnswers, gated: GateResult
    ) -> None:
        """Add the questions of a call that ran."""
        await self.gate.ask_for(exchange, one, asked, gated)

    async def suspend(self, gated: GateResult, below: Sequence[AwaitingHuman] = ()) -> Finish:
        """Suspend the run and ask its new questions, in one commit."""
        return await self.gate.suspend(gated, below)
