"""Recorded runs of real agents through the real loop and store; skipped where they are absent.

Every second one runs at 32K and every ninth at 8K and at 128K, about a minute and a half on two
cores; `python -m benchmarks traces` runs all of them at every window.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from benchmarks.replay.player import Outcome
from benchmarks.replay.recordings import SOURCES, default_folder, read_traces
from benchmarks.replay.traces import replay_all

FOLDER = default_folder()
pytestmark = pytest.mark.skipif(
    FOLDER is None, reason="the recorded runs are not here; name their folder by TEST_DATA_DIR"
)
EVERY = {8_192: 9, 32_768: 2, 131_072: 9}
CASES = [(source, window) for window in EVERY for source in SOURCES]


def folder() -> Path:
    assert FOLDER is not None
    return FOLDER


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("source", "window"), CASES)
@pytest.mark.slow
async def test_every_prompt_is_complete_and_nothing_is_lost(source: str, window: int) -> None:
    traces = list(islice(read_traces(folder(), source), 0, None, EVERY[window]))
    steps = {trace.id: trace.steps for trace in traces}
    outcomes = await replay_all(traces, window)
    assert len(outcomes) == len(traces)
    assert [fault for outcome in outcomes for fault in outcome.faults] == []
    assert sum(outcome.refused for outcome in outcomes) == 0
    for outcome in outcomes:
        assert outcome.too_large or outcome.steps == steps[outcome.trace]
        assert outcome.too_large or outcome.prompts >= outcome.steps
        check_reports(outcome)


def check_reports(outcome: Outcome) -> None:
    """Check that each activation reports the messages that left the prompt."""
    moved = sum(outcome.activations.values()) - outcome.activations["start"]
    if not moved:
        assert (outcome.hidden, outcome.cut, outcome.shrunk) == (0, 0, 0)


@pytest.mark.parametrize("source", SOURCES)
def test_the_reader_loses_nothing(source: str) -> None:
    for trace in read_traces(folder(), source):
        assert trace.turns
        for turn in trace.turns:
            assert turn.task.strip()
            for step in turn.steps[:-1]:
                assert step.calls
                assert step.complete
            for step in turn.steps:
                assert step.text.strip() or step.calls
                assert step.calls or not step.said
