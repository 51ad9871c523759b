"""Agents with sub-agents are killed or cancelled on a small scale; the checks detect faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from benchmarks.backends import empty_databases
from benchmarks.proof.autonomy import judge, kill_again_and_again
from benchmarks.proof.autonomy_world import Course, live, path_of, read
from benchmarks.proof.cancels import Cancelled, cancel_often

Facts = list[dict[str, Any]]


@pytest.mark.slow
def test_a_repeatedly_killed_agent_does_each_item_once() -> None:
    came = kill_again_and_again(steps=30, items=8, at_once=4, kills=3, seed=1, backend="file")

    assert came.violations == ()
    assert (came.kills, came.steps, came.sub_agents) == (3, 30, 8)
    assert came.settled <= came.billed <= came.settled + came.unsettled


@pytest.mark.slow
def test_a_cancelled_agent_leaves_no_process_at_work() -> None:
    faults: list[Cancelled] = []
    with empty_databases() as make:
        anyio.run(cancel_often, 1, 1, lambda: make("file"), faults.append)

    [cancelled] = faults
    assert cancelled.violations == ()
    assert cancelled.runs == 11


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """An undisturbed run."""
    folder = tmp_path_factory.mktemp("calm")
    course = Course(str(folder), f"file:{folder / 'run.db'}", steps=10, items=2, at_once=2)
    anyio.run(live, course)
    return course


@pytest.fixture
def course(calm: Course, tmp_path: Path) -> Course:
    """A copy of the undisturbed run, to tamper with."""
    folder = shutil.copytree(calm.folder, tmp_path / "run")
    return replace(calm, folder=str(folder), url=f"file:{folder / 'run.db'}")


def _work_twice(facts: Facts) -> None:
    facts.append(next(fact for fact in facts if fact["what"] == "work"))


def _work_never(facts: Facts) -> None:
    facts.remove(next(fact for fact in facts if fact["what"] == "work"))


def _bill_more(facts: Facts) -> None:
    facts.append({**next(fact for fact in facts if fact["what"] == "billed"), "tokens": 1_000_000})


def _bill_less(facts: Facts) -> None:
    facts.remove(next(fact for fact in facts if fact["what"] == "billed"))


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (_work_twice, "was worked on 2 times"),
        (_work_never, "was worked on 0 times"),
        (_bill_more, "tokens were billed"),
        (_bill_less, "tokens were billed"),
    ],
)
async def test_the_check_detects_wrong_facts(
    course: Course, tamper: Callable[[Facts], None], found: str
) -> None:
    path = path_of(course.folder)
    assert (await judge(course, 0, 1, 0.0)).violations == ()
    facts = read(path)
    tamper(facts)
    path.write_bytes(b"".join(orjson.dumps(fact) + b"\n" for fact in facts))

    violations = (await judge(course, 0, 1, 0.0)).violations

    assert any(found in violation for violation in violations)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"items": 3}, "3 were planned"),
        ({"items": 3}, "2 sub-agents ran for 3 items"),
    ],
)
async def test_the_check_detects_missing_facts(
    course: Course, change: dict[str, Any], found: str
) -> None:
    violations = (await judge(replace(course, **change), 0, 1, 0.0)).violations

    assert any(found in violation for violation in violations)
