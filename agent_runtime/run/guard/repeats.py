"""The loop guard: notice the same calls with the same results, warn the model, stop the run.

Where a person can be asked, a run that it stops, or that has used up its steps, asks whether to
continue.

Everything is read from the log, so a resumed run counts as one that was never stopped.
`plan_stall` notices a plan that does not move; the consequences are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from agent_runtime.human.ask_user import AskUser
from agent_runtime.human.gate import question_event
from agent_runtime.human.questions import Question, allows
from agent_runtime.log.run_log import RunLog, finish_event
from agent_runtime.messages import AssistantMessage, Note, ToolResult
from agent_runtime.plan.tool import PlanTool
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.view import Entry
from agent_runtime.run.guard.plan_stall import PlanStall
from agent_runtime.tools.toolset import Toolset
from agent_runtime_config import Settings
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import Commit, Finish, StopReason
from agent_runtime_storage.contract.records.questions import NewQuestion

NUDGE = (
    "You made the same call with the same result {count} times in a row. Repeating it changes "
    "nothing. Do something else: other arguments, another tool, another approach; or end the task "
    "and say what is missing."
)
GO_ON = {
    "repeats": "You were stopped because you repeated yourself. The user says: go on, in another "
    "way.",
    "plan": "You were stopped because your plan did not move. The user says: go on.",
    "steps": "You were stopped because you had used up your steps. The user says: go on; you have "
    "as many again.",
}
OVERRULED = (
    "You were stopped before the task was done. The user now lets you make more steps: go on."
)
STOPPED = {
    "repeats": "It repeated itself",
    "plan": "Its plan did not move",
    "steps": "It used up its steps",
}
OWN = ("guard", "limits", "limits_raised", "plan")
"""Sources of notes that do not interrupt a repetition: nobody but the runtime said anything."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run as it was when it was resumed.

    Attributes:
        over: whether it was over, and not suspended.
        steps: its limit of steps, or the steps that it had made if these were more.
        most_steps: the limit with which it was resumed.
    """

    over: bool
    steps: int
    most_steps: int

    @property
    def overrules(self) -> bool:
        """Whether resuming it overrules the person who did not let it continue."""
        return self.over and self.most_steps > self.steps


@dataclass(slots=True)
class LoopGuard:
    """Watches a run that makes no progress.

    Attributes:
        limit: after how many identical exchanges in a row the model gets a note; the run stops
            after twice as many. 0 for never.
        asks: whether a person can be asked if the run may continue.
        seconds: how long they have for the answer.
        plan: watches the run's plan.
        resumed: the run as it was resumed, if it was.
    """

    log: RunLog
    limit: int
    asks: bool
    seconds: float
    plan: PlanStall
    resumed: Resumed | None = None
    _repeats: int = field(default=0, init=False)
    """How many exchanges in a row were identical when the last one was closed."""

    @classmethod
    def of(cls, log: RunLog, settings: Settings, tools: Toolset) -> LoopGuard:
        """Return the guard of a run with these tools."""
        asks = any(isinstance(one, AskUser) for one in tools)
        # A sub-agent that makes no progress fails, and its caller decides what to do.
        asks = asks and log.lease.run_id == log.lease.root_run_id
        plans = any(isinstance(one, PlanTool) for one in tools)
        plan = PlanStall(log, settings.plan_stall_limit if plans else 0)
        return cls(log, settings.loop_limit, asks, settings.answer_timeout, plan)

    async def look(self, results: Sequence[ToolResult]) -> list[Note]:
        """Examine the open exchange, given its results; return the notes for the model."""
        self._repeats = await self.repeats(results)
        notes: list[Note] = []
        if self.limit and self._repeats == self.limit:
            notes.append(Note(NUDGE.format(count=self._repeats), source="guard"))
        return notes + await self.plan.look()

    async def repeats(self, results: Sequence[ToolResult]) -> int:
        """Return how many exchanges in a row equal the open one, itself included."""
        if not self.limit:
            return 0
        wanted = _content(self.log.open_exchange().message, results)
        entries = self.log.view.entries
        # Most repetitions are in the prompt, so the log is read only if the streak reaches its
        # beginning.
        count, ended = _streak(wanted, entries)
        if count and not ended and entries[0].parent_id is not None:
            # Earlier ones have left the prompt, but not the log.  That many nodes hold twice the
            # limit, at which the run stops, with a note after each exchange.
            head, thread = self.log.head, self.log.lease.thread_id
            assert head is not None
            nodes = await self.log.store.log.branch(thread, head, limit=4 * self.limit)
            count, _ = _streak(wanted, [entry_of(node) for node in nodes])
        return count + 1

    async def stop(self) -> Finish | None:
        """Return how the run ends by the last `look`; None if it may continue.

        If a person can be asked, the run is suspended here with a question; else the caller has to
        record the end.
        """
        about, detail = "plan", self.plan.reason
        if self.limit and self._repeats >= 2 * self.limit:
            about = "repeats"
            detail = f"It made the same call with the same result {self._repeats} times in a row."
        return await self._ask(about, "no_progress", detail) if detail else None

    async def stop_at_limit(self, detail: str) -> Finish:
        """Return how a run ends that has used up its steps; ask as `stop` does."""
        return await self._ask("steps", "max_steps", detail)

    async def _ask(self, about: str, reason: StopReason, detail: str) -> Finish:
        if not self.asks or self.log.head is None:
            return Finish("failed", reason, detail)
        finish = Finish("suspended", reason, detail)
        # The exchange is closed, so the question belongs to its node and to no call.
        body = {"text": f"{detail} Should it continue?", "about": about}
        question = NewQuestion(new_id(), self.log.head, None, "continue", body, self.seconds)
        await self.log.write(
            Commit(
                release=self.log.reserved,
                finish=finish,
                questions=(question,),
                events=(question_event(question), finish_event(finish)),
            )
        )
        return finish

    async def answered(self) -> Note | Finish | None:
        """Return the consequence of the answer for a resumed run, if the guard had asked.

        A note for the model, or the end of the run.
        """
        rows = await self.log.store.questions.list(run_id=self.log.lease.run_id, limit=10_000)
        # By the node: an older question was answered before the run made the steps since.
        own = [row for row in rows if row.kind == "continue" and row.node_id == self.log.head]
        if not own or own[-1].status == "withdrawn":
            return None
        question, about = Question.of(own[-1]), own[-1].body.get("about", "repeats")
        reason = str(question.answer.get("reason", "")).strip()
        if allows(question):
            # As the user's words: a note of the guard's own would not interrupt the repetition.
            return Note(f"{GO_ON[about]} {reason}".strip(), source="steer")
        if self.resumed is not None and self.resumed.overrules:
            return Note(OVERRULED, source="steer")
        why = reason or "nobody said in time that it may continue"
        if question.status == "answered":
            why = f"the user stopped it{': ' + reason if reason else ''}"
        stop_reason = "max_steps" if about == "steps" else "no_progress"
        steps = self.log.steps if self.resumed is None else self.resumed.steps
        cure = f"With a limit of more than {steps} steps (`max_steps`) it can be resumed."
        return Finish("failed", stop_reason, f"{STOPPED[about]}, and {why.rstrip('.')}. {cure}")


def _content(message: AssistantMessage, results: Iterable[ToolResult]) -> list[tuple[object, ...]]:
    # Not the ids, which always differ, and not the answer's text, which may differ before the same
    # calls.
    return [
        (
            call.name,
            orjson.dumps(call.arguments, option=orjson.OPT_SORT_KEYS),
            call.raw,
            result.outcome,
            result.text,
        )
        for call, result in zip(message.calls, results, strict=True)
    ]


def _streak(wanted: list[tuple[object, ...]], entries: Sequence[Entry]) -> tuple[int, bool]:
    """Return how many exchanges at the end are the same, and whether something else precedes."""
    count = 0
    for entry in reversed(entries):
        message = entry.message
        if isinstance(message, Note) and message.source in OWN:
            continue
        if not isinstance(message, AssistantMessage) or _content(message, entry.results) != wanted:
            return count, True
        count += 1
    return count, False
