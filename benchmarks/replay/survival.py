"""How many identifiers that an agent needs again survive when their messages leave the prompt.

At each activation with the default thresholds: the paths, symbols and hashes that a later tool call
uses before they are shown again, and the share of them that is still in the context.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import anyio

from agent_runtime.memory.observational.observer.base import ObserverInput
from agent_runtime.memory.observational.observer.rules import RuleObserver
from agent_runtime.memory.observational.records import ledger_sources
from agent_runtime.memory.observational.thresholds import MemoryThresholds
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import TOKENS_PER_THOUSAND, compile_ledger
from agent_runtime.prompt.observation import Observation, ObservationNotes, render_notes
from agent_runtime.prompt.view import Entry
from benchmarks.frame import Report, Row, Target, at_least, at_most, data_folder
from benchmarks.replay.recordings import read_traces
from benchmarks.replay.survival_world import Life, live, occurs

SOURCES = ("claude_code_traces", "swebench_mini_traces")
BUDGETS = (10, 15, TOKENS_PER_THOUSAND, 40)
WANTED = 0.97
WANTED_NOTES = {"claude_code_traces": 0.82, "swebench_mini_traces": 0.69}
DEFAULTS = MemoryThresholds(observe=30_000, reflect=40_000, last_messages=20)

LEDGER = f"ledger of {TOKENS_PER_THOUSAND} per 1,000"
NOTES = "extractive notes"
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
        for name, policy in policies().items():
            result = measure(lives, policy, names=name.endswith(NAMES))
            rows.append({"source": source.removesuffix("_traces"), "context": name, **result.row()})
            targets += _targets(source, name, result)
    return Report("survival", rows, targets)


def policies() -> dict[str, Policy]:
    """Return the observations to compare, by name."""
    ledgers = {f"ledger of {budget} per 1,000": with_ledger(budget) for budget in BUDGETS}
    both = with_ledger(TOKENS_PER_THOUSAND, extractive)
    return {
        "raw messages alone": with_ledger(0),
        **ledgers,
        NOTES: lambda entries, _: _observation(entries, extractive(entries)),
        f"{LEDGER}{NAMES}": with_ledger(TOKENS_PER_THOUSAND),
        BOTH: both,
        PRODUCT: both,
    }


def extractive(entries: tuple[Entry, ...]) -> ObservationNotes:
    """Return the rule Observer's notes of a chunk."""
    seen = anyio.run(RuleObserver().observe, ObserverInput(entries))
    return seen.notes or ObservationNotes(())


def with_ledger(
    budget: int, notes: Callable[[tuple[Entry, ...]], ObservationNotes] | None = None
) -> Policy:
    """Return the policy of a ledger with this many tokens per thousand that leave the prompt."""

    def policy(entries: tuple[Entry, ...], before: Sequence[Observation]) -> Observation:
        listed = "\n".join(name for observation in before for name in observation.ledger)
        most = sum(entry.tokens for entry in entries) * budget // 1000
        ledger = compile_ledger(ledger_sources(entries), most, listed=listed)
        return _observation(entries, notes(entries) if notes else ObservationNotes(()), ledger)

    return policy


def _observation(
    entries: tuple[Entry, ...], notes: ObservationNotes, ledger: tuple[str, ...] = ()
) -> Observation:
    first, last = entries[0], entries[-1]
    return Observation(0, 0, first.parent_id, first.seq, last.seq, notes, ledger)


@dataclass(slots=True)
class Survival:
    """The result of a policy.

    Attributes:
        needed: identifiers, of the traces in even places and of those in odd ones.
        kept: how many of these are still in the context.
        verbatim: of the kept ones, those not split into a folder and a rest.
        ledger: tokens of the ledgers.
        notes: tokens of the notes.
        left: tokens that left the prompt.
        twice: identifiers that ledgers of one branch list more than once.
    """

    needed: list[int] = field(default_factory=lambda: [0, 0])
    kept: list[int] = field(default_factory=lambda: [0, 0])
    verbatim: int = 0
    activations: int = 0
    ledger: int = 0
    notes: int = 0
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
            count_text(render_notes(observation.notes)) for observation in observations
        )
    return result


def whole(text: str) -> str:
    """Return an observation's text with each path joined to its separately listed folder."""
    root = _ROOT.search(text)
    if root is None:
        return text
    return _UNDER_ROOT.sub(lambda _: root[1], text[: root.start()] + text[root.end() :])


def _targets(source: str, policy: str, result: Survival) -> list[Target]:
    name, share = source.removesuffix("_traces"), round(result.share, 4)
    if policy == NOTES:
        return [at_least(f"{name}: kept by notes", share, WANTED_NOTES[source])]
    if policy != PRODUCT:
        return []
    size = round(result.per_thousand, 1)
    return [
        at_least(f"{name}: kept by notes and ledger", share, WANTED),
        at_most(f"{name}: ledger per 1,000", size, TOKENS_PER_THOUSAND, "tokens"),
        at_most(f"{name}: listed twice", result.twice, 0),
    ]
