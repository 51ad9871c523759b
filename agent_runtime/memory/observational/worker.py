"""What prepares observations in the background: one worker a run, in the run's task group.

It observes the oldest chunk that is due, condenses the oldest observations when they are many, and
has a model write again what rules wrote while it failed.  It never raises into the run, and never
makes a step wait.
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
    condensing,
    reflect_or_fallback,
)
from agent_runtime.memory.observational.thresholds import next_chunk
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.fences import masked_entry
from agent_runtime.prompt.observation import Observation
from agent_runtime.prompt.view import Entry, View
from agent_runtime_storage.contract.records import Amount, Job, NewEvent

_log = logging.getLogger(__name__)

CLAIM_SECONDS = 30.0
"""How much longer than the Observer's deadline a claim lasts."""
RETRY_SECONDS = 5.0
"""How long the worker waits after the store, or another claim, was in its way."""
GRACE_SECONDS = 5.0
"""How much longer than its deadline an Observer is waited for."""
REST_SECONDS = 3600.0
"""How long the same observations are left as they are once nothing gets any further with them."""
AGAIN_SECONDS = 60.0
"""How long after a failure a model is left in peace before it is to write again what rules did."""


@dataclass(slots=True)
class MemoryWorker:
    """Does the work of a run's memory."""

    memory: ObservationalMemory
    _stale: bool = False
    """Whether others have written observations since they were read."""
    _retired: bool = False
    """Whether the run is over, so that nothing new begins."""
    _past_next: bool = False
    """Whether what left unobserved is next: it takes turns with what is about to leave."""
    _again_at: float = 0.0
    """When provisional observations may be written again, by the event loop's clock."""

    @property
    def log(self) -> RunLog:
        """The run's log."""
        return self.memory.log

    def retire(self) -> None:
        """Have `work` end with what it is at: the run is over."""
        self._retired = True
        self.memory.wake()

    async def work(self) -> None:
        """Do what is due, until it is retired or cancelled."""
        while not self._retired:
            try:
                while not self._retired and await self.next():
                    continue
            except StoreUnavailable:
                await self._rest()
                continue
            except LeaseLost:
                # The run's own next write says so to whoever runs it.
                return
            except Conflict:
                # Somebody else observed the same meanwhile.
                await self._rest()
                self._stale = True
                continue
            except Exception as error:
                # Memory never fails a turn: what is raw stays raw, and is tried again.
                _log.warning("Observational memory failed: %s", type(error).__name__)
                await self._rest()
                continue
            if not self._retired:
                await self.memory.woken.wait()
                self.memory.woken = anyio.Event()

    async def _rest(self) -> None:
        """Wait a while, but not for what is over."""
        if not self._retired:
            await anyio.sleep(RETRY_SECONDS)

    async def next(self) -> bool:
        """Do what is due next; False if nothing is."""
        memory = self.memory
        if self._stale:
            await memory.load()
            self._stale = False
        view = self.log.view
        chunk = next_chunk(memory.raw(view), memory.bands)
        if chunk and not (self._past_next and memory.past):
            self._past_next = True
            await self.observe(chunk)
            return True
        if reflection := memory.to_condense(view):
            await self.reflect(reflection)
            return True
        self._past_next = False
        if chunk := await memory.left_out(view) or chunk:
            await self.observe(chunk)
            return True
        if provisional := self.provisional(view):
            await self.again(provisional)
            return True
        return False

    # Observations

    async def observe(self, entries: tuple[Entry, ...]) -> None:
        """Observe nodes and commit it, unless somebody else does."""
        memory = self.memory
        async with self._claimed(OBSERVE, f"{entries[0].seq}-{entries[-1].seq}") as job:
            if job is None:
                await self._wait_for_others()
                return
            self._tell(OBSERVE, sum(entry.tokens for entry in entries))
            interval = ObserverInput(entries, memory.earlier(entries))
            held = Amount(*memory.observer.bound(interval))
            try:
                async with reserve_and_settle(self.log, held):
                    noted = await self._notes(interval)
                    await memory.commit(job, entries, noted, held)
            except BudgetExceeded as error:
                by_rules = await memory.fallback.observe(interval)
                await memory.commit(job, entries, ObservationOutcome(by_rules, why=error.message))

    async def _notes(self, interval: ObserverInput) -> ObservationOutcome:
        """Return what was observed; by rules, marked provisional, where the Observer failed."""
        noted = await self._asked(interval)
        if not noted.why:
            return noted
        self._again_at = anyio.current_time() + AGAIN_SECONDS
        by_rules = await self.memory.fallback.observe(interval)
        seen = ObserverResult(by_rules.notes, noted.seen.calls, by_rules.origin)
        return replace(noted, seen=seen, provisional=True)

    async def _asked(self, interval: ObserverInput) -> ObservationOutcome:
        """Return what the Observer wrote, or why it wrote nothing."""
        # Observers keep to the deadline themselves, and say what it cost; this is for one that
        # hangs.
        with anyio.move_on_after(self.memory.deadline + GRACE_SECONDS):
            try:
                return ObservationOutcome(await self.memory.observer.observe(interval))
            except ObserverFailed as error:
                return ObservationOutcome(ObserverResult(None, error.calls), why=error.message)
            except Exception as error:
                # A mistake of who wrote the Observer must not end the run.
                return ObservationOutcome(why=f"Unexpected {type(error).__name__}.", lost=True)
        return ObservationOutcome(
            why=f"It took longer than {self.memory.deadline:g} seconds.", lost=True
        )

    # Reflections

    async def reflect(self, reflection: Reflection) -> None:
        """Condense observations and commit it, unless somebody else does."""
        memory = self.memory
        key = ",".join(str(part.id) for part in reflection.parts)
        # What came to nothing while there was room is done once there is none.
        key = key if reflection.room else f"{key} over"
        async with self._claimed(REFLECT, key) as job:
            if job is None:
                await self._wait_for_others()
                if reflection.room and memory.to_condense(self.log.view) == reflection:
                    # It came to nothing in an earlier run, or whoever does it is slow.
                    memory.rest(self.log.view)
                return
            self._tell(REFLECT, reflection.tokens)
            held = Amount(*memory.reflector.bound(reflection))
            try:
                async with reserve_and_settle(self.log, held):
                    await self._reflect(job, reflection, held)
            except BudgetExceeded as error:
                await self._fold(job, reflection, error.message)

    async def _reflect(self, job: Job, reflection: Reflection, held: Amount) -> None:
        memory = self.memory
        try:
            done = await self._condensed(reflection, memory.reflector)
        except CannotCondense as error:
            await memory.book(error.calls, REFLECT, held, lost=error.lost)
            await self._give_up(job, error)
            return
        await memory.commit_reflection(job, reflection, done, held)
        self._condensed_to(done)

    async def _fold(self, job: Job, reflection: Reflection, why: str) -> None:
        """Condense by rules what there is no budget for."""
        memory = self.memory
        try:
            done = await self._condensed(reflection, memory.folder)
        except CannotCondense as error:
            await self._give_up(job, error)
            return
        await memory.commit_reflection(job, reflection, replace(done, why=why))
        self._condensed_to(done)

    def _condensed_to(self, done: ReflectionOutcome) -> None:
        """Rest after an archive: what was not condensed now will not be at once."""
        self.memory.resting = 0
        if done.observation.origin == "archive":
            self.memory.rest(self.log.view)

    async def _give_up(self, job: Job, error: CannotCondense) -> None:
        """Leave observations as they are until there is more to condense."""
        self.memory.rest(self.log.view)
        await self.log.store.fail_job(job, retry_after=REST_SECONDS, detail=error.message)

    async def _condensed(self, reflection: Reflection, reflector: Reflector) -> ReflectionOutcome:
        deadline = self.memory.deadline + GRACE_SECONDS
        done = await reflect_or_fallback(
            reflection, reflector, self.memory.folder, deadline=deadline
        )
        if done.why:
            self._again_at = anyio.current_time() + AGAIN_SECONDS
        return done

    # Again

    def provisional(self, view: View) -> Observation | None:
        """Return the oldest observation that a model is to write again, if one can be asked now."""
        memory = self.memory
        if anyio.current_time() < self._again_at:
            return None
        present = memory.best(memory.present(view))
        return next((one for one in present if one.provisional and self._by_model(one)), None)

    def _by_model(self, one: Observation) -> bool:
        memory = self.memory
        if one.level:
            return memory.reflector is not memory.folder
        return memory.observer is not memory.fallback

    async def again(self, old: Observation) -> None:
        """Have a model write what rules wrote when it failed; it stands from the next activation.

        Where the model fails again, what rules wrote stays, and it is left in peace for longer.
        """
        self._again_at = anyio.current_time() + AGAIN_SECONDS
        kind = REFLECT if old.level else OBSERVE
        async with self._claimed(kind, f"again {old.id}") as job:
            if job is None:
                return
            self._tell(kind, old.tokens, again=True)
            redo = self._reflect_again if old.level else self._observe_again
            try:
                why = await redo(job, old)
            except BudgetExceeded as error:
                why = error.message
            if why:
                await self.log.store.fail_job(job, retry_after=AGAIN_SECONDS, detail=why)
                return
        self._again_at = 0.0

    async def _observe_again(self, job: Job, old: Observation) -> str:
        """Return why it came to nothing; empty if it is done."""
        log, memory = self.log, self.memory
        nodes = await log.store.branch(log.lease.thread_id, old.last, first=old.first)
        nonce = log.view.start.nonce
        entries = tuple(masked_entry(entry_of(node), nonce) for node in nodes)
        interval = ObserverInput(entries, memory.earlier(entries))
        held = Amount(*memory.observer.bound(interval))
        async with reserve_and_settle(log, held):
            noted = await self._asked(interval)
            if noted.why:
                await memory.book(noted.seen.calls, OBSERVE, held, lost=noted.lost)
            else:
                await memory.commit(job, entries, noted, held, instead=old)
        return noted.why

    async def _reflect_again(self, job: Job, old: Observation) -> str:
        """Return why it came to nothing; empty if it is done."""
        log, memory = self.log, self.memory
        rows = await log.store.observations(log.lease.thread_id, ids=old.parts)
        by_id = {row.id: observation_of(row) for row in rows}
        reflection = condensing(tuple(by_id[part] for part in old.parts))
        held = Amount(*memory.reflector.bound(reflection))
        async with reserve_and_settle(log, held):
            done = await self._condensed(reflection, memory.reflector)
            if done.why:
                await memory.book(done.calls, REFLECT, held, lost=done.lost)
            else:
                await memory.commit_reflection(job, reflection, done, held, again=True)
        return done.why

    def _tell(self, purpose: str, tokens: int, *, again: bool = False) -> None:
        """Tell whoever listens what begins now."""
        data = {"purpose": purpose, "tokens": tokens, "again": again}
        self.log.tell(NewEvent("memory", data=data))

    # Jobs

    def _claimed(self, kind: str, key: str) -> AbstractAsyncContextManager[Job | None]:
        seconds = self.memory.deadline + CLAIM_SECONDS
        return claim_memory_job(self.log, kind, key, seconds=seconds, retry_after=RETRY_SECONDS)

    async def _wait_for_others(self) -> None:
        # It is done already, or whoever claimed it has died; then the claim has to expire.
        await self._rest()
        await self.memory.load()
