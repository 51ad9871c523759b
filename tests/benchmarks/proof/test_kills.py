"""Runs killed with SIGKILL at every boundary and at random instants."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.proof.chaos import Outcome, campaign

pytestmark = pytest.mark.slow

KILLS = 48
KILLS_ON_SERVERS = 16
"""Each takes a second: which boundaries are tried there is left to the seed."""


@pytest.mark.timeout(600)
def test_a_run_killed_anywhere_loses_and_repeats_nothing(tmp_path: Path, database_url: str) -> None:
    outcomes: list[Outcome] = []
    on_file = database_url.startswith("file:")
    kills = KILLS if on_file else KILLS_ON_SERVERS

    course = campaign(
        kills,
        tmp_path,
        seed=1,
        on_outcome=outcomes.append,
        url=None if on_file else database_url,
        all_boundaries=on_file,
    )

    wrong = [(outcome.trial, what) for outcome in outcomes for what in outcome.verdict.violations]
    assert wrong == []
    assert sum(outcome.kills for outcome in outcomes) >= kills
    killed_at = {outcome.trial.boundary for outcome in outcomes if outcome.kills}
    assert killed_at >= set(course.boundaries) if on_file else len(killed_at) > kills / 4
    # The kills left some calls uncertain, and made some idempotent ones run again.
    assert sum(outcome.verdict.interrupted for outcome in outcomes) > 0
    assert sum(outcome.verdict.repeated for outcome in outcomes) > 0 or not on_file


@pytest.mark.timeout(600)
@pytest.mark.backends("file")
def test_a_run_with_memory_killed_anywhere_covers_each_message_once(
    tmp_path: Path, database_url: str
) -> None:
    outcomes: list[Outcome] = []

    course = campaign(KILLS, tmp_path, seed=2, on_outcome=outcomes.append, memory=True)

    wrong = [(outcome.trial, what) for outcome in outcomes for what in outcome.verdict.violations]
    assert wrong == []
    assert {"before the commit of an observation", "after a claim"} <= set(course.boundaries)
