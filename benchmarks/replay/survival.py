"""How many identifiers that an agent needs again survive when their messages leave the prompt.

At each activation with the default thresholds: the paths, symbols and hashes that a later tool call
uses before they are shown again, and the share of them that is still in the context.  And at the
last activation: the facts of what has left that the rules' notes still tell.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import anyio

from agent_runtime.memory.observational.constraint_reader import read_constraints
from agent_runtime.memory.observational.ledgers import ledger_sources
from agent_runtime.memory.observational.observer.base import ObserverInput
from agent_runtime.memory.observational.observer.rules import RuleObserver
from agent_runtime.memory.observational.observer.slots.extract import slots_of
from agent_runtime.memory.observational.thresholds import MemoryThresholds
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.constraints import (
    Constraints,
    fit_constraints,
    render_constraints,
)
from agent_runtime.prompt.ledger import TOKENS_PER_THOUSAND, compile_ledger
from agent_runtime.prompt.observation import Observation, ObservationNotes, render_lines
from agent_runtime.prompt.slots import render_slots, render_state
from agent_runtime.prompt.view import Entry
from benchmarks.frame import Report, Row, Target, at_least, at_most, data_folder
from benchmarks.replay.recordings import read_traces
from benchmarks.replay.survival_facts import Fact, Kept, count_facts
from benchmarks.replay.survival_world import Life, live, occurs

SOURCES = ("claude_code_traces", "swebench_mini_traces")
BUDGETS = (10, 15, TOKENS_PER_THOUSAND, 40)
WANTED = 0.97
WANTED_FACTS: dict[Fact, float] = {
    "edits": 0.8,
    "verdicts": 0.97,
    "failing tests": 0.95,
    "proposals": 0.7,
    "constraints": 1.0,
}
TOTAL_PER_THOUSAND = 115
"""Tokens of observations for each thousand that left."""
DEFAULTS = MemoryThresholds(observe=30_000, reflect=40_000, last_messages=20)

LEDGER = f"ledger of {TOKENS_PER_THOUSAND} per 1,000"
NOTES = "notes and slots"
BOTH = f"{NOTES}, {LEDGER}"
NAMES = ", names in cut results"
PRODUCT = f"{BOTH}{NAMES}"
"""What the runtime does if no model observes."""

_ROOT = re.compile(r"\$=(\S+)")
_UNDER_ROOT = re.compile(r"(?<!\S)\$(?=/)")

Policy = Callable[[tuple[Entry, ...], Sequence[Observation]], Observation]
"""Makes the observation of a chunk, after the earlier ones."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--source", choices=SOURCES, action="append", help="may be repeated")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth trace only")
    parser.add_argument(
        "--product", action="store_true", help="only what the runtime does, without other policies"
    )
    parser.add_argument("--threshold", type=int, default=DEFAULTS.observe, help="T, in tokens")


def run(args: argparse.Namespace) -> Report:
    """Measure what the options name; everything takes a few minutes."""
    folder = data_folder(args)
    bands = MemoryThresholds(args.threshold, DEFAULTS.reflect, DEFAULTS.last_messages)
    rows: list[Row] = []
    targets: list[Target] = []
    for source in args.source or SOURCES:
        traces = islice(read_traces(folder, source), 0, None, args.every)
        lives = [live(trace, bands) for trace in traces]
        measured = {PRODUCT: by_rules} if args.product else policies()
        for name, policy in measured.items():
            result = measure(lives, policy, names=name.endswith(NAMES))
            rows.append({"source": source.removesuffix("_traces"), "context": name, **result.row()})
            targets += _targets(source, name, result)
        kept = facts(lives, by_rules)
        rows += _fact_rows(source.removesuffix("_traces"), kept)
        targets += _fact_targets(source.removesuffix("_traces"), kept)
    return Report("survival", rows, targets)


def policies() -> dict[str, Policy]:
    """Return the observations to compare, by name."""
    ledgers = {f"ledger of {budget} per 1,000": with_ledger(budget) for budget in BUDGETS}
    return {
        "raw messages alone": with_ledger(0),
        **ledgers,
        NOTES: lambda entries, before: replace(by_rules(entries, before), ledger=()),
        f"{LEDGER}{NAMES}": with_ledger(TOKENS_PER_THOUSAND),
        BOTH: by_rules,
        PRODUCT: by_rules,
    }


def by_rules(entries: tuple[Entry, ...], before: Sequence[Observation]) -> Observation:
    """Return the observation of a chunk that the runtime makes without a model."""
    seen = anyio.run(RuleObserver().observe, ObserverInput(entries, tuple(before)))
    one = with_ledger(TOKENS_PER_THOUSAND)(entries, before)
    return replace(one, notes=seen.notes or ObservationNotes(()), slots=slots_of(entries))


def with_ledger(budget: int) -> Policy:
    """Return the policy of a ledger with this many tokens per thousand that leave the prompt."""

    def policy(entries: tuple[Entry, ...], before: Sequence[Observation]) -> Observation:
        listed = "\n".join(name for observation in before for name in observation.ledger)
        most = sum(entry.tokens for entry in entries) * budget // 1000
        ledger = compile_ledger(ledger_sources(entries), most, listed=listed)
        first, last = entries[0], entries[-1]
        notes = ObservationNotes(())
        return Observation(len(before) + 1, 0, first.parent_id, first.seq, last.seq, notes, ledger)

    return policy


@dataclass(slots=True)
class Survival:
    """The result of a policy.

    Attributes:
        needed: identifiers, of the traces in even places and of those in odd ones.
        kept: how many of these are still in the context.
        verbatim: of the kept ones, those not split into a folder and a rest.
        ledger: tokens of the ledgers.
        notes: tokens of the lines of notes.
        slots: tokens of the slots.
        total: tokens of the observations.
        left: tokens that left the prompt.
        twice: identifiers that ledgers of one branch list more than once.
    """

    needed: list[int] = field(default_factory=lambda: [0, 0])
    kept: list[int] = field(default_factory=lambda: [0, 0])
    verbatim: int = 0
    activations: int = 0
    ledger: int = 0
    notes: int = 0
    slots: int = 0
    total: int = 0
    left: int = 0
    twice: int = 0

    @property
    def share(self) -> float:
        """The kept share of the needed identifiers."""
        return sum(self.kept) / max(1, sum(self.needed))

    @property
    def per_thousand(self) -> float:
        """Tokens of ledgers per thousand tokens that left."""
        return 1000 * self.ledger / max(1, self.left)

    def row(self) -> Row:
        """Return a row of the report."""
        halves = [
            preserved / max(1, of) for preserved, of in zip(self.kept, self.needed, strict=True)
        ]
        return {
            "activations": self.activations,
            "needed": sum(self.needed),
            "kept": round(self.share, 4),
            "even traces": round(halves[0], 4),
            "odd traces": round(halves[1], 4),
            "verbatim": round(self.verbatim / max(1, sum(self.needed)), 4),
            "ledger per 1,000": round(self.per_thousand, 1),
            "notes per 1,000": round(1000 * self.notes / max(1, self.left), 1),
            "slots per 1,000": round(1000 * self.slots / max(1, self.left), 1),
            "all per 1,000": round(1000 * self.total / max(1, self.left), 1),
            "listed twice": self.twice,
        }


def measure(lives: Sequence[Life], policy: Policy, *, names: bool = False) -> Survival:
    """Return what a policy preserves over all activations of runs.

    Args:
        names: whether the names count that a truncated result lists.
    """
    result = Survival()
    for place, life in enumerate(lives):
        observations: list[Observation] = []
        for moment in life.moments:
            for chunk in life.chunks[len(observations) : moment.chunks]:
                observations.append(policy(chunk, observations))
                result.left += sum(entry.tokens for entry in chunk)
            shown = "\n".join(observation.text for observation in observations)
            spelled = "\n".join(whole(observation.text) for observation in observations)
            result.activations += 1
            for needed in moment.needed:
                verbatim = needed.raw or (names and needed.named) or occurs(needed.name, shown)
                result.needed[place % 2] += 1
                result.verbatim += verbatim
                result.kept[place % 2] += verbatim or occurs(needed.name, spelled)
        listed = [
            name
            for observation in observations
            for name in whole(" ".join(observation.ledger)).split()
        ]
        result.twice += len(listed) - len(set(listed))
        result.ledger += sum(
            count_text(" ".join(observation.ledger)) for observation in observations
        )
        result.notes += sum(
            count_text(render_lines(observation.notes.lines)) for observation in observations
        )
        result.slots += sum(
            count_text(render_slots(observation.slots)) for observation in observations
        )
        result.total += sum(observation.tokens for observation in observations)
    return result


def facts(lives: Sequence[Life], policy: Policy) -> Kept:
    """Return the facts of what left the prompts of runs, and those that their notes still tell."""
    kept = Kept()
    for life in lives:
        left = life.chunks[: life.moments[-1].chunks] if life.moments else ()
        observations: list[Observation] = []
        for chunk in left:
            observations.append(policy(chunk, observations))
        entries = [entry for chunk in left for entry in chunk]
        messages = [(entry.seq, entry.message) for entry in entries]
        budget = int(DEFAULTS.reflect * DEFAULTS.required)
        required = read_constraints(Constraints(budget=budget), messages)
        after = entries[-1].seq + 1 if entries else None
        required = fit_constraints(required, first=after, task=None)
        shown = [whole(one.text) for one in observations]
        shown.append(render_constraints(required, first=after, task=None))
        shown.append(render_state(one.slots for one in observations))
        count_facts(entries, "\n".join(shown), kept)
    return kept


def _fact_rows(source: str, kept: Kept) -> Iterator[Row]:
    for fact in WANTED_FACTS:
        of = kept.of.get(fact, 0)
        row = {"table": "facts", "source": source, "fact": fact, "of": of, "kept": kept.share(fact)}
        yield {**row, "stale": kept.stale} if fact == "verdicts" else row


def whole(text: str) -> str:
    """Return an observation's text with each path joined to its separately listed folder."""
    root = _ROOT.search(text)
    if root is None:
        return text
    return _UNDER_ROOT.sub(lambda _: root[1], text[: root.start()] + text[root.end() :])


def _targets(source: str, policy: str, result: Survival) -> list[Target]:
    name, share = source.removesuffix("_traces"), round(result.share, 4)
    if policy != PRODUCT:
        return []
    size = round(result.per_thousand, 1)
    return [
        at_least(f"{name}: kept by notes and ledger", share, WANTED),
        at_most(f"{name}: ledger per 1,000", size, TOKENS_PER_THOUSAND, "tokens"),
        at_most(f"{name}: listed twice", result.twice, 0),
        at_most(
            f"{name}: observations per 1,000",
            round(1000 * result.total / max(1, result.left), 1),
            TOTAL_PER_THOUSAND,
            "tokens",
        ),
    ]


def _fact_targets(name: str, kept: Kept) -> Iterator[Target]:
    for fact, wanted in WANTED_FACTS.items():
        if kept.of.get(fact):
            yield at_least(f"{name}: {fact} kept", kept.share(fact), wanted)
    yield at_most(f"{name}: stale verdicts", kept.stale, 0)
