"""Which observations are condensed and when, and how reflections replace them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from agent_runtime.memory.observational.observer.base import ObserverFailed
from agent_runtime.memory.observational.reflector.archive import archived
from agent_runtime.memory.observational.reflector.base import (
    LEDGER_KEPT,
    PROGRESS,
    CannotCondense,
    Reflection,
    ReflectionOutcome,
    Reflector,
    ReflectorResult,
    apply_reflections,
    ledger_of_reflection,
    plan_reflection,
    reflect_or_fallback,
    size_of,
)
from agent_runtime.memory.observational.reflector.retention import lost_critical_lines
from agent_runtime.memory.observational.reflector.rules import RuleReflector
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import spelled_out
from agent_runtime.prompt.observation import Observation, ObservationLine, ObservationNotes
from tests.memory.observational.reflections import PRIORITIES, chain, work

pytestmark = pytest.mark.anyio
RULES = RuleReflector()


def test_nothing_is_condensed_below_the_limit_and_the_newest_never_are() -> None:
    parts = chain([work(place) for place in range(10)])
    total = sum(map(size_of, parts))
    assert plan_reflection(parts, total * 2) is None
    assert plan_reflection([], 0) is None
    assert plan_reflection(parts[:1], 10) is None
    planned = plan_reflection(parts, int(total * 1.1))
    assert planned is not None
    assert planned.parts == tuple(parts[: len(planned.parts)])
    assert 2 <= len(planned.parts) < 9


def test_small_reflections_are_not_condensed_again() -> None:
    parts = chain([work(place) for place in range(10)])
    parts[0] = replace(parts[0], level=1)
    planned = plan_reflection(parts, int(sum(map(size_of, parts)) * 1.1))
    assert planned is not None
    assert planned.parts[0].id == 2


def test_reflections_replace_their_parts_where_all_are_present() -> None:
    parts = chain([work(place) for place in range(5)])
    one = replace(parts[1], id=6, level=1, parts=(2, 3), last=30)
    other = replace(parts[0], id=7, level=2, parts=(1, 6), last=30)
    gone = replace(parts[0], id=8, level=1, parts=(4, 9))
    again = replace(one, id=9, provisional=True)
    assert [o.id for o in apply_reflections(parts, [one])] == [1, 6, 4, 5]
    assert [o.id for o in apply_reflections(parts, [again, gone, other, one])] == [7, 4, 5]
    assert [o.id for o in apply_reflections(parts, [])] == [1, 2, 3, 4, 5]


class Useless:
    """A Reflector that always fails."""

    async def reflect(self, reflection: Reflection, ledger: Sequence[str]) -> ReflectorResult:
        raise ObserverFailed("It gives nothing.")

    def bound(self, reflection: Reflection) -> tuple[int, int]:
        return 0, 0


def check_tiles(observations: Sequence[Observation]) -> None:
    """Assert that observations cover every node from the root exactly once."""
    assert observations[0].parent_id is None
    assert observations[0].first == 1
    for before, after in itertools.pairwise(observations):
        assert after.parent_id == before.last
        assert after.first == before.last + 1


def commit(
    observations: Sequence[Observation], done: ReflectionOutcome, identity: int
) -> list[Observation]:
    return list(apply_reflections(observations, [replace(done.observation, id=identity)]))


def any_notes(chance: Random) -> ObservationNotes:
    """Return notes of any size, with more or fewer critical lines."""
    share = chance.choice([0.0, 0.05, 0.3, 1.0])
    lines: list[ObservationLine] = []
    for _ in range(chance.choice([1, 3, 10, 30])):
        words = [f"w{chance.randrange(300)}" for _ in range(chance.choice([2, 8, 30]))]
        critical = chance.random() < share
        priority = "critical" if critical else chance.choice(PRIORITIES[1:])
        day = chance.randrange(1, 29)
        lines.append(ObservationLine(f"2026-11-{day:02} 10:00", priority, " ".join(words)))
    return ObservationNotes(
        tuple(lines), task=chance.choice(["", "Port it", f"Port {chance.random()}"])
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("reflector", [RULES, Useless()], ids=["rules", "useless"])
async def test_observations_stay_within_the_limit_in_random_runs(
    seed: int, reflector: Reflector
) -> None:
    chance = Random(seed)
    coming = chain([any_notes(chance) for _ in range(40)])
    limit = chance.choice([1500, 3000, 6000])
    observations: list[Observation] = []
    identity = len(coming)
    for one in coming:
        observations.append(one)
        newest, rounds = one.text, 0
        while (planned := plan_reflection(observations, limit)) is not None:
            before = sum(map(size_of, observations))
            try:
                done = await reflect_or_fallback(planned, reflector, reflector, deadline=5)
            except CannotCondense:
                # Nothing is archived while there is room.
                assert before <= limit
                break
            identity += 1
            observations = commit(observations, done, identity)
            assert sum(map(size_of, observations)) < before
            if done.observation.origin == "archive":
                assert before > limit
            else:
                assert not lost_critical_lines(done.observation.notes, planned.parts)
                assert done.observation.tokens <= sum(p.tokens for p in planned.parts) * PROGRESS
            rounds += 1
            assert rounds <= 60
        check_tiles(observations)
        assert observations[-1].text == newest
        assert sum(map(size_of, observations)) <= max(limit, size_of(observations[-1]) + limit // 2)


def test_an_archive_note_is_smaller_than_its_observation() -> None:
    for part in chain([work(0), work(1, 200)]):
        assert archived([part]).tokens < part.tokens / 3


def test_a_ledger_is_merged_within_its_budget() -> None:
    names = [
        tuple(f"/srv/deep/part_{p}/module_{number}.py" for number in range(20)) for p in range(3)
    ]
    parts = chain([work(0), work(1), work(2)], [*names[:2], (*names[2], names[0][0])])
    listed = list(spelled_out(ledger_of_reflection(parts)))
    assert len(set(listed)) == len(listed)
    assert set(listed) < {name for one in names for name in one}
    size = sum(count_text(" ".join(part.ledger)) for part in parts)
    assert 0 < count_text(" ".join(ledger_of_reflection(parts))) <= size * LEDGER_KEPT
