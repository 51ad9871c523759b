"""Kill a run with SIGKILL at many instants, resume it each time, and count its effects.

Half of the kills are at the boundaries between an effect, or a model's answer, and its record:
before and after every kind of commit, and before and after every tool's effect.  The others are at
random instants.  Effects are counted outside of the killed process.

For each boundary the report says how often runs were killed there (or again later, while they were
resumed), how many processes they took, how many calls the log marks as interrupted, and how many
calls of idempotent tools ran again.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import orjson

from agent_runtime.errors import AgentRuntimeError
from agent_runtime_config.urls import redact_url
from benchmarks.backends import BACKENDS, empty_databases
from benchmarks.frame import Report, at_least, at_most
from benchmarks.proof.chaos_check import Verdict, check, journal
from benchmarks.proof.chaos_worker import USER, Death, Life

RANDOM = "a random instant"
MOST_LIVES = 8
"""Processes after which a run counts as never ending."""
BUDGET = 10_000_000
"""Tokens: more than a run uses; with a budget it reserves each model call."""

ROOT = Path(__file__).parents[2]

Kill = tuple[str, int]
"""A point, and the number of its passing."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A run and the kills of its first lives, in order; later lives end by themselves.

    Attributes:
        boundary: the name under which it is reported.
        kills: a point, or seconds.
    """

    boundary: str
    kills: tuple[Kill | float, ...]
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial: how many kills hit, how many processes it took, and its verdict."""

    trial: Trial
    kills: int
    lives: int
    verdict: Verdict


class ChaosError(AgentRuntimeError):
    """The worker itself failed, so nothing is known about the runtime."""


class Worker:
    """The process that forks the lives."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def live(self, life: Life) -> Death:
        """Run one life to its end. Raises `ChaosError` if the worker is gone."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(orjson.dumps(asdict(life)) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ChaosError(f"The worker ended with code {self._process.wait()}.")
        return Death(**orjson.loads(line))


@contextmanager
def worker() -> Generator[Worker]:
    """Start a worker, and end it afterwards."""
    environ = {name: value for name, value in os.environ.items() if "AGENT_RUNTIME" not in name}
    environ["PYTHONPATH"] = os.pathsep.join(
        str(ROOT / folder) for folder in (".", "storage", "config")
    )
    command = [sys.executable, "-m", "benchmarks.proof.chaos_worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environ, cwd=ROOT) as process:
        # Leaving this context closes its stdin, which ends it.
        yield Worker(process)


@dataclass(frozen=True, slots=True)
class Course:
    """The points that an undisturbed run, and one taken over, pass.

    Attributes:
        points: every passing of every point, in order.
        resume_points: the points that only a process passes that takes a run over.
        seconds: how long the undisturbed run took.
    """

    points: tuple[Kill, ...]
    resume_points: tuple[str, ...]
    seconds: float

    @property
    def boundaries(self) -> list[str]:
        """Every point once."""
        return [*dict.fromkeys(point for point, _ in self.points), *self.resume_points]


class Ground:
    """The place of a campaign's runs, each with its own folder and owner.

    Args:
        url: of a shared database; None for a file in the folder of each run.
        memory: whether they have observational memory.
    """

    def __init__(self, folder: Path, url: str | None = None, *, memory: bool = False) -> None:
        self._folder = folder
        self._memory = memory
        self._url = url or ""
        # A shared database may already have the owners of an earlier campaign.
        self._campaign = secrets.token_hex(4)

    def life(self, name: str) -> Life:
        """Return a life of a new run, in a new folder."""
        folder = self._folder / name
        folder.mkdir()
        user = f"chaos-{self._campaign}-{name}" if self._url else USER
        return Life(str(folder), url=self._url, user=user, memory=self._memory)


def survey(work: Worker, ground: Ground) -> Course:
    """Find the points at which a run can be killed.

    Raises:
        ChaosError: an undisturbed run does not pass.
    """
    calm, resumed = replace(ground.life("calm"), trace=True), ground.life("resumed")
    # The first life over a database migrates its schema, which is not to be timed.
    work.live(ground.life("first"))
    death = work.live(calm)
    if death.signal or death.code or anyio.run(check, calm).violations:
        raise ChaosError("A run that nobody kills does not pass.", cure=f"See {calm.folder}.")
    points = tuple(_points(calm))
    known = {point for point, _ in points}
    work.live(replace(resumed, point="after the effect of send", passing=2))
    work.live(replace(resumed, trace=True))
    new = dict.fromkeys(point for point, _ in _points(resumed) if point not in known)
    return Course(points, tuple(new), death.seconds)


def _points(life: Life) -> list[Kill]:
    facts = journal(Path(life.folder))
    return [(fact["point"], fact["passing"]) for fact in facts if fact["what"] == "point"]


def boundary_trials(course: Course, chance: random.Random) -> Iterator[Trial]:
    """Yield trials of every boundary, over and over: each point once, then at other passings."""
    passings: defaultdict[str, list[Kill]] = defaultdict(list)
    for point, passing in course.points:
        passings[point].append((point, passing))
    for kills in passings.values():
        chance.shuffle(kills)
    first: Kill = ("after the effect of send", 2)
    turn = 0
    while True:
        for point, kills in passings.items():
            yield _with_another(Trial(point, (kills[turn % len(kills)],)), course, chance)
        for point in course.resume_points:
            yield _with_another(Trial(point, (first, (point, 1))), course, chance)
        turn += 1


def random_trials(course: Course, chance: random.Random) -> Iterator[Trial]:
    """Yield trials of random instants."""
    while True:
        kills = (chance.uniform(0, course.seconds),)
        yield _with_another(Trial(RANDOM, kills), course, chance)


def _with_another(trial: Trial, course: Course, chance: random.Random) -> Trial:
    """Kill every third run again while it is resumed, and give every second run a budget."""
    kills = trial.kills
    if chance.random() < 1 / 3:
        kills = (*kills, chance.uniform(0, course.seconds))
    return replace(trial, kills=kills, budget=BUDGET if chance.random() < 1 / 2 else None)


def attempt(work: Worker, trial: Trial, base: Life) -> Outcome:
    """Run a trial to the end of its run, and judge it.

    Raises:
        ChaosError: a life neither ended well nor by its kill.
    """
    base = replace(base, budget=trial.budget)
    hits = lives = 0
    ended = False
    while not ended and lives < MOST_LIVES:
        death = work.live(_life(base, trial, lives))
        lives += 1
        if death.code or death.signal not in (0, signal.SIGKILL):
            raise ChaosError(
                f"A process ended with code {death.code} and signal {death.signal} after "
                f"{trial.boundary!r}, kills {trial.kills}.",
                cure=f"It is owner {base.user} of {redact_url(base.database_url)}.",
            )
        hits += death.signal == signal.SIGKILL
        # A late kill misses: the run must then stay as it ended.
        ended = not death.signal and lives > len(trial.kills)
    return Outcome(trial, hits, lives, anyio.run(check, base))


def _life(base: Life, trial: Trial, number: int) -> Life:
    if number >= len(trial.kills):
        return base
    kill = trial.kills[number]
    if isinstance(kill, tuple):
        return replace(base, point=kill[0], passing=kill[1])
    return replace(base, after=kill)


@dataclass(slots=True)
class Tally:
    """The results of all trials of one boundary."""

    kills: int = 0
    lives: int = 0
    interrupted: int = 0
    repeated: int = 0
    violations: list[str] = field(default_factory=list[str])

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.kills += outcome.kills
        self.lives += outcome.lives
        self.interrupted += outcome.verdict.interrupted
        self.repeated += outcome.verdict.repeated
        self.violations += outcome.verdict.violations


def campaign(
    kills: int,
    folder: Path,
    *,
    seed: int,
    on_outcome: Callable[[Outcome], None],
    url: str | None = None,
    all_boundaries: bool = True,
    memory: bool = False,
) -> Course:
    """Kill runs at least `kills` times: each boundary once, then as many random instants.

    After that, boundaries and random instants alternate.

    Args:
        url: of the database that the runs share; None for a file per run.
        all_boundaries: False alternates from the start, with the boundaries in random order, and
            stops at the number of kills.
        memory: whether the runs have observational memory.
    """
    ground = Ground(folder, url, memory=memory)
    chance = random.Random(seed)
    hits = at_boundaries = at_random = 0
    with worker() as work:
        course = survey(work, ground)
        needed = len(course.boundaries) if all_boundaries else 0
        if not all_boundaries:
            course = replace(course, points=tuple(chance.sample(course.points, len(course.points))))
        boundaries, instants = boundary_trials(course, chance), random_trials(course, chance)
        while at_boundaries < needed or hits < kills:
            if at_boundaries < needed or at_boundaries <= at_random:
                trial = next(boundaries)
                at_boundaries += 1
            else:
                trial = next(instants)
                at_random += 1
            outcome = attempt(work, trial, ground.life(f"{at_boundaries + at_random:05}"))
            on_outcome(outcome)
            hits += outcome.kills
    return course


def rows(tallies: Mapping[str, Tally]) -> list[dict[str, Any]]:
    """Return a row for each boundary."""
    return [
        {
            "killed": boundary,
            "kills": tally.kills,
            "processes": tally.lives,
            "interrupted": tally.interrupted,
            "run again": tally.repeated,
            "violations": len(tally.violations),
            "first violation": tally.violations[0] if tally.violations else None,
        }
        for boundary, tally in sorted(tallies.items(), key=_by_boundary)
    ]


def _by_boundary(item: tuple[str, Tally]) -> tuple[str, bool]:
    when, _, what = item[0].partition(" ")
    return what, when == "after"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--kills", type=int, default=200, help="how many kills at least")
    parser.add_argument("--seed", type=int, default=0, help="of the random instants")
    parser.add_argument("--memory", action="store_true", help="with observational memory")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--backend", choices=BACKENDS, default="file", help="a new database of it")
    where.add_argument("--url", help="of a database that is there already")


def run(args: argparse.Namespace) -> Report:
    """Kill, resume and check."""
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    with empty_databases() as make:
        # With files every run gets a database of its own.
        url = args.url or (None if args.backend == "file" else make(args.backend))
        campaign(
            args.kills,
            folder,
            seed=args.seed,
            on_outcome=lambda outcome: tallies[outcome.trial.boundary].add(outcome),
            url=url,
            memory=args.memory,
        )
    kills = sum(tally.kills for tally in tallies.values())
    violations = sum(len(tally.violations) for tally in tallies.values())
    if violations:
        print(f"The journals of the runs are kept in {folder}.", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    targets = [
        at_least("kills", kills, args.kills),
        at_most("violations of what a resume promises", violations, 0),
    ]
    return Report("chaos", rows(tallies), targets)
