"""Observational memory at work: jobs in the background, and what they prepared at hand.

One worker a run, in the run's task group.  It observes the oldest chunk that is due, commits the
observation together with the end of its job, and looks for the next; it never raises into the run
and never makes a step wait.  Whatever fails is written by rules instead, and marked provisional.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import anyio

from agent_runtime.branch import observation_of
from agent_runtime.budget import usage_of
from agent_runtime.errors import BudgetExceeded, Conflict, LeaseLost, StoreUnavailable
from agent_runtime.log import RunLog
from agent_runtime.messages import AssistantMessage
from agent_runtime.view import Cause, Entry, View
from agent_runtime_storage.records import Amount, Job, NewEvent, Usage

from .bands import Bands, Raw, covered, late, measure, next_chunk, ripe
from .ledger import TOKENS_PER_THOUSAND, Passage, compile_ledger
from .observation import Line, Notes, Observation
from .observer import Call, Interval, NotObserved, Observed, Observer
from .recent import last_exchange
from .reflector import (
    Reflected,
    Reflection,
    Reflector,
    plan_reflection,
    reflected,
    replaced,
    size_of,
)

_log = logging.getLogger(__name__)

OBSERVE, REFLECT = "observe", "reflect"
"""The kinds of the jobs."""
CLAIM_SECONDS = 30.0
"""How much longer than the Observer's deadline a claim lasts."""
RETRY_SECONDS = 5.0
"""How long the worker waits after the store, or another claim, was in its way."""
CUT_AGAIN = 1.1
"""By how much raw messages have to grow before old tool output is cut once more."""
AT_ONCE = 20
"""How many nodes are observed together where the window is full."""
GRACE_SECONDS = 5.0
"""How much longer than its deadline an Observer is waited for."""
NOTHING = Line("", "info", "Nothing worth a note happened here.")


@dataclass(slots=True)
class Memory:
    """The observational memory of one run.

    Attributes:
        bands: its thresholds, within the model's window.
        observer: who writes the observations.
        fallback: who writes them where the observer cannot: by rules, without a model.
        deadline: seconds that an observation may take.
        reflector: who condenses observations, and who does it by rules.
        ratio: gives how many of the provider's tokens one of ours is.
        prepared: observations that are committed and not active on the branch yet.
        reflections: those that stand for other observations, whether active or not.
    """

    log: RunLog
    bands: Bands
    observer: Observer
    fallback: Observer
    reflector: Reflector
    folder: Reflector
    deadline: float
    ratio: Callable[[], float]
    prepared: list[Observation] = field(default_factory=list[Observation])
    reflections: list[Observation] = field(default_factory=list[Observation])
    _cut_at: float = 0.0
    _stale: bool = False
    """Whether others have written observations since they were read."""
    _woken: anyio.Event = field(default_factory=anyio.Event)

    # For the loop

    def raw(self, view: View) -> Raw:
        """Return the raw nodes of a view, measured."""
        return measure(view.entries, self.prepared, self.ratio(), view.anchor)

    def ready(self, view: View) -> list[Observation]:
        """Return the observations that can take the place of the view's oldest raw nodes."""
        return covered(view.entries, self.prepared)[0]

    def standing(self, view: View) -> tuple[Observation, ...]:
        """Return the observations with which the next activation begins."""
        present = (*view.observations, *self.ready(view))
        if sum(map(size_of, present)) <= self._limit:
            return present
        return replaced(present, self.reflections)

    @property
    def _limit(self) -> int:
        """R, in our tokens."""
        return int(self.bands.reflect / self.ratio())

    def due(self, view: View, *, cold: bool = False) -> Cause | None:
        """Return why observational memory wants the prompt to begin anew, or None.

        Args:
            cold: whether the provider's cache has expired, so that all is written anew anyway.
        """
        raw = self.raw(view)
        if cause := ripe(raw, self.bands):
            return cause
        if cold and raw.prepared:
            return "idle"
        if late(raw, self.bands) and raw.total >= self._cut_at:
            self._cut_at = raw.total * CUT_AGAIN
            return "late"
        return None

    def activated(self) -> None:
        """Forget what is active now, and look what is due next."""
        seen = set(self.log.view.start.observed)
        self.prepared = [one for one in self.prepared if one.id not in seen]
        self.wake()

    async def observe_now(self, view: View) -> bool:
        """Have the oldest raw nodes observed by rules at once; False if none may leave."""
        raw = self.raw(view)
        end = max(last_exchange(view.entries), 0)
        chunk = view.entries[raw.prepared : max(raw.prepared, min(end, raw.prepared + AT_ONCE))]
        while chunk and not view.entries[raw.prepared + len(chunk)].prompt:
            chunk = chunk[:-1]
        if not chunk:
            return False
        seen = await self.fallback.observe(Interval(chunk, self._earlier(chunk)))
        await self._commit(None, chunk, seen, True, "The window was full.")
        return True

    async def reflect_now(self, view: View) -> bool:
        """Condense the oldest observations by rules at once; False if nothing is gained."""
        present = replaced((*view.observations, *self.ready(view)), self.reflections)
        reflection = plan_reflection(present, sum(map(size_of, present)) // 2)
        if reflection is None:
            return False
        done = await reflected(reflection, self.folder, self.folder, deadline=self.deadline)
        if done.observation.tokens >= _tokens_of(done.observation.parts, reflection):
            return False
        await self._commit_reflection(None, reflection, done)
        return True

    def wake(self) -> None:
        """Have the worker look whether something is due."""
        self._woken.set()

    async def load(self) -> None:
        """Read what earlier runs prepared."""
        view = self.log.view
        await self.log.count_observations()
        if not view.entries:
            return
        raw = view.entries[0].seq
        rows = await self.log.store.observations(
            self.log.lease.thread_id,
            ending_from=view.observations[0].first if view.observations else raw,
        )
        found = [observation_of(row) for row in rows]
        self.prepared = [one for one in found if not one.level and one.last >= raw]
        self.reflections = [one for one in found if one.level]

    # The worker

    async def work(self) -> None:
        """Observe what is due, for as long as the run goes on; end by cancelling it."""
        while True:
            try:
                while await self._next():
                    continue
            except StoreUnavailable:
                await anyio.sleep(RETRY_SECONDS)
                continue
            except LeaseLost:
                # The run's own next write says so to whoever runs it.
                return
            except Conflict:
                # Somebody else observed the same meanwhile.
                await anyio.sleep(RETRY_SECONDS)
                self._stale = True
                continue
            except Exception as error:
                # Memory never fails a turn: what is raw stays raw, and is tried again.
                _log.warning("Observational memory failed: %s", type(error).__name__)
                await anyio.sleep(RETRY_SECONDS)
                continue
            await self._woken.wait()
            self._woken = anyio.Event()

    async def _next(self) -> bool:
        """Do what is due next; False if nothing is."""
        if self._stale:
            await self.load()
            self._stale = False
        view = self.log.view
        if chunk := next_chunk(self.raw(view), self.bands):
            await self._observe(chunk)
            return True
        present = replaced((*view.observations, *self.ready(view)), self.reflections)
        reflection = plan_reflection(present, self._limit)
        if reflection is None:
            return False
        await self._reflect(reflection)
        return True

    async def _claim(self, kind: str, key: str) -> Job | None:
        store, thread = self.log.store, self.log.lease.thread_id
        await store.enqueue(thread, kind, key, b"")
        seconds = self.deadline + CLAIM_SECONDS
        job = await store.claim(kind, seconds=seconds, thread_id=thread, key=key)
        if job is None:
            # It is done already, or whoever claimed it has died; then the claim has to expire.
            await anyio.sleep(RETRY_SECONDS)
            await self.load()
        return job

    async def _reflect(self, reflection: Reflection) -> None:
        key = ",".join(str(part.id) for part in reflection.parts)
        job = await self._claim(REFLECT, key)
        if job is None:
            return
        held = Amount(*self.reflector.bound(reflection))
        reflector = self.reflector
        try:
            await self.log.hold(held)
        except BudgetExceeded:
            reflector, held = self.folder, None
        deadline = self.deadline + GRACE_SECONDS
        done = await reflected(reflection, reflector, self.folder, deadline=deadline)
        await self._commit_reflection(job, reflection, done, held)

    async def _commit_reflection(
        self,
        job: Job | None,
        reflection: Reflection,
        done: Reflected,
        held: Amount | None = None,
    ) -> None:
        written, lease = done.observation, self.log.lease
        usage = [
            memory_usage(call, REFLECT, lease.run_id, lease.root_run_id, written.last)
            for call in done.calls
        ]
        event = _event(written, reflection.tokens, done.why)
        kept = await self.log.remember(
            written, job, usage=usage, event=event, held=held, lost=_unreported(done.calls)
        )
        self.reflections.append(kept)

    async def _observe(self, entries: tuple[Entry, ...]) -> None:
        job = await self._claim(OBSERVE, f"{entries[0].seq}-{entries[-1].seq}")
        if job is None:
            return
        interval = Interval(entries, self._earlier(entries))
        held = Amount(*self.observer.bound(interval))
        try:
            await self.log.hold(held)
        except BudgetExceeded as error:
            seen = await self.fallback.observe(interval)
            await self._commit(job, entries, seen, False, error.message)
            return
        seen, provisional, why = await self._notes(interval)
        await self._commit(job, entries, seen, provisional, why, held)

    def _earlier(self, entries: Sequence[Entry]) -> tuple[Observation, ...]:
        ready = [one for one in self.ready(self.log.view) if one.last < entries[0].seq]
        return (*self.log.view.observations, *ready)

    async def _notes(self, interval: Interval) -> tuple[Observed, bool, str]:
        """Return what was observed, whether it is provisional, and why."""
        why = f"It took longer than {self.deadline:g} seconds."
        calls: tuple[Call, ...] = ()
        # Observers keep to the deadline themselves, and say what it cost; this is for one that
        # hangs.
        with anyio.move_on_after(self.deadline + GRACE_SECONDS):
            try:
                return await self.observer.observe(interval), False, ""
            except NotObserved as error:
                why, calls = error.message, error.calls
            except Exception as error:
                # A mistake of who wrote the Observer must not end the run.
                why = f"Unexpected {type(error).__name__}."
        by_rules = await self.fallback.observe(interval)
        return Observed(by_rules.notes, calls, by_rules.origin), True, why

    async def _commit(
        self,
        job: Job | None,
        entries: tuple[Entry, ...],
        seen: Observed,
        provisional: bool,
        why: str,
        held: Amount | None = None,
    ) -> None:
        written = self._write(entries, seen, provisional)
        lease = self.log.lease
        usage = [
            memory_usage(call, OBSERVE, lease.run_id, lease.root_run_id, written.last)
            for call in seen.calls
        ]
        event = _event(written, sum(entry.tokens for entry in entries), why)
        kept = await self.log.remember(
            written, job, usage=usage, event=event, held=held, lost=_unreported(seen.calls)
        )
        self.prepared.append(kept)

    def _write(self, entries: tuple[Entry, ...], seen: Observed, provisional: bool) -> Observation:
        """Return the observation of the entries, not committed yet."""
        active = (*self.log.view.observations, *self.prepared)
        listed = "\n".join(name for one in active for name in one.ledger)
        budget = sum(entry.tokens for entry in entries) * TOKENS_PER_THOUSAND // 1000
        return Observation(
            id=0,
            level=0,
            parent_id=entries[0].parent_id,
            first=entries[0].seq,
            last=entries[-1].seq,
            notes=seen.notes or Notes((NOTHING,)),
            ledger=compile_ledger(passages(entries), budget, listed=listed),
            origin=seen.origin,
            provisional=provisional,
            model=seen.model,
        )


def _tokens_of(parts: Sequence[int], reflection: Reflection) -> int:
    """Return the tokens of what was replaced: an archive note may stand for fewer parts."""
    return sum(part.tokens for part in reflection.parts if part.id in parts)


def _unreported(calls: Sequence[Call]) -> bool:
    """Return whether an attempt may be billed of which nobody reported the usage."""
    return any(call.answer.usage is None or call.answer.lost for call in calls)


def _event(written: Observation, of: int, why: str) -> NewEvent:
    data = {
        "level": written.level,
        "first": written.first,
        "last": written.last,
        "tokens": written.tokens,
        "of": of,
        "origin": written.origin,
        "provisional": written.provisional,
        "why": why,
    }
    return NewEvent("observation", written.last, data)


def memory_usage(
    call: Call, purpose: str, run_id: str, root_run_id: str, node_id: int | None
) -> Usage:
    """Return the usage row of a model call that memory made for a run."""
    row = usage_of(
        call.answer,
        run_id=run_id,
        root_run_id=root_run_id,
        node_id=node_id,
        counted=call.counted,
        bound=Amount(call.counted, 0),
    )
    return replace(row, purpose=purpose)


def passages(entries: Sequence[Entry]) -> list[Passage]:
    """Return what the ledger is made of: what was said and called, and what came back."""
    found: list[Passage] = []
    for entry in entries:
        message = entry.message
        found.append(Passage(message.text, own=True))
        if isinstance(message, AssistantMessage):
            found += [
                Passage("\n".join(_strings(call.arguments)), own=True) for call in message.calls
            ]
        found += [Passage(result.text, own=False) for result in entry.results]
    return found


def _strings(value: object) -> Iterator[str]:
    """Yield the texts of a JSON value, as they are, not as JSON escapes them."""
    match value:
        case str():
            yield value
        case dict():
            for one in cast("dict[str, object]", value).values():
                yield from _strings(one)
        case list():
            for one in cast("list[object]", value):
                yield from _strings(one)
        case None:
            return
        case _:
            yield str(value)
