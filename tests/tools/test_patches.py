"""`apply_patch`: both forms, all files or none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.errors import ToolError
from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace.editing.patch import Hunk, nearest_place, read_patch
from agent_runtime.tools.workspace.editing.patch_file import apply_hunks
from agent_runtime.tools.workspace.editing.text_file import TextFile
from agent_runtime.tools.workspace.files import workspace_tools
from agent_runtime.tools.workspace.root import Root, StagedFile
from tests.tools.calling import error, text

A = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def patch(tmp_path: Path) -> Tool:
    (tmp_path / "a.txt").write_text(A)
    (tmp_path / "b.txt").write_bytes(b"b\r\nc\r\n")
    (tmp_path / "old.txt").write_text("x\n")
    return next(one for one in workspace_tools(tmp_path, preset="apply_patch"))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()
    }


def folders(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir() if one.is_dir()]


OWN = """*** Begin Patch
*** Update File: a.txt
@@ two
 three
-four
+4
*** Update File: b.txt
*** Move to: new/b.txt
-c
+C
*** Add File: n.txt
+new

+file
*** Delete File: old.txt
*** End Patch
"""
UNIFIED = """diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -3,2 +3,2 @@ two
 three
-four
+4
diff --git a/b.txt b/new/b.txt
rename from b.txt
rename to new/b.txt
--- a/b.txt
+++ b/new/b.txt
@@ -1,2 +1,2 @@
 b
-c
+C
--- /dev/null
+++ b/n.txt
@@ -0,0 +1,3 @@
+new
+
+file
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-x
"""


@pytest.mark.parametrize("form", [OWN.replace("\n\n+file", "\n+\n+file"), UNIFIED])
async def test_both_forms_change_add_move_and_delete_files(
    tmp_path: Path, patch: Tool, form: str
) -> None:
    assert await text(patch, patch=form) == (
        "Patched:\na.txt: line 4\nmoved b.txt to new/b.txt: line 2\nadded n.txt: 3 lines\n"
        "deleted old.txt"
    )
    assert contents(tmp_path) == {
        "a.txt": A.replace("four", "4").encode(),
        "new/b.txt": b"b\r\nC\r\n",
        "n.txt": b"new\n\nfile\n",
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("-c\n", "-d\n"), "b.txt: the file does not contain that text"),
        (("Delete File: old.txt", "Delete File: none.txt"), "none.txt: No such file"),
        (("Add File: n.txt", "Add File: a.txt"), "a.txt exists already"),
        (("Move to: new/b.txt", "Move to: ../b.txt"), "lies outside of the workspace"),
        (("Move to: new/b.txt", "Move to: .git/b.txt"), "is protected from the file tools"),
        (("@@ two\n", "? two\n"), "Line 3 of the patch cannot be read"),
        (("@@ two\n three\n-four\n+4\n", ""), "The patch changes nothing in a.txt."),
    ],
)
async def test_a_patch_that_does_not_fit_changes_nothing(
    tmp_path: Path, patch: Tool, change: tuple[str, str], says: str
) -> None:
    before = contents(tmp_path)
    assert says in await error(patch, patch=OWN.replace("\n\n+file", "\n+file").replace(*change))
    assert contents(tmp_path) == before


async def test_files_are_put_back_when_one_cannot_be_written(
    tmp_path: Path, patch: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, commit, done = contents(tmp_path), StagedFile.commit, list[str]()

    def fails(self: StagedFile) -> None:
        if len(done) == 2:
            done.append("")
            raise OSError(28, "No space left on device")
        done.append(self.path)
        commit(self)

    monkeypatch.setattr(StagedFile, "commit", fails)
    await error(patch, patch=UNIFIED)
    assert len(done) > 2 and contents(tmp_path) == before


async def test_what_cannot_be_put_back_is_told_and_the_rest_is(
    tmp_path: Path, patch: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, commit, done = contents(tmp_path), StagedFile.commit, list[str]()

    def fails(self: StagedFile) -> None:
        done.append(self.path)
        if len(done) in (3, 4):
            raise ToolError(f"{self.path} is on a full disk.")
        commit(self)

    monkeypatch.setattr(StagedFile, "commit", fails)
    three = "".join(f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n" + change for name, change in (
        ("a.txt", "-one\n+1\n"), ("b.txt", "-b\n+B\n"), ("old.txt", "-x\n+y\n"),
    ))  # fmt: skip
    shown = await error(patch, patch=three)
    assert "not all is as before: b.txt is on a full disk." in shown, shown
    assert contents(tmp_path) == before | {"b.txt": b"B\r\nc\r\n"}


async def test_a_moved_or_restored_file_keeps_its_permissions(
    tmp_path: Path, patch: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old.txt").chmod(0o750)
    move = "*** Begin Patch\n*** Update File: old.txt\n*** Move to: new/run.sh\n-x\n+y\n"
    remove = Root.remove

    def fails(self: Root, path: str, *args: Any, **named: Any) -> None:
        remove(self, path, *args, **named)
        if path == "a.txt":
            raise ToolError("The disk is gone.")

    monkeypatch.setattr(Root, "remove", fails)
    await error(patch, patch=f"{move}*** Delete File: a.txt\n")
    assert (tmp_path / "old.txt").stat().st_mode & 0o777 == 0o750
    monkeypatch.setattr(Root, "remove", remove)
    (tmp_path / "a.txt").write_text(A)
    await text(patch, patch=move)
    assert (tmp_path / "new/run.sh").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("name", ["n.txt", "old.txt"])
async def test_what_another_program_writes_meanwhile_is_not_lost(
    tmp_path: Path, patch: Tool, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A file that the patch makes, and one that it deletes."""
    before, commit = contents(tmp_path), StagedFile.commit

    def meanwhile(self: StagedFile) -> None:
        if self.path == "a.txt":
            (tmp_path / name).write_text("theirs")
        commit(self)

    monkeypatch.setattr(StagedFile, "commit", meanwhile)
    head = "*** Begin Patch\n*** Update File: a.txt\n-one\n+1\n"
    rest = "*** Add File: n.txt\n+ours\n" if name == "n.txt" else "*** Delete File: old.txt\n"
    assert "another program" in await error(patch, patch=head + rest)
    assert contents(tmp_path) == before | {name: b"theirs"}


@pytest.mark.parametrize("fails_at", ["staged", "commit"])
async def test_a_patch_that_fails_leaves_no_folder_that_it_made(
    tmp_path: Path, patch: Tool, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    commit = StagedFile.commit

    def fails(self: StagedFile) -> None:
        if self.path == "a.txt":
            raise ToolError("a.txt is on a full disk.")
        commit(self)

    monkeypatch.setattr(StagedFile, "commit", fails)
    name = "n" * 300 if fails_at == "staged" else "last"
    added = "".join(f"*** Add File: {one}\n+x\n" for one in ("new/a/1", "new/2", f"b/{name}"))
    head = "*** Begin Patch\n"
    await error(patch, patch=f"{head}{added}*** Update File: a.txt\n-one\n+1\n")
    assert folders(tmp_path) == []
    monkeypatch.setattr(StagedFile, "commit", commit)
    await text(patch, patch=f"{head}*** Add File: new/a/1\n+x\n")
    assert contents(tmp_path)["new/a/1"] == b"x\n"


async def test_a_place_that_is_not_unique_is_refused(tmp_path: Path, patch: Tool) -> None:
    (tmp_path / "t").write_text("a\nx\nb\nx\n")
    head = "*** Begin Patch\n*** Update File: t\n"
    assert "occur 2 times, at lines 2, 4." in await error(patch, patch=f"{head}-x\n+y\n")
    await text(patch, patch=f"{head}@@ b\n-x\n+y\n")
    assert (tmp_path / "t").read_text() == "a\nx\nb\ny\n"


@pytest.mark.parametrize("at", ["@@", "@@ ... @@", "@@ @@", "@@ one", "@@ one @@"])
async def test_a_unified_hunk_may_lack_its_numbers(tmp_path: Path, patch: Tool, at: str) -> None:
    (tmp_path / "n.txt").write_text("one\ntwo\nthree\n")
    await text(patch, patch=f"--- a/n.txt\n+++ b/n.txt\n{at}\n two\n-three\n+four\n")
    assert (tmp_path / "n.txt").read_text() == "one\ntwo\nfour\n"


@pytest.mark.parametrize(
    "given", ["", "nothing of the kind", "@@ -1 +1 @@\n-a\n+b", "--- a\n+++ b"]
)
async def test_what_is_no_patch_is_refused(patch: Tool, given: str) -> None:
    await error(patch, patch=given)


ONE = "@@ -1 +1 @@\n-one\n+1\n"


@pytest.mark.parametrize(
    ("given", "says", "there"),
    [
        ("copy from old.txt\ncopy to c", "copied old.txt to c", {"c": b"x\n", "old.txt": b"x\n"}),
        (
            "copy from old.txt\ncopy to c\n--- a/old.txt\n+++ b/c\n@@ -1 +1 @@\n-x\n+y",
            "copied old.txt to c: line 1",
            {"c": b"y\n", "old.txt": b"x\n"},
        ),
        ("new file mode 100644\nindex 0000000..e69de29", "added e: 0 lines", {"e": b""}),
        ("deleted file mode 100644\nindex e69de29..0000000", "deleted empty", {"empty": None}),
        (
            "similarity index 100%\nrename from picture\nrename to p",
            "moved picture to p",
            {"p": b"\0\1", "picture": None},
        ),
    ],
)
async def test_what_git_says_of_a_file_without_lines_is_done(
    tmp_path: Path, patch: Tool, given: str, says: str, there: dict[str, bytes | None]
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "picture").write_bytes(b"\0\1")
    name = says.split()[-1] if "deleted" in says else "e"
    # With another file, so that leaving it out would not be an error.
    whole = f"diff --git a/{name} b/{name}\n{given}\n--- a/a.txt\n+++ b/a.txt\n{ONE}"
    if "+++ b/c" not in given:
        whole = whole.replace("\n--- a/a.txt", "\ndiff --git a/a.txt b/a.txt\n--- a/a.txt")
    assert await text(patch, patch=whole) == f"Patched:\n{says}\na.txt: line 1"
    found = contents(tmp_path)
    assert {name: found.get(name) for name in there} == there


async def test_a_binary_file_can_be_deleted(tmp_path: Path, patch: Tool) -> None:
    (tmp_path / "picture").write_bytes(b"\0\1")
    head = "*** Begin Patch\n*** "
    assert "binary" in await error(patch, patch=f"{head}Update File: picture\n-a\n+b\n")
    await text(patch, patch=f"{head}Delete File: picture\n")
    assert "picture" not in contents(tmp_path)


async def test_a_file_becomes_executable_and_back(tmp_path: Path, patch: Tool) -> None:
    def executable(name: str) -> bool:
        return bool((tmp_path / name).stat().st_mode & 0o100)

    git = "diff --git a/{0} b/{0}\n{1}\n".format
    new = "--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+#!/bin/sh\n"
    await text(patch, patch=git("s", "new file mode 100755") + new)
    await text(patch, patch=git("a.txt", "old mode 100644\nnew mode 100755"))
    assert executable("s") and executable("a.txt")
    await text(patch, patch=git("a.txt", "old mode 100755\nnew mode 100644") + ONE_OF_A)
    assert not executable("a.txt") and contents(tmp_path)["a.txt"].startswith(b"1\n")
    for mode in ("120000", "160000"):
        await error(patch, patch=git("l", f"new file mode {mode}") + new.replace("b/s", "b/l"))
    assert "l" not in contents(tmp_path)


ONE_OF_A = f"--- a/a.txt\n+++ b/a.txt\n{ONE}"


@pytest.mark.parametrize(
    "given",
    [
        # As `diff -u a.txt.orig a.txt` names it.
        f"--- a.txt.orig\t2026-01-01\n+++ a.txt\t2026-01-02\n{ONE}",
        f"```diff\n{ONE_OF_A}```\n",
        f"Subject: [PATCH] one\n---\n a.txt | 2 +-\n\n{ONE_OF_A}-- \n2.40.1\n\n",
        f"*** Begin Patch\n*** Update File: a.txt\n*** Move to: ./a.txt\n{ONE}*** End Patch",
        # The second hunk begins with a line that the first one leaves.
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n three\n"
        "@@ -3,2 +3,2 @@\n three\n-four\n+four\n",
    ],
)
async def test_forms_in_which_patches_are_written_too(
    tmp_path: Path, patch: Tool, given: str
) -> None:
    before = contents(tmp_path)
    await text(patch, patch=given)
    assert contents(tmp_path) == before | {"a.txt": A.replace("one", "1").encode()}


def test_a_hunk_looks_only_at_lines_near_its_number() -> None:
    class Lines(list[str]):
        looked = 0

        def __getitem__(self, index: Any) -> Any:
            self.looked += 1
            whole: Any = super()
            return whole.__getitem__(index)

    lines = Lines(["a", "b", "c"] * 3000)
    hunk = Hunk([("-", "a"), (" ", "b"), ("+", "x")])
    assert [nearest_place(hunk, lines, 0, wanted) for wanted in (3000, 3001, 3002)] == [
        3000, 3000, 3003,
    ]  # fmt: skip
    assert nearest_place(hunk, lines, 3001, 0) == 3003
    assert nearest_place(hunk, lines, 0, 1 << 40) == 8997
    assert lines.looked < 50
    assert nearest_place(Hunk([("-", "d")]), lines, 0, 3000) is None


async def test_hunks_out_of_order_are_named(tmp_path: Path, patch: Tool) -> None:
    given = "--- a/a.txt\n+++ b/a.txt\n@@ -4 +4 @@\n-four\n+4\n@@ -1 +1 @@\n-one\n+1\n"
    assert "hunk 2: it belongs to line 1" in await error(patch, patch=given)
    assert contents(tmp_path)["a.txt"] == A.encode()


LINES = st.lists(st.sampled_from(["a", "b", "", "-- x", "++ y", " z", "\tq"]), max_size=12)


@settings(max_examples=25, deadline=None)
@given(old=LINES, new=LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_a_diff_of_git_leads_from_one_text_to_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    old: list[str],
    new: list[str],
    ends: tuple[bool, bool],
) -> None:
    folder = tmp_path_factory.mktemp("diff")
    texts = ["\n".join(lines) + "\n" * end for lines, end in zip((old, new), ends, strict=True)]
    if texts[0] == texts[1] or not all(texts):
        return
    for name, one in zip("ab", texts, strict=True):
        (folder / name).write_text(one)
    command = ["git", "diff", "--no-index", "--no-color", "a", "b"]
    diff = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    (patch,) = read_patch(diff)
    assert apply_hunks("f", TextFile(texts[0]), patch.hunks)[0].raw == texts[1], diff
