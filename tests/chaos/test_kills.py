"""Runs that are killed with SIGKILL at every boundary, and at random instants."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.chaos import Outcome, campaign

KILLS = 48


@pytest.mark.timeout(300)
def test_killed_anywhere_a_run_loses_nothing_and_repeats_nothing(
    tmp_path: Path, database_url: str
) -> None:
    outcomes: list[Outcome] = []
    url = None if database_url.startswith("file:") else database_url

    course = campaign(KILLS, tmp_path, seed=1, on_outcome=outcomes.append, url=url)

    wrong = [(one.trial, what) for one in outcomes for what in one.verdict.violations]
    assert wrong == []
    assert sum(one.kills for one in outcomes) >= KILLS
    killed_at = {one.trial.boundary for one in outcomes if one.kills}
    assert killed_at >= set(course.boundaries)
    # The kills did leave calls uncertain, and did make idempotent ones run again.
    assert sum(one.verdict.interrupted for one in outcomes) > 0
    assert sum(one.verdict.repeated for one in outcomes) > 0
