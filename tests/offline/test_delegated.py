"""A survey by sub-agents: real loop, real store, real files; every figure is recounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import Agent, Runtime, load_settings, workspace_tools
from agent_runtime.log.run_spec import DelegationRecord, delegation_record
from agent_runtime.messages import Plan
from agent_runtime.offline.script import MOST_PARTS, MOST_READ
from agent_runtime.run.results import RunResult
from agent_runtime_storage.contract.records.log import Run
from tests.offline.recount import Report, recount
from tests.offline.test_survey import check_figures, check_read, check_searches, entries

TASK = "Survey this folder and write REPORT.md"


class Surveyed:
    """A survey's result, plan, sub-agents and report."""

    def __init__(self, root: Path, result: RunResult, runs: list[Run], plan: Plan) -> None:
        self.result, self.plan = result, plan
        self.children = [run for run in runs if run.parent_run_id is not None]
        self.report = Report((root / "REPORT.md").read_text())

    def of(self, part: str) -> list[str]:
        """Return how each attempt at a part ended, oldest first."""
        ended = [run for run in self.children if _record(run).key == part]
        return [run.stop_reason or "" for run in sorted(ended, key=lambda run: run.created_at)]


async def survey(
    root: Path,
    store: Path,
    *,
    check: bool = True,
    **environ: str,
) -> Surveyed:
    """Survey a folder with the command line's settings, and check the report's figures."""
    settings = load_settings({"AGENT_RUNTIME_DATABASE_URL": f"file:{store}", **environ})
    agent = Agent(tools=workspace_tools(root), planning=True, delegation=True)
    async with Runtime.open(settings) as runtime:
        result = await runtime.run(agent, TASK, thread="t")
        plan = await runtime.plans.current("t")
        runs = await runtime.store.of(settings.user).runs.list(limit=1000)
    assert result.ok and plan is not None
    seen = Surveyed(root, result, runs, plan)
    if check:
        check_figures(root, seen.report)
        check_searches(root, seen.report)
        check_read(root, seen.report)
    return seen


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def fill(root: Path, sizes: list[int]) -> None:
    """Write files with these line counts."""
    for number, lines in enumerate(sizes):
        text = f'"""Module {number}."""\n' + "def f(): ...  # TODO\n" * lines
        (root / f"module_{number:04}.py").write_text(text)


async def test_sub_agents_read_the_parts_and_the_report_is_correct(root: Path, store: Path) -> None:
    fill(root, [1] * 60)
    seen = await survey(root, store)
    assert set(seen.report.read) == set(recount(root).files)
    assert len(seen.children) == 6
    assert {run.status for run in seen.children} == {"succeeded"}
    assert {item.id: item.status for item in seen.plan.items} == dict.fromkeys(
        ("look", *(f"part-{n}" for n in range(1, 7)), "figures", "check", "recall"), "completed",
    )  # fmt: skip
    assert "By sub-agents: 6 parts, 6 attempts." in seen.report.text
    # The root itself has read only its own report.
    assert seen.result.steps < 30


async def test_a_part_of_large_files_exhausts_its_steps_and_the_next_attempt_continues(
    root: Path, store: Path
) -> None:
    fill(root, [1] * 50 + [1500] * 9)
    seen = await survey(root, store)
    assert set(seen.report.read) == set(recount(root).files)
    assert seen.of("part-1") == ["completed"]
    assert seen.of("part-6") == ["max_steps", "completed"]
    second = max(
        (run for run in seen.children if _record(run).key == "part-6"),
        key=lambda run: run.created_at,
    )
    # It starts where the log of attempts says: it read the remaining files, not the part again.
    assert _record(second).fix_applied.startswith("Begin at entry 60, with the files of the queue")
    assert second.steps < 13
    (line,) = [line for line in seen.report.section("How it was read") if "`part-6`" in line]
    assert "attempt 1 stopped after" in line and "(max_steps)" in line


async def test_the_first_listing_is_recalled_after_it_left_the_prompt(
    root: Path, store: Path
) -> None:
    fill(root, [1] * 100)
    seen = await survey(root, store, AGENT_RUNTIME_OBSERVER_MESSAGE_TOKENS="6000")
    size = sum(recount(root).files.values())
    expected = (
        "observation o1 stands for it), the first listing said: “100 entries for **: "
        f"100 files of {size:,} bytes, 0 folders.” No language model"
    )
    assert expected in str(seen.result.output)


async def test_an_empty_folder_is_surveyed(root: Path, store: Path) -> None:
    seen = await survey(root, store)
    assert seen.children == []
    assert {one.status for one in seen.plan.items} == {"completed"}
    assert seen.report.number("Files") == seen.report.number("Read") == 0


@pytest.mark.slow
async def test_of_thousands_of_files_a_sample_is_read_and_folders_are_not_files(
    root: Path, store: Path
) -> None:
    for number in range(700):
        folder = root / f"part{number % 7}" / f"unit {number % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file_{number}.txt").write_text(f"File {number} TODO\n" * (number % 5))
    seen = await survey(root, store)
    order = sorted(entries(root), key=lambda path: path.split("/"))
    chosen = order[:: -(-len(order) // MOST_READ)]
    assert set(seen.report.read) == set(chosen) & recount(root).files.keys()
    assert len(seen.children) >= MOST_PARTS


async def test_a_part_that_no_attempt_finishes_is_reported_as_unread(
    root: Path, store: Path
) -> None:
    fill(root, [1] * 20)
    seen = await survey(root, store, check=False, AGENT_RUNTIME_SUB_AGENT_MAX_STEPS="1")
    assert seen.report.number("Read") == 0
    assert seen.of("part-1") == ["max_steps", "max_steps"]
    assert "attempt 2 given up after 0 files (max_steps)" in seen.report.text
    assert {item.id: item.status for item in seen.plan.items}["part-1"] == "failed"
    assert "Only 0 of 20 entries were listed" in seen.report.text


async def test_the_same_folder_yields_the_same_report(root: Path, tmp_path: Path) -> None:
    fill(root, [1] * 45 + [1500] * 15)
    texts = [(await survey(root, tmp_path / f"{n}.db")).report.text for n in range(2)]
    assert texts[0] == texts[1]


def _record(run: Run) -> DelegationRecord:
    """Return the call that started a sub-agent, as its run stores it."""
    record = delegation_record(run)
    assert record is not None
    return record
