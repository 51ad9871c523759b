"""Patches of several files: the unified form, and that of `*** Begin Patch`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent_runtime.errors import ToolError

FileAction = Literal["update", "add", "delete"]
FORMS = "Give a unified diff, or `*** Begin Patch` … `*** End Patch`."

_OWN = re.compile(r"\*\*\* (Update|Add|Delete) File: (.+)")
_MOVE = re.compile(r"\*\*\* Move to: (.+)")
_RANGE = re.compile(r"@@+ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@+(?: (.*))?")
_SAID = re.compile(
    r"(new file mode|deleted file mode|new mode|copy from|copy to|rename from|rename to) (.+)"
)
_VERSION = re.compile(r"\d+(?:\.\w+)+.*")
_UNQUOTED = re.compile(r"\\(?:([0-7]{3})|(.))")


@dataclass(slots=True)
class Hunk:
    """A place in a file, and what changes there.

    Attributes:
        lines: each with its mark: ` ` for what stays, `-` and `+`.
        near: the number of its first line in the old file, if the patch says it.
        after: lines that stand somewhere before it, in order.
        at_end: whether it ends with the file.
        bare: whether the new file ends with it, without a newline; None for as it was.
        blank: how many lines at its end were empty, and may stand between it and what follows.
    """

    lines: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    near: int | None = None
    after: list[str] = field(default_factory=list[str])
    at_end: bool = False
    bare: bool | None = None
    blank: int = 0

    @property
    def old(self) -> list[str]:
        """The lines that must be there."""
        return [text for mark, text in self.lines if mark != "+"]

    @property
    def new(self) -> list[str]:
        """The lines that are there afterwards."""
        return [text for mark, text in self.lines if mark != "-"]


@dataclass(slots=True)
class FilePatch:
    """What a patch does to one file.

    Attributes:
        moved: its new path; empty if it keeps its own.
        named: whether the patch says that it is moved or copied, not only by two paths.
        copied: whether the old path stays, too.
        executable: whether the file may be run; None for as it was.
    """

    path: str
    action: FileAction
    hunks: list[Hunk] = field(default_factory=list[Hunk])
    moved: str = ""
    named: bool = False
    copied: bool = False
    executable: bool | None = None

    @property
    def added(self) -> str:
        """The text of a new file."""
        lines = [text for hunk in self.hunks for mark, text in hunk.lines if mark == "+"]
        bare = bool(self.hunks) and self.hunks[-1].bare is True
        return "\n".join(lines) + ("" if bare or not lines else "\n")


def read_patch(patch: str) -> list[FilePatch]:
    """Return what a patch does, by file, in order.

    Raises:
        ToolError: it is in neither form; the line is named.
    """
    lines = patch.replace("\r\n", "\n").split("\n")
    begin = next((n for n, one in enumerate(lines) if one.strip() == "*** Begin Patch"), None)
    if begin is not None or any(_OWN.fullmatch(one) for one in lines):
        found = _own_form(lines, 0 if begin is None else begin + 1)
    else:
        found = _unified(lines)
    for one in found:
        changes = one.hunks or one.moved or one.executable is not None
        if one.action == "update" and not changes:
            raise ToolError(f"The patch changes nothing in {one.path}.", cure=FORMS)
    if not found:
        raise ToolError("The patch names no file.", cure=FORMS)
    return found


def _own_form(lines: Sequence[str], begin: int) -> list[FilePatch]:
    found: list[FilePatch] = []
    for number, line in enumerate(lines[begin:], begin + 1):
        file = found[-1] if found else None
        if line.strip() == "*** End Patch":
            break
        if match := _OWN.fullmatch(line):
            actions: dict[str, FileAction] = {"Update": "update", "Add": "add", "Delete": "delete"}
            found.append(FilePatch(match[2].strip(), actions[match[1]]))
        elif file is None:
            if line.strip():
                raise _unreadable(number, line)
        elif match := _MOVE.fullmatch(line):
            file.moved, file.named = match[1].strip(), True
        elif line.strip() == "*** End of File":
            if file.hunks:
                file.hunks[-1].at_end = True
        elif file.action == "update" and line.startswith("@@"):
            ranged = _RANGE.fullmatch(line)
            context = line[2:].strip() if ranged is None else ""
            last = file.hunks[-1] if file.hunks else None
            if last is None or last.lines:
                file.hunks.append(last := Hunk(near=int(ranged[1]) if ranged else None))
            last.after += [context] if context else []
        else:
            _add_line(file, number, line)
    return [_trimmed(one) for one in found]


def _unified(lines: Sequence[str]) -> list[FilePatch]:
    # The counts of lines in `@@` are not relied on: models get them wrong.
    lines = _without_frame(lines)
    found: list[FilePatch] = []
    file: FilePatch | None = None
    # What git says of a file before its lines, if it says any.
    about = FilePatch("", "update")
    old = ""
    for number, line in enumerate(lines, 1):
        if line.startswith(("diff --git ", "Index: ")):
            file, old, about = None, "", FilePatch(_same_path(line), "update")
        elif line.startswith(("GIT binary patch", "Binary files ")):
            raise ToolError(f"Line {number} of the patch is of a binary file.", cure=FORMS)
        elif file in (None, about) and not about.hunks and _says(about, number, line):
            if file is None:
                file = about
                found.append(file)
        elif _is_header(lines, number):
            old = line[4:]
        elif line.startswith("+++ ") and old:
            named = _named(old, line[4:])
            if file is about and not about.hunks:
                # Where both are there, they agree, but for patches that are written by hand.
                about.action = named.action
                about.path = about.path or named.path
            else:
                file = named
                found.append(file)
            old = ""
        elif file is not None and (match := _RANGE.match(line)):
            file.hunks.append(Hunk(near=int(match[1])))
        elif line.startswith("@@") and file is None:
            raise ToolError(f"The patch names no file before its line {number}.", cure=FORMS)
        elif file is not None and line.startswith("@@"):
            # Without numbers, as models write it, the lines alone say where they are.
            context = line.strip("@. …")
            file.hunks.append(Hunk(after=[context] if context else []))
        elif file is not None and file.hunks:
            _add_line(file, number, line)
    return [_trimmed(one) for one in found]


def _without_frame(lines: Sequence[str]) -> Sequence[str]:
    """Return a patch without a fence around it, and without what a mail with it ends in."""
    last = len(lines)
    while last and not lines[last - 1].strip():
        last -= 1
    if last and lines[last - 1].startswith("```"):
        return lines[: last - 1]
    if last > 1 and lines[last - 2] in ("-- ", "--") and _VERSION.fullmatch(lines[last - 1]):
        return lines[: last - 2]
    return lines


def _says(about: FilePatch, number: int, line: str) -> bool:
    """Note what one of git's lines says of a file; return whether it is one.

    Raises:
        ToolError: the file is none that can be written.
    """
    match = _SAID.fullmatch(line)
    if match is None:
        return False
    what, value = match[1], match[2].strip()
    if what.endswith("mode"):
        if value[:3] in ("120", "160"):
            kind = "a symbolic link" if value.startswith("120") else "a submodule"
            raise ToolError(f"Line {number} of the patch is of {kind}.", cure="Use the shell.")
        actions: dict[str, FileAction] = {"new file mode": "add", "deleted file mode": "delete"}
        about.action = actions.get(what, "update")
        # The usual permissions are those of the workspace.
        about.executable = True if value == "100755" else None if "file" in what else False
    elif what.endswith("from"):
        about.path, about.copied = _path(value), what.startswith("copy")
    else:
        about.moved, about.named = _path(value), True
    return True


def _same_path(line: str) -> str:
    """Return the path of `diff --git a/path b/path`; empty if there are two."""
    names = line.removeprefix("diff --git ")
    half = len(names) // 2
    one, other = _path(names[:half]), _path(names[half + 1 :])
    return one[2:] if one[:2] == "a/" and other[:2] == "b/" and one[2:] == other[2:] else ""


def _is_header(lines: Sequence[str], number: int) -> bool:
    """Return whether a line is the first of the two that name a file, not one that is removed."""
    if not lines[number - 1].startswith("--- ") or number >= len(lines):
        return False
    after = lines[number + 1] if number + 1 < len(lines) else ""
    return lines[number].startswith("+++ ") and (after.startswith("@@") or not after)


def _named(old: str, new: str) -> FilePatch:
    before, after = _path(old), _path(new)
    if before.startswith("a/") and (after.startswith("b/") or after == "/dev/null"):
        before = before[2:]
    if after.startswith("b/") and (_path(old).startswith("a/") or before == "/dev/null"):
        after = after[2:]
    if before == "/dev/null":
        return FilePatch(after, "add")
    if after == "/dev/null":
        return FilePatch(before, "delete")
    return FilePatch(before, "update", moved="" if before == after else after)


def _path(text: str) -> str:
    # A time may follow a tab.
    path = text.split("\t")[0].strip()
    if len(path) > 1 and path[0] == path[-1] == '"':
        # As git quotes names: bytes in octal.
        inner = path[1:-1].encode()
        raw = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8) & 255]), inner)
        return _UNQUOTED.sub(lambda found: found[2] or "", raw.decode(errors="replace"))
    return path


def _add_line(file: FilePatch, number: int, line: str) -> None:
    if file.action == "delete" and not line.strip():
        return
    if not file.hunks:
        file.hunks.append(Hunk())
    hunk = file.hunks[-1]
    if line.startswith("\\"):
        # "\ No newline at end of file": of the new file, unless only an old line is before it.
        hunk.at_end = True
        mark = hunk.lines[-1][0] if hunk.lines else " "
        hunk.bare = mark != "-"
        return
    if line[:1] in ("+", "-", " "):
        hunk.lines.append((line[0], line[1:]))
        hunk.blank = 0
    elif not line:
        # Editors and models drop the blank of an empty line.
        hunk.lines.append((" ", ""))
        hunk.blank += 1
    else:
        raise _unreadable(number, line)


def _trimmed(file: FilePatch) -> FilePatch:
    """Drop empty lines after hunks, which look like lines that stay."""
    for hunk in file.hunks:
        del hunk.lines[len(hunk.lines) - hunk.blank :]
    file.hunks = [one for one in file.hunks if any(mark != " " for mark, _ in one.lines)]
    return file


def _unreadable(number: int, line: str) -> ToolError:
    return ToolError(
        f"Line {number} of the patch cannot be read: {line[:200]!r}. Lines of a file begin with a "
        "blank, `+` or `-`.",
        cure=FORMS,
    )


def places(hunk: Hunk, lines: Sequence[str], start: int) -> Iterator[int]:
    """Yield the indices, from `start` on, where all old lines of a hunk stand."""
    old = hunk.old
    for at in range(start, len(lines) - len(old) + 1):
        if (not old or lines[at] == old[0]) and list(lines[at : at + len(old)]) == old:
            yield at


def nearest_place(hunk: Hunk, lines: Sequence[str], start: int, wanted: int) -> int | None:
    """Return the index, from `start` on, where a hunk's old lines stand nearest to `wanted`."""
    old = hunk.old
    last = len(lines) - len(old)
    wanted = max(start, min(wanted, last))
    # From there outwards: in a file of many equal lines each hunk would otherwise look at all.
    for away in range(max(wanted - start, last - wanted) + 1):
        for at in (wanted - away, wanted + away):
            if start <= at <= last and lines[at] == old[0] and lines[at : at + len(old)] == old:
                return at
    return None
