"""The survey by sub-agents: real loop, real store, real files; every figure is counted again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from agent_runtime import Agent, Runtime, ToolContext, load_settings, tool, workspace_tools
from agent_runtime.log.run_spec import DelegationRecord, delegation_record
from agent_runtime.messages import ToolResult
from agent_runtime.offline import delegating_survey as parts
from agent_runtime.plan.model import Plan
from agent_runtime.run.results import RunResult
from agent_runtime.tools.base import Tool
from agent_runtime_storage.contract.records import Run
from tests.offline.recount import Report, recount
from tests.offline.test_survey import check_figures, check_read, check_searches, fill_small

TASK = "Survey this folder and write REPORT.md"


class Surveyed:
    """What a survey left behind."""

    def __init__(self, root: Path, result: RunResult, runs: list[Run], plan: Plan) -> None:
        self.result, self.plan = result, plan
        self.children = [run for run in runs if run.parent_run_id is not None]
        self.report = Report((root / "REPORT.md").read_text())

    def of(self, part: str) -> list[str]:
        """Return how the attempts at a part ended, the first one first."""
        ended = [run for run in self.children if _record(run).key == part]
        return [run.stop_reason or "" for run in sorted(ended, key=lambda run: run.created_at)]


async def survey(
    root: Path,
    store: Path,
    *,
    tools: Iterable[Tool] | None = None,
    check: bool = True,
    **environ: str,
) -> Surveyed:
    """Survey a folder with all that the command line gives, and check the report's figures."""
    settings = load_settings({"AGENT_RUNTIME_DATABASE_URL": f"file:{store}", **environ})
    given = list(workspace_tools(root) if tools is None else tools)
    agent = Agent(tools=given, planning=True, delegation=True)
    async with Runtime.open(settings) as runtime:
        result = await runtime.run(agent, TASK, thread="t")
        plan = await runtime.plans.current("t")
        runs = await runtime.store.of(settings.user).runs(limit=1000)
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
    """Write files of so many lines each."""
    for number, lines in enumerate(sizes):
        text = f'"""Module {number}."""\n' + "def f(): ...  # TODO\n" * lines
        (root / f"module_{number:04}.py").write_text(text)


async def test_sub_agents_read_the_parts_and_the_report_is_true(root: Path, store: Path) -> None:
    fill(root, [1] * 60)
    seen = await survey(root, store)
    assert set(seen.report.read) == set(recount(root).files)
    assert len(seen.children) == 6
    assert {run.status for run in seen.children} == {"succeeded"}
    assert {one.id: one.status for one in seen.plan.items} == dict.fromkeys(
        ("start", "list", "search", "figures", *(f"part-{n}" for n in range(1, 7)), "recall",
         "check"), "completed",
    )  # fmt: skip
    assert "By sub-agents: 6 parts, 6 attempts." in seen.report.text
    # The root itself has read nothing but its own report.
    assert seen.result.steps < 30


async def test_a_part_of_large_files_runs_out_of_steps_and_the_next_attempt_goes_on(
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
    # It begins where the log of attempts says: it read what was left, not the part again.
    assert _record(second).fix_applied.startswith("Go on at entry 5")
    assert second.steps < 12
    (told,) = [line for line in seen.report.section("How it was read") if "`part-6`" in line]
    assert "attempt 1 stopped after" in told and "(max_steps)" in told


async def test_what_was_listed_first_is_recalled_after_it_has_left_the_prompt(
    root: Path, store: Path
) -> None:
    fill(root, [1] * 100)
    seen = await survey(root, store, AGENT_RUNTIME_OBSERVER_MESSAGE_TOKENS="6000")
    size = sum(recount(root).files.values())
    stub = len("This survey is being made.\n")
    told = f"said: “101 entries in . and below: 101 files of {size + stub:,} bytes, 0 folders.”"
    assert told in seen.report.text
    assert "recalled from the log (observation o1 stands for it)" in str(seen.result.output)


async def test_odd_files_are_told_of_by_sub_agents_as_they_are(root: Path, store: Path) -> None:
    fill_small(root)
    (root / os.fsdecode(b"bad\xff.txt")).write_text("bad\n")
    seen = await survey(root, store)
    assert set(seen.report.unread.values()) == {
        "picture.png is a binary file of 2,011 bytes; it is not shown.",
        "its name is no UTF-8",
    }
    assert len(seen.report.read) == len(recount(root).files) - 2
    assert seen.report.number("Not opened") == 0


async def test_a_file_too_large_to_be_counted_is_said_to_be(root: Path, store: Path) -> None:
    fill(root, [1] * 3)
    (root / "large.txt").write_text(f"{'x' * 999}\n" * 70_000)
    seen = await survey(root, store)
    why = "it has 70,000,000 bytes, too many for its lines to be counted"
    assert seen.report.unread == {"large.txt": why}
    assert seen.report.number("Read") == 3


async def test_a_file_that_vanishes_before_it_is_read_is_told_of(root: Path, store: Path) -> None:
    fill(root, [1] * 3)
    tools = {one.name: one for one in workspace_tools(root)}
    real = tools["read_file"]

    @tool(idempotent=True)
    async def read_file(context: ToolContext, path: str, limit: int = 400) -> ToolResult:
        """Read a file."""
        if path == "module_0001.py":
            (root / path).unlink(missing_ok=True)
        return await real.call({"path": path, "limit": limit}, context)

    tools["read_file"] = read_file
    seen = await survey(root, store, tools=tools.values(), check=False)
    assert seen.report.number("Files") == 3 and seen.report.number("Read") == 2
    assert "No such file" in seen.report.unread["module_0001.py"]


async def test_an_empty_folder_needs_no_sub_agents(root: Path, store: Path) -> None:
    seen = await survey(root, store)
    assert seen.children == [] and seen.report.number("Read") == 0
    assert {one.id: one.status for one in seen.plan.items}["part-1"] == "skipped"


async def test_of_thousands_of_files_a_sample_is_read_and_folders_are_no_files(
    root: Path, store: Path
) -> None:
    for number in range(700):
        folder = root / f"part{number % 7}" / f"unit {number % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file_{number}.txt").write_text(f"File {number} TODO\n" * (number % 5))
    seen = await survey(root, store)
    order = sorted(recount(root).files, key=lambda path: path.split("/"))
    assert set(seen.report.read) == set(order[:: -(-700 // 320)])
    assert len(seen.children) >= parts.MOST_PARTS


async def test_a_part_that_no_attempt_gets_through_is_said_not_to_be_read(
    root: Path, store: Path
) -> None:
    fill(root, [1] * 20)
    seen = await survey(root, store, AGENT_RUNTIME_SUB_AGENT_MAX_STEPS="1")
    assert seen.report.number("Read") == 0 and seen.report.number("Not opened") == 20
    assert seen.of("part-1") == ["max_steps", "max_steps"]
    assert "attempt 2 given up after 0 files (max_steps)" in seen.report.text
    assert {one.id: one.status for one in seen.plan.items}["part-1"] == "failed"


async def test_the_same_folder_gives_the_same_report(root: Path, tmp_path: Path) -> None:
    fill(root, [1] * 45 + [1500] * 15)
    texts = [(await survey(root, tmp_path / f"{n}.db")).report.text for n in range(2)]
    assert texts[0] == texts[1]


def _record(run: Run) -> DelegationRecord:
    """Return what a sub-agent's run keeps of the call that began it."""
    record = delegation_record(run)
    assert record is not None
    return record
