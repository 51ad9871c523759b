"""A run of thousands of steps with observational memory: its prompt, its step time, its database.

The loop, the store (a database file) and the memory are the product's, with its default thresholds;
the scripted model repeatedly calls a tool with results of 2 KB, some of which fail.  Observations
are written by rules.  There is one row per tenth of the run; CPU time is that of the whole process,
including the scripted model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import ToolError
from agent_runtime.models.base import ModelAnswer, ModelRequest, TokenUsage
from agent_runtime.models.scripted import call, say
from agent_runtime.models.tokens import count_message, count_tools
from benchmarks.cost.loop_worker import size
from benchmarks.frame import Report, Row, Target, at_least, at_most
from benchmarks.peers.runners.pages import page

TENTHS = 10
FAILS = 53
"""One in this many pages cannot be read."""
MOST_GROWTH = 1.3
MOST_PROMPT_GROWTH = 1.1
MOST_DATABASE_GROWTH = 1.2
ACTIVATIONS, REFLECTIONS = 50, 3
FULL_STEPS = 5000
"""The number of steps for those targets; a shorter run needs proportionally fewer."""
FIXED = 5_000
"""Tokens of a prompt beyond the thresholds: the system prompt, the tools, the task, and messages
that arrive while an activation waits for its observations.
"""
LATE = 1.2
"""Above this share of T old tool output is truncated."""


@dataclass(slots=True)
class Tenth:
    """A tenth of the run, in seconds, tokens and bytes."""

    cpu: float = 0.0
    wall: float = 0.0
    peak: int = 0
    tokens: int = 0
    database: int = 0
    steps: int = 0
    activations: int = 0
    observed: int = 0
    reflected: int = 0


@dataclass
class Course:
    """The figures recorded during the run."""

    database: Path
    steps: int
    tenths: list[Tenth] = field(default_factory=list[Tenth])
    _cpu: float = field(default_factory=time.process_time)
    _wall: float = field(default_factory=time.perf_counter)

    @property
    def now(self) -> Tenth:
        """The current tenth."""
        return self.tenths[-1]

    def step(self, number: int, tokens: int) -> None:
        """Record the start of a step and the size of its prompt."""
        if number * TENTHS // self.steps > len(self.tenths) - 1 and number < self.steps:
            self.end()
            self.tenths.append(Tenth())
        self.now.steps += 1
        self.now.tokens += tokens
        self.now.peak = max(self.now.peak, tokens)

    def end(self) -> None:
        """End the current tenth."""
        cpu, wall = time.process_time(), time.perf_counter()
        if self.tenths:
            self.now.cpu, self.now.wall = cpu - self._cpu, wall - self._wall
            self.now.database = size(self.database)
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def event(self, event: Event) -> None:
        """Count the memory's events."""
        if not self.tenths:
            return
        if event.kind == "activation":
            self.now.activations += 1
        elif event.kind == "observation":
            self.now.reflected += event.data["level"] > 0
            self.now.observed += event.data["level"] == 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--steps", type=int, default=FULL_STEPS)
    parser.add_argument("--observe", type=int, default=30_000, help="tokens of T")
    parser.add_argument("--reflect", type=int, default=40_000, help="tokens of R")


def run(args: argparse.Namespace) -> Report:
    """Run and report."""
    with tempfile.TemporaryDirectory() as folder:
        measure = anyio.run(long_run, Path(folder), args.steps, args.observe, args.reflect)
    most = int(args.observe * LATE) + args.reflect + FIXED
    return Report("long_run", rows(measure), targets(measure, args.steps, most))


async def long_run(folder: Path, steps: int, observe: int, reflect: int) -> list[Tenth]:
    """Do the run with these thresholds, and return the figures of each tenth.

    Raises:
        RuntimeError: it did not finish.
    """
    course = Course(folder / "long.db", steps)
    taken = 0

    @tool
    async def read_page(number: int) -> str:
        """Read a page.

        Args:
            number: of the page.
        """
        if number % FAILS == FAILS - 1:
            raise ToolError(f"cannot open src/part_{number}.py")
        return f"src/part_{number}.py\n{page(number)}"

    def respond(request: ModelRequest) -> ModelAnswer:
        nonlocal taken
        tokens = count_tools(request.tools) + sum(map(count_message, request.messages))
        course.step(taken, tokens)
        taken += 1
        answer = call("read_page", number=taken) if taken <= steps else say("All are read.")
        return replace(answer, usage=TokenUsage(tokens, 30))

    settings = Settings(
        database_url=f"file:{course.database}",
        max_steps=steps + 1,
        observational_memory=True,
        observer_message_tokens=observe,
        reflector_observation_tokens=reflect,
    )
    async with Runtime.open(settings) as runtime:
        agent = Agent(ScriptedModel(respond), tools=[read_page], instructions="Read all pages.")
        result = await runtime.run(agent, f"Read {steps} pages.", on_event=course.event)
        course.end()
    if not result.ok or result.steps != steps + 1:
        raise RuntimeError(f"the run ended with {result}")
    return course.tenths


def rows(tenths: list[Tenth]) -> list[Row]:
    """Return a row for each tenth."""
    rows: list[Row] = []
    before = steps = 0
    for tenth in tenths:
        steps += tenth.steps
        row: dict[str, Any] = {
            "steps": steps,
            "cpu_ms": tenth.cpu / tenth.steps * 1000,
            "wall_ms": tenth.wall / tenth.steps * 1000,
            "mean_prompt": tenth.tokens // tenth.steps,
            "peak_prompt": tenth.peak,
            "database_mb": tenth.database / 1e6,
            "kb_a_step": (tenth.database - before) / tenth.steps / 1000,
            "activations": tenth.activations,
            "observed": tenth.observed,
            "reflected": tenth.reflected,
        }
        before = tenth.database
        rows.append(row)
    return rows


def targets(tenths: list[Tenth], steps: int, most: int) -> list[Target]:
    """Return the targets of a run whose prompts have at most `most` tokens.

    The first tenth fills the memory, so the last one is compared with the second.
    """
    early, late = tenths[1], tenths[-1]
    middle = tenths[len(tenths) // 2].database
    share = steps / FULL_STEPS
    return [
        at_most("tokens of the longest prompt", max(tenth.peak for tenth in tenths), most),
        at_most(
            "longest prompt of the last tenth, against the second",
            late.peak / early.peak,
            MOST_PROMPT_GROWTH,
            "times",
        ),
        at_most(
            "CPU time of a step of the last tenth, against the second",
            late.cpu / late.steps / (early.cpu / early.steps),
            MOST_GROWTH,
            "times",
        ),
        at_most(
            "bytes that a step adds to the database, late against early",
            (late.database - middle)
            / sum(tenth.steps for tenth in tenths[len(tenths) // 2 + 1 :])
            / (middle / sum(tenth.steps for tenth in tenths[: len(tenths) // 2 + 1])),
            MOST_DATABASE_GROWTH,
            "times",
        ),
        at_least("activations", sum(tenth.activations for tenth in tenths), ACTIVATIONS * share),
        at_least("reflections", sum(tenth.reflected for tenth in tenths), REFLECTIONS * share),
    ]
