"""The log of attempts at a task: read and written by one key, bounded, and never fatal."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, ScriptedModel, tool
from agent_runtime.delegation.attempts import Attempt, rendered
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.models.tokens import count_text
from agent_runtime_storage.contract.records.log import NewRun
from agent_runtime_storage.log.runs import SqlRuns
from tests.delegation.helpers import is_child, outcomes, playing, step
from tests.support.worlds import Play, World, double


def order(**more: Any) -> ModelAnswer:
    """Return a call that delegates the task `k`."""
    return call("delegate", **{"role": "r", "instructions": "Try.", "task_key": "k"} | more)


@tool
def work(number: int) -> str:
    """Fail for every number but 2."""
    if number != 2:
        raise ValueError(f"The disk of attempt {number} is full.")
    return "worked"


def log_in(request: ModelRequest) -> str:
    """Return the log of attempts in a sub-agent's prompt; empty if there is none."""
    _, begun, rest = request.messages[1].text.partition("<previous_attempts>\n")
    return rest.partition("\n</previous_attempts>")[0] if begun else ""


def logs(world: World) -> list[str]:
    """Return the log in each sub-agent's first prompt."""
    assert isinstance(world.model, ScriptedModel)
    return [
        log_in(request)
        for request in world.model.requests
        if is_child(request) and step(request) == 0
    ]


async def test_the_second_attempt_is_briefed_with_the_error_of_the_first(play: Play) -> None:
    def child(request: ModelRequest, number: int) -> Scripted:
        attempt = 2 if log_in(request) else 1
        return [call("work", number=attempt), say(f"Attempt {attempt} is over.")][number]

    parent = [
        order(),
        order(diagnosis="No room.", fix_applied="Another disk."),
        say("Done."),
    ]
    async with play(playing(parent, child)) as world:
        result = await world.run(Agent(tools=[work], delegation=True))
        ends = await outcomes(world, result)
        assert logs(world) == [
            "",
            "Attempt 1 (succeeded)\n"
            "- action: r: Try.\n"
            "- result: Attempt 1 is over.\n"
            "- error: work: ValueError: The disk of attempt 1 is full.\n"
            "- diagnosis: No room.\n"
            "- fix_applied: Another disk.",
        ]
    assert [(end["attempt"], end["task_key"]) for end in ends] == [(1, "k"), (2, "k")]


@pytest.mark.backends("file")
async def test_the_key_in_an_outcome_is_the_key_that_is_read(play: Play) -> None:
    def respond(request: ModelRequest) -> Scripted:
        if is_child(request):
            return say("So far.")
        if (number := step(request)) == 2:
            return say("Done.")
        key = request.messages[-1].text.partition('"task_key": "')[2].partition('"')[0]
        briefing = f"more {number}" if number else "first"
        more = {"task_key": key} if number else {}
        return call("delegate", role="r", instructions="i", briefing=briefing, **more)

    async with play(respond) as world:
        result = await world.run(Agent(tools=[double], delegation=True))
        first, second = await outcomes(world, result)
        assert first["task_key"] == second["task_key"]
        assert second["attempt"] == 2
        assert "So far." in logs(world)[1]


@pytest.mark.backends("file")
async def test_other_keys_threads_and_branches_have_separate_logs(
    play: Play,
) -> None:
    def child(request: ModelRequest, number: int) -> Scripted:
        return say("An answer.")

    agent = Agent(tools=[double], delegation=True)
    parent = [order(), order(task_key="other"), say("Done."), order(), say("Done.")]
    async with play(playing(parent, child)) as world:
        first = await world.run(agent, thread="a")
        await world.run(agent, thread="b")
        assert logs(world) == ["", "", "", ""]
        # A later run of the thread sees its attempts; a branch from before them does not.
        await world.run(agent, thread="a")
        assert [bool(log) for log in logs(world)[4:]] == [True]
        head = (await world.store.threads.get("a")).head
        task = (await world.store.runs.get(first.run_id)).task_id
        await world.store.threads.move_head("a", task, expect=head)
        await world.runtime.run(agent, None, thread="a")
        assert [bool(log) for log in logs(world)[5:]] == [False, False]


@pytest.mark.backends("file")
@pytest.mark.parametrize(
    "damage",
    [
        {"action": 7},
        {"place": "x"},
        {"call": "nonsense"},
        {"depth": None},
    ],
)
async def test_a_corrupt_entry_is_skipped_with_a_warning(
    play: Play,
    damage: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begin: Any = SqlRuns.begin
    begun = 0

    async def begin_run(self: SqlRuns, run: NewRun) -> Any:
        nonlocal begun
        if run.parent_run_id is not None:
            begun += 1
            if begun == 1:
                damaged = {**run.internal["delegation"], **damage}
                run = replace(run, internal={**run.internal, "delegation": damaged})
        return await begin(self, run)

    monkeypatch.setattr(SqlRuns, "begin", begin_run)

    def child(request: ModelRequest, number: int) -> Scripted:
        return say("An answer.")

    async with play(playing([order(), order(), order(), say("Done.")], child)) as world:
        result = await world.run(Agent(tools=[double], delegation=True))
        ends = await outcomes(world, result)
        assert (result.output, ends[2]["status"]) == ("Done.", "succeeded")
        last = logs(world)[-1]
    assert last.count("Attempt ") == 1
    assert "cannot be read" in caplog.text or "names no call" in caplog.text


@pytest.mark.backends("file")
async def test_an_attempt_with_a_damaged_log_is_skipped(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def child(request: ModelRequest, number: int) -> Scripted:
        return say("An answer.")

    parent = [order(), order(), say("Done."), order(), say("Done.")]
    async with play(playing(parent, child)) as world:
        agent = Agent(tools=[double], delegation=True)
        first = await world.run(agent, thread="a")
        [newest, _] = await world.store.runs.list(parent_run_id=first.run_id)
        await spoil(world, newest.thread_id)
        again = await world.run(agent, thread="a")
        assert again.output == "Done."
        assert logs(world)[2].startswith("Attempt 1 (succeeded)")
        assert "Attempt 2" not in logs(world)[2]
    assert "Attempt 2" in caplog.text


async def spoil(world: World, thread_id: str) -> None:
    """Detach a thread from its first message."""
    # In another process: two SQLite libraries in one process would drop each other's locks.
    code = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        'query = "UPDATE nodes SET parent_id = NULL WHERE thread_id = ? AND id = 2"\n'
        "connection.execute(query, (sys.argv[2],))\n"
    )
    path = world.database_url.removeprefix("file:")
    await anyio.run_process([sys.executable, "-c", code, path, thread_id])


def attempt(number: int, size: int = 200) -> Attempt:
    """Return an entry with long texts."""
    words = f"word{number} " * size
    return Attempt(number, "failed, error", f"r: {words}", words, words, words, words)


def test_the_log_is_bounded_and_the_oldest_entries_are_shortened_first() -> None:
    entries = [attempt(number) for number in range(1, 13)]
    text = rendered(entries, 2000)
    assert count_text(text) <= 2000 + 20
    lengths = [len(part) for part in text.split("\n\n") if part.startswith("Attempt")]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]
    assert "Attempt 12 (failed, error)" in text


def test_of_many_attempts_the_oldest_are_omitted_and_counted() -> None:
    entries = [attempt(number) for number in range(1, 13)]
    text = rendered(entries, 300)
    assert count_text(text) <= 320
    left_out = int(text.removeprefix("[Left out: ").split()[0])
    assert f"Attempt {left_out + 1} (" in text and f"Attempt {left_out} (" not in text


def test_a_log_within_the_limit_is_complete() -> None:
    text = rendered([attempt(1, 10), attempt(2, 10)])
    assert "left out" not in text and text.count("word1") == 50


@pytest.mark.backends("file")
async def test_concurrent_attempts_are_not_in_each_others_log(play: Play) -> None:
    def child(request: ModelRequest, number: int) -> Scripted:
        return say("An answer.")

    both = calls(
        *(raw_call("delegate", role="r", instructions="i", briefing=f"{n}") for n in range(3))
    )
    async with play(playing([both, say("Done.")], child)) as world:
        await world.run(Agent(tools=[double], delegation=True))
        assert logs(world) == ["", "", ""]
