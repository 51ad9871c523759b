"""How the memory benchmarks measure: the same questions, with different knowledge of the past.

Each conversation is written into a thread, and each of its questions is asked on a copy of it.  The
reader's knowledge of the conversation is its context:

    full           every message, as far as the model's window allows
    none           the last messages only
    memory         the last messages, and the product's observations of earlier ones, made
                   during the conversation
    memory+recall  the same with the tool `recall` (with `--recall`)

Without `--reader` no model is called: a scripted reader answers only from evidence in its prompt,
the extractive observer writes the observations, and rules judge.  A score is then the share of
evidence that a context preserves.  With model names each is called through litellm, with the
timeouts, prices and base URL of the environment:

    python -m benchmarks longmemeval --data DIR --reader M --observer M --judge M

It says what that will cost and asks before it starts (`--yes` agrees).  Each answer is kept as it
comes, in the folder `--keep DIR`; after an interruption the same command continues there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import orjson
from rich.console import Console

from agent_runtime import Agent, Settings, load_settings, model_from_name
from agent_runtime.concurrency import single_error
from agent_runtime.errors import ConfigError
from agent_runtime.memory.recall.tool import recall
from agent_runtime.models.base import Model
from benchmarks.frame import Report, Target
from benchmarks.memory.data import Conversation, sample
from benchmarks.memory.expected import ExpectedCalls, Plan, show_expected
from benchmarks.memory.judge import Judge, ModelJudge, RulesJudge
from benchmarks.memory.kept import Kept
from benchmarks.memory.reader import answerable
from benchmarks.memory.score import Answered, Tally, micro, rows_of
from benchmarks.memory.threads import ALL
from benchmarks.memory.unit import WINDOW, Context, Unit

CONTEXTS: tuple[Context, ...] = ("full", "none", "memory")
THRESHOLDS = (30_000, 40_000)
MOST_STEPS = 12
"""The most model calls for one answer."""

INSTRUCTIONS = """\
You have talked with the user before, or have listened to people who talk with each other; then \
each message names who speaks. A date in brackets before a message says when its conversation \
took place, or when a question is asked. Answer the user's last message from what was said. Keep \
to what the user told you to do and likes. Where something changed, the newest state holds. Where \
statements contradict each other, say so. If what was said does not tell what is asked for, say \
that you do not know; never guess. Give the answer, and not how you came to it."""


def add_arguments(
    parser: argparse.ArgumentParser, *, thresholds: tuple[int, int] = THRESHOLDS
) -> None:
    """Declare the options that these benchmarks share."""
    observe, reflect = thresholds
    parser.add_argument("--reader", metavar="MODEL", help="who answers; none is a scripted reader")
    parser.add_argument(
        "--observer", metavar="MODEL", help="by default the reader; `extractive` is by rules"
    )
    parser.add_argument("--reflector", metavar="MODEL", help="by default the observer")
    parser.add_argument("--judge", metavar="MODEL", help="by default rules, which compare words")
    parser.add_argument("--runs", type=_at_least(1), default=3, help="how often all is repeated")
    parser.add_argument(
        "--limit", type=_at_least(1), metavar="N", help="ask N of the questions only"
    )
    parser.add_argument(
        "--contexts", nargs="+", choices=CONTEXTS, default=CONTEXTS, help="what is compared"
    )
    parser.add_argument("--recall", action="store_true", help="compare memory with `recall`, too")
    parser.add_argument("--window", type=_at_least(1000), metavar="TOKENS", help="of the reader")
    parser.add_argument("--last-messages", type=_at_least(2), default=20, metavar="N")
    parser.add_argument("--observe-at", type=_at_least(1000), default=observe, metavar="TOKENS")
    parser.add_argument("--reflect-at", type=_at_least(500), default=reflect, metavar="TOKENS")
    parser.add_argument("--at-once", type=_at_least(1), default=4, metavar="N", help="threads")
    parser.add_argument("--answers", type=Path, metavar="FILE", help="write each answer, as JSON")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep each answer as it comes, and continue there; with models by default NAME-kept",
    )
    parser.add_argument("--yes", action="store_true", help="start without asking about the cost")


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return int(text)

    return number


def folder_of(args: argparse.Namespace) -> Path:
    """Return the folder given as `--data`, into which missing files are downloaded.

    Raises:
        ConfigError: none was given, or it is a file.
    """
    folder = cast("Path | None", args.data)
    if folder is None:
        raise ConfigError(
            "This benchmark works on recorded conversations.",
            cure="Name a folder: --data DIR. What is missing there is fetched into it.",
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(
            f"{folder} is not a folder.", cure="Name the folder of the conversations."
        )
    return folder


def measure(
    benchmark: str, conversations: Sequence[Conversation], args: argparse.Namespace
) -> Report:
    """Ask the questions with every context; blocks until it is done.

    Raises:
        ConfigError: a model cannot be used, or there is nothing to ask.
        ModelError: a model refuses every call, for want of a key for example.
    """
    if _calls_models(args):
        args.keep = args.keep or Path(f"{benchmark}-kept")
        anyio.run(_show_cost, benchmark, conversations, args)
        _ask(args)
    return anyio.run(report_of, benchmark, conversations, args)


def _calls_models(args: argparse.Namespace) -> bool:
    observer = args.observer not in (None, "extractive")
    return bool(args.reader or observer or args.judge)


async def _show_cost(
    benchmark: str, conversations: Sequence[Conversation], args: argparse.Namespace
) -> None:
    """Print what is left to do, and what it will cost."""
    chosen, bench = _chosen(benchmark, conversations, args), Bench.from_arguments(args)
    with Kept(args.keep, setup_of(benchmark, args)) as kept:
        plan = await bench.plan(chosen, kept)
    await show_expected(bench.expected(plan), Console(stderr=True))
    print(f"Answers are kept in {args.keep}; the same command continues there.", file=sys.stderr)


def _ask(args: argparse.Namespace) -> None:
    """Ask whether to start. Raises `ConfigError` if the answer is no or nobody can be asked."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("Nobody can be asked about the cost.", cure="Agree to it: --yes.")
    if input("Start? [y/N] ").strip().lower() not in ("y", "yes"):
        raise ConfigError("Nothing was started.", cure="Answer y, or agree to the cost: --yes.")


def setup_of(benchmark: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return what decides the answers of a measurement; more runs and questions continue it."""
    names = ("reader", "observer", "reflector", "judge", "window")
    names += ("last_messages", "observe_at", "reflect_at")
    return {"benchmark": benchmark} | {name: getattr(args, name) for name in names}


async def report_of(
    benchmark: str, conversations: Sequence[Conversation], args: argparse.Namespace
) -> Report:
    """Like `measure`, on the event loop, without asking about the cost."""
    chosen, bench = _chosen(benchmark, conversations, args), Bench.from_arguments(args)
    if args.keep:
        with Kept(args.keep, setup_of(benchmark, args)) as kept:
            await bench.run(chosen, kept)
    else:
        await bench.run(chosen)
    if args.answers:
        lines = [orjson.dumps(answer) for answer in bench.answers]
        args.answers.write_bytes(b"\n".join(lines) + b"\n")
    rows: list[dict[str, Any]] = []
    scores: dict[str, float] = {}
    for context, tally in bench.tallies.items():
        answers = [answer for answer in bench.answers if answer.context == context]
        scores[context] = micro(answers)
        rows += rows_of(context, answers, tally)
        for why in sorted(tally.why):
            print(f"{context}: {why}", file=sys.stderr)
    return Report(benchmark, rows, [] if args.reader else _targets(scores))


def _chosen(
    benchmark: str, conversations: Sequence[Conversation], args: argparse.Namespace
) -> list[Conversation]:
    """Return the conversations with the questions to ask. Raises `ConfigError` if there is none."""
    asked = conversations if args.reader else answerable(conversations)
    chosen = sample(asked, args.limit)
    if not chosen:
        raise ConfigError(
            f"There is no question of {benchmark} to ask.", cure="Name another folder: --data DIR."
        )
    return chosen


def _targets(scores: Mapping[str, float]) -> list[Target]:
    """Return the targets of a run without language models."""
    none = scores.get("none")
    if none is None:
        return []
    return [
        Target(f"score with {context}", score, f"more than {none:.4g}, as with none", score > none)
        for context, score in scores.items()
        if context != "none"
    ]


@dataclass(slots=True)
class Bench:
    """The setup of a measurement, and its results.

    Attributes:
        settings: of the product, with observational memory on.
        reader: None for the scripted one.
    """

    settings: Settings
    contexts: tuple[Context, ...]
    runs: int
    window: int | None
    at_once: int
    reader: Model | None
    judge: Judge
    answers: list[Answered]
    tallies: dict[str, Tally]

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Bench:
        """Return the setup that the options describe.

        Raises:
            ConfigError: a name means no language model.
        """
        observer = args.observer or args.reader or "extractive"
        settings = load_settings()
        thresholds = {
            "observer_message_tokens": args.observe_at,
            "reflector_observation_tokens": args.reflect_at,
        }
        # A default that the window does not allow is lowered without a word, unlike a choice.
        chosen = {
            name: value for name, value in thresholds.items() if value != getattr(settings, name)
        }
        settings = settings.model_copy(
            update={
                **chosen,
                "observational_memory": True,
                "observer_model": observer,
                "reflector_model": args.reflector or observer,
                "last_messages": args.last_messages,
                "synchronous": "normal",
                "object_store_url": None,
            }
        )
        contexts: tuple[Context, ...] = tuple(dict.fromkeys(args.contexts))
        contexts = (*contexts, "memory+recall") if args.recall else contexts
        judge = RulesJudge()
        if args.reader and not args.judge:
            print("Rules compare words: name --judge MODEL for scores that count.", file=sys.stderr)
        return cls(
            settings=settings,
            contexts=contexts,
            runs=args.runs,
            window=args.window or (None if args.reader else WINDOW),
            at_once=args.at_once,
            reader=model_from_name(args.reader, settings) if args.reader else None,
            judge=ModelJudge(model_from_name(args.judge, settings)) if args.judge else judge,
            answers=[],
            tallies={context: Tally() for context in contexts},
        )

    async def plan(self, conversations: Sequence[Conversation], kept: Kept) -> Plan:
        """Return what is left to measure."""
        left: list[tuple[str, Conversation, int, int]] = []
        for unit in await self._units(conversations):
            known = kept.unit(unit.thread)
            questions = [one for one in unit.conversation.questions if one.id not in known.answers]
            feeds = bool(questions) and not known.fed
            left.append((unit.context, unit.conversation, len(questions), feeds))
        settings, window = self.settings, self.window
        if window is None and self.reader is not None:
            window = (await self.reader.info()).window
        return Plan(
            observe_at=settings.observer_message_tokens,
            reflect_at=settings.reflector_observation_tokens,
            window=window or WINDOW,
            last=settings.last_messages,
            left=left,
        )

    def expected(self, plan: Plan) -> list[ExpectedCalls]:
        """Return the expected calls of the language models."""
        name, judge = self.settings.observer_model, None
        observer = None if name == "extractive" else model_from_name(name, self.settings)
        if isinstance(self.judge, ModelJudge):
            judge = self.judge.model
        return plan.expected(self.reader, observer, judge)

    async def run(self, conversations: Sequence[Conversation], kept: Kept | None = None) -> None:
        """Ask every question of every conversation with every context, in every repetition.

        Args:
            kept: what was done before, which is not done again.
        """
        limiter = anyio.CapacityLimiter(self.at_once)
        units = await self._units(conversations)
        done = 0

        async def run_unit(unit: Unit) -> None:
            nonlocal done
            async with limiter:
                if kept is not None:
                    answers = await unit.resume(kept)
                else:
                    with tempfile.TemporaryDirectory() as folder:
                        answers = await unit.run(Path(folder) / "before")
            self.answers += answers
            self.tallies[unit.context].add(unit.tally)
            done += 1
            print(f"{done} of {len(units)}: {unit.thread}", file=sys.stderr)

        async with single_error(), anyio.create_task_group() as group:
            for unit in units:
                group.start_soon(run_unit, unit)

    async def _units(self, conversations: Sequence[Conversation]) -> list[Unit]:
        return [
            await self._unit(conversation, context, number)
            for number in range(1, self.runs + 1)
            for conversation in conversations
            for context in self.contexts
        ]

    async def _unit(self, conversation: Conversation, context: Context, number: int) -> Unit:
        window = self.window
        if window is None and self.reader is not None:
            window = (await self.reader.info()).window
        agent = Agent(
            instructions=INSTRUCTIONS,
            name="reader",
            tools=[recall] if context == "memory+recall" else [],
            max_steps=MOST_STEPS,
            context_window=window,
            last_messages=ALL if context == "full" else None,
        )
        return Unit(
            conversation=conversation,
            context=context,
            number=number,
            settings=self.settings,
            agent=agent,
            reader=self.reader,
            judge=self.judge,
        )
