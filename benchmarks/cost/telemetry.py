"""Measure what spans and metrics add to a step: none, the API without a provider, the SDK.

Each measurement is a fresh process: a run of a scripted model that calls one tool a step, on a
database file.  Rounds are interleaved; medians of CPU time per step are reported.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from statistics import median

from benchmarks.frame import Report, at_most

VARIANTS = ("none", "api", "sdk")
"""Nothing imported; the API imported and no provider set; the SDK with an exporter in memory."""
MOST_WITHOUT = 1.05
"""CPU time of a step where no provider is set, against one without OpenTelemetry."""
MOST_WITH = 1.5

_PROGRAM = """
import sys, time
variant, steps, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if variant != "none":
    from opentelemetry import metrics, trace
if variant == "sdk":
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
import anyio
from agent_runtime import Agent, Runtime, Settings, tool
from agent_runtime.testing import ScriptedModel, call, say

@tool
async def look(n: int) -> str:
    "Look."
    return "seen " * 400

async def main():
    settings = Settings(database_url=f"file:{folder}/run.db", loop_limit=0, max_steps=steps + 30)
    async with Runtime.open(settings) as runtime:
        script = lambda n: ScriptedModel([*(call("look", n=i) for i in range(n)), say("Done.")])
        await runtime.run(Agent(script(20), tools=[look]), "Look.")
        began = time.process_time()
        await runtime.run(Agent(script(steps), tools=[look]), "Look.")
        print((time.process_time() - began) / (steps + 1))

anyio.run(main)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")


def run(args: argparse.Namespace) -> Report:
    """Measure, in interleaved rounds."""
    seconds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(args.rounds):
        for variant in VARIANTS:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-c", _PROGRAM, variant, str(args.steps), folder]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            seconds[variant].append(float(done.stdout))
    cpu = {variant: median(found) for variant, found in seconds.items()}
    rows = [
        {"variant": variant, "cpu_ms": 1000 * cpu[variant], "ratio": cpu[variant] / cpu["none"]}
        for variant in VARIANTS
    ]
    targets = [
        at_most("without a provider", cpu["api"] / cpu["none"], MOST_WITHOUT, "×"),
        at_most("with the SDK", cpu["sdk"] / cpu["none"], MOST_WITH, "×"),
    ]
    return Report("telemetry", rows, targets)
