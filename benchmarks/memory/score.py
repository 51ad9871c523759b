"""Scores of answers: means over questions and over question types, with intervals."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from agent_runtime.memory.observational.observer.base import MemoryCall
from agent_runtime_storage.contract.records.usage import UsageTotal

NANO = 1_000_000_000
RESAMPLED = 1_000
"""The number of samples behind an interval."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer to a question.

    Attributes:
        context: the reader's knowledge of the conversation.
        run: the number of the repetition, from 1.
        score: from 0 to 1; a failed or unjudged answer counts as 0.
        failed: why there is no answer; empty if there is one.
        judged: whether the judge returned a verdict.
        prompt: tokens of the reader's first prompt, as reported.
    """

    context: str
    run: int
    question: str
    kind: str
    score: float
    answer: str = ""
    failed: str = ""
    judged: bool = True
    prompt: int = 0


@dataclass(slots=True)
class Spent:
    """The sums of model calls of one purpose; `cost` in nanodollars."""

    calls: int = 0
    tokens: int = 0
    cost: int = 0
    unpriced: int = 0

    def add_total(self, total: UsageTotal) -> None:
        """Add sums from the store."""
        self.calls += total.calls
        self.tokens += total.prompt_tokens + total.completion_tokens
        self.cost += total.cost
        self.unpriced += total.unpriced_calls

    def add_calls(self, calls: Iterable[MemoryCall]) -> None:
        """Add calls made outside of any run."""
        for call in calls:
            usage, cost = call.answer.usage, call.answer.cost
            self.calls += 1
            self.tokens += usage.prompt + usage.completion if usage else call.counted
            self.cost += cost or 0
            self.unpriced += cost is None

    def add(self, other: Spent) -> None:
        """Add the sums of other calls."""
        self.calls += other.calls
        self.tokens += other.tokens
        self.cost += other.cost
        self.unpriced += other.unpriced

    @property
    def dollars(self) -> float | None:
        """The cost in dollars; None where a price is unknown."""
        return None if self.unpriced else self.cost / NANO


@dataclass(slots=True)
class Tally:
    """The costs of a context, without its scores."""

    reader: Spent = field(default_factory=Spent)
    observer: Spent = field(default_factory=Spent)
    judge: Spent = field(default_factory=Spent)
    seconds: float = 0.0
    observations: int = 0
    provisional: int = 0
    late: int = 0
    why: set[str] = field(default_factory=set[str])

    def add(self, other: Tally) -> None:
        """Add another tally's costs."""
        self.reader.add(other.reader)
        self.observer.add(other.observer)
        self.judge.add(other.judge)
        self.seconds += other.seconds
        self.observations += other.observations
        self.provisional += other.provisional
        self.late += other.late
        self.why |= other.why


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95% confidence bounds."""

    mean: float
    low: float
    high: float


def micro(answers: Sequence[Answered]) -> float:
    """Return the mean over all questions."""
    return fmean(answer.score for answer in answers)


def macro(answers: Sequence[Answered]) -> float:
    """Return the mean of the question types' means."""
    by_kind: dict[str, list[float]] = {}
    for answer in answers:
        by_kind.setdefault(answer.kind, []).append(answer.score)
    return fmean(map(fmean, by_kind.values()))


def intervals(answers: Sequence[Answered]) -> tuple[Interval, Interval]:
    """Return micro and macro mean with their 95% intervals, by bootstrap.

    Each sample draws as many questions as there are (for the macro mean, of each type), and for
    each drawn question as many of its runs.  The interval therefore covers both the choice of
    questions and the variation of answers.  The draws are seeded.
    """
    draw = random.Random(len(answers))
    kinds: dict[str, dict[str, list[float]]] = {}
    for answer in answers:
        kinds.setdefault(answer.kind, {}).setdefault(answer.question, []).append(answer.score)
    by_kind = [list(questions.values()) for questions in kinds.values()]
    everything = [scores for questions in by_kind for scores in questions]
    micros = [_drawn(draw, everything) for _ in range(RESAMPLED)]
    macros = [fmean(_drawn(draw, one) for one in by_kind) for _ in range(RESAMPLED)]
    return _interval(micro(answers), micros), _interval(macro(answers), macros)


def _drawn(draw: random.Random, questions: Sequence[list[float]]) -> float:
    """Return the mean score of a sample of questions, each with a sample of its runs."""
    drawn = draw.choices(questions, k=len(questions))
    scores = [
        runs[0] if len(runs) == 1 else sum(draw.choices(runs, k=len(runs))) / len(runs)
        for runs in drawn
    ]
    return sum(scores) / len(scores)


def _interval(centre: float, samples: Sequence[float]) -> Interval:
    ordered = sorted(samples)
    last = len(ordered) - 1
    return Interval(centre, ordered[round(last * 0.025)], ordered[round(last * 0.975)])


def rows_of(context: str, answers: Sequence[Answered], tally: Tally) -> list[dict[str, Any]]:
    """Return the reported rows of a context.

    The scores come first: over all questions, over their types, and of each type.  Then come the
    figures of one run of all questions: calls, tokens and dollars of reader, observer and judge,
    and counts.
    """
    by_run: dict[int, list[Answered]] = {}
    by_kind: dict[str, list[Answered]] = {}
    for answer in answers:
        by_run.setdefault(answer.run, []).append(answer)
        by_kind.setdefault(answer.kind, []).append(answer)
    over_all, over_kinds = intervals(answers)
    runs = list(by_run.values())
    rows = [
        _scored("all (micro)", answers, over_all, list(map(micro, runs))),
        _scored("by type (macro)", answers, over_kinds, list(map(macro, runs))),
    ]
    for kind, of_kind in sorted(by_kind.items()):
        rows.append(_scored(kind, of_kind, intervals(of_kind)[0], ()))
    rows += _spent(tally, len(runs))
    rows += _counted(answers, tally, len(runs))
    return [{"context": context, **row} for row in rows]


def _scored(
    what: str, answers: Sequence[Answered], score: Interval, runs: Sequence[float]
) -> dict[str, Any]:
    return {
        "what": what,
        "n": len({answer.question for answer in answers}),
        "score": score.mean,
        "low": score.low,
        "high": score.high,
        "sd of runs": stdev(runs) if len(runs) > 1 else None,
    }


def _spent(tally: Tally, runs: int) -> list[dict[str, Any]]:
    spent = {"reader": tally.reader, "observer": tally.observer, "judge": tally.judge}
    return [
        {
            "what": f"calls of the {name}",
            "n": one.calls / runs,
            "tokens": one.tokens / runs,
            "$": None if one.dollars is None else one.dollars / runs,
        }
        for name, one in spent.items()
        if one.calls
    ]


def _counted(answers: Sequence[Answered], tally: Tally, runs: int) -> list[dict[str, Any]]:
    always = {"tokens of a prompt": fmean(answer.prompt for answer in answers)}
    where = {
        "observations": tally.observations / runs,
        "observations by rules for want of the model's": tally.provisional / runs,
        "turns that did not wait for memory": tally.late / runs,
        "seconds of remembering": tally.seconds / runs,
        "questions that failed": sum(bool(answer.failed) for answer in answers) / runs,
        "answers that were not judged": sum(not answer.judged for answer in answers) / runs,
    }
    counts = always | {what: count for what, count in where.items() if count}
    return [{"what": what, "n": count} for what, count in counts.items()]
