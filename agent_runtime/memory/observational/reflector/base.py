"""What a Reflector is, and when one is needed: it condenses the oldest observations into one.

`plan_reflection` says which ones and how far, `reflect_or_fallback` does it, whatever fails on the
way, and `apply_reflections` puts the result in their place.  All but the newest observations may be
condensed; those that are not stay byte for byte as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import anyio

from agent_runtime.memory.observational.observer.base import MemoryCall, ObserverFailed
from agent_runtime.memory.observational.reflector.archive import (
    archive_of,
    archived,
    pointer,
    pointing,
)
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import merge_ledgers
from agent_runtime.prompt.observation import Observation, ObservationNotes, Origin, render_notes

START = 0.7
"""From this share of R on, the oldest observations are condensed in the background: what the next
activation adds, about a tenth of R with the defaults, still fits when the reflection is late."""
TARGET = 0.5
"""To about this share of R observations shrink by one reflection: fewer rewrites of the prompt's
front than if it aimed just below R, and more kept than if it condensed all."""
CONDENSED = 0.4
"""How large a reflection should be, as a share of what it stands for."""
PROGRESS = 0.85
"""A reflection that is larger than this share of what it stands for is no progress."""
NEWEST = 0.2
"""The newest observations, up to this share of R, are never condensed, nor is the last one."""
SETTLED = 0.3
"""Earlier reflections, up to this share of R, are left alone: each rewriting loses something."""
LEDGER_KEPT = 0.6
"""What share of the identifiers' tokens a reflection keeps."""
ARCHIVED_TO = 0.8
"""Where nothing gets further than R, the oldest observations are archived to this share of it."""
GROWTH = 0.2
"""After a reflection without progress none is tried before so much more of R is observed."""
GRACE = 1.0
"""Seconds that a Reflector has after the deadline to hand over what it has, and what it cost."""
FENCE_TOKENS = 24
"""What an observation costs in the prompt beside its text."""


@dataclass(frozen=True, slots=True)
class Reflection:
    """What is to be condensed.

    Attributes:
        parts: observations that follow each other, the oldest first.
        goal: how many tokens should stand for them, in our count.
        room: whether all observations are within R, so that none of them is archived.
        excess: how many tokens have to leave where they are not.
        stated: what prompts say beside the observations, which may leave them.
    """

    parts: tuple[Observation, ...]
    goal: int
    room: bool = False
    excess: int = 0
    stated: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of the parts."""
        return sum(part.tokens for part in self.parts)

    @property
    def most(self) -> int:
        """The most tokens that are progress, but for the line that points to an archive."""
        archive = archive_of(self.parts)
        pointed = count_text(pointer(archive)) + 2 if archive else 0
        return int(self.tokens * PROGRESS) - pointed


@dataclass(frozen=True, slots=True)
class ReflectionOutcome:
    """What stands for the parts of a reflection.

    Attributes:
        observation: not committed yet; its level is one more than that of any part.
        calls: what it cost, answers that were rejected included.
        why: why it is not what the Reflector was asked for; empty if it is.
        lost: whether what was billed is not known.
    """

    observation: Observation
    calls: tuple[MemoryCall, ...] = ()
    why: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ReflectorResult:
    """What a Reflector wrote; at most `Reflection.most` tokens together with its ledger."""

    notes: ObservationNotes
    calls: tuple[MemoryCall, ...] = ()
    origin: Origin = "model"
    model: str = ""


class CannotCondense(Exception):
    """Nothing gets any further with observations that are within R, so they stay as they are.

    Attributes:
        calls: what was paid for that.
        lost: whether what was billed is not known.
    """

    def __init__(self, message: str, calls: tuple[MemoryCall, ...], *, lost: bool) -> None:
        super().__init__(message)
        self.message, self.calls, self.lost = message, calls, lost


class Reflector(Protocol):
    """Writes notes that stand for several observations.

    Raises (from `reflect`) `ObserverFailed` only.  It may be cancelled at any time.
    """

    async def reflect(self, reflection: Reflection, ledger: Sequence[str]) -> ReflectorResult:
        """Return notes; with the ledger, which is not theirs to change, they have to be smaller."""
        ...

    def bound(self, reflection: Reflection) -> tuple[int, int]:
        """Return upper bounds of what it costs: tokens, and nanodollars."""
        ...


# Which


def size_of(observation: Observation) -> int:
    """Return what an observation takes of R, in our tokens."""
    return observation.tokens + FENCE_TOKENS


def plan_reflection(
    observations: Sequence[Observation],
    limit: int,
    *,
    coming: int = 0,
    stated: tuple[str, ...] = (),
) -> Reflection | None:
    """Return what to condense now; None if nothing is due, or nothing may be.

    Args:
        observations: those in the prompt and those prepared for it, in the order of the branch,
            prepared reflections in the place of their parts.
        limit: R, in our tokens.
        coming: how many tokens of observations are expected on top before a reflection is done.
        stated: what prompts say beside the observations.
    """
    total = sum(map(size_of, observations))
    if total + coming < limit * START:
        return None
    # Over the limit even what is usually spared has to give.
    over = total > limit
    end = _movable(observations, 0 if over else int(limit * NEWEST))
    start = _settled(observations[:end], 0 if over else int(limit * SETTLED))
    if not _condensable(observations[start:end], over=over):
        start = 0
    if not _condensable(observations[start:end], over=over):
        return None
    excess = total + coming - limit * TARGET
    stop, gained = start, 0.0
    while stop < end and (gained < excess or stop - start < min(2, end - start)):
        gained += size_of(observations[stop]) * (1 - CONDENSED)
        stop += 1
    parts = tuple(observations[start:stop])
    excess = max(0, int(total - limit * ARCHIVED_TO)) if over else 0
    return replace(condensing(parts), room=not over, excess=excess, stated=stated)


def condensing(parts: tuple[Observation, ...]) -> Reflection:
    """Return the reflection that stands for observations which follow each other."""
    return Reflection(parts, max(1, int(sum(part.tokens for part in parts) * CONDENSED)))


def _condensable(parts: Sequence[Observation], *, over: bool) -> bool:
    """Return whether condensing gets any further: an archive note alone is as short as it gets."""
    return len(parts) > 1 or (over and len(parts) == 1 and parts[0].origin != "archive")


def _movable(observations: Sequence[Observation], spared: int) -> int:
    """Return how many observations, from the first on, may be condensed."""
    end, newest = len(observations) - 1, 0
    while (
        end > 0 and newest + size_of(observations[end]) + size_of(observations[end - 1]) <= spared
    ):
        newest += size_of(observations[end])
        end -= 1
    return max(0, end)


def _settled(observations: Sequence[Observation], spared: int) -> int:
    """Return how many reflections at the front are left alone."""
    count = next((i for i, one in enumerate(observations) if not one.level), len(observations))
    return count if sum(map(size_of, observations[:count])) <= spared else 0


def apply_reflections(
    observations: Sequence[Observation], reflections: Sequence[Observation]
) -> tuple[Observation, ...]:
    """Return observations with reflections in the place of their parts, where all of them stand.

    Reflections may have reflections for parts.  Of several for the same parts the one that is not
    provisional counts, then the newest.
    """
    standing = list(observations)
    for one in sorted(reflections, key=lambda one: (one.level, one.provisional, -one.id)):
        ids = [each.id for each in standing]
        if not one.parts or one.parts[0] not in ids:
            continue
        place = ids.index(one.parts[0])
        if tuple(ids[place : place + len(one.parts)]) == one.parts:
            standing[place : place + len(one.parts)] = [one]
    return tuple(standing)


# How


async def reflect_or_fallback(
    reflection: Reflection, reflector: Reflector, fallback: Reflector, *, deadline: float
) -> ReflectionOutcome:
    """Return what stands for the parts from now on.

    The Reflector has until the deadline, in seconds, and a moment more to hand over what it has;
    then the fallback writes it, marked provisional.  Where that gets no further either, and the
    observations are over R, the oldest parts are archived.

    Raises:
        NotReflected: nothing gets any further, and there is room or nothing to archive.
    """
    ledger = ledger_of_reflection(reflection.parts)
    calls: tuple[MemoryCall, ...] = ()
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
            # A mistake of who wrote the Reflector must not end the run.
            why = f"Unexpected {type(error).__name__}."
    try:
        done = await fallback.reflect(reflection, ledger)
    except ObserverFailed as error:
        why = f"{why} {error.message}"
        if reflection.room:
            raise CannotCondense(why, calls, lost=lost) from None
        oldest = archived(reflection.parts, least=reflection.excess, stated=reflection.stated)
        if oldest.tokens >= sum(
            part.tokens for part in reflection.parts if part.id in oldest.parts
        ):
            raise CannotCondense(why, calls, lost=lost) from None
        return ReflectionOutcome(oldest, calls, f"{why} The oldest notes are archived.", lost)
    observation = replace(observation_of_reflection(reflection, done, ledger), provisional=True)
    return ReflectionOutcome(observation, calls, why, lost)


def observation_of_reflection(
    reflection: Reflection, done: ReflectorResult, ledger: tuple[str, ...]
) -> Observation:
    """Return the observation that stands for exactly the interval of the parts."""
    parts = reflection.parts
    archive = archive_of(parts)
    return Observation(
        id=0,
        level=max(part.level for part in parts) + 1,
        parent_id=parts[0].parent_id,
        first=parts[0].first,
        last=parts[-1].last,
        notes=pointing(done.notes, archive),
        ledger=ledger,
        parts=tuple(part.id for part in parts),
        origin=done.origin,
        model=done.model,
        archive=archive,
    )


def ledger_of_reflection(parts: Sequence[Observation]) -> tuple[str, ...]:
    """Return the ledger of a reflection: what the parts list, each once, within its share."""
    ledgers = [part.ledger for part in parts]
    budget = int(LEDGER_KEPT * sum(count_text(" ".join(ledger)) for ledger in ledgers))
    return merge_ledgers(ledgers, budget)


def notes_tokens(notes: ObservationNotes, ledger: Sequence[str]) -> int:
    """Return what notes and a ledger have together."""
    listed = count_text(f"Seen: {' '.join(ledger)}") + 1 if ledger else 0
    return count_text(render_notes(notes)) + listed
