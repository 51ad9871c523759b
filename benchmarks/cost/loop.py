"""Measure a step outside the model: time, memory, database and prompt, against two floors.

A server process speaks OpenAI's protocol on loopback, repeatedly calls a tool with results of 2 KB,
and answers the Observer as a good model would.  The runtime works with its default settings.  The
floors send the same prompts that the runtime sent: bare litellm, which stores nothing, and bare
httpx, which appends to SQLite.

Each measurement is a fresh process with a fresh server; rounds are interleaved, and medians are
reported.  `net_ms` is wall time less the CPU time of the server's process; `cpu_ms` is the CPU time
of the measured process with all its threads; both per step.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Any, cast

import orjson

from benchmarks.cost.loop_worker import Measured, Served
from benchmarks.frame import Report, Target, at_most

VARIANTS = ("runtime", "litellm", "httpx")
MOST_OF_LITELLM = 1.5
MOST_OF_HTTPX = 2.0
MOST_MEMORY = 130_000_000
MOST_GROWTH = 1.3
GROWTH_FROM = 500
"""Growth is not meaningful with fewer steps."""
DATABASE_STEPS = 500
MOST_DATABASE = 6_000_000

Trial = tuple[Measured, Served]
_WORKER = (sys.executable, "-m", f"{__package__}.loop_worker")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--steps", type=_numbers, default=(50, 200, 500, 2000), help="such as 50,200"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement")
    parser.add_argument("--profile", type=Path, help="write a profile of the runtime here, too")


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(sorted(int(part) for part in text.split(",")))
    if numbers[0] < 1:
        raise ValueError("a run has at least one step")
    return numbers


def run(args: argparse.Namespace) -> Report:
    """Measure every variant at every number of steps."""
    trials: dict[tuple[int, str], list[Trial]] = {}
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        _trial("runtime", args.steps[-1], prompts, record=True, profile=args.profile)
        for number in range(args.rounds):
            for steps in args.steps:
                for variant in VARIANTS:
                    print(f"round {number + 1}: {variant}, {steps} steps", file=sys.stderr)
                    trial = _trial(variant, steps, prompts)
                    trials.setdefault((steps, variant), []).append(trial)
    rows = [_row(variant, steps, trials_of) for (steps, variant), trials_of in trials.items()]
    return Report("loop", rows, _targets(rows))


def _trial(
    variant: str,
    steps: int,
    prompts: Path,
    *,
    record: bool = False,
    profile: Path | None = None,
) -> Trial:
    """Measure once, in a fresh process against a fresh server."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(steps, prompts if record else None) as (
            url,
            served,
        ),
    ):
        command = [*_WORKER, variant, "--steps", str(steps), "--url", url, "--folder", folder]
        command += ["--prompts", str(prompts)]
        if profile is not None:
            command += ["--profile", str(profile)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        measured = Measured(**orjson.loads(done.stdout))
        return measured, served()


@contextmanager
def running_server(
    steps: int, record: Path | None = None
) -> Generator[tuple[str, Callable[[], Served]]]:
    """Run a server; yield its URL, and a function that ends it and returns its `Served`."""
    command = [*_WORKER, "serve", "--steps", str(steps)]
    if record is not None:
        command += ["--prompts", str(record)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            url = cast("IO[str]", process.stdout).readline().strip()
            yield url, lambda: Served(**orjson.loads(process.communicate("\n")[0]))
        finally:
            process.kill()


def _row(variant: str, steps: int, trials: Sequence[Trial]) -> dict[str, Any]:
    def middle(figure: Callable[[Measured, Served], float]) -> float:
        return median(figure(measured, served) for measured, served in trials)

    first = trials[0][0]
    row: dict[str, Any] = {
        "variant": variant,
        "steps": steps,
        "net_ms": middle(lambda m, s: (m.wall - s.busy) / m.calls * 1000),
        "cpu_ms": middle(lambda m, s: m.cpu / m.calls * 1000),
        "wall_ms": middle(lambda m, s: m.wall / m.calls * 1000),
        "prompt_kb": middle(lambda m, s: s.prompt_bytes / s.calls / 1000),
        "rss_mb": middle(lambda m, s: m.rss / 1e6),
    }
    if first.database is not None:
        row["database_mb"] = middle(lambda m, s: (m.database or 0) / 1e6)
    if first.early is not None:
        row["early_cpu_ms"] = middle(lambda m, s: (m.early or 0) * 1000)
        row["late_cpu_ms"] = middle(lambda m, s: (m.late or 0) * 1000)
    return row


def _targets(rows: Sequence[dict[str, Any]]) -> list[Target]:
    by = {(row["variant"], row["steps"]): row for row in rows}
    targets: list[Target] = []
    for (variant, steps), row in by.items():
        if variant != "runtime":
            continue
        for floor, most in (("litellm", MOST_OF_LITELLM), ("httpx", MOST_OF_HTTPX)):
            for figure in ("net_ms", "cpu_ms"):
                name = f"{figure} of {steps} steps, against bare {floor}"
                ratio = row[figure] / by[floor, steps][figure]
                targets.append(at_most(name, ratio, most, "times"))
        name = f"peak memory of {steps} steps"
        targets.append(at_most(name, row["rss_mb"], MOST_MEMORY / 1e6, "MB"))
        if steps >= GROWTH_FROM:
            growth = row["late_cpu_ms"] / row["early_cpu_ms"]
            name = f"CPU time of a step around {steps}, against one around 50"
            targets.append(at_most(name, growth, MOST_GROWTH, "times"))
        if steps == DATABASE_STEPS:
            database = row["database_mb"]
            name = f"database of {steps} steps"
            targets.append(at_most(name, database, MOST_DATABASE / 1e6, "MB"))
    return targets
