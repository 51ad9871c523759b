"""A recorded run, replayed by the real runtime: real loop, real store, recorded answers.

`play` runs each turn of a trace by `Runtime.run`.  The model gives the recorded answers and the
tools the recorded results; messages that came in are posted to the inbox; and where the recording
breaks off, the run is cancelled.  `Player` judges every prompt without the runtime's own checks,
and `play` compares the log with the recording at the end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, NoReturn

import anyio
import orjson

from agent_runtime import Agent, Event, Runtime
from agent_runtime.errors import ModelOverflow, PromptTooLarge
from agent_runtime.messages import (
    PromptMessage,
    ToolResult,
    call_place,
)
from agent_runtime.models.base import (
    ModelAnswer,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    Price,
    RawCall,
    TextDelta,
    TokenUsage,
)
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.window import CUT_TOKENS
from agent_runtime.run.start import UNANSWERED
from agent_runtime.tools.base import Tool
from agent_runtime.tools.context import ToolContext
from benchmarks.replay.outcome import (
    HIDDEN,
    Outcome,
    Piece,
    note,
    note_within,
    observed_nodes,
    same,
    stands_for,
    tiled,
)
from benchmarks.replay.recordings import Step, Trace, Turn

START_RATIOS = {"claude_code_traces": 1.6}
"""The runtime's assumption about Claude's tokens until it has seen usage; others use its default.
"""
MAX_OUTPUT = 8_192
LEAST_UNAVOIDABLE = 0.6
"""A prompt may be called too large only if its parts that cannot be truncated fill this share."""


class Player:
    """The model and the tools of a recorded run, and the judge of its prompts.

    As a model it counts tokens at the rate that the recorded provider reported for the same text,
    and refuses a prompt above its window.

    Args:
        remembers: whether observations must cover everything that is not shown.
    """

    def __init__(self, trace: Trace, window: int, *, remembers: bool = False) -> None:
        self.trace = trace
        self.window = window
        self.remembers = remembers
        self.outcome = Outcome(trace.id, window)
        self.expected: list[Piece] = []
        self.thread_id = ""
        self._turn = Turn("", (), ())
        self._next = 0
        self._scope = anyio.CancelScope()
        self._returned = 0
        self._others_back = anyio.Event()
        self._rates: dict[int, float] = {}
        self._previous: tuple[PromptMessage, ...] = ()
        self._sent: tuple[PromptMessage, ...] = ()
        self._activated = True
        self.cut = 0
        """Messages in the log that hold only a part of what was fed: the last, if any."""

    @property
    def name(self) -> str:
        """A unique name, so that token ratios learned from one trace do not reach another."""
        return f"recorded/{self.trace.id}"

    async def info(self) -> ModelInfo:
        """Return the window under test; the model is free."""
        free = Price(input=0, output=0, cache_read=0, cache_write=0)
        info = ModelInfo(self.name, self.window, MAX_OUTPUT, free)
        return replace(info, start_ratio=START_RATIOS.get(self.trace.source, info.start_ratio))

    @property
    def limit(self) -> int:
        """The most tokens that the runtime may send."""
        return self.window - min(MAX_OUTPUT, self.window // 4)

    @property
    def next_step(self) -> Step | None:
        """The answer to the next call; None where the recording breaks off."""
        steps = self._turn.steps
        return steps[self._next] if self._next < len(steps) else None

    def tools(self) -> list[Tool]:
        """Return a tool for each name in the recording."""
        names = {call.name for turn in self.trace.turns for s in turn.steps for call in s.calls}
        return [RecordedTool(name, self) for name in sorted(names)]

    async def wait_for(self, turn: Turn) -> None:
        """Wait for a turn's time; a no-op unless recorded time counts."""

    def begin(self, turn: Turn, scope: anyio.CancelScope) -> None:
        """Prepare for a turn; where its recording breaks off, the scope is cancelled."""
        self._turn, self._next, self._scope = turn, 0, scope

    def hear(self, event: Event) -> None:
        """Follow the run's events."""
        match event.kind:
            case "run-start" if "task_chars" in event.data:
                self._cut_short(int(event.data["task_chars"]))
            case "run-start":
                if self._loop_is_open():
                    self.expected.append(Piece("assistant", UNANSWERED))
                self.expected.append(Piece("user", self._turn.task))
                self.expected += [note(said) for said in self._turn.said]
            case "activation":
                self._activated = True
                self.outcome.activations[str(event.data["cause"])] += 1
                self.outcome.cut += int(event.data["cut"])
            case _:
                pass

    def _loop_is_open(self) -> bool:
        """Whether the log ends in an exchange, with or without notes that ride in it."""
        last = next((piece for piece in reversed(self.expected) if piece.role != "note"), None)
        return last is not None and last.step is not None and bool(last.step.calls)

    # The model

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Give the recorded answer.

        Raises (from the iterator):
            ModelOverflow: the prompt exceeds the window.
        """
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        yield self._events(request)

    async def _events(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self._judge(request)
        usage = self._usage(request)
        if usage.prompt > self.window:
            self.outcome.refused += 1
            raise ModelOverflow(f"{usage.prompt} tokens are more than {self.window}.")
        if (step := self.next_step) is None:
            await self._break_off()
        self._next += 1
        self._returned, self._others_back = 0, anyio.Event()
        self.outcome.steps += 1
        self.expected.append(Piece("assistant", step.text, step))
        self.expected += [note(said) for said in step.said]
        yield TextDelta(step.text)
        yield ModelAnswer(
            text=step.text,
            calls=tuple(RawCall(call.name, call.arguments) for call in step.calls),
            finish="tool_calls" if step.calls else "stop",
            model=self.name,
            usage=usage,
            cost=0,
            reasoning=step.reasoning,
        )

    async def _break_off(self) -> NoReturn:
        """Cancel the run, as its recording ends here."""
        self.outcome.interrupted += 1
        self._scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError("the run was not cancelled")

    # The tools

    async def result_of(self, tool: str, context: ToolContext) -> ToolResult:
        """Return the recorded result of a call; without a result, cancel the run."""
        step = self._turn.steps[self._next - 1]
        seq, index = call_place(context.call_id)
        call = step.calls[index]
        if call.name != tool:
            self._fault(f"call {index} of node {seq} went to {tool}, not to {call.name}")
        if step.rate is not None:
            self._rates[seq] = step.rate
        if index == 0:
            for said in step.said:
                await context.store.inbox.post(
                    context.thread_id, said.kind, said.text.encode(), run_id=context.run_id
                )
        present = sum(other.result is not None for other in step.calls)
        if call.result is None:
            if self._returned < present:
                await self._others_back.wait()
            await self._break_off()
        self._returned += 1
        if self._returned == present:
            self._others_back.set()
        return ToolResult(call.result or "", "error" if call.failed else "ok")

    # The judge

    def _fault(self, text: str) -> None:
        self.outcome.faults.append(f"{self.trace.id} at {self.window}: {text}")

    def _judge(self, request: ModelRequest) -> None:
        """Record faults of a prompt, judged only by what was fed so far."""
        self.outcome.prompts += 1
        messages = request.messages
        self._judge_pairs(messages)
        shared = sum(old == new for old, new in zip(self._previous, messages, strict=False))
        if not self._activated and shared < len(self._previous):
            self._fault(f"prompt {self.outcome.prompts} rewrites the one before")
        self._previous, self._activated = messages, False
        pieces, used = self._shown(messages)
        front = messages[1 : len(messages) - used]
        self._judge_front(front, self.expected[: len(self.expected) - pieces])

    def _judge_pairs(self, messages: Sequence[PromptMessage]) -> None:
        index = 0
        while index < len(messages):
            message = messages[index]
            results = messages[index + 1 : index + 1 + len(message.calls)]
            if [call.id for call in message.calls] != [result.call_id for result in results]:
                self._fault(f"message {index} of prompt {self.outcome.prompts}: torn pairs")
            index += 1 + len(message.calls)
            if message.role == "tool":
                self._fault(f"message {index} of prompt {self.outcome.prompts}: orphan result")

    def _shown(self, messages: Sequence[PromptMessage]) -> tuple[int, int]:
        """Return how many of the last pieces are raw in the prompt, and in how many messages."""
        pieces = used = 0
        riding: list[str] = []
        for piece in reversed(self.expected):
            end = len(messages) - used
            last = messages[end - 1]
            if piece.role == "note":
                if last.role == "user" and note_within(last.text, piece.text) and not riding:
                    pieces, used = pieces + 1, used + 1
                else:
                    riding.append(piece.text)
                continue
            block = messages[max(1, end - piece.size) : end]
            if len(block) < piece.size or not stands_for(block, piece, riding):
                break
            pieces, used, riding = pieces + 1 + len(riding), used + piece.size, []
        if pieces == len(self.expected) and observed_nodes(messages[1:]) == [(1, 1)]:
            # The apparent first node is the task, restated after its observation.
            pieces, used = pieces - 1, used - 1
        return pieces, used

    def _judge_front(self, front: Sequence[PromptMessage], before: Sequence[Piece]) -> None:
        """Check that the front covers everything that is not raw: the task by text, the rest by
        number.

        If there are observations, each node must be in exactly one of their intervals.
        """
        hidden = sum(piece.size for piece in before)
        self.outcome.hidden = hidden
        intervals = observed_nodes(front)
        if (intervals or self.remembers) and tiled(intervals) != len(before):
            self._fault(f"prompt {self.outcome.prompts}: {intervals} stand for {len(before)} nodes")
        front = front[len(intervals) :]
        text = front[0].text if front else ""
        if len(front) > 1 or (front and front[0].role != "user"):
            self._fault(f"prompt {self.outcome.prompts}: {len(front)} messages stand for none")
        counts = HIDDEN.findall(text)
        number = int(counts[-1]) if counts else 0
        pinned = any(piece.role == "user" and text.startswith(piece.text) for piece in before)
        if number + pinned != hidden:
            self._fault(f"prompt {self.outcome.prompts}: {hidden} hidden, {number} reported")
        task = self._turn.task
        if not (text.startswith(task) or any(m.text == task for m in self._previous)):
            self._fault(f"prompt {self.outcome.prompts} lacks the task")

    def _usage(self, request: ModelRequest) -> TokenUsage:
        """Count a prompt as the recorded provider did."""
        sizes: list[float] = []
        rate = self.trace.rate
        for message in request.messages:
            if message.role != "tool":
                rate = self.trace.rate
            if message.calls:
                rate = self._rates.get(call_place(message.calls[0].id)[0], self.trace.rate)
            arguments = sum(len(c.name) + len(orjson.dumps(c.arguments)) for c in message.calls)
            sizes.append((len(message.text) + arguments) * rate)
        tools = len(orjson.dumps([tool.parameters for tool in request.tools])) * self.trace.rate
        total = round(sum(sizes) + tools)
        cached = self._cached(request.messages, sizes)
        cached += round(tools) if cached else 0
        self.outcome.above += total > self.limit
        self.outcome.fullest = max(self.outcome.fullest, total / self.limit)
        self.outcome.prompt_tokens += total
        self.outcome.cached_tokens += cached
        return TokenUsage(prompt=total, completion=0, cached=cached)

    def _cached(self, messages: Sequence[PromptMessage], sizes: Sequence[float]) -> int:
        common = 0
        for old, new in zip(self._sent, messages, strict=False):
            if old != new:
                break
            common += 1
        self._sent = tuple(messages)
        return round(sum(sizes[:common]))

    def _cut_short(self, chars: int) -> None:
        """End the replay: the runtime shows the task only in part, so no answer fits it."""
        task = self._turn.task
        message = f"The runtime shows {chars:,} of {len(task):,} characters of a user message."
        self.expected.append(Piece("user", task))
        self.too_large(PromptTooLarge(message))
        self.expected.pop()
        self.cut = 1
        self._scope.cancel()

    def too_large(self, error: PromptTooLarge) -> None:
        """Judge whether a prompt was rightly called too large for the window."""
        self.outcome.too_large = error.message
        chars = len(self.trace.system) + len(self._turn.task)
        for piece in reversed(self.expected):
            chars += len(piece.text)
            calls = piece.step.calls if piece.step else ()
            for call in calls:
                chars += len(call.arguments) + min(len(call.result or ""), CUT_TOKENS * 4)
            if piece.role != "note":
                break
        self.outcome.unavoidable = chars * self.trace.rate / self.limit
        if self.outcome.unavoidable < LEAST_UNAVOIDABLE:
            self._fault(f"called too large without need: {error.message}")


class RecordedTool(Tool):
    """Returns the recorded results of the tool of this name."""

    def __init__(self, name: str, player: Player) -> None:
        super().__init__(name=name, description="A recorded tool.")
        self._player = player

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Return the recorded result, whatever the arguments."""
        del arguments
        return await self._player.result_of(self.name, context)


# A whole trace


async def play(runtime: Runtime, player: Player, *, thread: str) -> Outcome:
    """Run a trace on a new thread; faults are in the outcome's `faults`.

    A trace that does not fit the window ends with the first prompt that does not.
    """
    trace = player.trace
    agent = Agent(
        player,
        tools=player.tools(),
        instructions=trace.system,
        name="recorded",
        max_steps=10_000,
        context_window=player.window,
    )
    store = runtime.store_of()
    await store.threads.ensure(thread)
    for turn in trace.turns:
        for said in turn.said:
            await store.inbox.post(thread, said.kind, said.text.encode())
        try:
            await player.wait_for(turn)
            with anyio.CancelScope() as scope:
                player.begin(turn, scope)
                await runtime.run(agent, turn.task, thread=thread, on_event=player.hear)
            if player.outcome.too_large:
                break
        except PromptTooLarge as error:
            player.too_large(error)
            break
    await _compare(runtime, player, thread)
    return player.outcome


async def _compare(runtime: Runtime, player: Player, thread_id: str) -> None:
    """Compare the log with what was fed, node by node."""
    store = runtime.store_of()
    outcome = player.outcome
    thread = await store.threads.get(thread_id)
    nodes = [] if thread.head is None else await store.log.branch(thread_id, thread.head)
    outcome.nodes = len(nodes)
    if [node.seq for node in nodes] != list(range(1, thread.last_seq + 1)):
        outcome.faults.append(f"{outcome.trace}: the log's nodes are not one chain")
    nodes = nodes[: len(nodes) - player.cut]
    if len(nodes) != len(player.expected):
        outcome.faults.append(
            f"{outcome.trace}: {len(player.expected)} messages fed, {len(nodes)} nodes logged"
        )
    for node, piece in zip(nodes, player.expected, strict=False):
        outcome.capped += sum(call.shown is not None for call in node.calls)
        if node.status != "closed" or not same(entry_of(node), piece):
            outcome.faults.append(f"{outcome.trace}: node {node.seq} differs from what was fed")
    for event in await _activations(runtime, thread_id):
        row = await store.log.activation(thread_id, event)
        outcome.shrunk += row is not None and bool(orjson.loads(row.body)["shrunk"])


async def _activations(runtime: Runtime, thread_id: str) -> list[int | None]:
    """Return the nodes at which a prompt did not extend the one before."""
    store = runtime.store_of()
    anchors: list[int | None] = []
    after = 0
    while events := await store.events.list(thread_id, after=after):
        anchors += [event.node_id for event in events if event.kind == "activation"]
        after = events[-1].id
    return anchors
