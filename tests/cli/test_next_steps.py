"""What a person can do next: one line at least for each stop reason and error, and one cost."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import warnings
from typing import get_args

import click
import pytest

from agent_runtime import errors
from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main, terminal
from agent_runtime.cli.chat.slash import SLASH
from agent_runtime.cli.display import short_ids
from agent_runtime.cli.display.figures import cost_text
from agent_runtime.cli.report.next_steps import (
    BY_ERROR,
    BY_REASON,
    after_error,
    after_result,
    near_names,
)
from agent_runtime.cli.session import FollowedRun, report
from agent_runtime.cli.terminal import prepare_output
from agent_runtime.run.results import RunResult
from agent_runtime.testing.model_server import Reply
from agent_runtime_storage.contract.records.log import StopReason
from agent_runtime_storage.contract.records.usage import UsageTotal
from tests.cli.test_runs import Machine
from tests.cli.test_runs import machine as machine
from tests.support.command import COMMAND, clean_environ

RUN, THREAD = "01a22207-082e-7705-998b-79697fea4624", "01a22207-082f-7265-9d3c-172b3ac38121"


@pytest.mark.parametrize("reason", get_args(StopReason))
def test_each_stop_reason_has_its_next_step(reason: StopReason) -> None:
    lines = BY_REASON[reason]
    assert bool(lines) == (reason != "completed")
    _check_commands(lines)


def _check_commands(lines: tuple[str, ...]) -> None:
    """Check that each command that is named exists."""
    commands = main.list_commands(click.Context(main))
    ids = {"run": "r", "thread": "t", "busy": "b", "again": "run"}
    for line in lines:
        for part in line.format(**ids).split("agent-runtime ")[1:]:
            words = part.split()
            assert words[0].removesuffix(",") in commands or words[0] == "--debug"


CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.ModelError | errors.StoreError | errors.ConfigError)
    or kind
    in (
        errors.PromptTooLarge,
        errors.InvariantError,
        errors.UnsupportedTask,
        errors.McpServerFailed,
    )
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_error_of_a_run_has_its_next_step(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    if kind is errors.ThreadBusy:
        error = errors.ThreadBusy("x", run_id="b")
    if kind is not errors.ModelError:
        assert any(base.__name__ in BY_ERROR for base in kind.__mro__)
    assert after_error(error, run="r", thread="t")
    for lines in BY_ERROR.values():
        _check_commands(lines)


@pytest.mark.parametrize("reason", get_args(StopReason))
def test_in_a_chat_the_next_step_is_a_line_of_the_chat(reason: StopReason) -> None:
    lines = after_result(_result(reason), chat=True)
    assert bool(lines) == (reason != "completed")
    text = "\n".join(lines)
    assert "agent-runtime resume" not in text or reason == "imported"
    assert all(word in SLASH for word in re.findall(r"(?<!\S)/[a-z]+", text)), text


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_in_a_chat_no_error_names_the_resume_of_the_shell(kind: type[Exception]) -> None:
    error = errors.ThreadBusy("x", run_id="b") if kind is errors.ThreadBusy else kind.__new__(kind)
    lines = after_error(error, run="r", thread="t", chat=True)
    assert lines
    text = "\n".join(lines)
    assert "agent-runtime resume" not in text
    assert all(word in SLASH for word in re.findall(r"(?<!\S)/[a-z]+", text)), text


def _result(reason: StopReason) -> RunResult:
    return RunResult(RUN, THREAD, "failed", reason, "", None, 3, UsageTotal.of(()))


@pytest.mark.parametrize("reason", get_args(StopReason))
def test_a_command_to_copy_is_on_one_row_of_a_narrow_terminal(
    reason: StopReason, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setattr(short_ids, "is_terminal", lambda: True)
    monkeypatch.setattr(terminal, "terminal_columns", lambda: 60)
    lines = after_result(_result(reason))
    for line in lines:
        terminal.say_step(line)
    rows = capsys.readouterr().err.splitlines()
    assert all(len(row) < 60 for row in rows)
    for line in lines:
        if "agent-runtime " in line:
            command = line[line.index("agent-runtime ") :].partition("   (")[0]
            assert any(command in row for row in rows), rows


def test_an_error_and_its_cure_are_said_once(machine: Machine) -> None:
    refused = machine.invoke(
        "run", "Hello.", "--model", "openai/gpt-4o", AGENT_RUNTIME_FORBID_REAL_MODELS="1",
        AGENT_RUNTIME_MODEL_BASE_URL="https://models.example.com/v1",
    )  # fmt: skip
    assert refused.exit_code != 0
    assert refused.stderr.count("was refused") == 1, refused.stderr
    assert refused.stderr.count("Use a scripted model") == 1
    # A cure that names a list is enough.
    missing = machine.invoke("show", "last", AGENT_RUNTIME_DATABASE_URL="file:other.db")
    assert missing.exit_code == exits.NOTHING
    assert missing.stderr.count("agent-runtime threads") == 1, missing.stderr


def test_a_run_that_was_stopped_before_it_began_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report(FollowedRun(interrupted=True), as_json=False)
    assert capsys.readouterr().err == (
        "It was stopped before the run began: nothing is recorded.\n"
    )


def test_a_misspelt_model_gets_near_names_and_no_resume(machine: Machine) -> None:
    machine.script = lambda request, n: Reply(status=404, error={"message": "no such model"})
    wrong = machine.invoke("run", "Hello.", "--model", "openai/gpt-4o-minni")
    assert wrong.exit_code == exits.MODEL
    assert "Did you mean openai/gpt-4o-mini" in wrong.stderr
    assert "--model NAME" in wrong.stderr and "resume" not in wrong.stderr


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("anthropic/claude-sonet-4-5", "anthropic/claude-sonnet-4-5"),
        ("antropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("claude-sonnet-4.5", "anthropic/claude-sonnet-4-5"),
        ("", None),
        ("zzzzqqqq/yyyyyyyyyyyyy", None),
    ],
)
def test_near_names_of_models(name: str, near: str | None) -> None:
    found = near_names(name)
    assert len(found) <= 3 and (near in found if near else not found)


def test_a_missing_key_is_named_without_loading_litellm(machine: Machine) -> None:
    # Its own process: here litellm may be loaded already.
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('litellm' in sys.modules, file=sys.stderr))\n"
        "from agent_runtime.cli import main\n"
        "main(['run', 'Hello.', '--model', 'mistral/mistral-large-latest'])"
    )

    environ = clean_environ({"AGENT_RUNTIME_FORBID_REAL_MODELS": "0", "MISTRAL_API_KEY": ""})
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        cwd=machine.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == exits.MODEL
    assert "cure: Set MISTRAL_API_KEY." in done.stderr
    assert "When the key is set: agent-runtime resume " in done.stderr
    assert done.stderr.endswith("False\n")


def test_one_cost_has_one_text(machine: Machine) -> None:
    assert cost_text(0, 0) == "$0.0000" and cost_text(12_300_000, 0) == "$0.0123"
    assert cost_text(0, 2) == "cost unknown" and cost_text(12_300_000, 1) == "at least $0.0123"
    done = machine.invoke("run", "Hello.", "--thread", "t")
    assert "cost unknown" in done.stderr and "$" not in done.stderr.split("Done")[1]
    shown = machine.invoke("usage", "--thread", "t", "--run", "last").stdout.splitlines()
    assert len(shown) == 3 and all("(cost unknown) spent" in line for line in shown)
    report = json.loads(machine.invoke("usage", "--json").stdout)
    assert report["day"]["spent"]["cost_usd"] is None
    assert report["day"]["spent"]["unpriced_calls"] == 1
    assert "cost unknown" in machine.invoke("runs", "tree", "last").stdout


def test_an_answer_in_another_encoding_is_kept(machine: Machine) -> None:
    machine.script = lambda request, n: Reply(text="Grüße — 你好")
    environ = machine.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}

    done = subprocess.run(
        [*COMMAND, "run", "Hello."], cwd=machine.folder, env=clean_environ(environ),
        capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode("latin-1") == "Grüße - \\u4f60\\u597d\n"


def test_quiet_shows_only_the_result(machine: Machine) -> None:
    shown = machine.invoke("--quiet", "run", "Hello.")
    assert shown.stdout == "Hello from the model.\n" and "step 1/" not in shown.stderr
    assert machine.invoke("-q", "-v", "run", "Hello.").exit_code == exits.USAGE


def test_only_a_dropped_coroutine_of_litellm_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Restored at the end, for the other tests.
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    prepare_output()
    for text in ("coroutine 'OpenAIChatCompletion.async_streaming' was never awaited", "shown"):
        warnings.showwarning(text, RuntimeWarning, "a.py", 1)
    written = capsys.readouterr().err
    assert "shown" in written and "coroutine" not in written


def test_a_conflict_is_no_trouble_of_the_database() -> None:
    assert after_error(errors.Conflict("x")) == ["Show how the runs are: agent-runtime runs"]
    assert after_error(errors.ConfigError("x")) == []
    assert "agent-runtime doctor" in after_error(errors.StoreFull("x"))[0]
    busy = after_error(errors.ThreadBusy("x", run_id="b"), run="r", thread="t")
    assert busy[0] == "Send the active run a message: agent-runtime steer b TEXT"
