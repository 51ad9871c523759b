"""`--env-file`, and what `config` says of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent_runtime.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # The option sets it for the rest of the process.
    monkeypatch.setenv("AGENT_RUNTIME_ENV_FILE", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def _invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_env_file_that_is_named_may_set_what_guards(folder: Path, place: str) -> None:
    (folder / ".env").write_text("AGENT_RUNTIME_BUDGET_USD=2\nOPENAI_API_KEY=hunter2\nPATH=/x\n")
    option = ["--env-file", ".env"]
    result = _invoke(*([*option, "config"] if place == "before" else ["config", *option]))

    assert result.exit_code == 0
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert rows["AGENT_RUNTIME_BUDGET_USD"] == ["2", f"{folder}/.env:1"]
    assert rows["OPENAI_API_KEY"] == ["***", f"{folder}/.env:2"]
    assert "hunter2" not in result.output
    assert ".env: 1 variable, neither a setting nor a key." in result.stderr
    assert os.environ["PATH"] != "/x"


def test_a_run_reads_its_env_file(folder: Path) -> None:
    (folder / ".env").write_text("AGENT_RUNTIME_MAX_STEPS=0\n")
    result = _invoke("run", "Survey", "--env-file", ".env")
    assert result.exit_code == 2
    assert f"AGENT_RUNTIME_MAX_STEPS ({folder}/.env:1) must be" in result.stderr


def test_config_shows_the_settings_that_are_named(folder: Path) -> None:
    path = folder / "agent-runtime/config.toml"
    path.parent.mkdir()
    path.write_text("max_steps = 3")
    assert _invoke("config", "--path").stdout == f"{path}\n"
    result = _invoke("config", "max_steps", "AGENT_RUNTIME_SWEEP")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["AGENT_RUNTIME_MAX_STEPS", "3", f"{path}:1"],
        ["AGENT_RUNTIME_SWEEP", "0", "default"],
    ]
    assert "Did you mean AGENT_RUNTIME_MAX_STEPS?" in _invoke("config", "max_step").stderr
