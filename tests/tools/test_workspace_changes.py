"""The file tools that change files: whole files, edits, and what other programs see meanwhile."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import anyio
import pytest

from agent_runtime.tools.workspace import patched_files
from agent_runtime.tools.workspace.editing import replace
from tests.tools.calling import error, text
from tests.tools.small_workspace import Tools
from tests.tools.small_workspace import root as root
from tests.tools.small_workspace import tools as tools

NOBODY = 65534


async def test_writing_creates_folders_and_reports_the_former_size(
    root: Path, tools: Tools
) -> None:
    write = tools["write_file"]
    assert await text(write, path="a/b/c.txt", content="ä\n") == (
        "Wrote 3 bytes to a/b/c.txt; a new file."
    )
    assert "it had 3 bytes before" in await text(write, path="a/b/c.txt", content="x")
    assert await text(write, path="a/b/c.txt", content="yz", append=True) == (
        "Appended 2 bytes to a/b/c.txt; it has 3 bytes now."
    )
    assert (root / "a" / "b" / "c.txt").read_text() == "xyz"
    assert [path.name for path in (root / "a" / "b").iterdir()] == ["c.txt"]


async def test_replacing_a_file_preserves_its_permissions(root: Path, tools: Tools) -> None:
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o751)
    await text(tools["write_file"], path="run.sh", content="new")
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o751


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
async def test_a_changed_file_keeps_its_owner(root: Path, tools: Tools) -> None:
    os.chown(root / "README.md", NOBODY, NOBODY)
    await text(tools["edit_file"], path="README.md", edits=[{"old": "Text", "new": "Words"}])
    status = (root / "README.md").stat()
    assert (status.st_uid, status.st_gid) == (NOBODY, NOBODY)


async def test_readers_see_the_old_file_or_the_new_one_but_never_a_part(
    root: Path, tools: Tools
) -> None:
    path, size = root / "big.txt", 200_000
    path.write_text("a" * size)
    seen: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            content = path.read_text()
            seen.add(f"{content[:1]}{content[-1:]}{len(content)}")

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, read)
        for letter in "bcdefgh":
            await text(tools["write_file"], path="big.txt", content=letter * size)
        done.set()
    assert seen <= {f"{letter}{letter}{size}" for letter in "abcdefgh"}


async def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    root: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    reply = await error(tools["write_file"], path="README.md", content="new")
    assert reply == "README.md: No space left on device."
    assert (root / "README.md").read_text() == "# Title\n\nText\n"
    assert sorted(path.name for path in (root / ".").iterdir()) == ["README.md", "src"]


async def test_text_that_is_no_utf8_is_not_written(tools: Tools) -> None:
    reply = await error(tools["write_file"], path="x", content="\ud800")
    assert "cannot be written as UTF-8" in reply


async def test_an_edit_needs_exactly_one_match_by_default(root: Path, tools: Tools) -> None:
    edit = tools["edit_file"]
    (root / "t").write_text("one two one\n")

    async def failed(old: str, new: str) -> str:
        return await error(edit, path="t", edits=[{"old": old, "new": new}])

    assert "contains that text 2 times, at lines 1, 1." in await failed("one", "1")
    assert "does not contain that text" in await failed("three", "3")
    assert await text(edit, path="t", edits=[{"old": "two", "new": "2"}]) == "Edited t: line 1."
    await text(edit, path="t", edits=[{"old": "one", "new": "", "all": True}])
    assert (root / "t").read_text() == " 2 \n"


async def test_an_edit_preserves_crlf_line_ends(root: Path, tools: Tools) -> None:
    (root / "w").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await text(tools["edit_file"], path="w", edits=[{"old": "one\ntwo", "new": "1\n2\n2b"}])
    assert (root / "w").read_bytes() == b"1\r\n2\r\n2b\r\nthree\r\n"


async def test_binary_files_are_not_edited(root: Path, tools: Tools) -> None:
    (root / "b").write_bytes(b"a\0b")
    assert "binary" in await error(tools["edit_file"], path="b", edits=[{"old": "a", "new": "c"}])


async def test_no_parallel_edit_of_a_file_is_lost(root: Path, tools: Tools) -> None:
    (root / "n").write_text("".join(f"<{number}>" for number in range(40)))

    async def edit(number: int) -> None:
        await text(
            tools["edit_file"], path="n", edits=[{"old": f"<{number}>", "new": f"[{number}]"}]
        )

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(edit, number)
    assert (root / "n").read_text() == "".join(f"[{number}]" for number in range(40))


async def test_an_edit_cannot_make_a_giant_file(
    root: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patched_files, "EDITED_BYTES", 1000)
    monkeypatch.setattr(replace, "EDITED_BYTES", 1000)
    (root / "many").write_text("x" * 900)
    edit = {"path": "many", "edits": [{"old": "x", "new": "y" * 200, "all": True}]}
    grown = await error(tools["edit_file"], **edit)
    assert grown.startswith("many would grow to 180,000 bytes or more, of at most 1,000.")
    assert (root / "many").read_text() == "x" * 900
    (root / "long").write_text("x" * 1001)
    assert "too many to edit" in await error(tools["edit_file"], **{**edit, "path": "long"})
