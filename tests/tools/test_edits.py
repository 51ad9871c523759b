"""`edit_file`: several edits at once, what stays of a file, and why an edit does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace.editing import staged_file
from agent_runtime.tools.workspace.editing.nearest import nearest
from agent_runtime.tools.workspace.editing.text_file import NotText, TextFile
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.root import Root
from tests.tools.calling import error, text

CODE = (
    "class Cart:\n"
    "    def total(self):\n"
    "        return sum(self.prices)\n"
    "\n"
    "    def clear(self):\n"
    "        self.prices = []\n"
)


@pytest.fixture
def edit(tmp_path: Path) -> Tool:
    (tmp_path / "a.py").write_text(CODE)
    return next(one for one in workspace_tools(tmp_path) if one.name == "edit_file")


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


def edits(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"old": old, "new": new} for old, new in pairs]


async def test_edits_are_made_in_order_each_in_what_the_ones_before_left(
    tmp_path: Path, edit: Tool
) -> None:
    made = edits(
        ("self.prices = []\n", "self.prices.clear()\n"),
        ("    def total(self):\n", "    def total(self):\n        # All of them.\n"),
        ("# All of them.", "# All.\n        # Really."),
    )
    assert await text(edit, path="a.py", edits=made) == "Edited a.py: lines 2-4, 3-4, 8."
    wanted = CODE.replace("prices = []", "prices.clear()")
    wanted = wanted.replace("(self):\n", "(self):\n        # All.\n        # Really.\n", 1)
    assert (tmp_path / "a.py").read_text() == wanted


async def test_all_edits_are_made_or_none(tmp_path: Path, edit: Tool) -> None:
    made = edits(("self.prices = []", "pass"), ("self.prices = []", "x"))
    assert await error(edit, path="a.py", edits=made) == (
        "Nothing was changed. Edit 2: a.py does not contain that text. Some words differ; the "
        "nearest text is at line 3:\n3|        return sum(self.prices)\nAn edit before it in this "
        "call changed it; give the text as that left it."
    )
    assert (tmp_path / "a.py").read_text() == CODE


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "  def clear(self):\n    self.prices = []",
            "x",
            "Only the indentation differs; the nearest text is at lines 5-6:\n"
            "5|    def clear(self):\n6|        self.prices = []",
        ),
        ("\tdef clear(self):\n", "x", "The file indents with blanks, your text with tabs"),
        ("5|    def clear(self):", "x", "It has the line numbers of a result in it"),
        ("    def clear(self):   \n", "x", "Blanks at the ends of lines differ"),
        ("self.prices=[]", "x", "Only blanks and line breaks differ; the nearest text is at line "),
        ("return sum(self.price)", "x", "Some words differ; the nearest text is at line 3:\n3|"),
        ("return  sum( self.prices )", "x", "Only blanks and line breaks differ"),
        (
            "retrun total",
            "        return sum(self.prices)",
            "The new text is there already, at line 3.",
        ),
        ("an altogether different sentence", "x", "Nothing in it is like it."),
        ("return 1", "return 1", "the old and the new text are the same"),
        ("self.prices", "x", "contains that text 2 times, at lines 3, 6."),
    ],
)
async def test_an_edit_that_does_not_fit_says_where_and_why(
    tmp_path: Path, edit: Tool, old: str, new: str, says: str
) -> None:
    assert says in await error(edit, path="a.py", edits=edits((old, new)))
    assert (tmp_path / "a.py").read_text() == CODE


async def test_the_nearest_place_is_found_in_a_long_file_and_shown_where_it_differs() -> None:
    lines = [f"def step_{number}(value):\n    return value + {number}" for number in range(2000)]
    text = "\n".join(lines)
    wanted = "\n".join(lines[700:730]).replace("value + 725", "value - 725")
    place = nearest(text, wanted)
    assert place is not None
    assert (place.first, place.last) == (1401, 1460) and 0.99 < place.like < 1


@pytest.mark.parametrize("wanted", ["", "\n\n", "}", "a" * 100_000, "\n".join("ab" * 5000)])
async def test_looking_for_the_nearest_place_ends_soon(wanted: str) -> None:
    text = "\n".join("ab" * 50_000) + "}\n" * 1000
    nearest(text, wanted)


RAW = {
    "crlf": b"one\r\ntwo\r\nthree\r\n",
    "mixed": b"one\r\ntwo\r\nthree\nfour",
    "bom": b"\xef\xbb\xbfone\ntwo\nthree",
    "utf-16": "\ufeffone\r\ntwo\r\nthree\r\n".encode("utf-16-le"),
    "latin": "one\ntwo\nthree: schön\n".encode("latin-1"),
    "broken": "äöü one\ntwo\nthree \udcff".encode("utf-8", "surrogateescape"),
    "old mac": b"one\rtwo\rthree",
}


@pytest.mark.parametrize("name", RAW)
async def test_the_other_bytes_of_a_file_stay_as_they_are(
    tmp_path: Path, edit: Tool, name: str
) -> None:
    (tmp_path / "f").write_bytes(RAW[name])
    file = TextFile.of(RAW[name])
    for spans in ([(0, len(file.text))], [(1, 2), (3, 4)]):
        untouched = file.replaced([], "x")
        assert untouched.encode() == RAW[name], spans
    await text(edit, path="f", edits=edits(("two", "2")))
    code = file.encoding
    two, number = "two".encode(code), "2".encode(code)
    assert (tmp_path / "f").read_bytes() == RAW[name].replace(two, number)


async def test_new_lines_end_as_those_around_them(tmp_path: Path, edit: Tool) -> None:
    (tmp_path / "f").write_bytes(RAW["mixed"])
    await text(edit, path="f", edits=edits(("two\nthree", "2\n3"), ("four", "4\n5")))
    assert (tmp_path / "f").read_bytes() == b"one\r\n2\r\n3\n4\r\n5"


async def test_a_rewritten_file_keeps_encoding_and_line_ends(tmp_path: Path) -> None:
    write = next(one for one in workspace_tools(tmp_path) if one.name == "write_file")
    (tmp_path / "f").write_bytes(RAW["utf-16"])
    await text(write, path="f", content="1\n2\n")
    await text(write, path="f", content="3\n", append=True)
    assert (tmp_path / "f").read_bytes() == "\ufeff1\r\n2\r\n3\r\n".encode("utf-16-le")


async def test_a_character_that_the_encoding_lacks_is_refused(tmp_path: Path, edit: Tool) -> None:
    (tmp_path / "f").write_bytes(RAW["latin"])
    reply = await error(edit, path="f", edits=edits(("two", "二")))
    assert "encoding, cp1252, has no character '二'" in reply
    assert (tmp_path / "f").read_bytes() == RAW["latin"]


@pytest.mark.parametrize("data", [b"a\0b", b"\xff\xfea\0b"])
def test_what_is_no_text_is_recognised(data: bytes) -> None:
    with pytest.raises(NotText):
        TextFile.of(data)


async def test_a_file_that_another_program_writes_during_the_edit_is_not_overwritten(
    tmp_path: Path, edit: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = Root.staged

    def slow(self: Root, *args: Any, **kwargs: Any) -> object:
        (tmp_path / "a.py").write_text("theirs\n")
        return staged(self, *args, **kwargs)

    monkeypatch.setattr(Root, "staged", slow)
    reply = await error(edit, path="a.py", edits=edits(("self.prices = []", "pass")))
    assert "was changed by another program during this call" in reply
    assert (tmp_path / "a.py").read_text() == "theirs\n"
    assert names(tmp_path) == ["a.py"]


@pytest.mark.parametrize("unnamed", [True, False])
async def test_a_process_that_dies_while_it_writes_leaves_no_file(
    tmp_path: Path, edit: Tool, monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    if not unnamed:
        # As on a file system that has no files without a name.
        monkeypatch.setattr(staged_file, "_UNNAMED", 0)
    root = Root(tmp_path)
    with root.staged("a.py", b"new\n") as file:
        there = names(tmp_path)
        assert there == ["a.py"] if unnamed else len(there) == 2
        assert all(name == "a.py" or name.startswith(".agent-runtime-") for name in there)
        file.commit()
    assert names(tmp_path) == ["a.py"]
    assert (tmp_path / "a.py").read_text() == "new\n"
    with root.staged("b.py", b"never committed\n"):
        pass
    assert names(tmp_path) == ["a.py"]


async def test_a_text_is_not_built_that_would_be_too_large(tmp_path: Path, edit: Tool) -> None:
    (tmp_path / "f").write_text("a" * 1_000_000)
    wanted = {"old": "a", "new": "b" * 1_000_000, "all": True}
    reply = await error(edit, path="f", edits=[wanted])
    assert "would grow to 1,000,000,000,000 bytes or more" in reply
