"""The options of a run: the same on every command, stored, and widened only by an option."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.cli.agents import Spec
from agent_runtime.cli.parameters.confinement import Confinement
from agent_runtime.cli.parameters.run_options import RunOptions, widened
from agent_runtime.testing.model_server import Reply
from agent_runtime_config import Settings
from tests.cli.test_runs import HELLO, STALL, Machine
from tests.cli.test_runs import machine as machine

COMMANDS = ("run", "resume", "chat", "edit", "regenerate")
OPTIONS = {
    "--model", "--workspace", "--max-steps", "--budget-usd", "--timeout", "--allow-shell",
    "--no-allow-shell", "--ask-shell", "--no-ask-shell", "--read-only", "--no-read-only",
    "--sandbox", "--sandbox-network", "--no-sandbox-network", "--env",
}  # fmt: skip


def _settings() -> Settings:
    return Settings(database_url="file:x.db")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_that_runs_the_agent_has_every_option(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    found = {
        one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)
    }
    assert found >= OPTIONS


FULL = Spec("m", "/w", allow_shell=True, ask_shell=True, sandbox="none", max_steps=3, timeout=9.0)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (RunOptions(), {}),
        # Commands are allowed already, and still wait for approval.
        (RunOptions(allow_shell=True), {}),
        (RunOptions(ask_shell=False), {"ask_shell": False}),
        (RunOptions(allow_shell=False), {"allow_shell": False, "ask_shell": False}),
        (RunOptions(model="n", max_steps=5, timeout=1.5),
         {"model": "n", "max_steps": 5, "timeout": 1.5}),
        (RunOptions(allow_shell=False, read_only=True),
         {"allow_shell": False, "ask_shell": False, "read_only": True}),
    ],
)  # fmt: skip
def test_what_no_option_names_stays(options: RunOptions, changes: dict[str, Any]) -> None:
    import dataclasses

    assert options.on(FULL, _settings()) == dataclasses.replace(FULL, **changes)
    assert Spec.from_json(json.loads(json.dumps(FULL.to_json()))) == FULL


@pytest.mark.parametrize(
    ("spec", "options", "text"),
    [
        (Spec("m", "/w", read_only=True), RunOptions(allow_shell=True), "--no-read-only"),
        (Spec("m", "/w"), RunOptions(read_only=True, ask_shell=True), "excludes commands"),
        (Spec("m", "/w"), RunOptions(allow_shell=False, ask_shell=True), "not both"),
        (Spec("m"), RunOptions(ask_shell=True), "--ask-shell needs --workspace"),
        (Spec("m", "/w"), RunOptions(confinement=Confinement("bwrap")), "need --allow-shell"),
    ],
)
def test_contradictions_are_refused(spec: Spec, options: RunOptions, text: str) -> None:
    with pytest.raises(click.UsageError, match=text):
        options.on(spec, _settings())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (FULL, FULL, []),
        (Spec("m", "/w"), Spec("m", "/v"), ["use the files of /v"]),
        (Spec("m", "/w"), Spec("m", "/w", allow_shell=True), ["run commands"]),
        (FULL, Spec("m", "/w", allow_shell=True, sandbox="none"), ["run commands without asking"]),
        (Spec("m", "/w", True, sandbox="bwrap"), Spec("m", "/w", True, sandbox="none"),
         ["run commands outside of a sandbox"]),
        (Spec("m", "/w", True, sandbox="bwrap"),
         Spec("m", "/w", True, sandbox="bwrap", sandbox_network=True),
         ["use the network in commands"]),
        (Spec("m", "/w", True), Spec("m", "/w", True, environment=("A",)), ["read A in commands"]),
        (Spec("m", "/w", read_only=True), Spec("m", "/w"), ["change files"]),
        (FULL, Spec("m", "/w", read_only=True), []),
    ],
)  # fmt: skip
def test_what_is_widened_is_said(before: Spec, after: Spec, said: list[str]) -> None:
    assert list(widened(before, after)) == said


def test_options_of_a_resume_apply_to_it_and_to_later_ones(machine: Machine) -> None:
    machine.script = lambda request, n: Reply(calls=(("glob", {}),)) if n < 2 else HELLO
    stopped = machine.invoke(
        "run", "Go.", "--thread", "t", "--workspace", ".", "--max-steps", "1", "--timeout", "600",
        "--read-only",
    )  # fmt: skip
    assert stopped.exit_code == exits.STOPPED, stopped.stderr
    refused = machine.invoke("resume", "last", "--allow-shell")
    assert refused.exit_code == exits.USAGE and "--no-read-only" in refused.stderr

    wider = ("--no-read-only", "--ask-shell", "--max-steps", "2", "--model", "openai/other")
    again = machine.invoke("resume", "last", *wider)
    assert "From now on the agent may also: run commands; change files." in again.stderr
    names = {tool["function"]["name"] for tool in machine.server.requests[-1].json["tools"]}
    assert {"bash", "write_file"} <= names

    # It is stored: this resume names nothing.
    done = machine.invoke("resume", "--thread", "t", "--json", "--max-steps", "9")
    assert done.exit_code == 0, done.stderr
    last = machine.server.requests[-1].json
    assert last["model"] == "other" and "From now on" not in done.stderr
    assert "bash" in {tool["function"]["name"] for tool in last["tools"]}


def test_edit_and_regenerate_take_limits(machine: Machine) -> None:
    assert machine.invoke("run", "One", "--thread", "t", "--workspace", ".").exit_code == 0
    machine.script = lambda request, n: Reply(calls=(("glob", {}),))
    for command in (("edit", "t", "last", "Two"), ("regenerate", "last")):
        done = machine.invoke(*command, "--max-steps", "1", "--ask-shell")
        assert done.exit_code == exits.STOPPED and "--max-steps NUMBER" in done.stderr
        # The second continues with the options of the first.
        wider = "From now on the agent may also: run commands." in done.stderr
        assert wider == (command[0] == "edit")
    priced = {"AGENT_RUNTIME_PRICE_INPUT": "3", "AGENT_RUNTIME_PRICE_OUTPUT": "15"}
    over = machine.invoke("edit", "t", "last", "Three", "--budget-usd", "0.00001", **priced)
    assert over.exit_code == exits.STOPPED and "agent-runtime budget " in over.stderr


def test_a_run_that_works_or_is_done_keeps_its_options(machine: Machine) -> None:
    machine.script = lambda request, n: STALL
    with machine.process("run", "Go.", "--thread", "t"):
        machine.wait_for_requests(1)
        [run] = machine.invoke("runs", "--json").stdout.splitlines()
        run_id = str(json.loads(run)["run_id"])
        busy = machine.invoke("resume", run_id, "--model", "openai/other")
        assert busy.exit_code == exits.NOTHING and "already running" in busy.stderr
        assert f"agent-runtime cancel {run_id}" in busy.stderr
    machine.script = lambda request, n: HELLO
    assert machine.invoke("resume", run_id).exit_code == 0
    assert machine.server.requests[-1].json["model"] == "test-model"
    over = machine.invoke("resume", run_id, "--model", "openai/other")
    assert over.exit_code == exits.NOTHING and "has succeeded" in over.stderr
