"""Observational memory at work: jobs in the background, and what they prepared at hand.

One worker a run, in the run's task group.  It observes the oldest chunk that is due, commits the
observation together with the end of its job, and looks for the next; it never raises into the run
and never makes a step wait.  Whatever fails is written by rules instead, and marked provisional.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from agent_runtime.budget import usage_of
from agent_runtime.errors import AgentRuntimeError, BudgetExceeded, LeaseLost, StoreUnavailable
from agent_runtime.log import RunLog
from agent_runtime.messages import AssistantMessage, UserMessage
from agent_runtime.tokens import count_text
from agent_runtime.view import Entry, View
from agent_runtime_storage.records import Amount, Job, NewEvent, NewObservation, Usage

from .bands import Bands, Raw, covered, measure, next_chunk
from .ledger import TOKENS_PER_THOUSAND, Passage, compile_ledger
from .observation import Notes, Observation, decode_body, encode_body
from .observer import Call, Interval, NotObserved, Observed, Observer

OBSERVE = "observe"
"""The kind of the jobs."""
CLAIM_SECONDS = 30.0
"""How much longer than the Observer's deadline a claim lasts."""
RETRY_SECONDS = 5.0
"""How long the worker waits after the store, or another claim, was in its way."""
EARLIER = 3
"""How many of the newest observations an Observer is given at most."""


@dataclass(slots=True)
class Memory:
    """The observational memory of one run.

    Attributes:
        bands: its thresholds, within the model's window.
        observer: who writes the observations.
        fallback: who writes them where the observer cannot: by rules, without a model.
        deadline: seconds that an observation may take.
        ratio: gives how many of the provider's tokens one of ours is.
        prepared: observations that are committed and not active on the branch yet.
    """

    log: RunLog
    bands: Bands
    observer: Observer
    fallback: Observer
    deadline: float
    ratio: Callable[[], float]
    prepared: list[Observation] = field(default_factory=list[Observation])
    _woken: anyio.Event = field(default_factory=anyio.Event)

    # For the loop

    def raw(self, view: View) -> Raw:
        """Return the raw nodes of a view, measured."""
        return measure(view.entries, self.prepared, self.ratio())

    def ready(self, view: View) -> list[Observation]:
        """Return the observations that can take the place of the view's oldest raw nodes."""
        return covered(view.entries, self.prepared)[0]

    def wake(self) -> None:
        """Have the worker look whether something is due."""
        self._woken.set()

    async def load(self) -> None:
        """Read what earlier runs prepared."""
        view = self.log.view
        if view.entries:
            rows = await self.log.store.observations(
                self.log.lease.thread_id, ending_from=view.entries[0].seq
            )
            self.prepared = [
                decode_body(
                    row.body,
                    identity=row.id,
                    level=row.level,
                    parent_id=row.parent_id,
                    first=row.first,
                    last=row.last,
                    parts=row.parts,
                    provisional=row.provisional,
                )
                for row in rows
                if not row.level
            ]

    # The worker

    async def work(self) -> None:
        """Observe what is due, for as long as the run goes on; end by cancelling it."""
        await self.load()
        while True:
            try:
                while chunk := next_chunk(self.raw(self.log.view), self.bands):
                    await self._observe(chunk)
            except (StoreUnavailable, BudgetExceeded):
                await anyio.sleep(RETRY_SECONDS)
                continue
            except LeaseLost:
                # The run's own next write says so to whoever runs it.
                return
            await self._woken.wait()
            self._woken = anyio.Event()

    async def _observe(self, entries: tuple[Entry, ...]) -> None:
        store, thread = self.log.store, self.log.lease.thread_id
        key = f"{entries[0].seq}-{entries[-1].seq}"
        await store.enqueue(thread, OBSERVE, key, b"")
        seconds = self.deadline + CLAIM_SECONDS
        job = await store.claim(OBSERVE, seconds=seconds, thread_id=thread, key=key)
        if job is None:
            # It is done already, or whoever claimed it has died; then the claim has to expire.
            await self.load()
            if next_chunk(self.raw(self.log.view), self.bands) == entries:
                await anyio.sleep(RETRY_SECONDS)
            return
        seen, provisional, why = await self._notes(Interval(entries, self._earlier(entries)))
        await self._commit(job, entries, seen, provisional, why)

    def _earlier(self, entries: Sequence[Entry]) -> tuple[Observation, ...]:
        ready = [one for one in self.ready(self.log.view) if one.last < entries[0].seq]
        return (*self.log.view.observations, *ready)[-EARLIER:]

    async def _notes(self, interval: Interval) -> tuple[Observed, bool, str]:
        """Return what was observed, whether it is provisional, and why."""
        why = f"It took longer than {self.deadline:g} seconds."
        calls: tuple[Call, ...] = ()
        with anyio.move_on_after(self.deadline):
            try:
                return await self.observer.observe(interval), False, ""
            except NotObserved as error:
                why, calls = error.message, error.calls
        by_rules = await self.fallback.observe(interval)
        return Observed(by_rules.notes, calls, by_rules.origin), True, why

    async def _commit(
        self,
        job: Job,
        entries: tuple[Entry, ...],
        seen: Observed,
        provisional: bool,
        why: str,
    ) -> None:
        observation = self._observation(entries, seen, provisional)
        usage, spent, unsettled = self._costs(seen.calls)
        data = {
            "first": observation.first,
            "last": observation.last,
            "tokens": observation.tokens,
            "of": sum(entry.tokens for entry in entries),
            "origin": observation.origin,
            "provisional": provisional,
            "why": why,
        }
        new = NewObservation(
            id=self.log.last_observation + 1,
            level=0,
            parent_id=observation.parent_id,
            first=observation.first,
            last=observation.last,
            body=encode_body(observation),
            tokens=observation.tokens,
            provisional=provisional,
        )
        event = NewEvent("observation", observation.last, data)
        identity = await self.log.remember(
            new, job, usage=usage, settle=spent, unsettle=unsettled, event=event
        )
        self.prepared.append(_with_id(observation, identity))
