"""A run's observational memory: what is prepared, what is active, and what is due.

The loop asks it when to activate and with which observations; the `MemoryWorker` asks it what to
observe and to condense, and commits the results through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from agent_runtime.log.branch import observation_of
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory import accounting
from agent_runtime.memory.observational.gaps import (
    PastNodes,
    observed_throughout,
    read_past,
    stretch_to_observe,
    unbroken_rows,
)
from agent_runtime.memory.observational.ledgers import first_sent, ledger_of_nodes
from agent_runtime.memory.observational.observer.base import (
    MemoryCall,
    Observer,
    ObserverInput,
    ObserverResult,
)
from agent_runtime.memory.observational.observer.slots.extract import slots_of_nodes
from agent_runtime.memory.observational.records import (
    observation_event,
    unreported,
    usage_rows,
)
from agent_runtime.memory.observational.reflector.base import (
    GROWTH,
    START,
    Reflection,
    ReflectionOutcome,
    Reflector,
    apply_reflections,
    plan_reflection,
    reflect_or_fallback,
    size_of,
)
from agent_runtime.memory.observational.thresholds import (
    LEAST_CUT,
    MemoryThresholds,
    RawNodes,
    activation_due,
    measure,
    movable,
    observations_late,
)
from agent_runtime.prompt.constraints import stated
from agent_runtime.prompt.observation import Observation, ObservationLine, ObservationNotes
from agent_runtime.prompt.view import ActivationCause, Entry, Gap, View
from agent_runtime.prompt.window import covered, last_exchange, saved_by_cuts
from agent_runtime_storage.contract.records.log import Amount, Job, NewEvent

OBSERVE, REFLECT = "observe", "reflect"
"""Kinds of jobs, and purposes of usage rows."""
AT_ONCE = 20
"""Nodes that one observation by rules covers when the window is full."""
NOTHING = ObservationLine("", "info", "Nothing worth a note happened here.")


@dataclass(frozen=True, slots=True)
class ObservationOutcome:
    """Outcome of an Observer call.

    Attributes:
        why: why the Observer's notes are not used; empty if they are.
        lost: whether some billed usage is unknown.
    """

    result: ObserverResult = field(default_factory=lambda: ObserverResult(None))
    provisional: bool = False
    why: str = ""
    lost: bool = False


@dataclass(slots=True)
class ObservationalMemory:
    """The observational memory of one run.

    Attributes:
        thresholds: T, R and N, within the model's window.
        observer: writes the observations.
        rule_observer: writes them without a model, where `observer` fails.
        reflector: condenses observations.
        rule_reflector: condenses them without a model, where `reflector` fails.
        deadline: seconds that one observation or reflection may take.
        ratio: returns the provider's tokens per token of our count.
        prepared: observations that are committed and not yet active on the branch.
        reflections: observations that replace others, active or not.
        written: observations that this run committed.
        past: the nodes before the raw ones, until all of them are observed.
        woken: set when there may be work.
        resting: condense nothing below this many tokens of observations, because the last attempt
            made no progress.
    """

    log: RunLog
    thresholds: MemoryThresholds
    observer: Observer
    rule_observer: Observer
    reflector: Reflector
    rule_reflector: Reflector
    deadline: float
    ratio: Callable[[], float]
    prepared: list[Observation] = field(default_factory=list[Observation])
    reflections: list[Observation] = field(default_factory=list[Observation])
    written: list[Observation] = field(default_factory=list[Observation])
    past: PastNodes | None = None
    woken: anyio.Event = field(default_factory=anyio.Event)
    resting: int = 0
    _measured: tuple[View, object, RawNodes] | None = None
    """The last view, what else its measure depends on, and the measure: a step asks often."""

    @property
    def limit(self) -> int:
        """R, in our tokens."""
        return int(self.thresholds.reflect / self.ratio())

    @property
    def constraint_tokens(self) -> int:
        """Tokens of the prompt, in our count, that the user's constraints may take."""
        return int(self.limit * self.thresholds.required)

    # For the loop: when to activate, and with what

    def due(self, view: View, *, cold: bool = False) -> ActivationCause | None:
        """Return why observational memory wants an activation, or None.

        Args:
            cold: whether the provider's cache has expired, so that a rewrite costs nothing extra.
        """
        if self._catches_up(view):
            return "observed"
        raw = self.raw(view)
        if cause := activation_due(raw, self.thresholds):
            return cause
        if cold and raw.prepared:
            return "idle"
        saves = observations_late(raw, self.thresholds) and saved_by_cuts(view) * self.ratio()
        return "late" if saves >= self.thresholds.observe * LEAST_CUT else None

    def _catches_up(self, view: View) -> bool:
        """Return whether an activation should show observations of the gaps.

        True once half of what is missing is observed, so that even a long gap closes in a few
        rewrites, and where the prompt does not name its gaps.
        """
        if self.past is None:
            return False
        unobserved = self.gaps(view.observations)
        missing = sum(gap.size for gap in unobserved)
        filled = missing - sum(gap.size for gap in self.gaps(self.present(view)))
        return unobserved != view.start.gaps or (filled > 0 and 2 * filled >= missing)

    def raw(self, view: View) -> RawNodes:
        """Return the raw nodes of a view, measured."""
        given = (self.ratio(), self.thresholds, tuple(self.prepared))
        known = self._measured
        if known is None or known[0] is not view or known[1] != given:
            raw = measure(view.entries, self.ready(view), given[0], view.anchor)
            self._measured = known = (view, given, raw)
        return known[2]

    def sizes(self, view: View) -> tuple[int, int]:
        """Return the provider's tokens of the raw nodes and of the active observations."""
        raw = sum(entry.tokens for entry in view.entries)
        observed = sum(map(size_of, view.observations))
        return round(raw * self.ratio()), round(observed * self.ratio())

    def ready(self, view: View) -> list[Observation]:
        """Return the prepared observations that can replace the view's oldest raw nodes.

        After a fork they may reach up to the head, so the last exchange is excluded, as are the
        recent messages of a chat.
        """
        # Without prepared ones: how many of these count is what is being asked.
        raw = measure(view.entries, (), self.ratio(), view.anchor)
        # In a chat the last exchange, if there is any, may lie far back; then `movable` decides.
        end = max(movable(raw, self.thresholds), last_exchange(view.entries))
        return covered(view.entries[:end], self.prepared)[0]

    def present(self, view: View) -> list[Observation]:
        """Return the active observations, those that fill their gaps, and the ready ones."""
        filling = self.past.filling(view.observations, self.prepared) if self.past else ()
        present = (*view.observations, *filling, *self.ready(view))
        return sorted(present, key=lambda one: one.first)

    def gaps(self, active: Sequence[Observation]) -> tuple[Gap, ...]:
        """Return the nodes that are neither raw nor covered by these observations."""
        return self.past.gaps(active) if self.past else ()

    def standing(self, view: View) -> tuple[Observation, ...]:
        """Return the observations with which the next activation begins.

        Reflections replace their parts only above R, so that the front of the prompt stays stable.
        """
        present = self.best(self.present(view))
        if sum(map(size_of, present)) <= self.limit:
            return present
        return self.condensing(view)

    def activated(self) -> None:
        """Forget the observations that have become active, and wake the worker."""
        view = self.log.view
        if self.past and not self.gaps(view.observations):
            self.past = None
        # What ends before the raw nodes is active now, or replaces a provisional observation.
        reached = view.observations[-1].last if view.observations else 0
        provisional = {one.first for one in view.observations if one.provisional}
        self.prepared = [
            one
            for one in self.prepared
            if self.past or one.last > reached or (one.first in provisional and not one.provisional)
        ]
        self.wake()

    # For the worker: what to condense

    def condensing(self, view: View) -> tuple[Observation, ...]:
        """Return the present observations with every known reflection applied."""
        present = self.present(view)
        # The parts of a reflection are provisional observations, or what a model later wrote in
        # place of those.  So reflections are applied before and after `best` replaces them.
        standing = self.best(apply_reflections(present, self.reflections))
        return apply_reflections(standing, self.reflections)

    def best(self, present: Sequence[Observation]) -> tuple[Observation, ...]:
        """Return observations, provisional ones replaced by what a model wrote since."""
        better = {
            (one.level, one.first, one.last): one
            for one in (*self.prepared, *self.reflections)
            if not one.provisional
        }
        return tuple(
            better.get((one.level, one.first, one.last), one) if one.provisional else one
            for one in present
        )

    def to_condense(self, view: View) -> Reflection | None:
        """Return what to condense; None if nothing is due or there is nothing new to try."""
        present = self.condensing(view)
        total = sum(map(size_of, present))
        # Above R something has to leave even if the last attempt made no progress: then it is
        # archived.
        if total < self.resting and total <= self.limit:
            return None
        return self.reflection(view, present, self.limit)

    def reflection(
        self, view: View, present: Sequence[Observation], limit: int
    ) -> Reflection | None:
        """Return what to condense, never across a gap: the longest unbroken row first.

        Args:
            limit: R, in our tokens, for all observations together.
        """
        stated, rows = self.stated(view), unbroken_rows(present)
        if len(rows) < 2:
            return plan_reflection(present, limit, stated=stated)
        total = sum(map(size_of, present))
        if total < limit * START:
            return None
        for row in sorted(rows, key=lambda row: -sum(map(size_of, row))):
            # The other rows take their share of R first.  At least a quarter is left, or this row
            # would pay for all of them and be condensed whole.
            own = limit - total + sum(map(size_of, row))
            own = max(own, limit // 4)
            if reflection := plan_reflection(row, own, stated=stated, due=True):
                # Whether to archive depends on the room of all rows together.
                room = total <= limit
                return replace(reflection, room=room, excess=0 if room else reflection.excess)
        return None

    def stated(self, view: View) -> tuple[str, ...]:
        """Return the constraints that prompts show apart from the observations."""
        return stated(view.start.constraints, first=view.start.first, task=view.start.task)

    def rest(self, view: View) -> None:
        """Condense nothing until there are more observations, or more than R."""
        total = sum(map(size_of, self.condensing(view)))
        # Counted from what there is now, so that each failed attempt is followed by a pause of
        # the same size.
        self.resting = total + int(self.limit * GROWTH)

    # For the loop when the window is full: by rules, at once

    async def observe_now(self, view: View) -> bool:
        """Observe the oldest raw nodes by rules; return False if none may leave."""
        raw = self.raw(view)
        end = max(last_exchange(view.entries), 0)
        chunk = view.entries[raw.prepared : max(raw.prepared, min(end, raw.prepared + AT_ONCE))]
        # A note inside an exchange's last result stays with that exchange.
        while chunk and not view.entries[raw.prepared + len(chunk)].prompt:
            chunk = chunk[:-1]
        if not chunk:
            return False
        result = await self.rule_observer.observe(ObserverInput(chunk, self.earlier(chunk)))
        outcome = ObservationOutcome(result, provisional=True, why="The window was full.")
        await self.commit(None, chunk, outcome)
        return True

    async def reflect_now(self, view: View) -> bool:
        """Condense the oldest observations by rules; return False if that gains nothing."""
        present = self.condensing(view)
        # Half of what there is, not R: the window is the limit here, and R may be far away.
        reflection = self.reflection(view, present, sum(map(size_of, present)) // 2)
        if reflection is None:
            return False
        # The window is full: archive what cannot be condensed, but no more than necessary.
        reflection = replace(reflection, room=False, excess=0)
        done = await reflect_or_fallback(
            reflection, self.rule_reflector, self.rule_reflector, deadline=self.deadline
        )
        if done.observation.tokens >= reflection.tokens_of(done.observation.parts):
            return False
        await self.commit_reflection(None, reflection, done)
        return True

    # Commits

    async def commit(
        self,
        job: Job | None,
        entries: tuple[Entry, ...],
        outcome: ObservationOutcome,
        held: Amount | None = None,
        *,
        instead: Observation | None = None,
    ) -> None:
        """Commit an observation of nodes, its cost and the end of its job.

        Args:
            held: what was reserved for it.
            instead: the provisional observation that it replaces.

        Raises:
            Conflict: somebody else has the job or ended it; nothing was written.
        """
        active = self.present(self.log.view)
        result = outcome.result
        new = Observation(
            id=0,
            level=0,
            parent_id=entries[0].parent_id,
            first=entries[0].seq,
            last=entries[-1].seq,
            notes=result.notes or ObservationNotes((NOTHING,)),
            # The ledger stays when notes are rewritten: later ledgers leave out what it lists.
            ledger=instead.ledger if instead else await ledger_of_nodes(entries, active),
            # Rules make them whoever observes, and from the nodes alone.
            slots=await slots_of_nodes(entries, by_model=result.origin == "model"),
            origin=result.origin,
            provisional=outcome.provisional,
            model=result.model,
        )
        # Entries that were read from the store, outside of a view, are not counted yet.
        tokens = sum(entry.tokens for entry in entries) or first_sent(entries)
        event = observation_event(new, tokens, outcome.why, again=instead is not None)
        committed = await self._commit(job, new, event, result.calls, held, lost=outcome.lost)
        # An activation in the meantime has replaced the list, so it is read only now.
        self.prepared.append(committed)

    async def commit_reflection(
        self,
        job: Job | None,
        reflection: Reflection,
        done: ReflectionOutcome,
        held: Amount | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Commit a reflection, its cost and the end of its job; see `commit`."""
        event = observation_event(done.observation, reflection.tokens, done.why, again=again)
        new, calls = done.observation, done.calls
        committed = await self._commit(job, new, event, calls, held, lost=done.lost)
        # `load` may have replaced the list in the meantime, so it is read only now.
        self.reflections.append(committed)

    async def _commit(
        self,
        job: Job | None,
        new: Observation,
        event: NewEvent,
        calls: Sequence[MemoryCall],
        held: Amount | None,
        *,
        lost: bool,
    ) -> Observation:
        usage = usage_rows(self.log, calls, REFLECT if new.level else OBSERVE, new.last)
        lost = lost or unreported(calls)
        committed = await accounting.commit_observation(
            self.log, new, job, usage=usage, event=event, held=held, lost=lost
        )
        self.written.append(committed)
        return committed

    async def record_failure(
        self, calls: Sequence[MemoryCall], purpose: str, held: Amount, *, lost: bool
    ) -> None:
        """Record the cost of calls that gave no observation."""
        usage = usage_rows(self.log, calls, purpose, None)
        await accounting.record_failed_calls(
            self.log, usage, held=held, lost=lost or unreported(calls)
        )

    # For the worker: what to observe

    def earlier(self, entries: Sequence[Entry]) -> tuple[Observation, ...]:
        """Return the observations of what happened before these nodes."""
        present = self.present(self.log.view)
        return tuple(one for one in present if one.last < entries[0].seq)

    async def next_of_past(self, view: View) -> tuple[Entry, ...]:
        """Return a chunk of the oldest nodes that left the prompt unobserved.

        They left while observational memory was off; empty if there are none.
        """
        if self.past is None or not (seqs := self.past.next(self.present(view))):
            return ()
        nodes = await self.log.store.log.branch(self.log.lease.thread_id, seqs[-1], first=seqs[0])
        return await stretch_to_observe(nodes, view.start, self.thresholds.observe / self.ratio())

    def wake(self) -> None:
        """Have the worker look for work."""
        self.woken.set()

    async def load(self) -> None:
        """Read the observations that earlier runs, or other processes, have prepared."""
        view = self.log.view
        if not view.entries:
            return
        raw = view.entries[0].seq
        store, thread_id = self.log.store, self.log.lease.thread_id
        if self.past is None and not observed_throughout(view):
            self.past = await read_past(store, thread_id, view)
        # From the first active one on: a reflection may replace any of them. With gaps, the whole
        # branch: stored observations may fill them.
        reached = view.observations[0].first if view.observations else raw
        rows = await store.log.observations(thread_id, ending_from=0 if self.past else reached)
        read = {row.id for row in rows}
        # What was committed during the read is not among the rows.
        since = [one for one in (*self.prepared, *self.reflections) if one.id not in read]
        known = sorted((*map(observation_of, rows), *since), key=lambda one: one.id)
        provisional = {one.first for one in view.observations if one.provisional}
        self.prepared = [
            one
            for one in known
            if not one.level and (self.past or one.last >= raw or one.first in provisional)
        ]
        self.reflections = [one for one in known if one.level]
