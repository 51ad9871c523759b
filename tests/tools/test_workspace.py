"""The file tools: what they list and read, and that they never leave their folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from agent_runtime.errors import ConfigError
from agent_runtime.offline.tool_output import parse_listing
from agent_runtime.tools.workspace import file_tools
from agent_runtime.tools.workspace import listing as listing_module
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.reading import pages
from agent_runtime_storage import open_store
from tests.services.process import let_others_in
from tests.tools.calling import call, error, text
from tests.tools.small_workspace import Tools
from tests.tools.small_workspace import root as root
from tests.tools.small_workspace import tools as tools

NOBODY = 65534


def test_reading_is_idempotent_and_writing_is_not(tools: Tools) -> None:
    assert {name for name, one in tools.items() if one.idempotent} == {
        "glob",
        "read_file",
        "search",
    }


def test_there_is_no_shell_by_default(root: Path, tools: Tools) -> None:
    assert "bash" not in tools
    assert "bash" in {tool.name for tool in workspace_tools(root, shell=True)}


def test_a_workspace_must_be_a_folder(root: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        workspace_tools(root / "README.md")


# glob


async def test_a_listing_has_sizes_and_totals(tools: Tools) -> None:
    assert await text(tools["glob"], pattern="**", by_path=True) == "\n".join(
        [
            "3 entries for **: 2 files of 47 bytes, 1 folder.",
            "14  README.md",
            "-  src/",
            "33  src/main.py",
        ]
    )
    assert "2 entries for *: 1 file of" in await text(tools["glob"])


async def test_a_long_listing_comes_in_pages_that_miss_nothing(root: Path, tools: Tools) -> None:
    for number in range(25):
        (root / f"file{number:02}").write_text("x")
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await text(tools["glob"], offset=offset, limit=10, pattern="**", by_path=True)
        header, *lines = page.split("\n")
        seen += [line.split("  ")[-1] for line in lines]
        more = header.partition("next: offset=")[2]
        offset = int(more.removesuffix(".")) if more else None
    assert seen == sorted(seen)
    assert len(seen) == 28
    beyond = await text(tools["glob"], offset=100, by_path=True)
    assert beyond == "27 entries for *: 26 files of 39 bytes, 1 folder. None follow."


async def test_git_folders_and_links_are_named_but_not_entered(root: Path, tools: Tools) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("x")
    (root / "up").symlink_to("..")
    (root / "around").symlink_to(".")
    os.mkfifo(root / "pipe")
    listing = await text(tools["glob"], pattern="**", by_path=True)
    assert "Left out: .git/." in listing
    assert "2 symbolic links (not followed), 1 special file" in listing
    assert "link  up -> .." in listing
    assert "special  pipe" in listing
    assert "config" not in listing
    assert "secret" not in listing


async def test_odd_names_stay_on_one_line_and_can_be_opened(root: Path, tools: Tools) -> None:
    names = ["new\nline", " space ", '"quoted"', "tab\t", "ünï", "-", "a  b"]
    for name in names:
        (root / name).write_text(f"this is {name!r}\n")
    listing = await text(tools["glob"])
    assert len(listing.split("\n")) == 1 + 2 + len(names)
    assert '"new\\nline"' in listing
    for name in names:
        assert repr(name) in await text(tools["read_file"], path=name)


async def test_a_name_that_is_no_utf8_is_listed_as_unopenable(root: Path, tools: Tools) -> None:
    (root / os.fsdecode(b"bad\xff")).write_text("x")
    assert "(the name is no UTF-8, so it cannot be opened)" in await text(tools["glob"])


@contextmanager
def unprivileged(root: Path) -> Generator[None]:
    """Forbid writing to the folder; where the tests run as root, give up its rights."""
    privileged = os.geteuid() == 0
    root.chmod(0o555)
    if privileged:
        let_others_in(root)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if privileged:
            os.seteuid(0)
        for folder in (root, *root.glob("*/")):
            folder.chmod(0o755)


async def test_a_file_without_permission_is_named_with_the_reason(root: Path, tools: Tools) -> None:
    (root / "closed").mkdir()
    (root / "closed" / "in.txt").write_text("TODO\n")
    (root / "locked.txt").write_text("TODO\n")
    (root / "locked.txt").chmod(0)
    (root / "closed").chmod(0)
    with unprivileged(root):
        listing = await text(tools["glob"], pattern="**", by_path=True)
        read = await error(tools["read_file"], path="locked.txt")
        inside = await error(tools["read_file"], path="closed/in.txt")
        # Python itself may be out of reach of the user whose rights these are.
        startable = os.access(sys.executable, os.X_OK, effective_ids=True)
        matches = await text(tools["search"], pattern="TODO") if startable else ""
        written = await error(tools["write_file"], path="new.txt", content="x")
        replaced = await error(tools["write_file"], path="locked.txt", content="x")
    assert "Not readable: closed/ (Permission denied)." in listing
    assert "in.txt" not in listing
    assert read == "locked.txt: Permission denied."
    assert inside == "closed/in.txt: Permission denied."
    unread = "Not searched: locked.txt: Permission denied, closed/ (Permission denied)."
    assert unread in matches or not startable
    assert written == "new.txt: Permission denied."
    assert replaced == "locked.txt: Permission denied."


# read_file


async def test_reading_reports_lines_bytes_and_the_next_offset(root: Path, tools: Tools) -> None:
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 1001)))
    page = await text(tools["read_file"], path="long.txt", offset=11, limit=2)
    assert page == (
        "long.txt: 1,000 lines, 8,893 bytes; lines 11-12 follow; next: offset=13.\n"
        "11|line 11\n12|line 12"
    )
    end = await text(tools["read_file"], path="long.txt", offset=1001)
    assert end == "long.txt: 1,000 lines, 8,893 bytes; there is no line 1,001."


async def test_an_empty_file_and_a_last_line_without_a_newline(root: Path, tools: Tools) -> None:
    (root / "empty").write_text("")
    (root / "half").write_text("a\nb")
    assert await text(tools["read_file"], path="empty") == "empty: 0 lines, 0 bytes."
    assert (
        await text(tools["read_file"], path="half")
        == "half: 2 lines, 3 bytes; no newline at the end.\n1|a\n2|b"
    )


async def test_a_text_that_is_no_utf8_is_read_as_windows_1252(root: Path, tools: Tools) -> None:
    (root / "latin").write_bytes(b"sch\xf6n\r\n")
    shown = await text(tools["read_file"], path="latin")
    assert "CRLF line ends, kept; encoding cp1252, kept.\n1|schön" in shown


async def test_binary_files_are_refused_with_their_size(root: Path, tools: Tools) -> None:
    (root / "b").write_bytes(b"a\0" * 600)
    assert await error(tools["read_file"], path="b") == (
        "b is a binary file of 1,200 bytes; it is not shown."
    )


async def test_a_huge_line_is_cut_and_can_be_seen_by_itself(root: Path, tools: Tools) -> None:
    (root / "huge").write_text("first\n" + "x" * 250_000 + "\nlast\n")
    read = tools["read_file"]
    page = await text(read, path="huge")
    assert "line 2 is cut, of 250,000 characters; offset=2 limit=1 shows more" in page
    assert page.endswith("x…\n3|last") and len(page) < pages.LINE_CHARS + 200
    assert len(await text(read, path="huge", offset=2, limit=1)) > pages.LONGEST_PAGE


@pytest.mark.parametrize("counted", [True, False])
async def test_a_file_too_large_to_be_held_is_read_in_pieces(
    root: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    monkeypatch.setattr(file_tools, "WHOLE_BYTES", 100)
    monkeypatch.setattr(pages, "COUNTED_BYTES", 1 << 20 if counted else 100)
    (root / "giant").write_text("x\n" * 999 + "y" * 400_000)
    page = await text(tools["read_file"], path="giant", limit=3)
    total = "1,000" if counted else "many"
    assert f"giant: {total} lines, 401,998 bytes; lines 1-3 follow; next: offset=4." in page
    end = await text(tools["read_file"], path="giant", offset=999)
    assert "line 1000 is cut, of 400,000 characters" in end and "999|x\n1000|yyy" in end


async def test_a_special_file_is_refused_without_blocking(root: Path, tools: Tools) -> None:
    os.mkfifo(root / "pipe")
    with anyio.fail_after(10):
        assert "no regular file" in await error(tools["read_file"], path="pipe")
        assert "no regular file" in await error(
            tools["write_file"], path="pipe", content="x", append=False
        )
    assert await error(tools["read_file"], path="src") == (
        "src is a folder. List its files with glob."
    )
    assert "No such file" in await error(tools["read_file"], path="nothing")
    assert "names a folder" in await error(tools["read_file"], path=".")


# Paths that leave the workspace


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "src/../../secret.txt", "/etc/passwd", "link.txt", "up/secret.txt"],
)
async def test_no_path_leads_out_of_the_folder(root: Path, tools: Tools, path: str) -> None:
    (root / "link.txt").symlink_to("../secret.txt")
    (root / "up").symlink_to("..")
    for name, more in (
        ("read_file", {}),
        ("glob", {}),
        ("search", {"pattern": "x"}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"edits": [{"old": "do", "new": "x"}]}),
    ):
        assert "lies outside of the workspace" in await error(tools[name], path=path, **more)
    assert (root.parent / "secret.txt").read_text() == "do not read\n"


async def test_links_and_absolute_paths_that_stay_inside_are_followed(
    root: Path, tools: Tools
) -> None:
    (root / "inside").symlink_to("src/main.py")
    assert "def main" in await text(tools["read_file"], path="inside")
    assert "def main" in await text(tools["read_file"], path=str(root / "src" / "main.py"))
    await text(tools["write_file"], path="inside", content="new\n")
    assert (root / "inside").is_symlink()
    assert (root / "src" / "main.py").read_text() == "new\n"


async def test_a_link_that_is_swapped_in_after_the_check_is_not_followed(
    root: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "main.py").write_text("outside\n")
    real = os.path.realpath

    def swap(path: os.PathLike[str]) -> str:
        resolved = real(path)
        if (root / "src").is_dir() and not (root / "src").is_symlink():
            (root / "src").rename(root / "old")
            (root / "src").symlink_to(outside)
        return resolved

    monkeypatch.setattr(os.path, "realpath", swap)
    for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
        assert "outside" not in await error(tools[name], path="src/main.py", **more)
        (root / "src").unlink()
        (root / "old").rename(root / "src")
    assert (outside / "main.py").read_text() == "outside\n"


async def test_links_that_run_in_a_circle_are_an_error(root: Path, tools: Tools) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert "links form a circle" in await error(tools["read_file"], path="a")


async def test_wrong_limits_are_refused(tools: Tools) -> None:
    assert "- limit: Input should be" in await error(tools["glob"], limit=0)
    assert "- offset: Input should be" in await error(tools["read_file"], path="x", offset=0)
    assert (await call(tools["edit_file"], path="README.md", edits=[])).outcome == "error"


def locked(database: Path) -> bool:
    """Return whether another process sees the database's lock as held."""
    # SQLite holds byte 128 of the shared-memory file for as long as a connection is open.
    code = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1] + '-shm', 'r+b')\n"
        "try:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)\n"
        "    print('free')\n"
        "except OSError:\n"
        "    print('locked')\n"
    )
    reply = subprocess.check_output([sys.executable, "-c", code, str(database)], text=True)
    return reply.strip() == "locked"


async def test_the_runtimes_database_is_never_opened_by_a_tool(root: Path) -> None:
    store = await open_store(f"file:{root}/own.db")
    try:
        await store.of("local").threads.ensure("needle")
        (root / "by").symlink_to("own.db")
        (root / "hard").hardlink_to(root / "own.db")
        tools = {tool.name: tool for tool in workspace_tools(root)}
        listing = await text(tools["glob"], pattern="**", by_path=True)
        assert "Left out: hard, own.db, own.db-shm, own.db-wal." in listing
        matches = await text(tools["search"], pattern="needle", globs="*")
        assert matches.startswith("0 ")
        changes = {
            "write_file": {"content": "x"},
            "edit_file": {"edits": [{"old": "needle", "new": "x"}]},
        }
        for path in ("own.db", "./own.db-wal", "by", "hard", "own.db-journal"):
            for name in ("read_file", *changes):
                reply = await error(tools[name], path=path, **changes.get(name, {}))
                assert "belongs to the runtime's database" in reply
        assert locked(root / "own.db")
        (root / "own.db-shm").open("rb").close()
        assert not locked(root / "own.db"), "the check for the lock checks nothing"
        assert (await store.of("local").threads.get("needle")).id == "needle"
    finally:
        await store.close()
    assert "own.db" in await text(tools["glob"])


async def test_caches_and_dependencies_are_entered_only_by_name(root: Path, tools: Tools) -> None:
    for name in (".venv", "node_modules", "__pycache__"):
        (root / name).mkdir()
        (root / name / "inner.txt").write_text("x")
    listing = await text(tools["glob"], pattern="**", by_path=True)
    assert "Left out: .venv/, __pycache__/, node_modules/." in listing
    assert "inner.txt" not in listing
    assert "inner.txt" in await text(tools["glob"], path=".venv")


# Limits of size and time


async def test_a_sparse_file_is_not_read_to_its_end(
    root: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "READ_SECONDS", 0.05)
    with (root / "sparse").open("wb") as file:
        file.write(b"first\n" * 2000)
        file.truncate(1 << 43)
    with anyio.fail_after(20):
        shown = await text(tools["read_file"], path="sparse", offset=9000)
    assert "bytes; it was read for 0.05 s, which led to line 2,001." in shown


async def test_a_listing_that_takes_too_long_says_so(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, "LIST_SECONDS", -1.0)
    listing = await text(tools["glob"], pattern="**", by_path=True)
    assert "2 entries for **" in listing
    assert "so entries are missing." in listing
    # The offline model takes no figures from it.
    assert parse_listing(listing) is None


@pytest.mark.parametrize("path", ["a\0b", "bad\udc00"])
async def test_a_name_that_no_file_can_have_is_named_as_such(tmp_path: Path, path: str) -> None:
    read = {one.name: one for one in workspace_tools(tmp_path)}["read_file"]
    assert "cannot be the name of a file" in await error(read, path=path)
