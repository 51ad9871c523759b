"""Searching files: counts, omitted files, and patterns that would never end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.searching import search
from agent_runtime_config.counted import counted
from tests.tools.calling import error, text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "one.py").write_text("x = 1\n# TODO one\ny = 2  # TODO two\r\n")
    (tmp_path / "a" / "deep" / "two.py").write_text("# TODO three\n")
    (tmp_path / "notes.md").write_text("TODO four\n")
    (tmp_path / "data.bin").write_bytes(b"TODO\0")
    return tmp_path


@pytest.fixture
def find(root: Path) -> Tool:
    return next(tool for tool in workspace_tools(root) if tool.name == "search")


async def test_matches_have_file_and_line_and_are_counted(find: Tool) -> None:
    assert await text(find, pattern=r"TODO \w+") == "\n".join(
        [
            r"4 matching lines in 3 of 4 files for 'TODO \\w+'.",
            "a/deep/two.py",
            "1:# TODO three",
            "a/one.py",
            "2:# TODO one",
            "3:y = 2  # TODO two",
            "notes.md",
            "1:TODO four",
        ]
    )


async def test_all_matches_are_counted_beyond_the_page(
    find: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "RESULT_CHARS", 30)
    shown = await text(find, pattern="TODO")
    assert (
        "4 matching lines in 3 of 4 files for 'TODO'. Matches 1-1 follow; next: offset=1." in shown
    )
    assert shown.endswith("\na/deep/two.py\n1:# TODO three")
    monkeypatch.undo()
    rest = await text(find, pattern="TODO", offset=2)
    assert "Matches" not in rest and rest.endswith(
        "\na/one.py\n3:y = 2  # TODO two\nnotes.md\n1:TODO four"
    )


@pytest.mark.parametrize(
    ("glob", "files"),
    [
        ("*.py", 2),
        ("*.md", 1),
        ("a/*.py", 1),
        ("*.{py,md}", 3),
        ("*.py,!deep", 1),
        ("!*.py,!*.bin", 1),
        ("**/*.py", 2),
        ("**/*.md", 1),
        ("a/deep/*", 1),
    ],
)
async def test_a_glob_chooses_files_by_name_or_by_path(find: Tool, glob: str, files: int) -> None:
    assert f"in {files} of {counted(files, 'file')} for" in await text(
        find, pattern="TODO", globs=glob
    )


async def test_a_folder_or_a_single_file_can_be_searched(find: Tool) -> None:
    assert "3 matching lines in 2 of 2 files" in await text(find, pattern="TODO", path="a")
    inside = await text(find, pattern="TODO", path="a/deep", globs="two*")
    assert "1 of 1 file for" in inside
    assert "1 of 1 file for" in await text(find, pattern="TODO", path="notes.md")
    assert "No such file" in await error(find, pattern="TODO", path="nothing")


async def test_an_invalid_regular_expression_is_refused_with_the_reason(find: Tool) -> None:
    assert await error(find, pattern="a(b") == (
        "'a(b' is no regular expression: missing ), unterminated subpattern at position 1. "
        "Put \\ before characters that are meant as they are."
    )


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("^(a|ab?)*c$", "a" * 5000),
        ("(a|aa)+$", "a" * 60 + "b"),
        (r"(?:a?){60}a{60}x", "a" * 5000),
    ],
)
async def test_an_endless_pattern_is_stopped_without_blocking_the_loop(
    root: Path, find: Tool, monkeypatch: pytest.MonkeyPatch, pattern: str, line: str
) -> None:
    monkeypatch.setattr(search, "LINE_SECONDS", 0.1)
    (root / "evil.txt").write_text(f"\n{line}\n")
    turns = 0
    reply = ""

    async def run() -> None:
        nonlocal reply
        reply = await error(find, pattern=pattern, path="evil.txt")
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        while True:
            await anyio.sleep(0.01)
            turns += 1
    assert "takes more than 0.1 s on line 2 of evil.txt" in reply
    assert turns > 3


async def test_lines_of_the_same_number_in_many_files_count_as_many_lines(
    root: Path, find: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "LINE_SECONDS", 0.1)
    for number in range(40):
        # Each takes about 10 ms.
        (root / f"{number}.json").write_text("a" * 22 + "b")
    assert "in 0 of 40 files" in await text(find, pattern="(a|aa)+$", globs="*.json")


async def test_many_slow_lines_cannot_outrun_the_deadline(
    root: Path, find: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.5)
    (root / "evil.txt").write_text(("a" * 22 + "b\n") * 999)
    with anyio.fail_after(20):
        shown = await text(find, pattern="(a|aa)+$", path="evil.txt")
    assert "It was stopped after 0.5 s and 1 file;" in shown


async def test_a_pattern_that_needs_too_much_memory_is_refused(
    root: Path, find: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_MEMORY", 100 << 20)
    monkeypatch.setattr(search, "LINE_SECONDS", 15.0)
    (root / "evil.txt").write_text("ab" * (4 << 20))
    reply = await error(find, pattern="((a)(b))*c", path="evil.txt")
    assert "takes more than 104,857,600 bytes of memory on line 1 of evil.txt" in reply


@pytest.mark.parametrize("pattern", ["a(?R)?b", "(?:foo){e<=3}(?&x)"])
async def test_recursive_patterns_do_not_exist(find: Tool, pattern: str) -> None:
    assert "is no regular expression" in await error(find, pattern=pattern)


async def test_a_search_that_takes_too_long_reports_its_matches_so_far(
    find: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", -1.0)
    assert "0 of 2 files for 'TODO'. It was stopped after" in await text(find, pattern="TODO")


async def test_files_that_are_too_large_are_named(
    find: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_BYTES", 12)
    shown = await text(find, pattern="TODO")
    assert "a/one.py (larger than 12 bytes)" in shown
    assert "1 of 4 files" in shown


async def test_links_are_not_followed(root: Path, find: Tool) -> None:
    (root / "again").symlink_to("a")
    (root / "out").symlink_to("/etc")
    assert "4 matching lines in 3 of 4 files" in await text(find, pattern="TODO")


async def test_long_lines_are_cut(root: Path, find: Tool) -> None:
    (root / "long").write_text("TODO" + "x" * 5000)
    shown = await text(find, pattern="TODO", path="long")
    assert len(shown.split("\n")[2].removeprefix("1:")) == search.SHOWN_CHARS + 1


def test_lower_limits_of_the_system_stay() -> None:
    """A limit above the one that a container or a batch system sets cannot be set."""
    code = (
        "import resource, sys; from agent_runtime.tools.workspace.searching import line_matcher\n"
        "for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU):\n"
        "    resource.setrlimit(kind, (2**30, 2**30))\n"
        "    line_matcher.restrict(kind, 2**31)\n"
        "    assert resource.getrlimit(kind) == (2**30, 2**30)\n"
        "    line_matcher.restrict(kind, 2**29)\n"
        "    assert resource.getrlimit(kind) == (2**29, 2**29)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("pattern", ["a\nb", r"one\n+two", "(?s)one.*two", r"one\r\ntwo"])
async def test_the_result_for_a_pattern_over_several_lines_says_that_lines_are_matched_alone(
    find: Tool, pattern: str
) -> None:
    remark = "A match lies within one line"
    assert remark in await text(find, pattern=pattern)
    assert remark not in await text(find, pattern=r"nowhere\\new")
