"""`agent-runtime usage` and `budget`, and a run that today's budget refuses."""

from __future__ import annotations

import json
import re

from agent_runtime.cli import exit_codes as exits
from tests.cli.test_runs import HELLO, Machine
from tests.cli.test_runs import machine as machine

DAY = {"AGENT_RUNTIME_DAY_BUDGET_TOKENS": "100000"}
PRICES = {
    "AGENT_RUNTIME_PRICE_INPUT": "3",
    "AGENT_RUNTIME_PRICE_OUTPUT": "15",
    "AGENT_RUNTIME_THREAD_BUDGET_USD": "0.5",
}


def test_spent_and_remaining_amounts_are_shown_by_day_and_thread(machine: Machine) -> None:
    nothing = machine.invoke("usage")
    assert nothing.exit_code == 0 and nothing.stdout.endswith(
        "0 tokens ($0.0000) spent, no limit.\n"
    )

    run = machine.invoke("run", "Say hello.", "--thread", "t", "--json", **PRICES)
    result = json.loads(run.stdout)
    used = result["usage"]["prompt_tokens"] + result["usage"]["completion_tokens"]
    shown = machine.invoke("usage", "--thread", "t", **DAY, **PRICES)
    [day, thread] = shown.stdout.splitlines()
    cost = f"{used:,} tokens (${result['cost_usd']:.4f}) spent"
    assert day.startswith("Today, until 20") and cost in day and thread.startswith("Thread t: ")
    assert f"{100_000 - used:,} of 100,000 tokens left." in day
    assert f"{cost}, ${0.5 - result['cost_usd']:.4f} of $0.5000 left." in thread

    report = json.loads(machine.invoke("usage", "--thread", "t", "--json", **DAY).stdout)
    assert set(report) == {"day", "thread"}
    assert report["day"]["left"] == {"tokens": 100_000 - used, "cost_usd": None}
    assert report["thread"]["spent"]["tokens"] == used
    assert report["thread"]["limit"] == {"tokens": None, "cost_usd": None}


def test_an_unknown_thread_is_reported(machine: Machine) -> None:
    result = machine.invoke("usage", "--thread", "nobody")
    assert result.exit_code == exits.NOTHING and "nobody" in result.stderr


def test_a_run_without_remaining_budget_says_so_and_names_the_cure(machine: Machine) -> None:
    assert machine.invoke("run", "Say hello.").exit_code == 0
    calls = len(machine.server.requests)
    refused = machine.invoke("run", "Again.", AGENT_RUNTIME_DAY_BUDGET_TOKENS="10")
    assert refused.exit_code == exits.STOPPED
    assert "does not fit the budget of the user for today (UTC)" in refused.stderr
    assert "Raise the budget of the day, or continue when it is over." in refused.stderr
    assert len(machine.server.requests) == calls


def test_a_run_that_exhausted_its_budget_gets_a_larger_one(machine: Machine) -> None:
    machine.script = lambda request, n: HELLO
    prices = {name: PRICES[name] for name in list(PRICES)[:2]}
    ended = machine.invoke("run", "Say hello.", "--budget-usd", "0.0001", **prices)
    assert ended.exit_code == exits.STOPPED and len(machine.server.requests) == 0
    [run] = re.findall(r"agent-runtime resume (\S+)", ended.stderr)
    assert f"agent-runtime usage --run {run}" in ended.stderr
    assert "Limits other than steps: $0.0001 for this run; no time limit" in ended.stderr
    assert machine.invoke("resume", run, **prices).exit_code == exits.STOPPED

    changed = machine.invoke("budget", run, "--usd", "0.01", "--tokens", "10")
    assert changed.stdout == (
        f"Run tree of {run}: 0 tokens ($0.0000) spent, 10 of 10 tokens left, "
        "$0.0100 of $0.0100 left.\n"
    )
    still = machine.invoke("resume", run, "--budget-usd", "2", **prices)
    assert still.exit_code == exits.STOPPED and len(machine.server.requests) == 0
    changed = machine.invoke("budget", run, "--tokens", "500000", "--json")
    assert json.loads(changed.stdout)["limit"] == {"tokens": 500_000, "cost_usd": 2.0}
    lifted = machine.invoke("budget", run, "--unlimited", "usd", "--json")
    assert json.loads(lifted.stdout)["limit"] == {"tokens": 500_000, "cost_usd": None}
    done = machine.invoke("resume", run, "--json", **prices)
    spent = json.loads(done.stdout)["cost_usd"]
    assert done.exit_code == exits.SUCCESS
    shown = machine.invoke("usage", "--run", run, "--json")
    assert json.loads(shown.stdout)["run"]["spent"]["cost_usd"] == spent > 0
    late = machine.invoke("budget", run, "--usd", "3")
    assert late.exit_code == exits.NOTHING and "is over: succeeded" in late.stderr


def test_invalid_budgets_are_refused(machine: Machine) -> None:
    for arguments in (
        ("budget", "r"),
        ("budget", "r", "--usd", "nan"),
        ("budget", "r", "--usd", "1", "--unlimited", "usd"),
        ("budget", "r", "--tokens", "0"),
        ("budget", "r", "--tokens", "1" + "0" * 18),
        ("run", "Say hello.", "--budget-usd", "inf"),
        ("run", "Say hello.", "--timeout", "nan"),
        ("resume", "r", "--budget-usd", "0"),
    ):
        refused = machine.invoke(*arguments)
        assert refused.exit_code == exits.USAGE, arguments
    for variable in ("AGENT_RUNTIME_DAY_BUDGET_USD", "AGENT_RUNTIME_RUN_TIMEOUT"):
        refused = machine.invoke("run", "Say hello.", **{variable: "1e300"})
        assert refused.exit_code == exits.USAGE and variable in refused.stderr
