"""What the command line tells its agents: where they are, instructions, skills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.cli.parameters.instructions import MOST_BYTES
from agent_runtime.testing.model_server import Reply
from tests.cli.test_runs import HELLO, Machine
from tests.cli.test_runs import machine as machine
from tests.cli.test_with_a_key import is_first, run_to_resume


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home outside of the workspace."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    return folder


def skill(folder: Path) -> None:
    """Write a skill."""
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {folder.name}\ndescription: Does it.\n---\nDo.\n")


def test_a_run_is_told_its_place_and_keeps_its_instructions_on_a_resume(
    machine: Machine, home: Path
) -> None:
    work = machine.folder / "work"
    (work / "sub").mkdir(parents=True)
    (work / "AGENTS.md").write_text("Run the tests with make.")
    (work / "sub" / "AGENTS.md").write_text("Here in German.")
    (work / "sub" / "a.txt").write_text("The sea is blue.")
    (home / ".agents").mkdir()
    (home / ".agents" / "AGENTS.md").write_text("Speak plainly.")
    skill(work / ".agents" / "skills" / "deploy")
    (machine.folder / "mine.md").write_text("Never push.")

    def script(request: dict[str, Any], n: int) -> Reply:
        return Reply(calls=(("read_file", {"path": "sub/a.txt"}),)) if is_first(request) else HELLO

    machine.script = script
    options = ("--workspace", "work", "--instructions", "mine.md", "--max-steps", "1")
    stopped = machine.invoke("run", "What colour?", *options)
    first = machine.server.requests[0].json
    system, *notes, task = [one["content"] for one in first["messages"]]
    assert "bind you like the task:\n\nNever push." in system
    assert "What colour?" in task
    place, mine, projects, skills = notes
    assert f"Workspace: {work}" in place and "Programs" not in place
    assert "Speak plainly." in mine and "Run the tests with make." in projects
    assert "deploy (the project's): Does it." in skills
    assert "open_skill" in {one["function"]["name"] for one in first["tools"]}
    (machine.folder / "mine.md").write_text("Something else.")
    (work / "AGENTS.md").write_text("Run the tests with just.")
    resumed = machine.invoke("resume", run_to_resume(stopped.stderr))
    assert resumed.exit_code == 0, resumed.stderr
    last = machine.server.requests[-1].json["messages"]
    texts = "\n".join(one["content"] or "" for one in last)
    assert "Never push." in last[0]["content"] and "Something else." not in last[0]["content"]
    assert "Here in German." in texts and "Run the tests with just." in texts
    # What has not changed is not repeated.
    assert texts.count("Speak plainly.") == texts.count("Workspace: ") == 1


def test_the_settings_switch_off_and_name_files(machine: Machine, home: Path) -> None:
    (machine.folder / "AGENTS.md").write_text("Run the tests with make.")
    (home / "mine.md").write_text("Never push.")
    done = machine.invoke(
        "run", "Go.", "--workspace", ".", AGENT_RUNTIME_PROJECT_INSTRUCTIONS="false",
        AGENT_RUNTIME_INSTRUCTIONS_FILE="~/mine.md",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    sent = json.dumps(machine.server.requests[0].json)
    assert "with make" not in sent and "Never push." in sent


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"\xff", "not UTF-8"), (b"x" * (MOST_BYTES + 1), "more than 64 KiB"), (None, "No such file")],
)
def test_a_file_of_instructions_that_cannot_be_used(
    machine: Machine, home: Path, data: bytes | None, reason: str
) -> None:
    path = home / "mine.md"
    if data is not None:
        path.write_bytes(data)
    refused = machine.invoke("run", "Go.", AGENT_RUNTIME_INSTRUCTIONS_FILE=str(path))
    assert refused.exit_code == 2 and reason in refused.stderr


def test_skills_are_listed_with_what_is_wrong(machine: Machine, home: Path) -> None:
    empty = machine.invoke("skills")
    assert empty.exit_code == 0 and "There are no skills here." in empty.stderr
    skill(home / ".agents" / "skills" / "deploy")
    skill(machine.folder / ".claude" / "skills" / "deploy")
    skill(machine.folder / "more" / "Bad_Name")
    listed = machine.invoke("skills", AGENT_RUNTIME_SKILLS="more")
    assert listed.stdout.splitlines()[0].startswith("deploy  (user)  ")
    assert "Bad_Name" in listed.stderr and "is not used" in listed.stderr
    report = json.loads(machine.invoke("skills", "--json").stdout)
    [one] = report["skills"]
    assert (one["name"], one["trust"], len(report["problems"])) == ("deploy", "user", 1)
