"""Tasks that the offline model accepts, and how it declines others."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.errors import UnsupportedTask
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.offline import OfflineModel
from agent_runtime.offline.answers import read_state
from agent_runtime.offline.script import next_answer
from agent_runtime.offline.survey import Survey
from agent_runtime.offline.task import read_task
from agent_runtime.tools.toolset import Toolset
from agent_runtime.tools.workspace.files import workspace_tools
from tests.offline.driving import drive


@pytest.mark.parametrize(
    ("text", "folder", "report"),
    [
        ("Survey this folder and write REPORT.md", ".", "REPORT.md"),
        ("Survey the workspace.", ".", "REPORT.md"),
        ("Write an overview of the repository to docs/OVERVIEW.md.", ".", "docs/OVERVIEW.md"),
        ("Describe the files in src/ and save it as notes.txt", "src", "notes.txt"),
        ("Survey the folder `my data` into SURVEY.md", "my data", "SURVEY.md"),
        ("Give a report on the directory ./a/b", "./a/b", "REPORT.md"),
        ("Describe the `docs` folder", "docs", "REPORT.md"),
        ("Describe the docs folder", "docs", "REPORT.md"),
        ("Survey the whole folder", ".", "REPORT.md"),
        ("Survey this large folder", ".", "REPORT.md"),
        ("Read README.md, survey the project and write the result to OUT.md", ".", "OUT.md"),
        ("survey . into X.md", ".", "X.md"),
        ("Survey the project files", ".", "REPORT.md"),
    ],
)
def test_folder_and_report_are_taken_from_the_task(text: str, folder: str, report: str) -> None:
    assert read_task(text) == (folder, report)


@pytest.mark.parametrize(
    "text",
    ["Write a poem", "Describe quantum physics", "Fix the bug in this folder", "", "report"],
)
def test_other_tasks_are_declined(text: str) -> None:
    assert read_task(text) is None


def first(root: Path, *messages: PromptMessage) -> ModelAnswer:
    """Return the script's response to a prompt."""
    return next_answer(ModelRequest(messages, Toolset(workspace_tools(root)).specs))


def test_it_declines_what_it_cannot_do_and_says_how_to_set_a_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTask) as caught:
        first(tmp_path, PromptMessage("user", "Write a poem"))
    assert "AGENT_RUNTIME_MODEL=" in caught.value.cure
    assert "ANTHROPIC_API_KEY" in caught.value.cure


def test_it_names_missing_file_tools() -> None:
    request = ModelRequest((PromptMessage("user", "Survey this folder"),))
    with pytest.raises(UnsupportedTask, match="glob, read_file, search, write_file"):
        next_answer(request)


async def test_a_missing_folder_is_declined(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTask, match=r"'nowhere/here' cannot be .*No such file"):
        await drive(tmp_path, "Survey the folder nowhere/here")


async def test_a_folder_outside_the_workspace_is_declined(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTask, match="outside of the workspace"):
        await drive(tmp_path, "Survey the folder ../..")


def test_a_new_task_on_a_thread_starts_a_new_survey(tmp_path: Path) -> None:
    task = PromptMessage("user", "Survey this folder")
    before = first(tmp_path, task)
    again = PromptMessage("user", "Survey the folder `b` into B.md")
    answer = first(tmp_path, task, PromptMessage("assistant", before.text), again)
    state = read_state(answer.text, Survey)
    assert state is not None
    assert (state.phase, state.folder, state.report) == ("look", "b", "B.md")


def test_a_survey_of_another_version_is_started_over(tmp_path: Path) -> None:
    task = PromptMessage("user", "Survey this folder")
    answer = first(tmp_path, task, PromptMessage("assistant", 'I survey.\nstate: {"stage": 1}'))
    state = read_state(answer.text, Survey)
    assert state is not None and state.phase == "look"


def test_the_model_has_a_name_and_runs_the_script() -> None:
    assert OfflineModel().name == "offline"
