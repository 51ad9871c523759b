"""What a Reflector is, and which observations it condenses into one.

`plan_reflection` chooses the oldest observations and a goal, `reflect_or_fallback` has them
condensed whatever fails, and `apply_reflections` replaces them by the result.  The newest
observations are never condensed, so they stay as they are byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import anyio

from agent_runtime.memory.observational.observer.base import MemoryCall, ObserverFailed
from agent_runtime.memory.observational.reflector.archive import (
    archive_of,
    archived,
    covering,
    pointer,
    pointing,
)
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import merge_ledgers
from agent_runtime.prompt.observation import Observation, ObservationNotes, Origin, render_lines
from agent_runtime.prompt.slots import NO_SLOTS, Slots, merge_slots, render_slots

START = 0.85
"""Share of R from which the oldest observations are condensed in the background: what the next
activation adds, about a tenth of R with the defaults, still fits if the reflection is late."""
TARGET = 0.65
"""Share of R to which one reflection shrinks the observations: aiming just below R would rewrite
the prompt's front more often, and condensing all would lose more."""
CONDENSED = 0.4
"""Wanted size of a reflection, as a share of what it replaces."""
PROGRESS = 0.85
"""A reflection larger than this share of what it replaces is no progress."""
NEWEST = 0.2
"""The newest observations, up to this share of R, are not condensed; the last one never is."""
SETTLED = 0.3
"""Earlier reflections, up to this share of R, are left alone: each rewrite loses something."""
SLOTS_KEPT = 0.5
"""Share of the slots' tokens that a reflection keeps: one verdict a check, the newest changes."""
LEDGER_KEPT = 0.6
"""Share of the ledgers' tokens that a reflection keeps."""
ARCHIVED_TO = 0.8
"""If nothing can be condensed above R, the oldest observations are archived to this share of R."""
LEAST_ARCHIVED = 32
"""Tokens of a single observation from which an archive note, which has some 20, is smaller."""
GROWTH = 0.2
"""After a reflection without progress, wait for observations of this share of R."""
GRACE = 1.0
"""Seconds after the deadline in which a Reflector hands over its result and its cost."""
FENCE_TOKENS = 24
"""Tokens of the fence around an observation in a prompt."""


@dataclass(frozen=True, slots=True)
class Reflection:
    """What to condense.

    Attributes:
        parts: consecutive observations, oldest first.
        goal: the wanted tokens of the result, in our count.
        room: whether all observations are within R, so that none is archived.
        excess: the tokens that must leave if they are not.
        stated: constraints that prompts show anyway, so that the result may omit them.
        slots: those of the parts, merged; `goal` and `most` are without their tokens.
    """

    parts: tuple[Observation, ...]
    goal: int
    room: bool = False
    excess: int = 0
    stated: tuple[str, ...] = ()
    slots: Slots = NO_SLOTS

    @property
    def tokens(self) -> int:
        """Tokens of the parts."""
        return sum(part.tokens for part in self.parts)

    def tokens_of(self, ids: Sequence[int]) -> int:
        """Return the tokens of some parts: an archive note may replace fewer than all."""
        return sum(part.tokens for part in self.parts if part.id in ids)

    @property
    def most(self) -> int:
        """The most tokens that are progress, without the line that points to an archive."""
        archive = archive_of(self.parts)
        pointed = count_text(pointer(archive)) + 2 if archive else 0
        return int(self.tokens * PROGRESS) - pointed - slot_tokens(self.slots)


@dataclass(frozen=True, slots=True)
class ReflectionOutcome:
    """Outcome of a reflection.

    Attributes:
        observation: not committed yet; its level is one above that of any part.
        calls: the calls to pay for, including rejected answers.
        why: why it is not the Reflector's own; empty if it is.
        lost: whether some billed usage is unknown.
    """

    observation: Observation
    calls: tuple[MemoryCall, ...] = ()
    why: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ReflectorResult:
    """What a Reflector wrote: with the ledger at most `Reflection.most` tokens."""

    notes: ObservationNotes
    calls: tuple[MemoryCall, ...] = ()
    origin: Origin = "model"
    model: str = ""


class CannotCondense(Exception):
    """Neither the Reflector nor the rules made progress; the observations stay as they are.

    Attributes:
        calls: the calls to pay for.
        lost: whether some billed usage is unknown.
    """

    def __init__(self, message: str, calls: tuple[MemoryCall, ...], *, lost: bool) -> None:
        super().__init__(message)
        self.message, self.calls, self.lost = message, calls, lost


@runtime_checkable
class Reflector(Protocol):
    """Writes notes that replace several observations.

    `reflect` raises only `ObserverFailed`.  It may be cancelled at any time.
    """

    async def reflect(self, reflection: Reflection, ledger: Sequence[str]) -> ReflectorResult:
        """Return notes that, with this ledger, are smaller than the parts."""
        ...

    def bound(self, reflection: Reflection) -> tuple[int, int]:
        """Return upper bounds of the cost: tokens and nanodollars."""
        ...


# What to condense


def size_of(observation: Observation) -> int:
    """Return the tokens that an observation takes of R, in our count."""
    return observation.tokens + FENCE_TOKENS


def plan_reflection(
    observations: Sequence[Observation],
    limit: int,
    *,
    stated: tuple[str, ...] = (),
    due: bool = False,
) -> Reflection | None:
    """Return what to condense now; None if nothing is due or nothing may be condensed.

    Args:
        observations: the active and the prepared ones, in the order of the branch, with
            reflections applied.
        limit: R, in our tokens.
        stated: constraints that prompts show anyway.
        due: whether it is due whatever these have, because others have the rest of R.
    """
    total = sum(map(size_of, observations))
    if total < limit * START and not due:
        return None
    # Above R, what is usually spared is condensed as well.
    over = total > limit
    end = _movable(observations, 0 if over else int(limit * NEWEST))
    start = _settled(observations[:end], 0 if over else int(limit * SETTLED))
    if not _condensable(observations[start:end], over=over):
        start = 0
    if not _condensable(observations[start:end], over=over):
        return None
    excess = total - limit * TARGET
    stop, gained = start, 0.0
    while stop < end and (gained < excess or stop - start < min(2, end - start)):
        # At least two where there are two: condensing one alone gains too little to rewrite the
        # front.
        gained += size_of(observations[stop]) * (1 - CONDENSED)
        stop += 1
    parts = tuple(observations[start:stop])
    # Archiving loses more than condensing, so its goal is less ambitious than `TARGET`.
    excess = max(0, int(total - limit * ARCHIVED_TO)) if over else 0
    return replace(reflection_of(parts), room=not over, excess=excess, stated=stated)


def reflection_of(parts: tuple[Observation, ...]) -> Reflection:
    """Return the reflection of consecutive observations, with the usual goal."""
    slots = slots_of_reflection(parts)
    goal = int(sum(part.tokens for part in parts) * CONDENSED) - slot_tokens(slots)
    return Reflection(parts, max(1, goal), slots=slots)


def _condensable(parts: Sequence[Observation], *, over: bool) -> bool:
    """Return whether condensing can make progress; a single archive note is as short as it gets."""
    if len(parts) != 1:
        return len(parts) > 1
    return over and parts[0].origin != "archive" and parts[0].tokens > LEAST_ARCHIVED


def _movable(observations: Sequence[Observation], spared: int) -> int:
    """Return how many observations at the front may be condensed."""
    end, newest = len(observations) - 1, 0
    while (
        end > 0 and newest + size_of(observations[end]) + size_of(observations[end - 1]) <= spared
    ):
        newest += size_of(observations[end])
        end -= 1
    return max(0, end)


def _settled(observations: Sequence[Observation], spared: int) -> int:
    """Return how many reflections at the front are left alone."""
    # If reflections have grown beyond that, they are condensed again, with all that follows.
    count = next((i for i, one in enumerate(observations) if not one.level), len(observations))
    return count if sum(map(size_of, observations[:count])) <= spared else 0


def apply_reflections(
    observations: Sequence[Observation], reflections: Sequence[Observation]
) -> tuple[Observation, ...]:
    """Replace observations by the reflections whose parts are all among them.

    Parts may be reflections.  Of several for the same parts, the final one wins over provisional
    ones, then the newest.
    """
    standing = list(observations)
    # Lower levels first: what they make may be parts of higher ones.
    for one in sorted(reflections, key=lambda one: (one.level, one.provisional, -one.id)):
        ids = [each.id for each in standing]
        if not one.parts or one.parts[0] not in ids:
            continue
        place = ids.index(one.parts[0])
        # All parts, in a row: on a fork, or after a gap, some may be missing, and text would be
        # lost.
        if tuple(ids[place : place + len(one.parts)]) == one.parts:
            standing[place : place + len(one.parts)] = [one]
    return tuple(standing)


# Condensing


async def reflect_or_fallback(
    reflection: Reflection, reflector: Reflector, fallback: Reflector, *, deadline: float
) -> ReflectionOutcome:
    """Condense the parts of a reflection.

    If the Reflector fails or exceeds the deadline (seconds), the fallback writes the reflection,
    marked provisional.  If that makes no progress either and the observations are above R, the
    oldest parts are archived.

    Raises:
        CannotCondense: no progress, and the observations are within R or cannot be archived.
    """
    ledger = ledger_of_reflection(reflection.parts)
    calls: tuple[MemoryCall, ...] = ()
    # What holds if the deadline cancels the Reflector: it then reports neither cost nor reason.
    why, lost = f"It took longer than {deadline:g} seconds.", True
    with anyio.move_on_after(deadline + GRACE):
        try:
            done = await reflector.reflect(reflection, ledger)
            return ReflectionOutcome(
                observation_of_reflection(reflection, done, ledger), done.calls
            )
        except ObserverFailed as error:
            why, calls, lost = error.message, error.calls, False
        except Exception as error:
            # A bug in a user's Reflector must not end the run.
            why = f"Unexpected {type(error).__name__}."
    try:
        done = await fallback.reflect(reflection, ledger)
    except ObserverFailed as error:
        why = f"{why} {error.message}"
        if reflection.room:
            raise CannotCondense(why, calls, lost=lost) from None
        # Above R, prompts would otherwise grow without bound; the log keeps what is archived.
        oldest = archived(reflection.parts, least=reflection.excess, stated=reflection.stated)
        if oldest.tokens >= reflection.tokens_of(oldest.parts):
            raise CannotCondense(why, calls, lost=lost) from None
        return ReflectionOutcome(oldest, calls, f"{why} The oldest notes are archived.", lost)
    observation = replace(observation_of_reflection(reflection, done, ledger), provisional=True)
    return ReflectionOutcome(observation, calls, why, lost)


def observation_of_reflection(
    reflection: Reflection, done: ReflectorResult, ledger: tuple[str, ...]
) -> Observation:
    """Return the observation that replaces the parts of a reflection."""
    archive = archive_of(reflection.parts)
    return replace(
        covering(reflection.parts),
        notes=pointing(done.notes, archive),
        ledger=ledger,
        origin=done.origin,
        model=done.model,
        archive=archive,
        slots=reflection.slots,
    )


def ledger_of_reflection(parts: Sequence[Observation]) -> tuple[str, ...]:
    """Return the ledger of a reflection: the identifiers of the parts, within `LEDGER_KEPT`."""
    ledgers = [part.ledger for part in parts]
    budget = int(LEDGER_KEPT * sum(count_text(" ".join(ledger)) for ledger in ledgers))
    return merge_ledgers(ledgers, budget)


def slots_of_reflection(parts: Sequence[Observation]) -> Slots:
    """Return the slots of a reflection: those of the parts, merged, within `SLOTS_KEPT`."""
    slots = [part.slots for part in parts]
    return merge_slots(slots, int(SLOTS_KEPT * sum(map(slot_tokens, slots))))


def slot_tokens(slots: Slots) -> int:
    """Return the tokens of slots in an observation."""
    return count_text(render_slots(slots)) if slots else 0


def notes_tokens(notes: ObservationNotes, ledger: Sequence[str]) -> int:
    """Return the tokens of notes and a ledger together, as prompts show them."""
    listed = count_text(f"Seen: {' '.join(ledger)}") + 1 if ledger else 0
    return count_text(render_lines(notes.lines)) + listed
