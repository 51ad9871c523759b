"""What this process has done since it began: the counts behind `/metrics` and our own metrics.

They are plain numbers of the whole process, without users, threads or names of tools: counting
costs next to nothing, and reading them reads nothing else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from agent_runtime_storage.contract.records.log import Commit, NewEvent
from agent_runtime_storage.contract.records.usage import Usage

NANO = 1_000_000_000


@dataclass(slots=True)
class Tally:
    """Counts that only rise.

    Attributes:
        steps: answers of models that are recorded as steps.
        runs: ends and suspensions of runs, by status and stop reason.
        calls: calls of models, by purpose.
        tokens: by purpose and kind: `input`, `cache_read`, `cache_write` or `output`; the
            cached ones are part of `input`.
        cost: nanodollars, by purpose.
        unpriced: calls whose price is unknown.
        questions: questions to people.
        stalled: seconds that calls announced to wait, by why: `limit` or `retry`.
    """

    steps: int = 0
    commits: int = 0
    questions: int = 0
    unpriced: int = 0
    runs: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    calls: Counter[str] = field(default_factory=Counter[str])
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    cost: Counter[str] = field(default_factory=Counter[str])
    stalled: dict[str, float] = field(default_factory=dict[str, float])

    def committed(self, commit: Commit) -> None:
        """Count what a commit has recorded."""
        self.commits += 1
        self.steps += commit.steps is not None
        if commit.finish is not None:
            self.runs[commit.finish.status, commit.finish.stop_reason] += 1
        for usage in commit.usage:
            self.spent(usage)

    def spent(self, usage: Usage) -> None:
        """Count a call of a model."""
        purpose = usage.purpose
        self.calls[purpose] += 1
        self.tokens[purpose, "input"] += usage.prompt_tokens
        self.tokens[purpose, "cache_read"] += usage.cached_tokens
        self.tokens[purpose, "cache_write"] += usage.cache_write_tokens
        self.tokens[purpose, "output"] += usage.completion_tokens
        self.cost[purpose] += usage.cost or 0
        self.unpriced += usage.cost is None

    def heard(self, event: NewEvent) -> None:
        """Count what an event says that no commit does."""
        if event.kind == "question":
            self.questions += 1
        elif event.kind in _WAITS:
            why = _WAITS[event.kind]
            self.stalled[why] = self.stalled.get(why, 0.0) + float(event.data["wait"])


_WAITS = {"model-wait": "limit", "model-retry": "retry"}

TALLY = Tally()
"""The counts of this process."""
