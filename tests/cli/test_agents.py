"""The command line's agent: built from a spec, and built again from what a run kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.cli.agents import Spec, build_agent, database_files
from agent_runtime.errors import ConfigError
from agent_runtime.tools.base import Toolset
from agent_runtime_config import Settings


def _tools(spec: Spec) -> set[str]:
    return {one.name for one in Toolset(build_agent(spec, Settings()).tools).specs}


def test_a_spec_survives_being_kept_with_a_run() -> None:
    spec = Spec("some/model", "/tmp", allow_shell=True, max_steps=7)
    assert Spec.from_json(spec.to_json()) == spec


def test_without_a_workspace_the_agent_has_no_tools() -> None:
    agent = build_agent(Spec("some/model"), Settings())
    assert agent.tools == [] and agent.model == "some/model"
    assert "no access to files" in agent.instructions


def test_a_workspace_gives_file_tools_but_no_shell(tmp_path: Path) -> None:
    tools = _tools(Spec("some/model", str(tmp_path)))
    assert {"list_files", "read_file", "write_file", "edit_file", "search_files"} <= tools
    assert "run_command" not in tools


def test_the_shell_has_to_be_allowed(tmp_path: Path) -> None:
    spec = Spec("some/model", str(tmp_path), allow_shell=True)
    assert "run_command" in _tools(spec)
    assert "run_command" in build_agent(spec, Settings()).instructions


def test_without_a_model_the_offline_model_drives() -> None:
    agent = build_agent(Spec(""), Settings())
    assert agent.model is not None and not isinstance(agent.model, str)


def test_a_workspace_that_has_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        build_agent(Spec("some/model", str(tmp_path / "gone")), Settings())


def test_the_limit_of_steps_goes_to_the_agent(tmp_path: Path) -> None:
    assert build_agent(Spec("m", max_steps=3), Settings()).max_steps == 3
    assert build_agent(Spec("m"), Settings()).max_steps is None


def test_the_database_in_a_workspace_is_kept_from_the_agent(tmp_path: Path) -> None:
    settings = Settings(database_url=f"file:{tmp_path}/own.db")
    names = {path.name for path in database_files(settings)}
    assert names == {"own.db", "own.db-wal", "own.db-shm", "own.db-journal"}
