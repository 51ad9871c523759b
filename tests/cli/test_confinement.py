"""`--sandbox`, `--sandbox-network` and `--env`: what a run's commands may see and reach."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from agent_runtime import Settings
from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import main
from agent_runtime.cli.agents import Spec, build_agent
from agent_runtime.cli.commands.doctor import check_sandbox
from agent_runtime.cli.parameters.confinement import Confinement, require_sandbox
from agent_runtime.errors import ConfigError
from agent_runtime.testing.model_server import Reply
from agent_runtime.tools.toolset import Toolset
from tests.cli.test_runs import HELLO, Machine
from tests.cli.test_runs import machine as machine
from tests.tools.calling import text


@pytest.fixture
def bwrap(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `bwrap` that confines nothing: it runs what follows `--`."""
    # Not in the workspace of a test, where it would not count.
    program = tmp_path_factory.mktemp("bin") / "bwrap"
    program.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; CONFINED=1 exec "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def _settings(sandbox: str = "none", network: bool = False) -> Settings:
    return Settings(database_url="file:x.db", sandbox=sandbox, sandbox_network=network)


CHOICES = [
    # option, stored, setting, what holds
    (None, "", "none", ""),
    (None, "", "bwrap", "bwrap"),
    ("none", "", "bwrap", "none"),
    ("bwrap", "", "none", "bwrap"),
    # What confined the run before still confines it, whatever is set now.
    (None, "bwrap", "none", "bwrap"),
    (None, "none", "bwrap", "none"),
    ("none", "bwrap", "bwrap", "none"),
]


@pytest.mark.usefixtures("bwrap")
@pytest.mark.parametrize(("option", "stored", "setting", "holds"), CHOICES)
def test_the_sandbox_is_the_options_then_the_runs_then_the_settings(
    tmp_path: Path, option: str | None, stored: str, setting: str, holds: str
) -> None:
    spec = Spec("m", str(tmp_path), allow_shell=True, sandbox=stored)
    assert Confinement(option).on(spec, _settings(setting)).sandbox == holds


@pytest.mark.usefixtures("bwrap")
def test_a_setting_does_not_open_the_network_of_a_run_that_had_none(tmp_path: Path) -> None:
    spec = Spec("m", str(tmp_path), allow_shell=True, sandbox="bwrap")
    assert not Confinement().on(spec, _settings("bwrap", network=True)).sandbox_network
    assert Confinement(network=True).on(spec, _settings()).sandbox_network
    new = Spec("m", str(tmp_path), allow_shell=True)
    assert Confinement().on(new, _settings("bwrap", network=True)).sandbox_network


@pytest.mark.usefixtures("bwrap")
async def test_what_the_options_say_survives_storage_and_reaches_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN", "a value")
    spec = Spec("m", str(tmp_path), allow_shell=True)
    spec = Confinement("bwrap", True, ("GIVEN",)).on(spec, _settings())
    assert Spec.from_json(spec.to_json()) == spec
    agent = build_agent(Spec.from_json(spec.to_json()))
    assert "in a sandbox" in agent.instructions and "can use the network" in agent.instructions
    tool = Toolset(agent.tools).get("bash")
    assert tool is not None
    assert await text(tool, command="echo $CONFINED $GIVEN") == "Exit code 0.\n1 a value\n"


@pytest.mark.usefixtures("bwrap")
def test_a_resumed_run_keeps_its_sandbox(machine: Machine) -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        command = f"echo {n} $CONFINED >> mark"
        return Reply(calls=(("bash", {"command": command}),)) if n < 2 else HELLO

    machine.script = script
    options = ("--workspace", ".", "--allow-shell", "--sandbox", "bwrap", "--max-steps", "1")
    assert machine.invoke("run", "Go.", *options).exit_code == exits.STOPPED
    # The option is not given again, and no setting names a sandbox.
    resumed = machine.invoke("resume", "--max-steps", "5")
    assert resumed.exit_code == exits.SUCCESS, resumed.stderr
    assert (machine.folder / "mark").read_text() == "0 1\n1 1\n"


@pytest.mark.parametrize(
    "confinement",
    [Confinement("bwrap"), Confinement(network=True), Confinement(environment=("A",))],
)
def test_options_for_commands_need_commands(tmp_path: Path, confinement: Confinement) -> None:
    with pytest.raises(click.UsageError, match="need --allow-shell or --ask-shell"):
        confinement.on(Spec("m", str(tmp_path)), _settings())


def test_the_network_of_no_sandbox_is_an_error(tmp_path: Path) -> None:
    spec = Spec("m", str(tmp_path), allow_shell=True)
    with pytest.raises(click.UsageError, match="needs --sandbox"):
        Confinement(network=True).on(spec, _settings())


OPTIONS = {
    "--sandbox=firejail": "must be `none`, `bwrap` or `docker:IMAGE`",
    "--env=TOKEN=hunter2": "name alone",
    "--env=NOT_SET_ANYWHERE": "NOT_SET_ANYWHERE is not set",
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("command", ["run", "chat", "edit", "regenerate"])
def test_a_bad_option_is_refused_without_repeating_secrets(command: str, option: str) -> None:
    given = {"edit": ["t", "1", "x"], "regenerate": ["t"], "run": ["x"], "chat": []}[command]
    result = CliRunner().invoke(main, [command, *given, option])
    assert result.exit_code == exits.USAGE
    assert OPTIONS[option] in " ".join(result.stderr.split())
    assert "hunter2" not in result.output


def test_a_run_whose_sandbox_is_missing_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_RUNTIME_DATABASE_URL", f"file:{tmp_path / 'x.db'}")
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = ["run", "x", "--workspace", str(tmp_path), "--allow-shell", "--sandbox", "bwrap"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == exits.USAGE
    assert "The program `bwrap` of the sandbox is not installed." in result.stderr
    assert "Install bubblewrap" in result.stderr
    assert not (tmp_path / "x.db").exists()
    # A resume refuses as well, by the run's own sandbox or by the setting.
    for spec, settings in (
        (Spec("", str(tmp_path), allow_shell=True, sandbox="bwrap"), _settings()),
        (Spec("", str(tmp_path), allow_shell=True), _settings("bwrap")),
    ):
        with pytest.raises(ConfigError, match="not installed"):
            require_sandbox(spec, settings)


def test_doctor_fails_only_for_a_sandbox_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = check_sandbox(_settings("bwrap"))
    assert missing.state == "fail" and "Install bubblewrap" in missing.cure
    unset = check_sandbox(_settings())
    assert unset.state == "ok" and "not confined; bwrap: The program" in unset.detail


@pytest.mark.usefixtures("bwrap")
def test_doctor_names_the_sandbox_that_works() -> None:
    assert check_sandbox(_settings()).detail.endswith("bwrap works")
    assert check_sandbox(_settings("bwrap")).detail == "commands run in bwrap, without network"
