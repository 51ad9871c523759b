"""Simulated worlds over the real statements; and tests of their judge.

Each rule of the queue is disabled once, and the judge has to notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from agent_runtime.run.queue import worker
from agent_runtime_storage.sql import loader
from benchmarks.proof.simulated import judge
from benchmarks.proof.simulated.kept import Judged, Kept
from benchmarks.proof.simulated.world import CROWDED, SMALL, Size
from benchmarks.proof.simulated.worlds import run_worlds

Change = Callable[[dict[str, str]], None]


def problems_of(seeds: range, found: str = "", size: Size = SMALL) -> list[str]:
    """Return the problems of the seeds, until one is as sought."""
    problems: list[str] = []
    for verdict in run_worlds(seeds, size):
        problems += verdict.problems
        if found and any(found in problem for problem in problems):
            break
    return problems


def test_no_rule_is_broken_in_a_few_worlds() -> None:
    assert problems_of(range(2)) == []


def test_a_late_worker_does_not_resume_what_has_failed_meanwhile() -> None:
    assert problems_of(range(732, 733)) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_rule_is_broken_in_many_worlds() -> None:
    assert problems_of(range(100, 300)) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_run_is_ended_for_the_fault_of_another() -> None:
    happened = Counter[str]()
    for verdict in run_worlds(range(40)):
        happened += verdict.happened

    assert happened["dead letters without a fault"] == 0
    # Next to these, and to workers that died by themselves.
    assert happened["dead letters that ended their workers"] > 10


def test_a_simulation_continues_with_the_ranges_that_are_left(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    first, second = (Judged(at, at + 20, {"steps": 3}, {str(at): ["late"]}, 1.5) for at in (0, 20))
    kept = Kept(path, "small")
    kept.add(first)
    kept.add(second)
    with path.open("ab") as file:
        file.write(b'\n{"size": "small", "co')

    assert list(Kept(path, "small").of([range(20), range(20, 30)])) == [first]
    assert list(Kept(path, "large").of([range(20)])) == []
    Kept(path, "small").add(second)
    assert set(Kept(path, "small").judged) == {0, 20}


def test_a_seed_repeats_its_world() -> None:
    first, second = (next(iter(run_worlds([7]))) for _ in range(2))

    assert first.happened == second.happened


# Mutants: of the statements, and of the worker


def keep_the_epoch(sql: dict[str, str]) -> None:
    """Give a lease without a new number."""
    for name in ("queue_take_runs", "queue_revoke"):
        sql[name] = sql[name].replace("epoch = epoch + 1", "epoch = max(epoch, 1)")


def forget_the_fence(sql: dict[str, str]) -> None:
    """Do not compare epochs when a step is written."""
    sql["commit_guard"] = sql["commit_guard"].replace("epoch = :epoch", ":epoch = :epoch")


def ignore_the_thread(sql: dict[str, str]) -> None:
    """Pick runs whose thread another one holds."""
    free = "(t.active_run IS NULL OR t.active_run = q.run_id)"
    sql["queue_claim"] = sql["queue_claim"].replace(free, "1 = 1")
    free = "(threads.active_run IS NULL OR threads.active_run = q.run_id)"
    sql["queue_take_threads"] = sql["queue_take_threads"].replace(free, "1 = 1")


def ignore_the_limits(sql: dict[str, str]) -> None:
    """Do not count what a pick itself has claimed."""
    sql["queue_trim"] = "SELECT 1 WHERE :claim IS NULL AND :per_user + :per_agent + :per_model"


def ignore_the_turns(sql: dict[str, str]) -> None:
    """Pick the newest first."""
    sql["queue_claim"] = sql["queue_claim"].replace(
        "ORDER BY q.tag, q.enqueued_at", "ORDER BY q.tag DESC, q.enqueued_at DESC"
    )


def take_live_leases(sql: dict[str, str]) -> None:
    """Hold a lease for lost a while before it expires."""
    sql["queue_lost"] = sql["queue_lost"].replace("r.lease_until <=", "r.lease_until - 20 <=")


def wake_a_parent_early(sql: dict[str, str]) -> None:
    """Wake the run above with each child, not with the last."""
    whole = sql["queue_child_ended"]
    sql["queue_child_ended"] = whole[: whole.rindex("AND NOT EXISTS")].rstrip()


def wake_a_parent_twice(sql: dict[str, str]) -> None:
    """Wake the run above even if it is at work."""
    sql["queue_child_ended"] = (
        sql["queue_child_ended"]
        .replace("state = 'parked'", "state IN ('parked', 'working')")
        .replace("p.status = 'suspended'", "1 = 1")
        .replace("p.stop_reason IN ('awaiting_children', 'awaiting_user')", "1 = 1")
    )


def never_wake_a_parent(sql: dict[str, str]) -> None:
    """Leave the run above suspended."""
    sql["queue_child_ended"] = sql["queue_child_ended"].replace("= 'parked'", "= 'dead'")


def count_no_takeover(sql: dict[str, str]) -> None:
    """Do not count how often a run was lost."""
    sql["queue_expire"] = sql["queue_expire"].replace("takeovers + 1", "takeovers")


def blame_all_alike(sql: dict[str, str]) -> None:
    """Blame whatever was lost with a worker."""
    sql["queue_blame"] = sql["queue_blame"].replace(
        "WHEN ranked.place > 1 THEN 0", "WHEN 1 = 0 THEN 0"
    )


LONGER = [
    (forget_the_fence, "wrote for"),
    (ignore_the_thread, "holds its thread"),
    (ignore_the_limits, "work at once"),
    (ignore_the_turns, "were picked"),
    (take_live_leases, "whose lease is live"),
    (wake_a_parent_early, "was woken before"),
    (wake_a_parent_twice, "in the queue and running"),
    (never_wake_a_parent, "is suspended at the end"),
    (count_no_takeover, "takeovers"),
    (blame_all_alike, "with the blame"),
]
"""Those whose first fault comes later."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (keep_the_epoch, "was given with epoch"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in LONGER),
    ],
)
def test_the_judge_notices_each_disabled_rule(
    change: Change, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = loader.load_queries("sqlite")
    sql = dict(true)
    change(sql)
    assert sql != dict(true)
    mutated: Mapping[str, str] = MappingProxyType(sql)

    def load(dialect: str) -> Mapping[str, str]:
        del dialect
        return mutated

    for module in ("queries.owner", "log.queue", "log.leases", "log.schedules"):
        monkeypatch.setattr(f"agent_runtime_storage.{module}.load_queries", load)
    monkeypatch.setattr(judge, "_NAMES", {mutated[name]: name for name in judge.WATCHED})
    monkeypatch.setattr(judge, "_RIPEN", mutated["queue_ripen"])

    size = SMALL if change is forget_the_fence else CROWDED
    problems = problems_of(range(200), found, size)

    assert any(found in problem for problem in problems), problems[:5]


@pytest.mark.slow
def test_the_judge_notices_a_worker_that_goes_on_after_the_third_takeover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "MOST_BLAME", 3.0)

    assert any("is worked on after 3" in one for one in problems_of(range(60), "worked on after"))
