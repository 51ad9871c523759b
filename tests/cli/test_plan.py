"""`agent-runtime plan`, and the plan as a checklist while a run works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli.display.checklist import MOST_SHOWN, Checklist
from agent_runtime.cli.display.progress import PlainProgress
from agent_runtime.cli.display.screen import LiveProgress
from agent_runtime.events import Event, EventKind
from agent_runtime.messages import Plan
from agent_runtime.plan.model import PHASES, Step, create_plan, update_plan
from agent_runtime.testing.model_server import Reply
from tests.cli.test_runs import HELLO, Machine
from tests.cli.test_runs import machine as machine

STEPS = [{"id": "a", "description": "Look"}, {"id": "b", "description": "Build [b]\x1b[2J"}]
SCRIPT = (
    Reply(calls=(("plan", {"action": "create", "goal": "Ship it", "steps": STEPS}),)),
    Reply(
        calls=(
            ("glob", {}),
            ("plan", {"action": "update", "steps": [{"id": "a", "follow": True}]}),
        )
    ),
    HELLO,
)


@pytest.fixture
def planned(machine: Machine) -> Machine:
    """A machine on which a run with a plan has ended, on the thread `t`."""
    machine.script = lambda request, n: SCRIPT[min(n, len(SCRIPT) - 1)]
    (machine.folder / "work").mkdir()
    result = machine.invoke("run", "Go.", "--thread", "t", "--workspace", "work")
    assert result.exit_code == 0, result.stderr
    (machine.folder / "stderr").write_text(result.stderr)
    return machine


def event(kind: EventKind, run: str = "run-1", node: int = 2, **data: Any) -> Event:
    """An event of a run."""
    return Event(kind, "t", run, node_id=node, data=data)


def plan_of(count: int) -> Plan:
    """A plan with this many items."""
    steps = [Step(description=f"Part {number}") for number in range(1, count + 1)]
    return create_plan("g", steps, phase=None, phases=PHASES)


def updated(plan: Plan, *followed: str, node: int = 2, run: str = "run-1") -> Event:
    """The event of a new version of the plan."""
    return event("plan", run, node, plan=plan, followed=list(followed))


def finished(call_id: str, outcome: str = "ok", node: int = 2) -> Event:
    """The event of a finished call."""
    return event("tool-finish", node=node, call_id=call_id, tool="work", outcome=outcome)


def test_a_run_reports_only_changes_of_its_plan(planned: Machine) -> None:
    lines = (planned.folder / "stderr").read_text().splitlines()
    updated = [line.removeprefix("plan: ") for line in lines if line.startswith("plan: ")]
    # The plan may be reported before or after the end of the call that `a` follows.
    assert [line for line in updated if not line.startswith("[>]")] == [
        "[ ] a (plan) Look",
        "[ ] b (plan) Build [b] [2J",
        "[x] a (plan) Look",
    ]


def test_a_threads_plan_is_shown(planned: Machine) -> None:
    shown = planned.invoke("plan", "show", "t")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "Plan version 2: 1 of 2 done, phase plan, iteration 1.",
        "Goal: Ship it",
        "[x] a (plan) Look",
        # Unchanged, since this is a pipe.
        "[ ] b (plan) Build [b]\x1b[2J",
    ]
    report = json.loads(planned.invoke("plan", "show", "t", "--json").stdout)
    assert report["thread_id"] == "t" and report["plan"]["version"] == 2
    assert [item["status"] for item in report["plan"]["items"]] == ["completed", "pending"]
    first = planned.invoke("plan", "show", "t", "--version", "1")
    assert "0 of 2 done" in first.stdout


def test_the_versions_of_a_plan_are_listed(planned: Machine) -> None:
    lines = planned.invoke("plan", "versions", "t").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["2", "1"]
    assert lines[0].endswith("1 of 2 done, phase plan, iteration 1")
    rows = planned.invoke("plan", "versions", "t", "--json", "--limit", "1").stdout.splitlines()
    assert [json.loads(row)["plan"]["version"] for row in rows] == [2]


def test_an_unknown_plan_or_version_is_reported(planned: Machine) -> None:
    missing = planned.invoke("plan", "show", "nowhere")
    assert missing.exit_code == exits.NOTHING
    assert "There is no thread nowhere" in missing.stderr
    version = planned.invoke("plan", "show", "t", "--version", "9")
    assert version.exit_code == exits.NOTHING and "has no version 9" in version.stderr
    planned.script = lambda request, n: HELLO
    planned.invoke("run", "Hello.", "--thread", "bare")
    bare = planned.invoke("plan", "show", "bare")
    assert bare.exit_code == 0 and "Thread bare has no plan." in bare.stderr
    assert json.loads(planned.invoke("plan", "show", "bare", "--json").stdout)["plan"] is None


def test_the_offline_survey_keeps_its_plan_up_to_date(tmp_path: Path, machine: Machine) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.py").write_text("def f(): ...\n")
    task = "Survey this folder and write REPORT.md"
    for thread, phases in (("t", {}), ("own", {"AGENT_RUNTIME_PLAN_PHASES": "look, tell"})):
        run = machine.invoke(
            "run", task, "--thread", thread, "--workspace", str(folder), "--model", "offline",
            **phases,
        )  # fmt: skip
        assert run.exit_code == 0, run.stderr
        plan = json.loads(machine.invoke("plan", "show", thread, "--json").stdout)["plan"]
        assert {item["status"] for item in plan["items"]} == {"completed"}
        assert plan["phase"] == ("look" if phases else "plan")
        results = {item["id"]: item["result"] for item in plan["items"]}
        # The second survey finds the report of the first.
        count = 4 if phases else 3
        assert results["look"].startswith(f"{count} entries for **: {count} files of ")
        # What the sub-agent's answer carries for the survey is not for people.
        assert results["part-1"] == "3 files read in this attempt."


def test_a_checklist_follows_calls_in_any_order() -> None:
    plan = update_plan(plan_of(2), steps=[Step(id="1", follow=True)], phases=PHASES, others=2)
    checklist = Checklist()
    assert checklist.update(finished("c1")) is False
    assert checklist.update(updated(plan, "c1", "c2"))
    assert checklist.changed() == ["[>] 1 (plan) Part 1", "[ ] 2 (plan) Part 2"]
    assert checklist.update(finished("c2", "error"))
    assert checklist.changed() == ["[!] 1 (plan) Part 1 → work: error"]
    # Calls of another exchange no longer change it.
    assert checklist.update(finished("c3", node=3)) is False
    assert checklist.changed() == []
    assert checklist.update(event("plan", node=3, version=3)) is True
    assert checklist.shown()[0] == "[!] 1 (plan) Part 1 → work: error"


def test_a_checklist_starts_from_the_stored_plan() -> None:
    done = update_plan(plan_of(1), steps=[Step(id="1", status="completed")], phases=PHASES)
    checklist = Checklist()
    checklist.take(None)
    checklist.take(done)
    assert checklist.shown() == []
    checklist.take(plan_of(1))
    assert checklist.changed() == ["[ ] 1 (plan) Part 1"]
    checklist.take(done)
    assert checklist.changed() == ["[x] 1 (plan) Part 1"]


def test_a_resumed_run_shows_its_plan_at_once(planned: Machine) -> None:
    planned.script = lambda request, n: HELLO
    result = planned.invoke("run", "Go on.", "--thread", "t")
    lines = [line for line in result.stderr.splitlines() if line.startswith("plan: ")]
    assert lines == ["plan: [x] a (plan) Look", "plan: [ ] b (plan) Build [b] [2J"]


def test_a_long_checklist_shows_the_items_in_progress() -> None:
    done = [Step(id=str(number), status="completed") for number in range(1, 51)]
    checklist = Checklist()
    checklist.update(updated(update_plan(plan_of(100), steps=done, phases=PHASES)))
    shown = checklist.shown()
    assert len(shown) == MOST_SHOWN
    assert shown[0] == "… 46 items before" and shown[-1] == "… 44 items after"
    assert shown[5] == "[ ] 51 (plan) Part 51"
    assert len(checklist.changed()) == 21 and checklist.changed() == []


def test_a_terminal_repeats_the_checklist_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = LiveProgress()
    start = event("run-start", agent="a", model="m", max_steps=5, resumed=False)
    with progress:
        progress.show(start)
        progress.show(updated(plan_of(2)))
    written = capsys.readouterr().err
    assert written.count("[ ] 2 (plan) Part 2") >= 1


def test_a_sub_agents_plan_is_not_shown_as_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress()
    progress.show(event("run-start", agent="a", model="m", max_steps=5, resumed=False))
    progress.show(updated(plan_of(2), run="run-2"))
    assert "plan:" not in capsys.readouterr().err
    progress.show(updated(plan_of(2)))
    assert "plan: [ ] 1 (plan) Part 1" in capsys.readouterr().err
