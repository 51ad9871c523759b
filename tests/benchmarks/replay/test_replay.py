"""The replay benchmark's measurements, on recordings small enough to verify by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from agent_runtime.memory.observational.observer.base import MemoryCall, ObserverInput
from agent_runtime.memory.observational.observer.rules import RuleObserver
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.observation import render_notes
from benchmarks.replay import replay
from benchmarks.replay.bill import Bill
from benchmarks.replay.clock import Clock, Hand, PacedObserver, recorded_time, tell_time_by
from benchmarks.replay.outcome import observed_nodes, tiled
from benchmarks.replay.player import play
from benchmarks.replay.policies import (
    bills_of,
    compacted,
    everything,
    last_messages,
    recording_of,
    slid,
    window_by_one,
    window_to_half,
)
from benchmarks.replay.recordings import (
    RecordedCall,
    Step,
    Trace,
    Turn,
    default_folder,
    read_traces,
)
from benchmarks.replay.world import (
    LATENCY,
    MemoryPlayer,
    Policy,
    ReplayRuntime,
    notes_of,
    settings_for,
)

FOLDER = default_folder()
WINDOW = 200_000
Messages: TypeAlias = tuple[PromptMessage, ...]
BY_RULES, SCRIPTED = Policy("by rules"), Policy("scripted", ratio=10)
BY_PRICE = Policy("by price", "price")


def prose(count: int, start: int = 0) -> str:
    """Return lines without common words."""
    return "\n".join(
        f"{name(place)} holds {name(place + 7)}.py" for place in range(start, start + count)
    )


def name(number: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "".join(letters[number // 26**place % 26] for place in range(6))


def step(number: int, lines: int, *, asked: float = 0.0) -> Step:
    """Return an answer that calls a tool, and the tool's result."""
    call = RecordedCall(
        "read", f'{{"path": "{name(number)}.py"}}', prose(lines, number * lines * 97)
    )
    return Step(f"I look at {number}.", "", (call,), (), None, asked or number * 2.0)


def trace(steps: Sequence[Step], *, turns: int = 1) -> Trace:
    each = -(-len(steps) // turns)
    parts = [steps[place : place + each] for place in range(0, len(steps), each)]
    made = [Turn(f"Mend part {number}.", (), tuple(part)) for number, part in enumerate(parts)]
    return Trace("made", "claude_code_traces", "Be brief.", tuple(made), 0.3, 0)


LONG = trace([step(number, 120) for number in range(1, 120)])


async def lived(policy: Policy, *traces: Trace) -> replay.PolicySums:
    return await replay.live_all(policy, traces, [recording_of(one).tokens for one in traces])


# With the product's memory


@pytest.mark.timeout(120)
async def test_a_long_run_is_observed_in_its_own_time() -> None:
    result = await lived(SCRIPTED, LONG)
    bill, full = result.bill, slid(recording_of(LONG), everything, WINDOW)
    assert result.faults == []
    assert (bill.prompts, bill.over, result.waited) == (full.prompts, 0, 0)
    assert bill.output == full.output
    assert result.activations["observed"] >= 3
    assert bill.observer_calls == result.observations > result.activations["observed"]
    assert result.by_rules == 0
    assert bill.peak < 45_000 < full.peak
    assert bill.dollars() < full.dollars() * 0.8
    # An observer's output costs about a tenth of its input.
    assert 0.06 < bill.observer_output / bill.observer_input < 0.12


@pytest.mark.timeout(120)
async def test_a_turn_continues_with_the_observations_of_the_one_before() -> None:
    steps = [step(number, 120) for number in range(1, 90)]
    result = await lived(BY_RULES, trace(steps, turns=3))
    assert result.faults == []
    assert result.bill.observer_calls == 0
    assert result.activations["observed"] >= 2


@pytest.mark.timeout(120)
async def test_an_expired_cache_is_paid_for_and_triggers_an_activation() -> None:
    steps = [step(number, 120) for number in range(1, 60)]
    late = [replace(one, asked=one.asked + 1_000 * (place > 50)) for place, one in enumerate(steps)]
    found, before = await lived(BY_RULES, trace(late)), await lived(BY_RULES, trace(steps))
    assert (found.bill.cold, before.bill.cold) == (2, 1)
    assert found.bill.cached < found.bill.shared
    assert before.bill.cached == before.bill.shared
    assert found.activations["idle"] == 1


# The clock


def _paced(hand: Hand, billed: list[int], *, foreground: bool) -> PacedObserver:
    def add(calls: tuple[MemoryCall, ...]) -> None:
        billed.append(len(calls))

    return PacedObserver(RuleObserver(), hand, LATENCY, foreground=lambda: foreground, billed=add)


async def test_notes_are_ready_a_few_recorded_seconds_later() -> None:
    clock, done = Clock(), list[tuple[str, float]]()

    async def observe(name: str) -> None:
        hand = clock.hand()
        hand.tell(lambda: True)
        await _paced(hand, [], foreground=False).observe(ObserverInput(()))
        done.append((name, clock.now))
        hand.tell(lambda: False)

    async with anyio.create_task_group() as group:
        clock.now = 100.0
        group.start_soon(observe, "of an earlier run")
        await anyio.wait_all_tasks_blocked()
        await clock.advance(105.0)
        group.start_soon(observe, "of this run")
        await anyio.wait_all_tasks_blocked()
        await clock.advance(109.9)
        assert done == []
        await clock.advance(130.0)
    assert done == [("of an earlier run", 110.0), ("of this run", 115.0)]
    assert (clock.now, clock.waited) == (130.0, 0)


async def test_a_run_that_waits_for_notes_is_counted() -> None:
    clock, billed = Clock(), list[int]()
    await _paced(clock.hand(), billed, foreground=True).observe(ObserverInput(()))
    assert (clock.now, clock.waited, billed) == (LATENCY, 1, [0])


# The bill


def test_a_bill_uses_the_prices_of_input_cache_and_output() -> None:
    bill = Bill()
    bill.call(1_000_000, 0, cold=True, output=0)
    assert bill.dollars() == pytest.approx(3.75)
    bill.call(1_000_000, 1_000_000, cold=False, output=1_000_000)
    assert bill.dollars() == pytest.approx(3.75 + 0.30)
    assert bill.dollars(answers=True) == pytest.approx(3.75 + 0.30 + 15)
    assert bill.dollars(caching=False) == pytest.approx(2 * 3)
    bill.observed(1_000_000, 100_000)
    assert bill.observing == pytest.approx(0.30 + 0.25)
    assert bill.dollars() == pytest.approx(3.75 + 0.30 + 0.55)


def test_an_expired_cache_is_written_again() -> None:
    bill = Bill()
    bill.call(1_000_000, 900_000, cold=True, output=0)
    assert (bill.shared, bill.cached) == (900_000, 0)
    assert bill.dollars() == pytest.approx(3.75)


def test_the_window_includes_the_recorded_agents_own_prefix() -> None:
    bill = Bill()
    bill.call(WINDOW - 10, 0, cold=False, output=0)
    bill.add_front(10, WINDOW)
    assert bill.over == 0
    bill.call(WINDOW - 10, 0, cold=False, output=0)
    bill.add_front(11, WINDOW)
    assert bill.over == 1
    assert bill.dollars(front=True) - bill.dollars() == pytest.approx(21 * 300 / 1e9)


def test_bills_add_up() -> None:
    one, other = Bill(), Bill()
    one.call(10, 5, cold=False, output=1)
    other.call(30, 20, cold=False, output=2)
    one.add(other)
    assert (one.prompts, one.tokens, one.peak, one.shared, one.output) == (2, 40, 30, 25, 3)


# Policies without memory


def test_the_full_history_only_grows() -> None:
    bill = slid(recording_of(LONG), everything, WINDOW)
    tokens = [0.0]
    for call in recording_of(LONG).calls:
        tokens.append(sum(node.tokens for node in recording_of(LONG).nodes[: call.nodes]))
    assert bill.shared == pytest.approx(bill.tokens - bill.peak, abs=2 * bill.prompts)
    assert bill.peak == pytest.approx(tokens[-1] + len("Be brief.") * 0.3, abs=1)


def test_a_window_that_moves_each_step_shares_only_its_prefix() -> None:
    recording = recording_of(LONG)
    bill = slid(recording, last_messages, WINDOW)
    # Two messages per step: from the twentieth on each step drops the oldest.
    growing = slid(recording_of(trace(LONG.turns[0].steps[:20])), everything, WINDOW)
    assert bill.shared == pytest.approx(growing.shared + 100 * recording.front, rel=0.05)


def test_a_window_stays_within_its_tokens_and_moves_seldom_if_it_drops_half() -> None:
    recording = recording_of(LONG)
    each, half = slid(recording, window_by_one, WINDOW), slid(recording, window_to_half, WINDOW)
    assert half.peak <= each.peak <= 30_000 + recording.front
    assert half.tokens < each.tokens
    assert half.shared / half.tokens > 0.9 > each.shared / each.tokens


def test_a_compaction_is_paid_for() -> None:
    recording = recording_of(trace([step(number, 400) for number in range(1, 60)]))
    full, bill = slid(recording, everything, WINDOW), compacted(recording, WINDOW)
    assert full.peak > 150_000
    calls = bill.prompts - full.prompts
    assert calls >= 1
    assert bill.output - full.output == pytest.approx(calls * 5_000, rel=0.1)
    assert bill.tokens < full.tokens


def test_all_policies_answer_the_same_calls() -> None:
    recording = recording_of(LONG)
    bills = dict(bills_of(recording, WINDOW))
    assert {bill.prompts for bill in bills.values()} == {119}
    assert {bill.output for bill in bills.values()} == {bills[replay.FULL].output}


# The judge and the scripted observer


def test_observations_must_cover_each_node_once() -> None:
    def front(*intervals: str) -> list[PromptMessage]:
        shown = [
            PromptMessage("user", f"<observed abc nodes {interval}>\nx") for interval in intervals
        ]
        return [*shown, PromptMessage("user", "the task")]

    assert tiled(observed_nodes(front("1 to 4", "5 to 9"))) == 9
    assert tiled(observed_nodes(front())) == 0
    for wrong in (("1 to 4", "4 to 9"), ("1 to 4", "6 to 9"), ("2 to 4",), ("5 to 9", "1 to 4")):
        assert tiled(observed_nodes(front(*wrong))) == -1


class Listening(MemoryPlayer):
    """Records the requests."""

    def __init__(self, trace: Trace, policy: Policy) -> None:
        super().__init__(trace, policy)
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        return super().stream(request)


async def listened(trace: Trace, policy: Policy, folder: Path) -> Listening:
    """Return a player that has replayed its trace without a fault."""
    player = Listening(trace, policy)
    tell_time_by(player.clock)
    with recorded_time():
        settings = settings_for(policy, f"file:{folder}/replay.db")
        async with ReplayRuntime.open(settings) as runtime:
            await play(runtime, player, thread="t")
    assert player.outcome.faults == []
    return player


@pytest.mark.timeout(120)
async def test_a_task_observed_by_itself_is_restated_and_not_shown_twice(
    tmp_path: Path,
) -> None:
    steps = [step(number, 20) for number in range(1, 60)]
    long_task = Turn(prose(600), (), tuple(steps))
    player = await listened(replace(LONG, turns=(long_task,)), BY_PRICE, tmp_path)
    intervals = [observed_nodes(request.messages[1:]) for request in player.requests]
    assert [(1, 1)] in intervals


def without(messages: Messages, *gone: int) -> Messages:
    places = {place % len(messages) for place in gone}
    return tuple(one for place, one in enumerate(messages) if place not in places)


def cut(messages: Messages) -> Messages:
    return (*messages[:-1], replace(messages[-1], text=messages[-1].text[:50]))


# By the fault to detect. The prompt: system, observations, state, exchanges.
TAMPERED: list[tuple[str, Callable[[Messages], Messages]]] = [
    ("stand for", lambda messages: without(messages, 1)),
    ("stand for", lambda messages: (*messages[:2], *messages[1:])),
    ("fewer than 20 recent", lambda messages: (*messages[:4], *messages[-4:])),
    ("last two exchanges is cut", cut),
]


@pytest.mark.timeout(120)
async def test_the_judge_detects_faults_of_a_prompt_with_observations(tmp_path: Path) -> None:
    # One replay for all of them: it takes much longer than to judge a prompt.
    player = await listened(LONG, BY_RULES, tmp_path)
    request = player.requests[-1]
    assert len(observed_nodes(request.messages[1:])) > 2
    for fault, tamper in TAMPERED:
        before = len(player.outcome.faults)
        with anyio.CancelScope() as scope:
            player.begin(Turn(LONG.turns[0].task, (), ()), scope)
            async with player.stream(replace(request, messages=tamper(request.messages))) as events:
                async for _ in events:
                    pass
        assert any(fault in found for found in player.outcome.faults[before:]), fault


@pytest.mark.parametrize("ratio", [5, 10, 30])
def test_scripted_notes_have_the_requested_size(ratio: int) -> None:
    header = "[abc | node 1 | 2026-01-02 03:04 | user]"
    text = f"<transcript abc>\n{header}\n{prose(800)}\n</transcript abc>\nWrite."
    notes = notes_of(text, ratio)
    assert {line.priority for line in notes.lines} == {"critical"}
    assert {line.at for line in notes.lines} == {"2026-01-02 03:04"}
    wanted = count_text(text) / ratio
    assert 0.7 * wanted < count_text(render_notes(notes)) <= wanted


# Recorded runs


@pytest.mark.skipif(FOLDER is None, reason="the recorded runs are not here; see TEST_DATA_DIR")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", [SCRIPTED, replace(SCRIPTED, activation="price")])
@pytest.mark.parametrize("source", replay.SOURCES)
@pytest.mark.slow
async def test_recorded_runs_satisfy_the_invariants(source: str, policy: Policy) -> None:
    assert isinstance(FOLDER, Path)
    traces = list(islice(read_traces(FOLDER, source), 5, None, 60))
    result = await lived(policy, *traces)
    full = Bill()
    for recorded in traces:
        full.add(slid(recording_of(recorded), everything, WINDOW))
    assert result.faults == []
    assert (result.bill.prompts, result.bill.over, result.waited) == (full.prompts, 0, 0)
    assert result.activations["observed"] + result.activations["price"] > 0
    assert result.bill.observer_calls >= result.observations > 0
    assert result.bill.tokens < full.tokens * 0.9
