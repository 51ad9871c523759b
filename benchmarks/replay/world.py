"""A recorded run with the product's memory: the real loop and store, in recorded time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import anyio

from agent_runtime import Event, Runtime, ScriptedModel, Settings
from agent_runtime.errors import AgentRuntimeError
from agent_runtime.executor import RunExecutor
from agent_runtime.human.interruptions import Decisions
from agent_runtime.log.run_log import RunLog
from agent_runtime.log.run_spec import RunSpec
from agent_runtime.memory.observational.memory import ObservationalMemory
from agent_runtime.memory.observational.observer.base import MemoryCall
from agent_runtime.memory.observational.observer.model import ModelObserver
from agent_runtime.memory.observational.observer.notes_format import format_notes
from agent_runtime.messages import ToolResult
from agent_runtime.models.base import ModelEvent, ModelInfo, ModelRequest, TokenUsage
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes, render_notes
from agent_runtime.prompt.view import Entry, View
from agent_runtime.run.resolve import RunSetup
from agent_runtime.run.state import RunState
from agent_runtime.tools.context import ToolContext
from agent_runtime.tools.workspace.reading.seen_files import SeenFiles
from benchmarks.replay.bill import ACTOR, CACHE_SECONDS, OBSERVER, Bill, output_of
from benchmarks.replay.clock import Clock, Hand, PacedObserver, PacedWorker, tell_time_by
from benchmarks.replay.outcome import Outcome
from benchmarks.replay.player import Player, play
from benchmarks.replay.recordings import Trace, Turn

WINDOW = 200_000
LATENCY = 10.0
"""Seconds until a model's notes are ready."""
_HEADER = re.compile(r"\[\w+ \| node \d+ \| ([\d: -]*|time unknown) \| (.*)\]")
_DIGITS = re.compile(r"\d+")
_MARK = re.compile(r"(</?runtime-note) \w+>")
_LINE_CHARS = 240
_LEAST_CHARS = 12


@dataclass(frozen=True, slots=True)
class Policy:
    """A memory to replay with.

    Attributes:
        ratio: tokens observed per token that the scripted observer writes; None for rules.
    """

    name: str
    activation: Literal["threshold", "price"] = "threshold"
    ratio: int | None = None


@dataclass(slots=True)
class Lived:
    """The result of a recorded run with a memory.

    Attributes:
        observations: of messages; `by_rules` counts those written because the model's were
            unusable.
        reflections: observations of observations.
    """

    outcome: Outcome
    bill: Bill
    observations: int = 0
    by_rules: int = 0
    reflections: int = 0
    waited: int = 0


class MemoryPlayer(Player):
    """A recorded run's model in recorded time, with a bill."""

    def __init__(self, trace: Trace, policy: Policy) -> None:
        super().__init__(trace, WINDOW, remembers=True)
        self.policy = policy
        self.clock = Clock()
        self.lived = Lived(self.outcome, Bill())
        self.stamps: dict[int, float] = {}
        self.last_messages = 0
        self._front: int | None = None
        self._asked: float | None = None
        self._task = 0
        self._first_sent: dict[str, str] = {}

    async def info(self) -> ModelInfo:
        """Return the actor's info."""
        return replace(await super().info(), price=ACTOR)

    async def wait_for(self, turn: Turn) -> None:
        """Advance to the time of a turn's first call."""
        self._task = anyio.get_current_task().id
        if turn.steps:
            await self.clock.advance(turn.steps[0].asked)

    def hear(self, event: Event) -> None:
        """Follow the run's events."""
        super().hear(event)
        if event.node_id is not None:
            self.stamps.setdefault(event.node_id, self.clock.now)

    async def _events(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        # The memory's requests at this call come before the answer.
        await self.clock.advance(self.clock.now)
        async for event in super()._events(request):
            yield event

    async def result_of(self, tool: str, context: ToolContext) -> ToolResult:
        """Return the recorded result; the last one advances to the time of the next call."""
        result = await super().result_of(tool, context)
        if self._others_back.is_set() and self.next_step is not None:
            await self.clock.advance(self.next_step.asked)
        return result

    def foreground(self) -> bool:
        """Return whether this is the run's own task and not its memory's."""
        return anyio.get_current_task().id == self._task

    # The bill

    def _usage(self, request: ModelRequest) -> TokenUsage:
        usage = super()._usage(request)
        step = self.next_step
        if step is None:
            # The recording ends here: nothing answers this prompt.
            return usage
        bill = self.lived.bill
        cold = self._asked is None or step.asked - self._asked > CACHE_SECONDS
        self._asked = step.asked
        bill.call(usage.prompt, usage.cached, cold=cold, output=output_of(step, self.trace))
        if self._front is None:
            self._front = max(0, (step.reported or 0) - usage.prompt)
        bill.add_front(self._front, self.window)
        return usage

    def billed(self, ratio: Callable[[], float]) -> Callable[[tuple[MemoryCall, ...]], None]:
        """Return a function that adds the observer's calls to the bill, in the actor's tokens."""

        def add(calls: tuple[MemoryCall, ...]) -> None:
            for call in calls:
                usage = call.answer.usage or TokenUsage(call.counted, 0)
                scale = max(1.0, ratio())
                self.lived.bill.observed(usage.prompt * scale, usage.completion * scale)

        return add

    # Judging

    def _judge(self, request: ModelRequest) -> None:
        super()._judge(request)
        messages = request.messages
        prompt = f"prompt {self.outcome.prompts}"
        raw = self.expected[len(self.expected) - self._shown(messages)[0] :]
        fed = sum(piece.size for piece in self.expected)
        if sum(piece.size for piece in raw) < min(fed, self.last_messages):
            self._fault(f"{prompt}: fewer than {self.last_messages} recent messages")
        for message in messages:
            self._first_sent.setdefault(message.call_id, _unmarked(message.text))
        for place in [place for place, one in enumerate(messages) if one.calls][-2:]:
            results = messages[place + 1 : place + 1 + len(messages[place].calls)]
            first = [self._first_sent[result.call_id] for result in results]
            now = [_unmarked(result.text) for result in results]
            if not all(new.startswith(old) for new, old in zip(now, first, strict=True)):
                self._fault(f"{prompt}: a result of the last two exchanges is cut")

    def stamped(self, view: View) -> View:
        """Return a view read from the store with the recorded times."""
        entries: list[Entry] = []
        for entry in view.entries:
            before = entries[-1].at if entries else self.clock.now
            newest = entry is view.entries[-1]
            at = self.stamps.setdefault(entry.seq, self.clock.now if newest else before)
            entries.append(replace(entry, at=at))
        return replace(view, entries=tuple(entries))


class ReplayRuntime(Runtime):
    """A runtime whose memories work in the time of their recordings."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        parts = self.model, self._recall, self._memory_models
        self.executor = ReplayExecutor(self.settings, self.host, *parts)


class ReplayExecutor(RunExecutor):
    """Gives each run the memory of its recording."""

    def _state(
        self,
        log: RunLog,
        setup: RunSetup,
        spec: RunSpec,
        decisions: Decisions,
        *,
        task: Entry | None,
        limit: int,
        seen: SeenFiles | None = None,
    ) -> RunState:
        player = setup.model
        assert isinstance(player, MemoryPlayer)
        log.view = player.stamped(log.view)
        state = super()._state(log, setup, spec, decisions, task=task, limit=limit, seen=seen)
        memory = state.memory
        assert memory is not None
        player.last_messages = memory.thresholds.last_messages
        hand = player.clock.hand()
        if player.policy.ratio is not None:
            _observe_by_script(memory, player, hand, player.policy.ratio)
        state.worker = PacedWorker(memory, hand=hand)
        return state


def _observe_by_script(
    memory: ObservationalMemory, player: MemoryPlayer, hand: Hand, ratio: int
) -> None:
    model = scripted_observer(ratio)
    observer = ModelObserver(model, scripted_info(model), memory.deadline)
    if (prices := memory.thresholds.prices) is not None:
        memory.thresholds = replace(memory.thresholds, prices=replace(prices, observer=OBSERVER))
    memory.observer = PacedObserver(
        observer,
        hand,
        LATENCY,
        foreground=player.foreground,
        billed=player.billed(memory.ratio),
    )


async def live(runtime: Runtime, trace: Trace, policy: Policy, *, thread: str) -> Lived:
    """Replay a run on a new thread; faults are in the outcome's `faults`."""
    player = MemoryPlayer(trace, policy)
    tell_time_by(player.clock)
    try:
        await play(runtime, player, thread=thread)
    except AgentRuntimeError as error:
        # A broken invariant, or another error that must not end a run.
        player.outcome.faults.append(f"{trace.id}: {type(error).__name__}: {error.message}")
    await player.clock.advance(player.clock.now + 2 * LATENCY)
    lived = player.lived
    lived.waited = player.clock.waited
    store = runtime.store_of()
    for row in await store.log.observations(thread, ending_from=1):
        lived.observations += not row.level
        lived.reflections += row.level > 0
        lived.by_rules += row.provisional
    return lived


def settings_for(policy: Policy, url: str) -> Settings:
    """Return the product's defaults with a policy's memory."""
    return Settings(
        database_url=url,
        synchronous="normal",
        observational_memory=True,
        loop_limit=0,
        observer_model="extractive",
        reflector_model="extractive",
        observer_timeout=3_600.0,
        activation=policy.activation,
    )


# The scripted observer


def scripted_observer(ratio: int) -> ScriptedModel:
    """Return a model that notes what is in the transcript, one token per `ratio` tokens of it."""
    return ScriptedModel(
        lambda request: format_notes(notes_of(request.messages[-1].text, ratio)),
        name=f"scripted/ratio-{ratio}",
        window=1_000_000,
        max_output=65_536,
        price=OBSERVER,
    )


def scripted_info(model: ScriptedModel) -> ModelInfo:
    """Return the info of a scripted observer."""
    return ModelInfo(model.name, 1_000_000, 65_536, OBSERVER, start_ratio=1.0)


def notes_of(text: str, ratio: int) -> ObservationNotes:
    """Return evenly spaced lines of a transcript as notes of the requested size."""
    transcript = text[text.index("<transcript ") :].rpartition("</transcript ")[0]
    wanted = count_text(transcript) // ratio
    lines = list(_lines(transcript))
    few, many = 1, len(lines)
    while few < many:
        middle = (few + many + 1) // 2
        if count_text(render_notes(ObservationNotes(_evenly(lines, middle)))) <= wanted:
            few = middle
        else:
            many = middle - 1
    return ObservationNotes(_evenly(lines, few))


def _evenly(lines: Sequence[ObservationLine], count: int) -> tuple[ObservationLine, ...]:
    return tuple(lines[place * len(lines) // count] for place in range(count)) if lines else ()


def _lines(transcript: str) -> Iterator[ObservationLine]:
    """Yield lines of about the length that models write, without repetition."""
    at, priority = "", "info"
    shapes: set[str] = set()
    parts: list[str] = []
    for text in [*transcript.splitlines()[1:], "[x | node 0 | time unknown | end]"]:
        header = _HEADER.fullmatch(text)
        plain = "" if header else " ".join(text.split())[:_LINE_CHARS]
        shape = _DIGITS.sub("0", plain)
        if parts and (header or len(plain) + sum(map(len, parts)) > _LINE_CHARS):
            yield ObservationLine(at, priority, "; ".join(parts))
            parts = []
        if header:
            at = header[1] if header[1][:1].isdigit() else ""
            user, failed = header[2].startswith("user"), "(error)" in header[2]
            priority = "critical" if user else "important" if failed else "info"
        elif len(plain) >= _LEAST_CHARS and shape not in shapes:
            shapes.add(shape)
            parts.append(plain)


def _unmarked(text: str) -> str:
    """Return a text without the marks of its notes, which change at each activation."""
    return _MARK.sub(r"\1", text)
