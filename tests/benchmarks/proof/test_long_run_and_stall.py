"""The benchmarks `long_run` and `stall` on a small scale, without their time limits."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from benchmarks.cost.long_run import TENTHS, long_run, rows, targets
from benchmarks.proof import stall

pytestmark = pytest.mark.slow

STEPS = 300


@pytest.mark.timeout(300)
async def test_a_long_run_has_a_bounded_prompt_and_all_of_its_observations(tmp_path: Path) -> None:
    tenths = await long_run(tmp_path, STEPS, 4000, 2000)

    assert len(tenths) == TENTHS
    assert sum(tenth.steps for tenth in tenths) == STEPS + 1
    assert [row["steps"] for row in rows(tenths)][-1] == STEPS + 1
    # Ten exchanges always stay. They are over half of T, so T is raised.
    promised = {target.name: target for target in targets(tenths, STEPS, 20_000)}
    assert promised["tokens of the longest prompt"].met, promised
    assert promised["longest prompt of the last tenth, against the second"].met, promised
    assert sum(tenth.activations for tenth in tenths) > 20
    assert sum(tenth.reflected for tenth in tenths) > 5
    late = tenths[-1].peak / tenths[1].peak
    assert 0.8 < late < 1.1


@pytest.mark.timeout(600)
async def test_a_measured_run_observes_through_its_own_model() -> None:
    # In a thread: it starts processes and waits for them.
    measure = partial(stall.measure, 0.02, 0.05, 40)
    without = await anyio.to_thread.run_sync(measure, None)
    remembered = await anyio.to_thread.run_sync(measure, 2000)

    assert (without.observations, without.observer_calls) == (0, 0)
    assert remembered.observations > 0
    assert remembered.observer_calls > 0
    assert remembered.activations > 1
    assert min(without.wall, remembered.wall) > 40 * 0.02


def test_the_report_compares_medians_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    walls = iter([10.0, 10.1, 5.2, 5.0, 11.0, 10.0, 5.1, 5.1, 10.0, 10.1, 5.0, 5.0])
    order: list[tuple[float, bool]] = []

    def measure(step: float, observer: float, steps: int, observe: int | None) -> stall.Measured:
        order.append((step, observe is not None))
        count = 0 if observe is None else 3
        return stall.Measured(next(walls), 1.0, 0.5, count, count, count)

    monkeypatch.setattr(stall, "measure", measure)

    report = stall.run(argparse.Namespace(rounds=3, steps=80, observe=10_000))

    assert order[:4] == [(0.3, True), (0.3, False), (0.05, True), (0.05, False)]
    assert order[4:6] == [(0.3, False), (0.3, True)]
    # By the walls above: 10.0, 10.0, 10.0 with, and 10.1, 11.0, 10.1 without; 5.2, 5.1, 5.0 with.
    ratios = [target.value for target in report.targets[:2]]
    assert ratios == pytest.approx([10.0 / 10.1, 5.1 / 5.0])  # pyright: ignore[reportUnknownMemberType]
    assert [target.met for target in report.targets] == [True, True, True]
