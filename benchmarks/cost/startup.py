"""Measure the CPU time of a process until its first request, and that of the command's help.

Each measurement is a fresh process against a server on loopback, with a new database.  The CPU time
is that of the whole process with its threads, from its start to the arrival of its first request.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from benchmarks.cost.loop import running_server
from benchmarks.frame import Report, at_most

MOST_CPU = 0.7
"""Seconds until the first request."""
MOST_HELP = 0.25
"""Seconds of the command's help."""

# The reading of the clock is a transport's, right before it sends; all before it is start-up.
_PROGRAM = """
import sys, time
from agent_runtime import Agent, Runtime, Settings, model_from_name
import agent_runtime.models.native as native
import anyio, orjson

url, database = sys.argv[1:]
imported = time.process_time()
post = native.post

async def first(request):
    print(orjson.dumps([imported, time.process_time()]).decode(), flush=True)
    native.post = post
    return await post(request)

async def main():
    native.post = first
    model = model_from_name("openai/bench", base_url=url, api_key="none")
    async with Runtime.open(Settings(database_url=f"file:{database}"), model=model) as runtime:
        await runtime.run(Agent(), "Say hello.")

anyio.run(main)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")


def run(args: argparse.Namespace) -> Report:
    """Measure, in interleaved rounds."""
    imported: list[float] = []
    sent: list[float] = []
    helped: list[float] = []
    for _ in range(args.rounds):
        one, other = _first_request()
        imported.append(one)
        sent.append(other)
        helped.append(_help())
    rows: list[dict[str, Any]] = [
        {"what": "import", "cpu_s": median(imported), "least_s": min(imported)},
        {"what": "first request", "cpu_s": median(sent), "least_s": min(sent)},
        {"what": "help", "cpu_s": median(helped), "least_s": min(helped)},
    ]
    return Report(
        "startup",
        rows,
        [
            at_most("CPU time until the first request", median(sent), MOST_CPU, "s"),
            at_most("CPU time of the command's help", median(helped), MOST_HELP, "s"),
        ],
    )


def _first_request() -> tuple[float, float]:
    """Return the CPU seconds until all is imported, and until the first request."""
    with tempfile.TemporaryDirectory() as folder, running_server(1) as (url, _):
        command = [sys.executable, "-c", _PROGRAM, url, str(Path(folder) / "runs.db")]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    imported, sent = orjson.loads(done.stdout.splitlines()[0])
    return imported, sent


def _help() -> float:
    """Return the CPU seconds of the command's help."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(Path(sys.executable).with_name("agent-runtime")), "--help"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
