"""`agent-runtime runs sweep`, and how `runs` and `runs tree` show stopped runs."""

from __future__ import annotations

import json
import os
import signal

import anyio

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli.display.short_ids import short_id
from agent_runtime.models.scripted import call
from agent_runtime.testing.model_server import Reply
from tests.cli.test_runs import HELLO, STALL, Machine, machine
from tests.human.elsewhere import AT_ONCE

__all__ = ["machine"]

LIST = Reply(calls=(("glob", {}),))
ASK = call("ask_user", question="Sure?", kind="text")


def test_a_killed_run_is_listed_swept_and_resumed(machine: Machine) -> None:
    machine.script = lambda request, n: STALL if n else LIST
    with machine.process("run", "List.", "--workspace", ".") as process:
        machine.wait_for_requests(2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    machine.script = lambda request, n: HELLO

    [listed] = machine.invoke("runs").stdout.splitlines()
    run = str(json.loads(machine.invoke("runs", "--json").stdout)["run_id"])
    tree = machine.invoke("runs", "tree", run)
    swept = machine.invoke("runs", "sweep")
    report = json.loads(machine.invoke("runs", "sweep", "--json").stdout)
    after = json.loads(machine.invoke("runs", "tree", run, "--json").stdout)
    done = machine.invoke("runs", "sweep", "--resume")

    assert f"interrupted; resume it with: agent-runtime resume {short_id(run)}" in listed
    assert "interrupted, 1 step" in tree.stdout and f"resume {run}" in tree.stderr
    assert swept.exit_code == 0 and "is gone" in swept.stdout
    assert (report["run_id"], report["swept"], report["way_on"]) == (run, False, "resume")
    assert after["stop_reason"] == "interrupted"
    assert done.exit_code == 0 and done.stdout.endswith("Hello from the model.\n"), done.stderr
    # It resumed from its own log: the list of files is in the prompt.
    assert machine.server.requests[-1].json["messages"][-1]["role"] == "tool"
    assert "No stopped run can be resumed" in machine.invoke("runs", "sweep").stderr


def test_a_killed_runs_background_task_continues_with_the_sweep(machine: Machine) -> None:
    order = {"role": "worker", "instructions": "Work.", "task_key": "k", "background": True}
    machine.script = lambda request, n: STALL if n else Reply(calls=(("delegate", order),))
    with machine.process("run", "Begin.", "--workspace", ".") as process:
        # The task's first one, and the second one of the run that delegated it.
        machine.wait_for_requests(3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    machine.script = lambda request, n: HELLO

    done = machine.invoke("runs", "sweep", "--resume")

    assert done.exit_code == 0, done.stderr
    found = [json.loads(line) for line in machine.invoke("runs", "--json").stdout.splitlines()]
    assert [one["status"] for one in found] == ["succeeded"] * 2, found
    assert "No stopped run can be resumed" in machine.invoke("runs", "sweep").stderr


def test_sweep_resumes_runs_with_expired_questions_and_reports_failures(
    machine: Machine,
) -> None:
    machine.script = lambda request, n: LIST
    late = {"AGENT_RUNTIME_APPROVE": "glob", "AGENT_RUNTIME_ANSWER_TIMEOUT": str(AT_ONCE)}
    for _ in range(2):
        stopped = machine.invoke("run", "List.", "--workspace", ".", **late)
        assert stopped.exit_code == exits.SUSPENDED, stopped.stderr
    machine.script = lambda request, n: Reply(status=400) if n == 2 else HELLO

    done = machine.invoke("runs", "sweep", "--resume")

    assert done.exit_code == exits.MODEL, done.stderr
    assert done.stdout.count("no question is open any more; resume it with") == 2
    assert done.stdout.count("Hello from the model.") == 1
    assert "Nobody allowed this call in time" in str(machine.server.requests[-1].json["messages"])


def test_another_programs_run_is_reported_and_not_resumed(machine: Machine) -> None:
    settings = Settings(database_url=f"file:{machine.folder / 'agent_runtime.db'}")

    async def waits() -> None:
        async with Runtime.open(settings) as runtime:
            asks = Agent(ScriptedModel([ASK]), asking=True)
            [question] = (await runtime.run(asks, "Go.")).questions
            await runtime.answer(question.id, "Yes.")

    anyio.run(waits)

    done = machine.invoke("runs", "sweep", "--resume")

    assert done.exit_code == 0
    assert "no question is open any more; resume it with" in done.stdout
    assert "resume it in the program that started it" in done.stderr
