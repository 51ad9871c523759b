"""The command line's agent: built from a spec, and rebuilt from a run's stored spec."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_runtime.cli import main
from agent_runtime.cli.agents import Spec, build_agent
from agent_runtime.cli.parameters.run_options import RunOptions
from agent_runtime.errors import ConfigError
from agent_runtime.tools.toolset import Toolset
from agent_runtime_config import Settings


def _tools(spec: Spec) -> set[str]:
    return {one.name for one in Toolset(build_agent(spec).tools).specs}


def test_a_spec_survives_storage_in_a_run() -> None:
    spec = Spec("some/model", "/tmp", allow_shell=True, max_steps=7, ask_shell=True)
    assert Spec.from_json(spec.to_json()) == spec
    reader = Spec("some/model", "/tmp", read_only=True)
    assert Spec.from_json(reader.to_json()) == reader
    surfer = Spec("some/model", allow_web=True)
    assert Spec.from_json(surfer.to_json()) == surfer


def test_only_an_agent_that_may_read_the_web_is_told_so_and_has_the_tool() -> None:
    assert _tools(Spec("some/model", allow_web=True)) == {"fetch"}
    assert "`fetch`" in build_agent(Spec("some/model", allow_web=True)).instructions
    assert "`fetch`" not in build_agent(Spec("some/model")).instructions


def test_the_option_or_the_setting_allows_the_web() -> None:
    by_setting = Settings(model="some/model", allow_web=True)
    assert RunOptions("some/model", allow_web=True).new_spec(Settings()).allow_web
    assert RunOptions().new_spec(by_setting).allow_web
    assert not RunOptions(allow_web=False).new_spec(by_setting).allow_web
    assert not RunOptions("some/model").new_spec(Settings()).allow_web


def test_without_a_workspace_the_agent_has_no_tools() -> None:
    agent = build_agent(Spec("some/model"))
    assert agent.tools == [] and agent.model == "some/model"
    assert "no access to files" in agent.instructions


def test_a_workspace_gives_file_tools_but_no_shell(tmp_path: Path) -> None:
    tools = _tools(Spec("some/model", str(tmp_path)))
    assert {"glob", "read_file", "write_file", "edit_file", "search"} <= tools
    assert "bash" not in tools


def test_a_read_only_agent_cannot_write(tmp_path: Path) -> None:
    spec = Spec("some/model", str(tmp_path), read_only=True)
    assert {"glob", "read_file", "search"} <= _tools(spec)
    assert not {"write_file", "edit_file", "bash"} & _tools(spec)
    assert "cannot change anything" in build_agent(spec).instructions


@pytest.mark.parametrize("shell", ["--allow-shell", "--ask-shell"])
def test_a_read_only_agent_has_no_shell(tmp_path: Path, shell: str) -> None:
    arguments = ["run", "Look.", "--workspace", str(tmp_path), "--read-only", shell]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "--read-only excludes commands" in result.stderr


def test_the_preset_of_tools_is_stored_with_the_run_and_decides(tmp_path: Path) -> None:
    patching = Spec("some/model", str(tmp_path), tools="coding,apply_patch")
    assert Spec.from_json(patching.to_json()) == patching
    assert {"apply_patch", "edit_file"} <= _tools(patching)
    minimal = Spec("some/model", str(tmp_path), allow_shell=True, tools="minimal")
    agent = build_agent(minimal)
    assert _tools(minimal) == {"bash", "bash_output"}
    assert not agent.planning and not agent.delegation and "delegate" not in agent.instructions


@pytest.mark.parametrize(
    ("arguments", "setting", "says"),
    [
        (["--tools", "coding"], "coding", "--tools needs --workspace"),
        (["--tools", "minimal", "--workspace", "."], "coding", "allow it by --allow-shell"),
        (["--workspace", "."], "minimal", "allow it by --allow-shell"),
        (["--workspace", ".", "--read-only"], "apply_patch", "allow it by --allow-shell"),
        (["--tools", "codng", "--workspace", "."], "coding", "no preset and no file tool 'codng'"),
    ],
)
def test_tools_that_cannot_be_had_are_refused(
    arguments: list[str], setting: str, says: str
) -> None:
    result = CliRunner(env={"AGENT_RUNTIME_TOOLS": setting}).invoke(
        main, ["run", "Look.", *arguments]
    )
    assert result.exit_code != 0
    assert says in " ".join(f"{result.stderr} {result.exception}".split())


def test_the_shell_has_to_be_allowed(tmp_path: Path) -> None:
    spec = Spec("some/model", str(tmp_path), allow_shell=True)
    assert "bash" in _tools(spec)
    assert "bash" in build_agent(spec).instructions


def test_commands_need_approval_only_with_ask_shell(tmp_path: Path) -> None:
    for ask in (True, False):
        spec = Spec("some/model", str(tmp_path), allow_shell=True, ask_shell=ask)
        agent = build_agent(spec)
        shell = Toolset(agent.tools).get("bash")
        assert shell is not None and shell.needs_approval is ask
        assert ("waits until the user allows it" in agent.instructions) is ask


def test_the_prompt_says_whether_a_person_can_be_asked() -> None:
    assert "by `ask_user`" in build_agent(Spec("m", asking=True)).instructions
    assert "You cannot ask anybody" in build_agent(Spec("m")).instructions


def test_without_a_model_the_offline_model_runs() -> None:
    agent = build_agent(Spec(""))
    assert agent.model is not None and not isinstance(agent.model, str)


def test_a_missing_workspace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        build_agent(Spec("some/model", str(tmp_path / "gone")))


def test_the_step_limit_reaches_the_agent(tmp_path: Path) -> None:
    assert build_agent(Spec("m", max_steps=3)).max_steps == 3
    assert build_agent(Spec("m")).max_steps is None
