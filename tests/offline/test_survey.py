"""The offline model's survey: every figure of the report matches the folder."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from agent_runtime.errors import UnsupportedTask
from agent_runtime.messages import ToolCall
from agent_runtime.offline import script as offline
from agent_runtime.tools.workspace import listing
from tests.offline.driving import drive
from tests.offline.recount import Report, lines_of, matching, recount


def fill_small(root: Path) -> None:
    (root / "src" / "deep" / "deeper").mkdir(parents=True)
    (root / "README.md").write_text("# The thing\n\nIt does things.\n\n## Use\n\nTODO: say how\n")
    (root / "src" / "main.py").write_text(
        '"""The way in."""\n\n\nclass Main:\n    def run(self) -> None: ...  # FIXME\n'
    )
    (root / "src" / "aio.py").write_text("import os\n\n\nasync def go() -> None: ...\n")
    (root / "src" / "deep" / "deeper" / "data.CSV").write_text("a,b\n1,2")
    (root / "empty.txt").write_text("")
    (root / "data.bin").write_bytes(b"\x89DAT\r\n\x1a\n\0\0\0" + bytes(2000))
    (root / "latin.txt").write_bytes("schön\n".encode("latin-1"))
    (root / "crlf.txt").write_bytes(b"first\r\nsecond\r\n")
    (root / "Makefile").write_text("all:\n\techo\n")
    (root / ".hidden").write_text("secret\n")
    (root / "with space.md").write_text("no heading here\n")
    (root / "new\nline.txt").write_text("odd name\n")
    (root / 'quo"te`tick.txt').write_text("odd too\n")
    (root / " ends ").write_text("spaces\n")
    (root / "link.txt").symlink_to("README.md")
    (root / "outside").symlink_to("/etc")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("TODO [core]\n")


def check_figures(root: Path, report: Report) -> None:
    """Compare every figure counted over the whole folder."""
    truth = recount(root)
    assert report.number("Files") == len(truth.files)
    assert report.number("Folders") == truth.folders
    assert report.number("Symbolic links (not followed)") == truth.links
    assert report.number("Bytes") == sum(truth.files.values())


def check_searches(root: Path, report: Report) -> None:
    paths = [root / path for path in recount(root).files]
    python = [path for path in paths if path.suffix == ".py"]
    readme = [path for path in paths if path.name.startswith("README")]
    for label, pattern, files in (
        ("lines with TODO or FIXME", r"\b(TODO|FIXME)\b", paths),
        ("Python functions (`def`)", r"^\s*(async\s+)?def\s+\w+", python),
        ("Python classes (`class`)", r"^\s*class\s+\w+", python),
        ("headings in README files", r"^#{1,6}\s+\S", readme),
    ):
        assert report.search(label) == matching(files, pattern), label


def check_read(root: Path, report: Report) -> None:
    """Compare the line of each file that was read."""
    total = 0
    for shown, (lines, size, title) in report.read.items():
        path = root / shown.replace("�", "\n")
        total += lines
        assert (lines, size) == (lines_of(path), path.stat().st_size), shown
        raw = path.read_bytes()
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode("latin-1")
        assert title.removesuffix("…") in text, shown
    assert report.number("Read") == len(report.read)
    assert f"together they have {total:,} lines" in report.text


async def test_a_small_folder_is_surveyed_completely_and_correctly(tmp_path: Path) -> None:
    fill_small(tmp_path)
    driven = await drive(tmp_path)
    report = Report((tmp_path / "REPORT.md").read_text())
    check_figures(tmp_path, report)
    check_searches(tmp_path, report)
    check_read(tmp_path, report)
    assert report.unread == {"data.bin": "data.bin is a binary file of 2,011 bytes"}
    assert len(report.read) == len(recount(tmp_path).files) - 1
    assert "Left out: .git/." in report.text
    assert driven.steps > 12
    assert "Files: " not in driven.answer
    assert f"{len(recount(tmp_path).files)} files" in driven.answer


async def test_titles_are_the_most_descriptive_lines_of_files(tmp_path: Path) -> None:
    fill_small(tmp_path)
    await drive(tmp_path)
    read = Report((tmp_path / "REPORT.md").read_text()).read
    assert read["README.md"][2] == "The thing"
    assert read["src/main.py"][2] == "The way in."
    assert read["src/aio.py"][2] == "import os"
    assert read["with space.md"][2] == "no heading here"
    assert read["empty.txt"][2] == ""


async def test_a_second_survey_excludes_the_first_report_from_its_figures(tmp_path: Path) -> None:
    fill_small(tmp_path)
    await drive(tmp_path)
    first = (tmp_path / "REPORT.md").read_text()
    await drive(tmp_path)
    assert (tmp_path / "REPORT.md").read_text() == first


async def test_another_file_of_the_reports_name_is_searched(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "REPORT.md").write_text("TODO\n")
    for _ in range(2):
        await drive(tmp_path)
        report = Report((tmp_path / "REPORT.md").read_text())
        check_searches(tmp_path, report)
        assert set(report.read) == {"src/REPORT.md"}


async def test_another_folder_yields_another_report(tmp_path: Path) -> None:
    fill_small(tmp_path)
    await drive(tmp_path)
    (tmp_path / "src" / "main.py").write_text('"""Changed."""\n# TODO\n# TODO\n')
    (tmp_path / "more.rs").write_text("fn main() {}\n")
    await drive(tmp_path)
    report = Report((tmp_path / "REPORT.md").read_text())
    check_figures(tmp_path, report)
    check_searches(tmp_path, report)
    check_read(tmp_path, report)
    assert report.read["src/main.py"] == (3, 29, "Changed.")
    assert report.read["more.rs"] == (1, 13, "fn main() {}")


async def test_an_empty_folder_has_a_report(tmp_path: Path) -> None:
    await drive(tmp_path)
    report = Report((tmp_path / "REPORT.md").read_text())
    check_figures(tmp_path, report)
    assert report.number("Read") == 0


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """2,000 files in 100 folders, of many types."""
    rng = random.Random(7)
    for number in range(2000):
        folder = tmp_path / f"part{number % 10}" / f"unit {number % 100}"
        folder.mkdir(parents=True, exist_ok=True)
        suffix = rng.choice([".py", ".md", ".txt", ".JSON", ".bin", "", ".x" + str(number % 40)])
        body = f"# File {number}\n".encode() + b"line TODO\n" * rng.randrange(100)
        if suffix == ".bin":
            body += b"\0"
        (folder / f"file_{number}{suffix}").write_bytes(body)
    return tmp_path


@pytest.mark.slow
async def test_of_a_large_folder_a_stated_sample_is_read_in_a_few_hundred_steps(
    large: Path,
) -> None:
    driven = await drive(large)
    report = Report((large / "REPORT.md").read_text())
    truth = recount(large)
    assert report.number("Files") == len(truth.files) == 2000
    assert report.number("Bytes") == sum(truth.files.values())
    check_searches(large, report)
    check_read(large, report)
    opened = len(report.read) + len(report.unread)
    assert report.number("Opened") == opened
    order = sorted(entries(large), key=lambda path: path.split("/"))
    stride = -(-len(order) // offline.MOST_READ)
    assert f"Of every {stride} entries, only one was chosen." in report.text
    assert {*report.read, *report.unread} == set(order[::stride]) & truth.files.keys()
    assert 100 < driven.steps < 300


@pytest.mark.slow
async def test_state_carried_between_steps_stays_small(large: Path) -> None:
    for number in range(12):
        name = f"{number}" * 120
        (large / name / name).mkdir(parents=True)
        (large / name / name / f"{name}.py").write_text("x\n" * 5000)
    driven = await drive(large)
    assert driven.longest_text < 6000
    assert driven.largest_batch > 1
    check_read(large, Report((large / "REPORT.md").read_text()))


@pytest.mark.parametrize("budget", [300, 600])
async def test_truncated_results_change_no_figure(tmp_path: Path, budget: int) -> None:
    fill_small(tmp_path)
    for number in range(30):
        (tmp_path / f"module_{number:02}.py").write_text(
            f'"""Module {number}."""\n' + "x = 1\n" * 80
        )
    await drive(tmp_path, budget=budget)
    report = Report((tmp_path / "REPORT.md").read_text())
    check_figures(tmp_path, report)
    check_searches(tmp_path, report)
    check_read(tmp_path, report)


async def test_only_the_named_folder_is_surveyed_and_the_report_may_be_elsewhere(
    tmp_path: Path,
) -> None:
    fill_small(tmp_path)
    await drive(tmp_path, "Give an overview of the folder `src` in out/OVERVIEW.md")
    report = Report((tmp_path / "out" / "OVERVIEW.md").read_text())
    truth = recount(tmp_path / "src")
    assert report.number("Files") == len(truth.files)
    assert report.number("Bytes") == sum(truth.files.values())
    assert set(report.read) == {f"src/{path}" for path in truth.files}


async def test_names_that_are_not_utf8_are_counted_and_reported_as_unread(tmp_path: Path) -> None:
    (tmp_path / "fine.txt").write_text("fine\n")
    (tmp_path / os.fsdecode(b"bad\xff.txt")).write_text("bad\n")
    await drive(tmp_path)
    report = Report((tmp_path / "REPORT.md").read_text())
    assert report.number("Files") == 2
    assert set(report.read) == {"fine.txt"}
    assert "No such file" in report.unread["bad\\udcff.txt"]


@pytest.mark.slow
async def test_figures_of_a_folder_with_too_many_entries_say_they_are_partial(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "MOST_ENTRIES", 400)
    await drive(large)
    report = Report((large / "REPORT.md").read_text())
    assert "Only 399 of 2,110 entries were listed" in report.text
    order = sorted(entries(large), key=lambda path: path.split("/"))
    assert report.number("Files") == len(set(order[:400]) & recount(large).files.keys())
    assert set(report.read) <= set(order[:400])
    check_read(large, report)


async def test_a_file_too_large_to_count_is_read(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_text(f"{'x' * 999}\n" * 70_000)
    await drive(tmp_path)
    text = (tmp_path / "REPORT.md").read_text()
    assert f"- `large.txt`: many lines, 70,000,000 bytes; “{'x' * 99}…”" in text


def entries(root: Path) -> list[str]:
    """Return every entry of a folder, including the report."""
    return [path.relative_to(root).as_posix() for path in root.rglob("*")]


async def test_a_folder_that_takes_too_long_to_list_is_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_small(tmp_path)
    monkeypatch.setattr(listing, "LIST_SECONDS", -1.0)
    with pytest.raises(UnsupportedTask, match=r"stopped after -1 s, so entries are missing"):
        await drive(tmp_path)


async def test_a_folder_that_becomes_slow_to_list_is_not_vouched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_small(tmp_path)

    def slow(step: int, call: ToolCall) -> None:
        if step > 1:
            monkeypatch.setattr(listing, "LIST_SECONDS", -1.0)

    driven = await drive(tmp_path, fault=slow)
    assert driven.answer.startswith("The folder . cannot be listed any more: ")
