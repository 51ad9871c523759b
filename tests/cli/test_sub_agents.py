"""How the terminal shows sub-agents, from their events."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agent_runtime.cli.display.progress import PlainProgress
from agent_runtime.cli.display.screen import LiveProgress
from agent_runtime.cli.display.sub_agents import MOST_SHOWN, SubAgents
from agent_runtime.cli.display.tally import RunTally
from agent_runtime.cli.terminal import cells
from agent_runtime.events import Event, EventKind
from agent_runtime.testing.model_server import Reply
from tests.cli.test_runs import HELLO, Machine
from tests.cli.test_runs import machine as machine
from tests.support.emulator import Emulator


class Clock:
    """A clock that a test advances."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def event(kind: EventKind, run: str = "child", **data: Any) -> Event:
    """An event of a sub-agent's run."""
    return Event(kind, f"thread-{run}", run, data=data)


def start(run: str = "child", key: str = "", parent: str = "root", **data: Any) -> Event:
    """The event of a sub-agent's start."""
    known = {"agent": "reader", "model": "m", "max_steps": 10, "resumed": False}
    return event("run-start", run, parent=parent, task_key=key, **known | data)


def answer(run: str = "child", step: int = 1) -> Event:
    """The event of a sub-agent's step."""
    return event(
        "answer", run, step=step, calls=1, prompt_tokens=1000, cached_tokens=0,
        completion_tokens=200, cost=1_000_000,
    )  # fmt: skip


def finish(run: str = "child", status: str = "succeeded", reason: str = "completed") -> Event:
    """The event of a sub-agent's end."""
    return event("run-finish", run, status=status, stop_reason=reason, detail="")


def test_a_sub_agent_is_reported_when_it_starts_and_ends() -> None:
    clock = Clock()
    agents = SubAgents(clock)
    assert agents.update(start(key="part-1")) == ["sub-agent reader [part-1] starts"]
    assert agents.update(answer(step=3)) == []
    assert agents.update(event("tool-start", call_id="c", tool="look", arguments={"at": 1})) == []
    clock.now = 1.5
    assert agents.shown() == ["[>] reader [part-1] · look at=1 · step 3/10 · 1.2K tokens · 1.5 s"]
    assert agents.update(finish(status="failed", reason="max_steps")) == [
        "sub-agent [!] reader [part-1] · failed (max_steps) · 3 steps · 1.2K tokens · 1.5 s"
    ]
    clock.now = 9
    assert agents.shown()[0].endswith("1.5 s")


def test_another_attempt_at_a_task_shows_its_number() -> None:
    agents = SubAgents(Clock())
    agents.update(start("one", "part-1"))
    agents.update(finish("one", "failed", "max_steps"))
    assert agents.update(start("two", "part-1")) == ["sub-agent reader [part-1] again (2) starts"]
    # Resuming after a crash is the same attempt; the same key elsewhere is another task.
    assert agents.update(start("two", "part-1", resumed=True)) == [
        "sub-agent reader [part-1] again (2) resumes"
    ]
    assert agents.update(start("three", "part-1", "two")) == ["sub-agent reader [part-1] starts"]
    assert agents.shown()[1].startswith("  [>] reader [part-1] · ")


def test_working_sub_agents_come_first_and_the_others_are_counted() -> None:
    clock = Clock()
    agents = SubAgents(clock)
    for number in range(20):
        agents.update(start(f"run-{number}", f"task-{number}"))
    assert len(agents.shown()) == MOST_SHOWN + 1
    assert agents.shown()[-1] == f"… {20 - MOST_SHOWN} more active"
    for number in range(18):
        clock.now += 1
        agents.update(finish(f"run-{number}"))
    shown = agents.shown()
    assert [line.split()[2] for line in shown[:4]] == [
        "[task-18]", "[task-19]", "[task-17]", "[task-16]"
    ]  # fmt: skip
    assert shown[-1] == "… 12 more ended"
    assert agents.shown(1)[-1] == "… 1 more active, 18 more ended"


def test_a_sub_agent_counts_but_does_not_change_the_runs_step() -> None:
    tally = RunTally()
    tally.update(Event("run-start", "t", "root", data=dict(start().data) | {"model": "m"}))
    tally.update(Event("answer", "t", "root", data=dict(answer(step=7).data)))
    tally.update(start())
    assert tally.update(answer(step=1)) == []
    assert tally.step == 7 and tally.spent.text().startswith("2,400 tokens")


def test_a_sub_agents_text_cannot_control_the_terminal() -> None:
    agents = SubAgents(Clock())
    (line,) = agents.update(start(key="a\x1b[2J\nb", agent="evil\x1b]0;x\x07"))
    assert line.isprintable()
    agents.update(event("tool-start", call_id="c", tool="say", arguments={"x": "\x1b[2J"}))
    agents.update(event("model-retry", reason="no\x1b[2J", attempt=1, wait=1.0))
    assert agents.shown()[0].isprintable()


@pytest.mark.parametrize(("width", "height"), [(60, 20), (120, 40), (30, 5)])
def test_the_display_never_exceeds_the_terminals_size(width: int, height: int) -> None:
    terminal = Emulator(width, height)
    progress = LiveProgress(size=terminal.size, write=terminal.write)
    progress.show(Event("run-start", "t", "root", data=dict(start().data)))
    for number in range(30):
        progress.show(start(f"run-{number}", f"task-{number} " + "wide 中文 " * 9))
    progress.tick()
    rows = terminal.rows
    assert (
        rows[int(terminal.screen.cursor.y)].startswith(("⠋", "|")) and terminal.screen.cursor.x == 0
    )
    assert sum("step" in row for row in rows) >= 1
    # Some terminals wrap a row that fills all columns.
    assert all(cells(row) < width for row in terminal.everything)


def test_piped_output_reports_each_sub_agent_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress()
    progress.show(Event("run-start", "t", "root", data=dict(start().data)))
    for one in (start(), answer(), answer(step=2), finish()):
        progress.show(one)
    shown = [line for line in capsys.readouterr().err.splitlines() if "sub-agent" in line]
    assert len(shown) == 2 and shown[0].endswith("starts") and "succeeded · 2 steps" in shown[1]


def test_a_run_names_its_sub_agents_by_role_and_task(machine: Machine) -> None:
    tasks = tuple(
        ("delegate", {"role": "reader", "instructions": f"Say {key}.", "task_key": key})
        for key in ("one", "two")
    )

    def script(request: dict[str, Any], n: int) -> Reply:
        own = "You are a sub-agent." not in request["messages"][0]["content"]
        first = len(request["messages"]) == 2
        return Reply(calls=tasks) if own and first else HELLO

    machine.script = script
    result = machine.invoke("run", "Go.", "--json")
    assert result.exit_code == 0, result.stderr
    for key in ("one", "two"):
        assert f"sub-agent reader [{key}] starts\n" in result.stderr
        ended = rf"sub-agent \[x\] reader \[{key}\] · succeeded · 1 step · \S+ tokens · [\d.]+ s\n"
        assert re.search(ended, result.stderr), result.stderr
