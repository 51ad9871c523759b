"""Commands that need no run: help, config, and reports of bad usage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.cli.main import COMMANDS
from agent_runtime_config import Settings
from agent_runtime_config.state import SHOWN
from tests.support.command import clean_environ, run_command, without_settings

NAMES = tuple(COMMANDS)
HEAVY = {"apsw", "litellm", "openai", "pydantic", "pydantic_settings", "rich", "tiktoken"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    without_settings(monkeypatch, tmp_path)


def _invoke(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environ)


def test_help_lists_every_command_and_exit_code() -> None:
    result = _invoke("--help")
    assert result.exit_code == 0
    for name in NAMES:
        assert f"\n  {name} " in result.output
    for code in exits.MEANINGS:
        assert f"\n  {code} " in result.output


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_help(name: str) -> None:
    result = _invoke(name, "--help")
    assert result.exit_code == 0 and f"{name} " in result.output


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["doctor", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr))\n"
        f"from agent_runtime.cli import main\nmain({arguments!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.strip() == "[]"


def test_config_shows_each_setting_with_its_value_and_origin() -> None:
    lines = _invoke("config", AGENT_RUNTIME_MAX_STEPS="7").output.splitlines()
    assert len(lines) == len(Settings.model_fields)
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows["AGENT_RUNTIME_MAX_STEPS"] == ["7", "environment"]
    assert rows["AGENT_RUNTIME_LAST_MESSAGES"] == ["20", "default"]


def test_config_explains_settings_on_request() -> None:
    assert "The most steps of a sub-agent's run." in _invoke("config", "--explain").output


def test_config_as_json_hides_secrets() -> None:
    result = _invoke("config", "--json", AGENT_RUNTIME_DATABASE_URL="libsql://ada:hunter2@host/db")
    rows = {row["variable"]: row for row in json.loads(result.output)}
    assert rows["AGENT_RUNTIME_DATABASE_URL"]["value"] == "libsql://***@host/db"
    assert rows["AGENT_RUNTIME_DATABASE_URL"]["default"] == SHOWN
    assert rows["AGENT_RUNTIME_MODEL"]["meaning"]
    assert "hunter2" not in result.output


@pytest.mark.parametrize("command", [["config"], ["run", "x"], ["threads"], ["resume"]])
def test_a_misspelt_setting_is_an_error_that_names_the_cure(command: list[str]) -> None:
    result = _invoke(*command, AGENT_RUNTIME_MAX_STEP="7")
    assert result.exit_code == exits.USAGE
    assert result.stdout == ""
    assert result.stderr == (
        "error: AGENT_RUNTIME_MAX_STEP is not a setting.\n"
        "cure: Did you mean AGENT_RUNTIME_MAX_STEPS?\n"
    )


def test_debug_adds_the_traceback() -> None:
    result = _invoke("--debug", "config", AGENT_RUNTIME_MAX_STEP="7")
    assert result.exit_code == exits.USAGE
    assert "Traceback" in result.stderr and "cure: " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "   "], "The task is empty"),
        (["run", "x", "--file", __file__], "not both"),
        (["run", "x", "--allow-shell"], "--allow-shell needs --workspace"),
        (["run", "x", "--workspace", "missing"], "does not exist"),
        (["run", "x", "--max-steps", "0"], "0 is not in the range"),
        (["resume", "r", "--thread", "t"], "not both"),
        (["fly"], "No such command"),
    ],
)
def test_bad_usage_is_reported_without_a_traceback(arguments: list[str], text: str) -> None:
    result = _invoke(*arguments)
    assert result.exit_code == exits.USAGE
    assert text in result.stderr and result.stdout == ""


def test_a_task_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "task").write_bytes(b"\xff\xfe\x00")
    result = _invoke("run", "--file", "task")
    assert result.exit_code == exits.USAGE and "not UTF-8 text" in result.stderr


def test_an_empty_pipe_is_not_a_task(tmp_path: Path) -> None:
    done = run_command("run", cwd=tmp_path)
    assert done.returncode == exits.USAGE and "The task is empty" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["runn"], "No such command 'runn'. Did you mean `agent-runtime run`?"),
        (["zzz"], "`agent-runtime --help` lists them."),
        (["plan", "last"], "No such command 'last'. There are: show, versions."),
        (["mcp", "lst"], "Did you mean `agent-runtime mcp list`?"),
    ],
)
def test_an_unknown_command_names_those_that_exist(arguments: list[str], hint: str) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="agent-runtime")
    assert result.exit_code == exits.USAGE
    assert hint in " ".join(result.stderr.split())


@pytest.mark.parametrize("width", [60, 80, 200])
def test_help_shows_the_whole_summary_of_each_command(width: int) -> None:
    groups = 0
    for name in NAMES:
        command = main.get_command(click.Context(main), name)
        if not isinstance(command, click.Group):
            continue
        groups += 1
        result = CliRunner().invoke(main, [name, "--help"], terminal_width=width)
        assert result.exit_code == exits.SUCCESS
        shown = " ".join(result.output.split())
        for one in command.commands.values():
            summary = " ".join((one.help or "").split("\n\n")[0].split())
            assert summary.split(". ")[0].rstrip(".") in shown
    assert groups > 5
