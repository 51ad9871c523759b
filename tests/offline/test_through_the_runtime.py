"""The offline model as the default model of a whole run: real loop, real store, real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import Agent, Event, Runtime, load_settings, workspace_tools
from agent_runtime.errors import UnsupportedTask
from tests.offline.recount import Report, recount


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    for number in range(60):
        (root / f"module_{number:02}.py").write_text(
            f'"""Module {number}."""\n' + "def f(): ...\n" * number
        )
    return root


async def test_without_a_model_a_survey_finishes_and_its_report_is_correct(
    tmp_path: Path, folder: Path
) -> None:
    settings = load_settings({"AGENT_RUNTIME_DATABASE_URL": f"file:{tmp_path / 'store.db'}"})
    agent = Agent(tools=workspace_tools(folder))
    async with Runtime.open(settings) as runtime:
        result = await runtime.run(agent, "Survey this folder and write REPORT.md")
    report = Report((folder / "REPORT.md").read_text())
    truth = recount(folder)
    assert result.ok
    assert result.usage.cost == 0
    assert result.steps > 30
    assert report.number("Files") == len(truth.files) == 60
    assert report.number("Bytes") == sum(truth.files.values())
    assert set(report.read) == set(truth.files)
    assert report.search("Python functions (`def`)")[0] == sum(range(60))


async def test_another_task_ends_as_unsupported(tmp_path: Path, folder: Path) -> None:
    settings = load_settings({"AGENT_RUNTIME_DATABASE_URL": f"file:{tmp_path / 'store.db'}"})
    agent = Agent(tools=workspace_tools(folder))
    async with Runtime.open(settings) as runtime:
        with pytest.raises(UnsupportedTask):
            await runtime.run(agent, "Write a poem", thread="t")
        runs = await runtime.store.of(settings.user).runs.list(thread_id="t")
    assert [(run.status, run.stop_reason) for run in runs] == [("failed", "unsupported")]
    # Nothing was sent, so nothing may be billed.
    assert [(run.settled.tokens, run.unsettled.tokens) for run in runs] == [(0, 0)]


async def test_people_see_the_words_of_an_answer_and_not_its_state(
    tmp_path: Path, folder: Path
) -> None:
    settings = load_settings({"AGENT_RUNTIME_DATABASE_URL": f"file:{tmp_path / 'store.db'}"})
    seen: list[Event] = []
    async with Runtime.open(settings) as runtime:
        agent = Agent(tools=workspace_tools(folder))
        await runtime.run(agent, "Survey this folder.", thread="t", on_event=seen.append)
    shown = "".join(event.data["text"] for event in seen if event.kind == "text-delta")
    assert "I write what the searches found." in shown
    assert "state: " not in shown
