"""Searching with ripgrep gives what searching without it gives."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from agent_runtime.tools.workspace.editing.text_file import NotText, TextFile
from agent_runtime.tools.workspace.reading.pages import page_of
from agent_runtime.tools.workspace.root import Root
from agent_runtime.tools.workspace.searching import search
from agent_runtime.tools.workspace.searching.ripgrep import candidates, ripgrep
from agent_runtime.tools.workspace.searching.search import Query, search_files

PATTERNS = (
    *("todo", r"\bTODO\b", r"^\s*def \w+\(", "a{", r"foo$", "(?i)todo", "x|", r"\d+\.\d"),
    *("(?<=def )f", r"(a)\1", "schön", r"sch.n", r"[[a]", "[a&&b]", "a.*z", r"\<b", "日本"),
    *(r"\w+本", "'", r"\\n", "\t", ".", "^$", r"\Z", "[^ -~]", "é", "K", r"a++"),
    *("p.q", "^q", r"p\rq", "w$", "v$", "w.", "v."),
    *(r"a\<b", r"b\>", r"x\w", r"x\W", r"c\sd", r"क\Wष", r"y\b", r"y\w", r"\Dz", r"[^\w]ः"),
)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    contents = [
        b"def f(a):\n    return a  # TODO 1.5\n",
        b"foo\r\nbar foo\r\n\r\n",
        "schön 日本 é\n".encode(),
        "schön\n".encode("latin-1"),
        "\ufeffschön todo\n".encode("utf-16"),
        b"\xef\xbb\xbffoo\n",
        b"binary todo\0\n",
        b"a{ <b aa [a b] z\tx 'q' \\n K\n",
        b"no newline todo",
        b"",
        b"\xff\xfe\xff\n",
        b"bad \xe9 and todo\n",
        b"a<b>\n",
        "x²\n".encode(),
        b"c\x1cd\n",
        "क्ष\n".encode(),
        "y‿ y\u200d\n".encode(),
        b"p\rq\n",
        b"x\ry\nlone todo\n",
        b"w\r\r\nv\r",
    ]
    for index in range(40):
        (tmp_path / f"{index:02}.txt").write_bytes(contents[index % len(contents)])
    (tmp_path / "-e").write_text("todo\n")
    (tmp_path / "new\nline").write_text("todo\n")
    (tmp_path / ".env").write_text("todo=hunter2\n")
    return Root(tmp_path)


def test_ripgrep_is_installed_for_the_tests(root: Root) -> None:
    assert ripgrep(root.path) is not None
    assert candidates(root.path, [], "todo", ignore_case=False, seconds=5) is None


@pytest.mark.parametrize("ignore_case", [False, True])
def test_no_file_is_left_out_in_which_a_line_matches(root: Root, ignore_case: bool) -> None:
    """What is left out is the only difference that ripgrep could make."""
    names = [one.path for one in root.walk(".").found if one.path != ".env"]
    texts = {name: lines_of(root.path / name) for name in names}
    fewer = 0
    for pattern in PATTERNS:
        chosen = candidates(root.path, names, pattern, ignore_case=ignore_case, seconds=30)
        with warnings.catch_warnings(action="ignore"):
            regex = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
        matching = {name for name in names if any(map(regex.search, texts[name]))}
        assert chosen is None or matching <= chosen, pattern
        fewer += chosen is not None and len(chosen) < len(names)
    assert fewer > 15


def lines_of(path: Path) -> list[str]:
    """Return the lines that a search sees; none of a binary file."""
    try:
        text = TextFile.of(path.read_bytes())
    except NotText:
        return []
    whole = text.text.encode("utf-8", "surrogateescape").decode(errors="replace")
    lines = whole.removesuffix("\n").split("\n") if whole else []
    return [one.removesuffix("\r") for one in lines]


def test_a_line_has_the_number_and_the_text_that_a_reader_sees(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\rstill one\n\r\r\ntwo\r\r\nfo\n")
    page = page_of("a", TextFile.of((tmp_path / "a").read_bytes()), 1, None)
    lines = [f"{number}:{line}" for number, line in enumerate(page.lines, 1)]
    shown = search_files(Root(tmp_path), Query("", "a"))
    assert shown.split("\n")[2:] == lines


def test_the_result_is_the_same_and_holds_no_secret(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query("todo|sch.n", before=1)
    with_it = search_files(root, query)

    def all_may_match(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(search, "candidates", all_may_match)
    assert with_it == search_files(root, query)
    assert with_it.count("todo") > 5 and "hunter2" not in with_it


def test_a_program_in_the_workspace_is_not_run(
    tmp_path: Path, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rg").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ripgrep(tmp_path) is None
    search_files(root, Query("todo"))
    assert not (tmp_path / "ran").exists()
