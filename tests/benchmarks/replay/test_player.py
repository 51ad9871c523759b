"""The player of recorded runs and its judge, on a recording with every irregularity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import orjson
import pytest
import zstandard

from agent_runtime import Agent, Runtime, Settings
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import ModelRequest
from benchmarks.replay.player import Outcome, Player, play
from benchmarks.replay.recordings import NO_TASK, RecordedCall, Said, Step, Trace, Turn, read_traces

SOURCE = "claude_code_traces"
WINDOW = 8_192


def said(role: str, text: str | None, *calls: tuple[str, str], **more: Any) -> dict[str, Any]:
    """Return a message of a recording; each call is an id and its arguments."""
    made = [
        {"id": one, "type": "function", "function": {"name": "look", "arguments": arguments}}
        for one, arguments in calls
    ]
    return {"role": role, "content": text, **({"tool_calls": made} if made else {}), **more}


def result(call: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text, **more}


ODDITIES = [
    said("system", "Be brief."),
    said("assistant", "Hello."),
    said("user", "Never answered."),
    said("user", "Look at both."),
    said("assistant", None, ("a", '{"n": 1}'), ("b", '{"n": 2}')),
    result("b", "second"),
    said("user", "Hurry."),
    result("a", "first", is_error=True),
    {"role": "event", "event": "compact_boundary", "content": None},
    said("user", "A summary.", compact_summary=True),
    said("assistant", ""),
    said("assistant", "Both seen."),
    result("x", "from nowhere"),
    said("user", "", ("u", "{}")),
    result("u", "its own result", requestor="user"),
    said("user", "My own tool says so."),
    said("assistant", "", ("c", ""), ("d", "{}")),
    result("d", "the other"),
    said("user", "Why did you stop?"),
    said("assistant", "", ("a", "{}")),
    result("a", "an id again"),
    said("assistant", "", ("e", "{}")),
]


def write(folder: Path, messages: list[dict[str, Any]]) -> Trace:
    """Return the one trace of a recording."""
    (folder / SOURCE).mkdir()
    line = orjson.dumps({"id": "odd", "messages": messages})
    (folder / SOURCE / "traces.jsonl.zst").write_bytes(zstandard.compress(line + b"\n"))
    [trace] = read_traces(folder, SOURCE)
    return trace


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return write(tmp_path, ODDITIES)


def test_the_reader_turns_every_irregularity_into_turns(trace: Trace) -> None:
    assert (trace.system, trace.empty) == ("Be brief.", 1)
    own = "(The user's own tool: look {})\n\nits own result\n\nMy own tool says so."
    assert [turn.task for turn in trace.turns] == [
        NO_TASK,
        "Never answered.",
        "Look at both.",
        own,
        "Why did you stop?",
    ]
    both = trace.turns[2].steps[0]
    assert [(call.result, call.failed) for call in both.calls] == [
        ("first", True),
        ("second", False),
    ]
    assert both.said == (Said("steer", "Hurry."), Said("steer", "A summary."))
    assert trace.turns[3].said == (Said("background", "from nowhere"),)
    assert [call.result for call in trace.turns[3].steps[0].calls] == [None, "the other"]
    assert [len(turn.steps) for turn in trace.turns] == [1, 0, 2, 1, 2]


async def replayed(folder: Path, trace: Trace) -> Outcome:
    settings = Settings(database_url=f"file:{folder}/replay.db", observational_memory=False)
    async with Runtime.open(settings) as runtime:
        return await play(runtime, Player(trace, WINDOW), thread="t")


async def test_a_recording_with_every_irregularity_is_replayed_completely(
    tmp_path: Path, trace: Trace
) -> None:
    outcome = await replayed(tmp_path, trace)
    assert outcome.faults == []
    assert outcome.steps == trace.steps
    # The unanswered message, the call without a result, and the recording's end.
    assert outcome.interrupted == 3
    # Five tasks, six answers, three notes, and the substitute for the answer after the lost result.
    assert outcome.nodes == 15


async def test_a_message_larger_than_the_window_is_reported(tmp_path: Path) -> None:
    trace = write(tmp_path, [said("user", "word " * 20_000), said("assistant", "Yes.")])
    outcome = await replayed(tmp_path, trace)
    assert "a user message" in outcome.too_large
    assert outcome.unavoidable > 1
    assert outcome.faults == []


LOOK = Step("", "", (RecordedCall("look", "{}", "seen"),), (Said("steer", "Hurry."),), None)


async def answered(trace: Trace, folder: Path) -> tuple[Player, ModelRequest]:
    """Return a player that has replayed its trace, and its last request."""
    requests: list[ModelRequest] = []

    class Listening(Player):
        def stream(self, request: ModelRequest) -> Any:
            requests.append(request)
            return super().stream(request)

    player = Listening(trace, WINDOW)
    settings = Settings(database_url=f"file:{folder}/replay.db", observational_memory=False)
    async with Runtime.open(settings) as runtime:
        agent = Agent(player, tools=player.tools(), instructions=trace.system)
        with anyio.CancelScope() as scope:
            player.begin(trace.turns[0], scope)
            await runtime.run(agent, trace.turns[0].task, thread="t", on_event=player.hear)
    assert player.outcome.faults == []
    player.expected.pop()
    return player, requests[-1]


Messages: TypeAlias = tuple[PromptMessage, ...]


def changed(messages: Messages, index: int, **changes: Any) -> Messages:
    return (*messages[:index], replace(messages[index], **changes), *messages[index + 1 :])


# By the fault to detect. The prompt: system, task, call, result with a note.
TAMPERED: list[tuple[str, Callable[[Messages], Messages]]] = [
    ("torn pairs", lambda messages: messages[:3]),
    ("orphan result", lambda messages: (*messages[:2], messages[3])),
    ("hidden", lambda messages: (messages[0], *messages[2:])),
    ("hidden", lambda messages: changed(messages, 3, text="seen")),
    ("hidden", lambda messages: changed(messages, 3, text="something else")),
    ("lacks the task", lambda messages: changed(messages, 1, text="another task")),
    ("rewrites", lambda messages: changed(messages, 0, text="Be long.")),
]


@pytest.mark.parametrize(("fault", "tamper"), TAMPERED)
async def test_the_judge_detects_faults_of_a_prompt(
    tmp_path: Path, fault: str, tamper: Callable[[Messages], Messages]
) -> None:
    turn = Turn("Look.", (), (LOOK, Step("Seen.", "", (), (), None)))
    trace = Trace("t", SOURCE, "Be brief.", (turn,), rate=0.3, empty=0)
    player, request = await answered(trace, tmp_path)
    await consume(player, replace(request, messages=tamper(request.messages)))
    assert any(fault in found for found in player.outcome.faults)


async def consume(player: Player, request: ModelRequest) -> None:
    """Let the player judge a request as it does at the end of its recording."""
    with anyio.CancelScope() as scope:
        player.begin(Turn("Look.", (), ()), scope)
        async with player.stream(request) as events:
            async for _ in events:
                pass
