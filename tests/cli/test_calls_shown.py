"""How calls of tools are shown: what they are about, how they ended, what they changed."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime.cli.display.calls import (
    VERBOSE,
    CallEnd,
    Detail,
    ShownCall,
    call_text,
    output_lines,
)
from agent_runtime.cli.display.rows import Line
from agent_runtime.cli.terminal import break_line, cells, wrap


def shown(tool: str, result: str = "", outcome: str = "ok", **given: Any) -> list[str]:
    """Return the lines of a call that has ended."""
    return [
        line.plain()
        for line in CallEnd(ShownCall(tool, given), outcome, result).lines("7", Detail())
    ]


@pytest.mark.parametrize(
    ("tool", "given", "text"),
    [
        ("bash", {"command": "cd a\nmake", "timeout": None}, "bash cd a ↵ make"),
        ("read_file", {"path": "a.py", "offset": 20}, "read_file a.py offset=20"),
        ("search_files", {"path": "src", "pattern": "x y"}, 'search_files x y path="src"'),
        ("write_file", {"path": "a.py", "content": "x" * 500}, "write_file a.py"),
        ("delegate", {"instructions": "Do it.", "role": "reader", "task_key": "a"},
         'delegate reader task_key="a"'),
        ("ask_user", {"question": "Which?"}, "ask_user"),
        ("say", {"x": "\x1b[2J\x9b"}, 'say x="\\u001b[2J "'),
    ],
)  # fmt: skip
def test_a_call_begins_with_what_it_is_about(tool: str, given: dict[str, Any], text: str) -> None:
    assert call_text(tool, given) == text


def test_a_program_that_fails_is_not_ok() -> None:
    result = "Exit code 2.\n" + "\n".join(f"line {n}" for n in range(30))
    lines = shown("bash", result, command="make")
    assert lines[0] == "✗ 7 bash make · exit code 2"
    assert lines[1] == "    … 20 earlier lines" and lines[-1] == "    line 29"
    assert shown("bash", "Exit code 0.\nfine", command="make") == ["✓ 7 bash make", "    fine"]
    # Whichever end of the result the code stands at.
    assert shown("bash", "x\nExit code: 1", command="a") == ["✗ 7 bash a · exit code 1", "    x"]


def test_an_error_is_shown_in_full_and_a_short_result_in_its_line() -> None:
    assert shown(
        "edit_file", "a.py does not contain it.\nNearest: line 4", "error", path="a.py"
    ) == [
        "✗ 7 edit_file a.py · error",
        "    a.py does not contain it.",
        "    Nearest: line 4",
    ]
    assert shown("fetch", "Nothing found.") == ["✓ 7 fetch · Nothing found."]
    assert shown("fetch", "a\nb\nc") == ["✓ 7 fetch · 3 lines"]
    killed = shown(
        "bash", "It was killed after 5 s. Its output until then:\none", "error", command="a"
    )
    assert killed[1:] == ["    It was killed after 5 s. Its output until then:", "    one"]
    # One line is not replaced by words that take as much room.
    assert shown("bash", "a\nb\nc\nd", command="x")[1:] == [f"    {one}" for one in "abcd"]
    refused = shown("bash", "The user did not allow it. They say: no.", "refused")
    assert refused == ["✗ 7 bash · refused", "    The user did not allow it. They say: no."]


@pytest.mark.parametrize(
    ("tool", "result", "fact"),
    [
        ("read_file", "a.py: 2 lines, 32 bytes.\n1|x\n2|y", "2 lines"),
        ("read_file", "a.py: 1 line, 3 bytes; no newline at the end.\n1|x", "1 line"),
        ("read_file", "a.py: 9 lines, 9 bytes; line 4 follows; next: offset=5.\n4|x",
         "line 4 of 9"),
        ("read_file", "a.py: 1,200 lines, 9 bytes; lines 1-300 follow; next: offset=301.\n1|x",
         "lines 1-300 of 1,200"),
        ("search", "0 matching lines in 0 of 2 files for 'x'.", "0 matching lines in 0 of 2 files"),
        ("glob", "1 entry for **: 1 file of 2 bytes, 0 folders.\na.py", "1 entry"),
    ],
)  # fmt: skip
def test_what_a_tool_counted_is_shown(tool: str, result: str, fact: str) -> None:
    assert shown(tool, result, path="a.py", ignored=False) == [f"✓ 7 {tool} a.py · {fact}"]


def test_results_are_shown_at_length_if_they_are_asked_for() -> None:
    ended = CallEnd(ShownCall("fetch"), "ok", "\n".join(f"line {n}" for n in range(30)))
    lines = [line.plain() for line in ended.lines("7", VERBOSE)]
    [_, long, *_] = CallEnd(ShownCall("fetch"), "ok", "x" * 200_000).lines("7", VERBOSE)
    assert len(long.plain()) < 2_010
    assert lines[0] == "✓ 7 fetch · 30 lines" and lines[20:] == [
        "    line 19",
        "    … 10 more lines",
    ]


def test_an_output_is_shown_as_its_terminal_would_end_up() -> None:
    text = "\x1b[32mok\x1b[0m\n 10%\r 50%\r100%\r\n\x1b]0;title\x07\n\ttab"
    assert output_lines(text) == ["ok", "100%", "    tab"]


@pytest.mark.parametrize(
    ("tool", "given", "rows"),
    [
        ("edit_file", {"old": "a\nb\nc\n", "new": "a\nB\nc\n"}, [" a", "-b", "+B", " c"]),
        ("edit_file", {"edits": [{"old_text": "a", "new_text": "b"}, {"old": "c", "new": ""}]},
         ["-a", "+b", "-c"]),
        ("write_file", {"content": "one\ntwo\n"}, ["+one", "+two"]),
        ("apply_patch",
         {"patch": "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"},
         ["@Update File: a.py", "@@", "-x", "+y"]),
    ],
)  # fmt: skip
def test_a_change_is_shown_from_the_arguments(
    tool: str, given: dict[str, Any], rows: list[str]
) -> None:
    first, *lines = shown(tool, "Done.", path="a.py", **given)
    added, removed = (sum(row.startswith(sign) for row in rows) for sign in "+-")
    counts = " ".join([f"+{added}"] * (added > 0) + [f"−{removed}"] * (removed > 0))
    assert first == f"✓ 7 {tool} a.py · {counts}"
    assert [line.strip() for line in lines] == [f"{row[0]} {row[1:]}".strip() for row in rows]
    # Nothing was changed by a call that failed.
    assert len(shown(tool, "No.", "error", path="a.py", **given)) == 2


def test_long_changes_are_counted_and_cut() -> None:
    lines = shown("write_file", "ok", path="a", content="x\n" * 100_000)
    assert lines[0].endswith("+100,000") and lines[-1] == "    … 99,986 more lines"
    assert len(lines) == 2 + Detail().change


@pytest.mark.parametrize("width", [28, 33, 60])
def test_lines_fit_and_break_between_words(width: int) -> None:
    text = "The quick brown fox jumps over 中文字 and a_word_longer_than_a_row_of_this_terminal."
    line = Line(text, "✗", ("exit code 1",), ("more", "of it"))
    [row] = line.rows(width)
    assert cells(row.text) <= width and "exit code" in row.text
    rows = list(wrap(f"  {text}", width, indent=2))
    assert all(cells(one) <= width for one in rows) and "".join(rows).replace(" ", "") == (
        text.replace(" ", "")
    )
    assert rows[0].startswith("  The") and rows[1].startswith("    ")
    assert "".join(break_line(text, width)) == text
    # Columns stay aligned.
    assert list(wrap("ok    packages: anyio 4.16.0, apsw 3.54", 30, indent=2)) == [
        "ok    packages: anyio 4.16.0,", "  apsw 3.54"
    ]  # fmt: skip
    path = Line("3 read_file src/a/long/way/to/the/file.py", "✓", cut_at=12)
    assert next(path.rows(width)).text.endswith("file.py")
