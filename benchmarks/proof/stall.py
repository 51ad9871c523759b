"""Measure how long a run waits for its memory: its time with a slow Observer, and without one.

A server process speaks OpenAI's protocol on loopback.  It delays each answer, and delays the notes
of the Observer, which is the run's own model, even longer.  The runs go through litellm, the loop
and a database file, alternately with and without observational memory; medians are reported.  The
threshold is so low that observations take effect many times, or would if they came in time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from statistics import median
from typing import IO, Any, cast

import orjson

from benchmarks.frame import Report, at_least, at_most
from benchmarks.proof.stall_worker import Measured

MOST_STALL = 1.02
CASES = ((0.3, 1.2), (0.05, 2.0))
"""Seconds of a step's answer, and of the Observer's."""
_WORKER = (sys.executable, "-m", f"{__package__}.stall_worker")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--steps", type=int, default=80, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement")
    parser.add_argument("--observe", type=int, default=10_000, help="tokens of the threshold")


def run(args: argparse.Namespace) -> Report:
    """Measure each case alternately with and without memory."""
    measurements: dict[tuple[float, float, bool], list[Measured]] = {}
    for number in range(args.rounds):
        for step, observer in CASES:
            # The order alternates from round to round.
            for memory in (False, True) if number % 2 else (True, False):
                print(f"round {number + 1}: {step} s, memory {memory}", file=sys.stderr)
                measured = measure(step, observer, args.steps, args.observe if memory else None)
                measurements.setdefault((step, observer, memory), []).append(measured)
    rows = [_row(*case, runs) for case, runs in sorted(measurements.items())]
    targets = [
        at_most(
            f"{args.steps} steps of {step:g} s with an Observer of {observer:g} s",
            _middle(measurements[step, observer, True], lambda run: run.wall)
            / _middle(measurements[step, observer, False], lambda run: run.wall),
            MOST_STALL,
            "times without memory",
        )
        for step, observer in CASES
    ]
    remembered = [measured for case, runs in measurements.items() if case[2] for measured in runs]
    fewest = min(measured.observations for measured in remembered)
    targets.append(at_least("observations of a run", fewest, 1))
    return Report("stall", rows, targets)


def measure(step: float, observer: float, steps: int, observe: int | None) -> Measured:
    """Run once in a fresh process against a fresh server.

    Args:
        observe: the threshold of observational memory; None runs without.
    """
    with tempfile.TemporaryDirectory() as folder, _server(step, observer, steps) as url:
        command = [*_WORKER, "run", "--url", url, "--folder", folder, "--steps", str(steps)]
        if observe is not None:
            command += ["--observe", str(observe)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return Measured(**orjson.loads(done.stdout))


@contextmanager
def _server(step: float, observer: float, steps: int) -> Generator[str]:
    command = [*_WORKER, "serve", "--step", str(step), "--observer", str(observer)]
    command += ["--steps", str(steps)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield cast("IO[str]", process.stdout).readline().strip()
        finally:
            process.kill()


def _row(step: float, observer: float, memory: bool, runs: list[Measured]) -> dict[str, Any]:
    return {
        "step_s": step,
        "observer_s": observer,
        "memory": memory,
        "wall_s": _middle(runs, lambda run: run.wall),
        "least_s": min(run.wall for run in runs),
        "most_s": max(run.wall for run in runs),
        "cpu_s": _middle(runs, lambda run: run.cpu),
        "longest_step_s": _middle(runs, lambda run: run.longest),
        "observations": _middle(runs, lambda run: run.observations),
        "activations": _middle(runs, lambda run: run.activations),
        "observer_calls": _middle(runs, lambda run: run.observer_calls),
    }


def _middle(runs: list[Measured], figure: Callable[[Measured], float]) -> float:
    return median(map(figure, runs))
