"""The state of a run in progress, in memory; everything durable is a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import anyio.to_thread

from agent_runtime.errors import ModelError
from agent_runtime.human.ask_user import ask_user
from agent_runtime.human.gate import Gate
from agent_runtime.human.interruptions import Resolution
from agent_runtime.log.call_timing import CallTiming
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.observational.configure import MemorySetup
from agent_runtime.memory.observational.constraint_reader import constraints_of
from agent_runtime.memory.observational.memory import ObservationalMemory
from agent_runtime.memory.observational.observer.rules import RuleObserver
from agent_runtime.memory.observational.reflector.rules import RuleReflector
from agent_runtime.memory.observational.worker import MemoryWorker
from agent_runtime.memory.transcript import characters
from agent_runtime.messages import ASK_USER, Note, ToolCall, ToolResult
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.attachments import ContentCache, PromptFiles
from agent_runtime.prompt.calendar import Today
from agent_runtime.prompt.constraints import Constraints
from agent_runtime.prompt.day import date_notes
from agent_runtime.prompt.fences import next_nonce
from agent_runtime.prompt.truncate import share_result_budget
from agent_runtime.prompt.view import ActivationCause, Entry, Prompt, View
from agent_runtime.prompt.window import (
    TARGET,
    overdue,
    plan_activation,
    prompt_too_large,
    results_budget,
)
from agent_runtime.run.guard.outage import ModelOutage
from agent_runtime.run.guard.repeats import LoopGuard
from agent_runtime.run.inbox import fit_notes
from agent_runtime.run.reservation import Reservation
from agent_runtime.run.resolve import RunSetup
from agent_runtime.run.state_note import state_note
from agent_runtime.run.tool_context import ToolContexts
from agent_runtime.run.wrap_up import WrapUp
from agent_runtime_config import Settings
from agent_runtime_storage.contract.records.log import Amount, NewEvent

NOTES_SHARE = 0.5
"""Notes that are read at once have this share of the room for the results of an exchange."""
COUNT_IN_THREAD = 100_000
"""Results with more characters in all are counted off the event loop."""
PLAN_IN_THREAD = 200_000
"""With more raw characters, an activation is planned off the event loop."""


@dataclass(slots=True)
class RunState:
    """A run in progress: what it was set up with, its parts, and what changes from step to step.

    Attributes:
        step_limit: how many steps the run may have made when it ends.
        task: the task's message; None where there is none.
        gate: decides which calls wait for a person.
        guard: notices that the run repeats itself, or that its plan does not move.
        files: what prompts show of their files.
        outage: waits while the model is unavailable.
        memory: observational memory, where it is on; `worker` prepares it in the background.
        settled: results of a reopened exchange, for calls that must not run again.
        decided: what a person decided about interrupted calls, by their ids.
        previous: the prompt of the last model call.
        sent: whether a prompt may have shown the newest result, which must not change then.
        timing: of the model calls for the next answer.
    """

    log: RunLog
    setup: RunSetup
    context: ToolContexts
    step_limit: int
    task: Entry | None
    reservation: Reservation
    gate: Gate
    guard: LoopGuard
    files: PromptFiles
    outage: ModelOutage
    memory: ObservationalMemory | None = None
    worker: MemoryWorker | None = None
    wrap_up: WrapUp = field(default_factory=WrapUp)
    settled: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])
    decided: Mapping[str, Resolution] = field(default_factory=dict[str, Resolution])
    previous: Prompt | None = None
    sent: bool = False
    timing: CallTiming = field(default_factory=CallTiming)

    @classmethod
    def of(
        cls,
        setup: RunSetup,
        context: ToolContexts,
        settings: Settings,
        contents: ContentCache,
        *,
        task: Entry | None,
        step_limit: int,
    ) -> RunState:
        """Return the state of a run that begins or is resumed.

        Args:
            context: what its tools are given; its log is the run's.
            contents: files that were read already.
        """
        log = context.log
        # Looked up each time, because another model may take the place of the first.
        ratio = partial(_ratio, setup)
        memory = memory_of(log, setup.memory, ratio, settings) if setup.memory else None
        reservation = Reservation.of(log, setup)
        return cls(
            log=log,
            setup=setup,
            context=context,
            step_limit=step_limit,
            task=task,
            reservation=reservation,
            gate=Gate.of(log, settings, asks=setup.tools.get(ASK_USER) is ask_user),
            guard=LoopGuard.of(log, settings, setup.tools),
            files=PromptFiles(log.store, contents, setup.files, setup.info, log.tell_of),
            outage=ModelOutage(reservation, settings.model_outage),
            memory=memory,
            worker=MemoryWorker(memory) if memory else None,
        )

    # Prompts

    def due(self, view: View) -> ActivationCause | None:
        """Return why the next prompt needs an activation, or None."""
        # The agent comes first: a change of it voids the provider's cache in any case.
        setup, choice = self.setup, self.setup.choice
        if view.prefix != setup.prefix or view.start.repeat_system != setup.repeat_system:
            return "agent"
        if view.start.today.zone != setup.timezone:
            return "agent"
        if view.start.model != choice.model.name:
            # What a model keeps of its answers is for that model only.
            return "model" if choice.has(view.start.model) else "agent"
        room, estimate = self.reservation.room, setup.calibration.estimate(view.tokens)
        if self.memory is None:
            # Memory was turned off, or on, since the prompt's activation.
            return "agent" if view.start.remembers else overdue(view, room, estimate)
        if not view.start.remembers:
            return "agent"
        if estimate > room.limit:
            return "tokens"
        return self.memory.due(view, cold=self._cold(view))

    def _cold(self, view: View) -> bool:
        """Return whether the provider's cache has expired since the last model call."""
        answers = (one.at for one in reversed(view.entries) if one.message.type == "assistant")
        # Wall-clock time, because another process may have made the last call.
        last, idle = next(answers, None), self.setup.idle
        return last is not None and idle is not None and time.time() - last > idle

    async def allow_notes(self) -> None:
        """Let notes follow the newest result, which changes it, although a prompt has shown it."""
        if self.sent:
            await self.activate("note")
            self.sent = False

    async def activate(self, cause: ActivationCause) -> None:
        """Rewrite the prompt: `prompt.window` decides what leaves it and what is truncated."""
        setup, room, calibration = self.setup, self.reservation.room, self.setup.calibration
        # The rewritten prompt does not extend the last one that the provider counted.
        calibration.reset_anchor()
        state = await state_note(setup.state_notes, self.context(""))
        required = await constraints_of(self.log)
        if self.memory is not None:
            required = replace(required, budget=self.memory.constraint_tokens)
        view = await self._plan(cause, state, required)
        goal = int(room.limit * TARGET) if cause == "overflow" else room.limit
        while self.memory is not None and calibration.estimate(view.tokens) > goal:
            # Nothing leaves unobserved, so what must leave at once is observed by rules.
            written = await self.memory.observe_now(self.log.view)
            if not (written or await self.memory.reflect_now(self.log.view)):
                # After an overflow the goal is lower than the limit; reaching that is enough.
                if calibration.estimate(view.tokens) > room.limit:
                    raise prompt_too_large(view, room, calibration.estimate)
                break
            view = await self._plan(cause, state, required)
        await self.log.activate(view, cause)
        if self.memory is not None:
            self.memory.activated()

    async def _plan(self, cause: ActivationCause, state: str, required: Constraints) -> View:
        old, setup, memory = self.log.view, self.setup, self.memory
        standing = () if memory is None else memory.standing(old)
        planned = partial(
            plan_activation,
            old,
            self.reservation.room,
            cause=cause,
            estimate=setup.calibration.estimate,
            nonce=next_nonce(old.start.nonce),
            task=self.task,
            model=setup.choice.model.name,
            prefix=setup.prefix,
            repeat_system=setup.repeat_system,
            state=state,
            required=required,
            today=Today.now(setup.timezone, old.start.today.began),
            remembers=memory is not None,
            ready=() if memory is None else memory.ready(old),
            standing=standing,
            gaps=() if memory is None else memory.gaps(standing),
        )
        if characters(old.entries) > PLAN_IN_THREAD:
            return await anyio.to_thread.run_sync(planned)
        return planned()

    async def choose_model(self) -> None:
        """Choose the model for the next call: the preferred one, once its cool-down is over."""
        if (change := self.setup.choice.begin()) is not None:
            await self.log.tell_of(NewEvent("model-fallback", data=change))

    async def fall_back(self, failed: ModelError) -> None:
        """Use the next model after a failure.

        Raises:
            ModelError: there is no other that may help.
        """
        change = self.setup.choice.fall_back(failed)
        await self.reservation.give_up(NewEvent("model-fallback", data=change))

    def narrow(self) -> None:
        """Assume for the rest of the run that the window is smaller than the refused prompt."""
        # The shorter prompt is estimated without an anchor, so the refused one must be, too.
        self.setup.calibration.reset_anchor()
        reservation = self.reservation
        refused = self.setup.calibration.estimate(self.log.view.tokens)
        window = min(reservation.room.window, refused + reservation.room.reserve)
        reservation.room = replace(reservation.room, window=window)
        if self.memory is not None:
            self.memory.thresholds = self.memory.thresholds.within(reservation.room.limit)

    async def fit(self, calls: Sequence[ToolCall], texts: Sequence[str]) -> list[int | None]:
        """Return how many characters of each call's result prompts show; None for all.

        A result has at most the tokens that its tool sets, or the setting's, at any window; those
        of one exchange have together at most a share of the window.
        """
        # The setting counts the model's tokens, and results are counted in ours.
        setup, ratio = self.setup, self.setup.calibration.ratio
        tools = [setup.tools.get(call.name) for call in calls]
        own = [tool.max_result_tokens if tool else None for tool in tools]
        caps = [int((limit or setup.max_result_tokens) / ratio) for limit in own]
        tokens = results_budget(self.reservation.room, ratio)
        if (affordable := await self.reservation.affordable_results()) is not None:
            tokens = min(tokens, affordable)
        # Counting such texts takes long enough to delay the other runs of the event loop.
        if sum(map(len, texts)) > COUNT_IN_THREAD:
            return await anyio.to_thread.run_sync(
                share_result_budget, texts, tokens, count_text, caps
            )
        return share_result_budget(texts, tokens, count_text, caps)

    async def fit_notes(self, notes: Sequence[Note]) -> list[Note]:
        """Return notes for which prompts have room; what is longer is kept as a file."""
        # With the safe ratio: unlike results, notes are not truncated again if they do not fit.
        room = results_budget(self.reservation.room, self.setup.calibration.safe_ratio)
        log = self.log
        return await fit_notes(log.store, log.lease.thread_id, notes, int(room * NOTES_SHARE))

    # Limits

    def reserve_ahead(self, view: View) -> Amount | None:
        """Return what to reserve for the next call with the commit before it, if anything."""
        # With budgets the answer may have to shrink, or the run to wait, and an activation changes
        # the prompt: then `next_prompt` reserves.
        if self.reservation.limited or self.due(view) is not None:
            return None
        return self.reservation.bound(view)

    async def routine_notes(self, closing: Sequence[ToolResult] | None = None) -> list[Note]:
        """Return notes of what changed around the run: the day, its context, its limits.

        Args:
            closing: the results of the open exchange, which closes now; None on a resume.
        """
        log, setup = self.log, self.setup
        if closing is None:
            context = await setup.context.changed(log.view, resumed=True)
        else:
            calls = log.open_exchange().message.calls
            context = await setup.context.on_calls(log.view, setup.tools, calls, closing)
        return [*date_notes(log.view, setup.timezone), *context, *await self._limit_notes()]

    async def _limit_notes(self) -> list[Note]:
        """Return a note if the run came near its limits, or away from them, since the last one."""
        log = self.log
        steps = [(log.steps, self.step_limit)]
        if (most := log.limits.steps) is not None:
            steps.append((await log.store.runs.count_tree_steps(log.lease.root_run_id), most))
        return self.wrap_up.notes(
            steps=steps,
            budgets=await self.reservation.budgets() if self.reservation.limited else (),
            call=self.reservation.usual_bound(log.view),
        )


def _ratio(setup: RunSetup) -> float:
    return setup.calibration.ratio


def memory_of(
    log: RunLog, setup: MemorySetup, ratio: Callable[[], float], settings: Settings
) -> ObservationalMemory:
    """Return the observational memory of a run; rules write where no model does.

    Args:
        ratio: returns the tokens of the model in use for one of ours.
    """
    by_rules, folder = RuleObserver(), RuleReflector()
    return ObservationalMemory(
        log=log,
        thresholds=setup.thresholds,
        observer=setup.observer or by_rules,
        rule_observer=by_rules,
        reflector=setup.reflector or folder,
        rule_reflector=folder,
        deadline=settings.observer_timeout,
        ratio=ratio,
    )
