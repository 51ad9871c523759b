"""Apply a patch's hunks to one file's text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from agent_runtime.errors import ToolError
from agent_runtime.tools.workspace.editing.patch import Hunk, nearest_place, places
from agent_runtime.tools.workspace.editing.replace import NAMED_PLACES, Range, missing
from agent_runtime.tools.workspace.editing.text_file import TextFile, written
from agent_runtime_config.counted import counted

Change = tuple[int, int, list[str]]
"""Lines from an index up to another, and what takes their place."""


def apply_hunks(
    name: str, file: TextFile, hunks: Sequence[Hunk]
) -> tuple[TextFile, list[Range], list[str]]:
    """Return the file after the hunks, the lines that they put there, and remarks.

    Raises:
        ToolError: a hunk does not fit, or it is not plain where.
    """
    text = file.text
    lines = text.split("\n")
    # Whether the last line lacks its newline.
    bare = lines[-1] != ""
    if not bare:
        lines.pop()
    changes: list[Change] = []
    ranges: list[Range] = []
    remarks: list[str] = []
    reached = grown = moved = 0
    for number, hunk in enumerate(hunks, 1):
        which = f"{name}, hunk {number}" if len(hunks) > 1 else name
        at = _place(which, hunk, lines, reached, moved, text)
        if hunk.near is not None and hunk.old:
            # Later hunks are off by as much: lines were added or removed above them since the
            # patch was made.
            moved = at + 1 - hunk.near
        made = list(_changes(hunk, at))
        for start, end, new in made:
            first = start + 1 + grown
            ranges.append(Range(first, first + len(new) - 1))
            grown += len(new) - (end - start)
        changes += made
        # Lines that stay may be those of the next hunk as well.
        reached = max((end for _, end, _ in made), default=reached)
    if moved:
        side = "below" if moved > 0 else "above"
        remarks.append(f"found {counted(abs(moved), 'line')} {side} its numbers")
    ends_bare = next((one.bare for one in reversed(hunks) if one.bare is not None), None)
    return _changed(file, lines, changes, bare, ends_bare), ranges, remarks


def _place(name: str, hunk: Hunk, lines: Sequence[str], reached: int, moved: int, text: str) -> int:
    start = reached
    for anchor in hunk.after:
        found = (n for n in range(start, len(lines)) if lines[n].strip() == anchor.strip())
        if (place := next(found, None)) is None:
            raise missing(f"{name}: the file", text, anchor)
        start = place + 1
    old = hunk.old
    if not old:
        # Only new lines: after the anchor, at the number, or at the end.
        if hunk.after:
            return start
        wanted = len(lines) if hunk.near is None else hunk.near + moved
        return min(max(wanted, reached), len(lines))
    if hunk.near is not None and not hunk.at_end:
        at = nearest_place(hunk, lines, start, hunk.near - 1 + moved)
        if at is not None:
            return at
    # Bounded: a hunk of one blank line fits nearly anywhere.
    found = list(itertools.islice(places(hunk, lines, start), 10_000))
    if not found and hunk.after:
        # The anchor may be one of the hunk's own lines.
        found = list(itertools.islice(places(hunk, lines, reached), 10_000))
    if hunk.at_end:
        found = [at for at in found if at + len(old) == len(lines)] or found
    if not found and (above := next(places(hunk, lines, 0), None)) is not None:
        raise ToolError(
            f"{name}: it belongs to line {above + 1}, above or among an earlier hunk.",
            cure="Give hunks in the order of the file, each line in one of them.",
        )
    if not found:
        raise missing(f"{name}: the file", text, "\n".join(old), "\n".join(hunk.new))
    if (near := hunk.near) is not None:
        return min(found, key=lambda at: abs(at + 1 - near - moved))
    if len(found) > 1:
        named = ", ".join(str(at + 1) for at in found[:NAMED_PLACES])
        raise ToolError(
            f"{name}: its lines occur {len(found)} times, at lines {named}.",
            cure="Add more lines around the change, or name a line before it after `@@`.",
        )
    return found[0]


def _changes(hunk: Hunk, at: int) -> list[Change]:
    """Return the changes of a hunk without the lines that stay, so that those keep their bytes."""
    made: list[Change] = []
    for stays, run in itertools.groupby(hunk.lines, key=lambda one: one[0] == " "):
        some = list(run)
        removed = sum(mark != "+" for mark, _ in some)
        if not stays:
            made.append((at, at + removed, [text for mark, text in some if mark == "+"]))
        at += removed
    return made


def _changed(
    file: TextFile,
    lines: Sequence[str],
    changes: Sequence[Change],
    bare: bool,
    ends_bare: bool | None,
) -> TextFile:
    offsets = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
    length = offsets[-1] - bare if lines else 0
    # From the end, so that the offsets of earlier ones stay right.
    for start, end, new in reversed(changes):
        text = "".join(written(line) + "\n" for line in new)
        first, last = min(offsets[start], length), min(offsets[end], length)
        if bare and new and end == len(lines):
            # The file's last line has no newline, so the one before a new line lacks it.
            text = "\n" * (start == end and bool(lines)) + text
            text = text if ends_bare is False else text.removesuffix("\n")
        file = file.replaced([(first, last)], text)
    text = file.text
    if ends_bare and not bare and text.endswith("\n"):
        return file.replaced([(len(text) - 1, len(text))], "")
    return file
