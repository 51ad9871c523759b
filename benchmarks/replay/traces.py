"""Recorded runs of real agents through the real runtime, at small and large context windows.

Every prompt is judged without the runtime's own checks (no torn pairs, no unmentioned gap, no
rewriting between activations), and every log is compared with its recording.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import anyio

from agent_runtime import Runtime, Settings
from benchmarks.frame import Report, Row, Target, data_folder
from benchmarks.replay.player import Outcome, Player, play
from benchmarks.replay.recordings import SOURCES, Trace, read_traces

WINDOWS = (8_192, 32_768, 131_072)
AT_ONCE = 4
"""Traces replayed at a time: one waits for the disk while another counts tokens."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--window", type=int, action="append", help="tokens; may be repeated")
    parser.add_argument("--source", choices=SOURCES, action="append", help="may be repeated")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth trace only")


def run(args: argparse.Namespace) -> Report:
    """Replay what the options name; everything takes some minutes."""
    return anyio.run(_measure, data_folder(args), args)


async def _measure(folder: Path, args: argparse.Namespace) -> Report:
    rows: list[Row] = []
    outcomes: list[Outcome] = []
    for source in args.source or SOURCES:
        traces = list(islice(read_traces(folder, source), 0, None, args.every))
        for window in args.window or WINDOWS:
            begun = time.perf_counter()
            replayed = await replay_all(traces, window)
            rows.append(row(source, window, replayed, time.perf_counter() - begun))
            outcomes += replayed
    return Report("traces", rows, targets(outcomes))


async def replay_all(traces: Sequence[Trace], window: int) -> list[Outcome]:
    """Replay traces through one runtime over a new database file."""
    outcomes: list[Outcome] = []
    limiter = anyio.CapacityLimiter(AT_ONCE)

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            database_url=f"file:{folder}/traces.db",
            synchronous="normal",
            observational_memory=False,
            loop_limit=0,
        )
        async with Runtime.open(settings) as runtime, anyio.create_task_group() as group:

            async def replay(index: int, trace: Trace) -> None:
                async with limiter:
                    player = Player(trace, window)
                    outcomes.append(await play(runtime, player, thread=f"trace-{index}"))

            for index, trace in enumerate(traces):
                group.start_soon(replay, index, trace)
    return outcomes


def row(source: str, window: int, outcomes: Sequence[Outcome], seconds: float) -> Row:
    """Return the sums over the traces of a source at a window."""
    prompt = sum(outcome.prompt_tokens for outcome in outcomes)
    cached = sum(outcome.cached_tokens for outcome in outcomes)
    causes = sorted({cause for outcome in outcomes for cause in outcome.activations})
    return {
        "source": source.removesuffix("_traces"),
        "window": window,
        "traces": len(outcomes),
        "prompts": sum(outcome.prompts for outcome in outcomes),
        "nodes": sum(outcome.nodes for outcome in outcomes),
        "interrupted": sum(outcome.interrupted for outcome in outcomes),
        "activations": ", ".join(
            f"{sum(outcome.activations[cause] for outcome in outcomes)} {cause}" for cause in causes
        ),
        "left out": sum(outcome.hidden for outcome in outcomes),
        "capped": sum(outcome.capped for outcome in outcomes),
        "cut": sum(outcome.cut for outcome in outcomes),
        "shrunk": sum(outcome.shrunk for outcome in outcomes),
        "too large": sum(bool(outcome.too_large) for outcome in outcomes),
        "above limit": sum(outcome.above for outcome in outcomes),
        "refused": sum(outcome.refused for outcome in outcomes),
        "fullest %": round(100 * max((outcome.fullest for outcome in outcomes), default=0)),
        "cached %": round(100 * cached / prompt) if prompt else None,
        "faults": sum(len(outcome.faults) for outcome in outcomes),
        "seconds": round(seconds, 1),
    }


def targets(outcomes: Sequence[Outcome]) -> list[Target]:
    """Return the targets of every trace at every window."""
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    refused = sum(outcome.refused for outcome in outcomes)
    return [
        Target("faults", faults[0] if faults else 0, "none", not faults),
        Target("prompts above the provider's window", refused, "none", not refused),
    ]
