"""Replace pieces of a file's text: several edits at once, all or nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_runtime.errors import ToolError
from agent_runtime.tools.workspace.editing.nearest import Place, nearest
from agent_runtime.tools.workspace.editing.text_file import Span, TextFile, shown, written
from agent_runtime_config.counted import counted

MOST_LINES = 12
"""The most lines of a file that an error shows."""
# Characters of a line that an error shows.
LINE_CHARS = 300
EDITED_BYTES = 16 << 20
"""The most bytes of a file that is edited, before and after."""
NAMED_PLACES = 30
"""The most places that are named of a text that is not unique."""
TELLING_CHARS = 20
"""A shorter text may be in a file by chance."""
_NUMBERED = re.compile(r"\s*\d+[|:→\t-]")
# Characters that models write in place of plain ones, or the reverse.
_TYPOGRAPHIC = str.maketrans("“”„‘’‚–—−\u00a0…", "\"\"\"'''--- .")


class Replacement(BaseModel):
    model_config = ConfigDict(extra="forbid")

    old: Annotated[str, Field(min_length=1)]
    new: str
    all: bool = False


@dataclass(slots=True)
class Range:
    """Lines that an edit has put into a file, numbered from 1; `last < first` for none."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.last <= self.first else f"{self.first}-{self.last}"


def apply_edits(
    name: str, file: TextFile, edits: Sequence[Replacement]
) -> tuple[TextFile, list[Range]]:
    """Return the file after the edits, each made in the text that the ones before it left.

    Args:
        name: the path to name in errors.

    Raises:
        ToolError: an edit does not fit, is not unique, or changes nothing; it says where the text
            most like it is.
    """
    original, ranges = file.text, list[Range]()
    for number, edit in enumerate(edits, 1):
        which = f"Nothing was changed. Edit {number}: " if len(edits) > 1 else ""
        try:
            file, made = _apply(name, file, edit)
        except ToolError as error:
            cure = error.cure
            if number > 1 and written(edit.old) in original and "does not contain" in error.message:
                cure = "An edit before it in this call changed it; give the text as that left it."
            raise ToolError(f"{which}{error.message}", cure=cure) from None
        for one in made:
            _shift(ranges, one, added=_growth(edit))
        ranges += made
    return file, sorted(ranges, key=lambda one: one.first)


def _apply(name: str, file: TextFile, edit: Replacement) -> tuple[TextFile, list[Range]]:
    old, new = written(edit.old), written(edit.new)
    if old == new:
        raise ToolError(f"{name}: the old and the new text are the same, so nothing would change.")
    text = file.text
    spans = find(text, old)
    if not spans:
        raise missing(name, text, old, new)
    if len(spans) > 1 and not edit.all:
        lines = ", ".join(str(line_of(text, start)) for start, _ in spans[:NAMED_PLACES])
        more = f" and {len(spans) - NAMED_PLACES} more" if len(spans) > NAMED_PLACES else ""
        raise ToolError(
            f"{name} contains that text {len(spans)} times, at lines {lines}{more}.",
            cure="Give more of the text around the one you mean, or set `all`.",
        )
    # Before it is built: a few bytes in many places can become gigabytes.
    size = len(text) + len(spans) * (len(new) - len(old))
    if size > EDITED_BYTES:
        raise too_large(name, size)
    ranges: list[Range] = []
    grown = _growth(edit)
    line, counted = 1, 0
    for index, (start, _) in enumerate(spans):
        # From the place before, because there may be a million.
        line, counted = line + text.count("\n", counted, start), start
        first = line + index * grown
        ranges.append(Range(first, first + new.removesuffix("\n").count("\n") - (not new)))
    return file.replaced(spans, new), ranges


def too_large(name: str, size: int) -> ToolError:
    """Return the error for a file that an edit would make too large."""
    return ToolError(
        f"{name} would grow to {size:,} bytes or more, of at most {EDITED_BYTES:,}.",
        cure="Replace fewer occurrences, or put less text in their place.",
    )


def find(text: str, wanted: str) -> list[Span]:
    """Return all places of a text that do not overlap."""
    spans: list[Span] = []
    at = text.find(wanted)
    while at >= 0:
        spans.append((at, at + len(wanted)))
        at = text.find(wanted, at + len(wanted))
    return spans


def line_of(text: str, place: int) -> int:
    """Return the number of the line at a place, from 1."""
    return text.count("\n", 0, place) + 1


def _growth(edit: Replacement) -> int:
    return written(edit.new).count("\n") - written(edit.old).count("\n")


def _shift(ranges: Sequence[Range], made: Range, *, added: int) -> None:
    """Move the ranges behind a later edit."""
    for one in ranges:
        if one.first > made.first:
            one.first += added
            one.last += added
        elif one.last >= made.first:
            one.last += added


def missing(name: str, text: str, old: str, new: str = "") -> ToolError:
    """Return the error for a text that a file does not contain: the nearest place, and the cause.

    Args:
        new: what should have replaced it; empty if that is not known.
    """
    message = f"{name} does not contain that text."
    there = find(text, new) if len(new.strip()) >= TELLING_CHARS and old not in new else []
    if there:
        return ToolError(
            f"{message} The new text is there already, at line {line_of(text, there[0][0])}.",
            cure="If that is the change that you meant, it is made.",
        )
    if "�" in old:
        return ToolError(
            f"{message} In what you were shown, � stands for bytes that are not UTF-8.",
            cure="Choose a text without it.",
        )
    bare = _without_numbers(old)
    place = nearest(text, bare or old)
    if place is None:
        # A line of a block may be known although the block is not.
        return ToolError(f"{message} Nothing in it is like it.", cure="Read the file again.")
    cause = "It has the line numbers of a result in it" if bare else _cause(place, old)
    where = f"line {place.first}" if len(place.lines) == 1 else f"lines {place.first}-{place.last}"
    return ToolError(
        f"{message} {cause}; the nearest text is at {where}:\n{_differing(place, bare or old)}",
        cure="Give the text exactly as the file has it, or read more of the file.",
    )


def _without_numbers(text: str) -> str:
    """Return a text without the line numbers that each of its lines begins with; else empty."""
    lines = text.strip("\n").split("\n")
    if not all(_NUMBERED.match(line) for line in lines):
        return ""
    return "\n".join(_NUMBERED.sub("", line, count=1) for line in lines)


def _cause(place: Place, old: str) -> str:
    ours, theirs = list(place.lines), old.strip("\n").split("\n")
    if place.like == 1.0 and len(ours) == len(theirs):
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
        if all(a.rstrip() == b.rstrip() for a, b in pairs):
            return "Blanks at the ends of lines differ, or blank lines around it"
        if any(("\t" in _indent(a)) != ("\t" in _indent(b)) for a, b in pairs):
            tabs = any("\t" in _indent(a) for a, _ in pairs)
            file, given = ("tabs", "blanks") if tabs else ("blanks", "tabs")
            return f"The file indents with {file}, your text with {given}"
        return "Only the indentation differs"
    one, other = "\n".join(ours), "\n".join(theirs)
    if "".join(other.split()) in "".join(one.split()):
        return "Only blanks and line breaks differ"
    if one.translate(_TYPOGRAPHIC).split() == other.translate(_TYPOGRAPHIC).split():
        return "Only quotation marks or dashes differ"
    for unescaped in (other.replace('\\"', '"').replace("\\n", "\n"), _without_entities(other)):
        if unescaped != other and unescaped.split() == one.split():
            return "Your text is escaped, and the file's is not"
    return "Some words differ"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _without_entities(text: str) -> str:
    return (
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    )


def _differing(place: Place, old: str) -> str:
    """Return the lines of a place, or where they are many, those from the first that differs."""
    given = old.strip("\n").split("\n")
    lines = place.lines
    start = 0
    if len(lines) > MOST_LINES:
        same = (a == b for a, b in zip(lines, given, strict=False))
        differs = next((index for index, equal in enumerate(same) if not equal), 0)
        start = max(0, min(differs - 1, len(lines) - MOST_LINES))
    return numbered(lines[start : start + MOST_LINES], place.first + start)


def numbered(lines: Sequence[str], first: int) -> str:
    """Return lines with their numbers, long ones shortened."""
    return "\n".join(
        f"{number}|{shown(line if len(line) <= LINE_CHARS else line[:LINE_CHARS] + '…')}"
        for number, line in enumerate(lines, first)
    )


def line_ranges(ranges: Sequence[Range]) -> str:
    """Return `line 3` or `lines 3, 5-7`, of many only the first."""
    distinct = list(dict.fromkeys(map(str, ranges)))
    more = f" and {len(distinct) - 20} more" if len(distinct) > 20 else ""
    one = len(distinct) == 1 and ranges[0].last <= ranges[0].first
    return f"line{'' if one else 's'} {', '.join(distinct[:20])}{more}"


def count_of_lines(text: str) -> str:
    """Return `1 line` or `2 lines`; a last line may lack its newline."""
    return counted(text.count("\n") + (text != "" and not text.endswith("\n")), "line")
