"""Observational memory: what is prepared, what stands in prompts, and what is due.

A `Worker` prepares observations in the background; here is what the loop asks of them, and how
they are committed.  Whatever fails is written by rules instead, and marked provisional.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from agent_runtime.log.branch import observation_of
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory import accounting as keeping
from agent_runtime.memory.observational.gaps import (
    PastNodes,
    in_a_row,
    observed_throughout,
    read_past,
    stretch_to_observe,
)
from agent_runtime.memory.observational.observer.base import (
    MemoryCall,
    Observer,
    ObserverInput,
    ObserverResult,
)
from agent_runtime.memory.observational.records import (
    event_of,
    first_sent,
    ledger_of_nodes,
    unreported,
    usage_rows,
)
from agent_runtime.memory.observational.reflector.base import (
    GROWTH,
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
from agent_runtime_storage.contract.records import Amount, Job, NewEvent, Usage

OBSERVE, REFLECT = "observe", "reflect"
"""The kinds of the jobs, and the purposes of the usage."""
AT_ONCE = 20
"""How many nodes are observed together where the window is full."""
NOTHING = ObservationLine("", "info", "Nothing worth a note happened here.")


@dataclass(frozen=True, slots=True)
class ObservationOutcome:
    """What came of asking the Observer.

    Attributes:
        why: why it is not what it was asked for; empty if it is.
        lost: whether what was billed is not known.
    """

    seen: ObserverResult = field(default_factory=lambda: ObserverResult(None))
    provisional: bool = False
    why: str = ""
    lost: bool = False


@dataclass(slots=True)
class ObservationalMemory:
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
        written: those that this run committed.
        past: the nodes before the raw ones, while observations do not stand for all of them.
        woken: set when there may be something to do.
    """

    log: RunLog
    bands: MemoryThresholds
    observer: Observer
    fallback: Observer
    reflector: Reflector
    folder: Reflector
    deadline: float
    ratio: Callable[[], float]
    prepared: list[Observation] = field(default_factory=list[Observation])
    reflections: list[Observation] = field(default_factory=list[Observation])
    written: list[Observation] = field(default_factory=list[Observation])
    past: PastNodes | None = None
    woken: anyio.Event = field(default_factory=anyio.Event)
    resting: int = 0
    """Below so many tokens of observations none are condensed: it came to nothing not long ago."""

    # What stands, and what is due

    def raw(self, view: View) -> RawNodes:
        """Return the raw nodes of a view, measured."""
        return measure(view.entries, self.ready(view), self.ratio(), view.anchor)

    def sizes(self, view: View) -> tuple[int, int]:
        """Return the tokens of the raw nodes and of the observations, as the provider counts."""
        raw = sum(entry.tokens for entry in view.entries)
        observed = sum(map(size_of, view.observations))
        return round(raw * self.ratio()), round(observed * self.ratio())

    def ready(self, view: View) -> list[Observation]:
        """Return the observations that can take the place of the view's oldest raw nodes.

        Those of a branch that a fork has left may reach to the head: the last exchange stays, and
        of a chat what may not leave.
        """
        raw = measure(view.entries, (), self.ratio(), view.anchor)
        end = max(movable(raw, self.bands), last_exchange(view.entries))
        return covered(view.entries[:end], self.prepared)[0]

    def present(self, view: View) -> list[Observation]:
        """Return what stands, what fills the gaps between that, and what is ready, in order."""
        filling = self.past.filling(view.observations, self.prepared) if self.past else ()
        present = (*view.observations, *filling, *self.ready(view))
        return sorted(present, key=lambda one: one.first)

    def gaps(self, standing: Sequence[Observation]) -> tuple[Gap, ...]:
        """Return what has left the prompt and is in none of these observations."""
        return self.past.gaps(standing) if self.past else ()

    def standing(self, view: View) -> tuple[Observation, ...]:
        """Return the observations with which the next activation begins.

        Those that a model has written again stand there in the place of the provisional ones.
        """
        present = self.best(self.present(view))
        if sum(map(size_of, present)) <= self.limit:
            return present
        return self.condensing(view)

    def condensing(self, view: View) -> tuple[Observation, ...]:
        """Return what stands with all reflections that are at hand in the place of their parts."""
        present = self.present(view)
        return apply_reflections(
            self.best(apply_reflections(present, self.reflections)), self.reflections
        )

    def reflection(
        self, view: View, present: Sequence[Observation], limit: int
    ) -> Reflection | None:
        """Return what to condense now, never over a gap: the longest observations in a row first.

        Args:
            limit: R, in our tokens, for all of them together.
        """
        stated, rows = self.stated(view), in_a_row(present)
        if len(rows) < 2:
            return plan_reflection(present, limit, stated=stated)
        total = sum(map(size_of, present))
        for row in sorted(rows, key=lambda row: -sum(map(size_of, row))):
            own = limit - total + sum(map(size_of, row))
            if found := plan_reflection(row, max(own, limit // 4), stated=stated):
                # Whether some are archived depends on the room that all have together.
                room = total <= limit
                return replace(found, room=room, excess=0 if room else found.excess)
        return None

    def to_condense(self, view: View) -> Reflection | None:
        """Return what is to be condensed now; None if nothing is due, or nothing new to try."""
        present = self.condensing(view)
        total = sum(map(size_of, present))
        if total < self.resting and total <= self.limit:
            return None
        return self.reflection(view, present, self.limit)

    def rest(self, view: View) -> None:
        """Condense nothing until there is more, or too much: it came to nothing."""
        total = sum(map(size_of, self.condensing(view)))
        self.resting = total + int(self.limit * GROWTH)

    def stated(self, view: View) -> tuple[str, ...]:
        """Return what prompts say of the user's constraints beside the observations."""
        return stated(view.start.constraints, first=view.start.first, task=view.start.task)

    def best(self, present: Sequence[Observation]) -> tuple[Observation, ...]:
        """Return observations, what a model wrote again in the place of what is provisional."""
        better = {
            (one.level, one.first, one.last): one
            for one in (*self.prepared, *self.reflections)
            if not one.provisional
        }
        return tuple(
            better.get((one.level, one.first, one.last), one) if one.provisional else one
            for one in present
        )

    @property
    def limit(self) -> int:
        """R, in our tokens."""
        return int(self.bands.reflect / self.ratio())

    @property
    def constraint_tokens(self) -> int:
        """What the user's constraints may take of prompts, in our tokens."""
        return int(self.limit * self.bands.required)

    def due(self, view: View, *, cold: bool = False) -> ActivationCause | None:
        """Return why observational memory wants the prompt to begin anew, or None.

        Args:
            cold: whether the provider's cache has expired, so that all is written anew anyway.
        """
        if self._catches_up(view):
            return "observed"
        raw = self.raw(view)
        if cause := activation_due(raw, self.bands):
            return cause
        if cold and raw.prepared:
            return "idle"
        saves = observations_late(raw, self.bands) and saved_by_cuts(view) * self.ratio()
        return "late" if saves >= self.bands.observe * LEAST_CUT else None

    def _catches_up(self, view: View) -> bool:
        """Return whether the prompt is to show what was observed of what it leaves out.

        That is once half of it is observed, so that even a long gap is closed in a few rewrites,
        or where the prompt does not say what it leaves out.
        """
        if self.past is None:
            return False
        left_out = self.gaps(view.observations)
        missing = sum(gap.size for gap in left_out)
        filled = missing - sum(gap.size for gap in self.gaps(self.present(view)))
        return left_out != view.start.gaps or (filled > 0 and 2 * filled >= missing)

    def activated(self) -> None:
        """Forget what is active now, and look what is due next."""
        view = self.log.view
        if self.past and not self.gaps(view.observations):
            self.past = None
        # What ends before the raw nodes is active now, or stands in for what is provisional.
        reached = view.observations[-1].last if view.observations else 0
        kept = {one.first for one in view.observations if one.provisional}
        self.prepared = [
            one
            for one in self.prepared
            if self.past or one.last > reached or (one.first in kept and not one.provisional)
        ]
        self.wake()

    # At once, where the window is full

    async def observe_now(self, view: View) -> bool:
        """Have the oldest raw nodes observed by rules at once; False if none may leave."""
        raw = self.raw(view)
        end = max(last_exchange(view.entries), 0)
        chunk = view.entries[raw.prepared : max(raw.prepared, min(end, raw.prepared + AT_ONCE))]
        while chunk and not view.entries[raw.prepared + len(chunk)].prompt:
            chunk = chunk[:-1]
        if not chunk:
            return False
        seen = await self.fallback.observe(ObserverInput(chunk, self.earlier(chunk)))
        noted = ObservationOutcome(seen, provisional=True, why="The window was full.")
        await self.commit(None, chunk, noted)
        return True

    async def reflect_now(self, view: View) -> bool:
        """Condense the oldest observations by rules at once; False if nothing is gained."""
        present = self.condensing(view)
        reflection = self.reflection(view, present, sum(map(size_of, present)) // 2)
        if reflection is None:
            return False
        # The window is full: what gets no further is archived, but no more than has to be.
        reflection = replace(reflection, room=False, excess=0)
        done = await reflect_or_fallback(
            reflection, self.folder, self.folder, deadline=self.deadline
        )
        if done.observation.tokens >= _tokens_of(done.observation.parts, reflection):
            return False
        await self.commit_reflection(None, reflection, done)
        return True

    # Commits

    async def commit(
        self,
        job: Job | None,
        entries: tuple[Entry, ...],
        noted: ObservationOutcome,
        held: Amount | None = None,
        *,
        instead: Observation | None = None,
    ) -> None:
        """Commit an observation of nodes, with the end of its job.

        Args:
            instead: the provisional observation that it stands in for.
        """
        active = self.present(self.log.view)
        seen = noted.seen
        written = Observation(
            id=0,
            level=0,
            parent_id=entries[0].parent_id,
            first=entries[0].seq,
            last=entries[-1].seq,
            notes=seen.notes or ObservationNotes((NOTHING,)),
            ledger=instead.ledger if instead else await ledger_of_nodes(entries, active),
            origin=seen.origin,
            provisional=noted.provisional,
            model=seen.model,
        )
        of = sum(entry.tokens for entry in entries) or first_sent(entries)
        event = event_of(written, of, noted.why, again=instead is not None)
        lost = noted.lost or unreported(seen.calls)
        kept = await self._remember(written, job, seen.calls, OBSERVE, event, held, lost=lost)
        # Only now: an activation meanwhile has put another list in the place of the old one.
        self.prepared.append(kept)
        self.written.append(kept)

    async def commit_reflection(
        self,
        job: Job | None,
        reflection: Reflection,
        done: ReflectionOutcome,
        held: Amount | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Commit a reflection, with the end of its job."""
        event = event_of(done.observation, reflection.tokens, done.why, again=again)
        lost = done.lost or unreported(done.calls)
        written = done.observation
        kept = await self._remember(written, job, done.calls, REFLECT, event, held, lost=lost)
        self.reflections.append(kept)
        self.written.append(kept)

    async def book(
        self, calls: Sequence[MemoryCall], purpose: str, held: Amount, *, lost: bool
    ) -> None:
        """Record what calls cost that came to nothing."""
        lost = lost or unreported(calls)
        await keeping.record_failed_calls(
            self.log, self._usage(calls, purpose, None), held=held, lost=lost
        )

    async def _remember(
        self,
        written: Observation,
        job: Job | None,
        calls: Sequence[MemoryCall],
        purpose: str,
        event: NewEvent,
        held: Amount | None,
        *,
        lost: bool,
    ) -> Observation:
        usage = self._usage(calls, purpose, written.last)
        return await keeping.commit_observation(
            self.log, written, job, usage=usage, event=event, held=held, lost=lost
        )

    def _usage(self, calls: Sequence[MemoryCall], purpose: str, node_id: int | None) -> list[Usage]:
        lease = self.log.lease
        ids = {"run_id": lease.run_id, "root_run_id": lease.root_run_id}
        return usage_rows(calls, purpose, node_id=node_id, **ids)

    # Beside the loop

    def earlier(self, entries: Sequence[Entry]) -> tuple[Observation, ...]:
        """Return the observations that come before nodes."""
        present = self.present(self.log.view)
        return tuple(one for one in present if one.last < entries[0].seq)

    async def left_out(self, view: View) -> tuple[Entry, ...]:
        """Return the oldest nodes that have left unobserved, a chunk of them; none if there are.

        They left while observational memory was off.
        """
        if self.past is None or not (seqs := self.past.next(self.present(view))):
            return ()
        nodes = await self.log.store.branch(self.log.lease.thread_id, seqs[-1], first=seqs[0])
        return await stretch_to_observe(nodes, view.start, self.bands.observe / self.ratio())

    def wake(self) -> None:
        """Have the worker look whether something is due."""
        self.woken.set()

    async def load(self) -> None:
        """Read what earlier runs prepared."""
        view = self.log.view
        if not view.entries:
            return
        raw = view.entries[0].seq
        store, thread_id = self.log.store, self.log.lease.thread_id
        if self.past is None and not observed_throughout(view):
            self.past = await read_past(store, thread_id, view)
        reached = view.observations[0].first if view.observations else raw
        rows = await store.observations(thread_id, ending_from=0 if self.past else reached)
        read = {row.id for row in rows}
        # What was committed while this was read is not among the rows.
        since = [one for one in (*self.prepared, *self.reflections) if one.id not in read]
        found = sorted((*map(observation_of, rows), *since), key=lambda one: one.id)
        provisional = {one.first for one in view.observations if one.provisional}
        self.prepared = [
            one
            for one in found
            if not one.level and (self.past or one.last >= raw or one.first in provisional)
        ]
        self.reflections = [one for one in found if one.level]


def _tokens_of(parts: Sequence[int], reflection: Reflection) -> int:
    """Return the tokens of what was replaced: an archive note may stand for fewer parts."""
    return sum(part.tokens for part in reflection.parts if part.id in parts)
