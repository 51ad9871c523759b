"""Scores over questions and question types, their intervals, and costs."""

from __future__ import annotations

import pytest

from agent_runtime.memory.observational.observer.base import MemoryCall
from agent_runtime.models.base import ModelAnswer, TokenUsage
from benchmarks.memory.score import Answered, Spent, Tally, intervals, macro, micro, rows_of


def answered(kind: str, *scores: float, run: int = 1) -> list[Answered]:
    return [
        Answered("full", run, f"{kind} {number}", kind, score)
        for number, score in enumerate(scores)
    ]


def test_micro_averages_questions_and_macro_averages_types() -> None:
    answers = [*answered("a", 1, 1, 1), *answered("b", 0)]
    assert micro(answers) == 0.75
    assert macro(answers) == 0.5


def test_an_interval_contains_its_mean_and_narrows_with_more_questions() -> None:
    few, many = answered("a", *[1, 0] * 10), answered("a", *[1, 0] * 200)
    widths: list[float] = []
    for answers in (few, many):
        over_all, over_kinds = intervals(answers)
        assert over_all.low < over_all.mean == 0.5 < over_all.high
        assert over_kinds.mean == 0.5
        widths.append(over_all.high - over_all.low)
    # Four standard errors of a fair coin.
    assert widths == [pytest.approx(0.44, abs=0.08), pytest.approx(0.098, abs=0.02)]
    assert intervals(few) == intervals(few)


def test_answers_that_differ_between_runs_widen_the_interval() -> None:
    def interval_of(*runs: list[Answered]) -> float:
        over_all, _ = intervals([one for run in runs for one in run])
        return over_all.high - over_all.low

    same = [answered("a", *[0.5] * 20, run=run) for run in (1, 2, 3)]
    differing = [answered("a", *[score] * 20, run=run) for run, score in enumerate((0, 0.5, 1), 1)]
    assert interval_of(*same) == 0
    assert interval_of(*differing) > 0


def test_rows_have_scores_and_the_cost_of_each_part_per_run() -> None:
    tally = Tally(observations=4, provisional=2)
    usage = TokenUsage(prompt=100, completion=20)
    answer = ModelAnswer("yes", (), "stop", "m", usage, cost=3_000_000_000)
    tally.judge.add_calls([MemoryCall(answer, 90)] * 2)
    answers = [*answered("a", 1, 0), *answered("a", 1, 1, run=2)]

    rows = {row["what"]: row for row in rows_of("full", answers, tally)}

    assert rows["all (micro)"]["score"] == 0.75
    assert rows["all (micro)"]["n"] == 2
    assert rows["all (micro)"]["sd of runs"] == pytest.approx(0.3536, abs=1e-3)
    assert rows["a"]["score"] == 0.75
    judge = rows["calls of the judge"]
    assert (judge["n"], judge["tokens"], judge["$"]) == (1, 120, 3.0)
    assert rows["observations"]["n"] == 2
    assert "questions that failed" not in rows


def test_an_unknown_price_is_not_zero() -> None:
    spent = Spent()
    spent.add_calls([MemoryCall(ModelAnswer("", (), "stop", "m"), 50)])
    assert (spent.tokens, spent.dollars) == (50, None)
