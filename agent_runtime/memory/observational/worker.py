"""The background worker that prepares observations, one for each run, in the run's task group.

It observes the oldest chunk that is due, condenses the oldest observations when there are many, and
has a model rewrite what rules wrote while the model failed.  It never raises into the run and never
delays a step.
"""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

import anyio

from agent_runtime.errors import BudgetExceeded, Conflict, LeaseLost, StoreUnavailable
from agent_runtime.log.branch import observation_of
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.observational.jobs import claim_memory_job, reserve_and_settle
from agent_runtime.memory.observational.memory import (
    OBSERVE,
    REFLECT,
    ObservationalMemory,
    ObservationOutcome,
)
from agent_runtime.memory.observational.observer.base import (
    ObserverFailed,
    ObserverInput,
    ObserverResult,
)
from agent_runtime.memory.observational.reflector.base import (
    CannotCondense,
    Reflection,
    ReflectionOutcome,
    Reflector,
    reflect_or_fallback,
    reflection_of,
)
from agent_runtime.memory.observational.thresholds import next_chunk, threshold
from agent_runtime.models.telemetry.conventions import MEMORY_AGAIN, MEMORY_TOKENS
from agent_runtime.models.telemetry.spans import annotate
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.fences import masked_entry
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.view import Entry, View
from agent_runtime_storage.contract.records.log import Amount, Job, NewEvent

_log = logging.getLogger(__name__)

CLAIM_SECONDS = 30.0
"""A claim lasts this much longer than the Observer's deadline."""
RETRY_SECONDS = 5.0
"""Pause after a failure of the store or a conflict with another worker."""
GRACE_SECONDS = 5.0
"""Time after its deadline in which an Observer or Reflector may still hand over its result."""
REST_SECONDS = 3600.0
"""Pause before the same observations are tried again after none of them could be condensed."""
AGAIN_SECONDS = 60.0
"""Pause after a model's failure before it is asked to rewrite provisional observations."""


@dataclass(slots=True)
class MemoryWorker:
    """Does the background work of a run's memory."""

    memory: ObservationalMemory
    _stale: bool = False
    """Whether another process has written observations since they were read."""
    _retired: bool = False
    """Whether the run has ended, so that no new work begins."""
    _past_next: bool = False
    """Whether the next chunk is one of the past; it alternates with what leaves next."""
    _again_at: float = 0.0
    """When provisional observations may be rewritten, by the event loop's clock."""

    @property
    def log(self) -> RunLog:
        """The run's log."""
        return self.memory.log

    def retire(self) -> None:
        """Have `work` return after its current job."""
        self._retired = True
        self.memory.wake()

    async def work(self) -> None:
        """Do what is due until retired or cancelled."""
        while not self._retired:
            try:
                while not self._retired and await self.next():
                    continue
            except StoreUnavailable:
                await self._pause()
                continue
            except LeaseLost:
                # The run's own next write reports it.
                return
            except Conflict:
                # Another process observed the same nodes.
                await self._pause()
                # Its observation is not among those in memory, so they are read again before the
                # next job.
                self._stale = True
                continue
            except Exception as error:
                # Memory never fails a turn: the nodes stay raw and are tried again.
                _log.warning("Observational memory failed: %s", type(error).__name__)
                await self._pause()
                continue
            if not self._retired:
                await self.memory.woken.wait()
                # Replaced only after the wait, so a wake while `next` worked is not lost.
                self.memory.woken = anyio.Event()

    async def _pause(self) -> None:
        if not self._retired:
            await anyio.sleep(RETRY_SECONDS)

    async def next(self) -> bool:
        """Do the next job that is due; return False if there is none."""
        memory = self.memory
        if self._stale:
            await memory.load()
            self._stale = False
        view = self.log.view
        # What leaves next comes first: at T the loop wants it.  Then what keeps observations within
        # R, then gaps, which only make the prompt better; what rules wrote can wait longest.
        chunk = next_chunk(memory.raw(view), memory.thresholds)
        if chunk and not (self._past_next and memory.past):
            self._past_next = True
            await self.observe(chunk)
            return True
        if reflection := memory.to_condense(view):
            await self.reflect(reflection)
            return True
        self._past_next = False
        if chunk := await memory.next_of_past(view) or chunk:
            await self.observe(chunk)
            return True
        if provisional := self.provisional(view):
            await self.rewrite(provisional)
            return True
        return False

    # Observations

    async def observe(self, entries: tuple[Entry, ...]) -> None:
        """Observe nodes and commit the observation, unless another worker has the job.

        Rules write it where the Observer fails (provisionally) or the budget does not allow it.
        """
        memory = self.memory
        # The interval is the job's key, so two processes do not pay for the same nodes.
        async with self._claimed(OBSERVE, f"{entries[0].seq}-{entries[-1].seq}") as job:
            if job is None:
                await self._wait_for_others()
                return
            self._announce(OBSERVE, sum(entry.tokens for entry in entries))
            interval = ObserverInput(entries, memory.earlier(entries), early=not self._pressed())
            held = Amount(*memory.observer.bound(interval))
            try:
                async with reserve_and_settle(self.log, held):
                    outcome = await self._ask_observer(interval)
                    if outcome.why:
                        self._again_at = anyio.current_time() + AGAIN_SECONDS
                        by_rules = await memory.rule_observer.observe(interval)
                        calls = outcome.result.calls
                        result = ObserverResult(by_rules.notes, calls, by_rules.origin)
                        outcome = replace(outcome, result=result, provisional=True)
                    await memory.commit(job, entries, outcome, held)
            except BudgetExceeded as error:
                by_rules = await memory.rule_observer.observe(interval)
                # Not provisional: no model is asked to rewrite it, since the budget would refuse
                # that too.
                await memory.commit(job, entries, ObservationOutcome(by_rules, why=error.message))

    def _pressed(self) -> bool:
        """Return whether the loop waits for observations, to keep the prompt at the threshold."""
        raw = self.memory.raw(self.log.view)
        return raw.total >= threshold(raw, self.memory.thresholds)

    async def _ask_observer(self, interval: ObserverInput) -> ObservationOutcome:
        """Return what the Observer wrote, or why it wrote nothing."""
        # Observers keep the deadline themselves and report what they spent; this stops one that
        # hangs.
        with anyio.move_on_after(self.memory.deadline + GRACE_SECONDS):
            try:
                return ObservationOutcome(await self.memory.observer.observe(interval))
            except ObserverFailed as error:
                return ObservationOutcome(ObserverResult(None, error.calls), why=error.message)
            except Exception as error:
                # A bug in a user's Observer must not end the run.
                return ObservationOutcome(why=f"Unexpected {type(error).__name__}.", lost=True)
        return ObservationOutcome(
            why=f"It took longer than {self.memory.deadline:g} seconds.", lost=True
        )

    # Reflections

    async def reflect(self, reflection: Reflection) -> None:
        """Condense observations and commit the reflection, unless another worker has the job.

        Rules condense them where the budget does not allow a model.
        """
        memory = self.memory
        key = ",".join(str(part.id) for part in reflection.parts)
        # Above R the job is another one: what made no progress within R is then archived.
        key = key if reflection.room else f"{key} over"
        async with self._claimed(REFLECT, key) as job:
            if job is None:
                await self._wait_for_others()
                if reflection.room and memory.to_condense(self.log.view) == reflection:
                    # An earlier run made no progress with it, or its worker is slow.
                    memory.rest(self.log.view)
                return
            self._announce(REFLECT, reflection.tokens)
            held = Amount(*memory.reflector.bound(reflection))
            try:
                async with reserve_and_settle(self.log, held):
                    await self._condense_and_commit(job, reflection, memory.reflector, held)
            except BudgetExceeded as error:
                why = error.message
                await self._condense_and_commit(job, reflection, memory.rule_reflector, why=why)

    async def _condense_and_commit(
        self,
        job: Job,
        reflection: Reflection,
        reflector: Reflector,
        held: Amount | None = None,
        why: str = "",
    ) -> None:
        memory = self.memory
        try:
            done = await self._condense(reflection, reflector)
        except CannotCondense as error:
            if held is not None:
                await memory.record_failure(error.calls, REFLECT, held, lost=error.lost)
            memory.rest(self.log.view)
            await self.log.store.jobs.fail(job, retry_after=REST_SECONDS, detail=error.message)
            return
        done = replace(done, why=why) if why else done
        await memory.commit_reflection(job, reflection, done, held)
        memory.resting = 0
        if done.observation.origin == "archive":
            # What could not be condensed now cannot be at once either.
            memory.rest(self.log.view)

    async def _condense(self, reflection: Reflection, reflector: Reflector) -> ReflectionOutcome:
        deadline = self.memory.deadline + GRACE_SECONDS
        done = await reflect_or_fallback(
            reflection, reflector, self.memory.rule_reflector, deadline=deadline
        )
        if done.why:
            self._again_at = anyio.current_time() + AGAIN_SECONDS
        return done

    # Provisional observations

    def provisional(self, view: View) -> Observation | None:
        """Return the oldest observation that a model should rewrite, if it may be asked now."""
        memory = self.memory
        if anyio.current_time() < self._again_at:
            return None
        present = memory.best(memory.present(view))
        return next((one for one in present if one.provisional and self._has_model(one)), None)

    def _has_model(self, one: Observation) -> bool:
        memory = self.memory
        if one.level:
            return memory.reflector is not memory.rule_reflector
        return memory.observer is not memory.rule_observer

    async def rewrite(self, old: Observation) -> None:
        """Have a model rewrite a provisional observation; the next activation shows it.

        If the model fails again, the provisional one stays and the model gets a longer pause.
        """
        self._again_at = anyio.current_time() + AGAIN_SECONDS
        # Set before the attempt, so that no kind of failure repeats it at once.
        kind = REFLECT if old.level else OBSERVE
        async with self._claimed(kind, f"again {old.id}") as job:
            if job is None:
                return
            self._announce(kind, old.tokens, again=True)
            redo = self._reflect_again if old.level else self._observe_again
            try:
                why = await redo(job, old)
            except BudgetExceeded as error:
                why = error.message
            if why:
                await self.log.store.jobs.fail(job, retry_after=AGAIN_SECONDS, detail=why)
                return
        self._again_at = 0.0

    async def _observe_again(self, job: Job, old: Observation) -> str:
        """Return why the Observer failed; empty if it did not."""
        log, memory = self.log, self.memory
        nodes = await log.store.log.branch(log.lease.thread_id, old.last, first=old.first)
        nonce = log.view.start.nonce
        # Read again, because these nodes have left the view; masked as prompts show them.
        entries = tuple(masked_entry(entry_of(node), nonce) for node in nodes)
        interval = ObserverInput(entries, memory.earlier(entries), early=True)
        held = Amount(*memory.observer.bound(interval))
        async with reserve_and_settle(log, held):
            outcome = await self._ask_observer(interval)
            if outcome.why:
                calls = outcome.result.calls
                await memory.record_failure(calls, OBSERVE, held, lost=outcome.lost)
            else:
                await memory.commit(job, entries, outcome, held, instead=old)
        return outcome.why

    async def _reflect_again(self, job: Job, old: Observation) -> str:
        """Return why the Reflector failed; empty if it did not."""
        log, memory = self.log, self.memory
        rows = await log.store.log.observations(log.lease.thread_id, ids=old.parts)
        by_id = {row.id: observation_of(row) for row in rows}
        reflection = reflection_of(tuple(by_id[part] for part in old.parts))
        held = Amount(*memory.reflector.bound(reflection))
        async with reserve_and_settle(log, held):
            done = await self._condense(reflection, memory.reflector)
            if done.why:
                await memory.record_failure(done.calls, REFLECT, held, lost=done.lost)
            else:
                await memory.commit_reflection(job, reflection, done, held, again=True)
        return done.why

    def _announce(self, purpose: str, tokens: int, *, again: bool = False) -> None:
        """Send a live event that work begins."""
        annotate({MEMORY_TOKENS: tokens, MEMORY_AGAIN: again})
        data = {"purpose": purpose, "tokens": tokens, "again": again}
        self.log.tell(NewEvent("memory", data=data))

    # Jobs

    def _claimed(self, kind: str, key: str) -> AbstractAsyncContextManager[Job | None]:
        seconds = self.memory.deadline + CLAIM_SECONDS
        return claim_memory_job(self.log, kind, key, seconds=seconds, retry_after=RETRY_SECONDS)

    async def _wait_for_others(self) -> None:
        """Wait for another worker's job: it is done, or its claim expires if the worker died."""
        await self._pause()
        await self.memory.load()
