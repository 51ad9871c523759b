"""Reading what the workspace tools answer, as the offline model does."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass
from typing import Literal

ListedKind = Literal["file", "folder", "link", "special"]
TITLE_CHARS = 100

_ENTRIES = re.compile(r"([\d,]+) entries in ")
_NEXT = re.compile(r"; next: offset=(\d+)\.")
_ENTRY = re.compile(r" *(\d+|-|link|special)  (.+)")
_LEFT_OUT = re.compile(r" (Left out: .+?\.)(?: Not readable|$)")
_UNREADABLE = re.compile(r" (Not readable: .+?\))\.")
_READ = re.compile(r": ([\d,]+) lines, ([\d,]+) bytes")
_LARGE = re.compile(r": many lines, ([\d,]+) bytes")
_SEARCH = re.compile(r"([\d,]+) matching lines in ([\d,]+) files; ([\d,]+) of ([\d,]+) files")
_CUT = re.compile(r"^\[\.\.\. [\d,]+ of [\d,]+ characters are left out here;", re.MULTILINE)
_RECALLED = re.compile(r"Result \S+ of \w+ \(\w+\), node \d+, [^,\n]+, ([^\n]+?): \d+ characters; ")
_HEADER = re.compile(r"[\d,]+ entries in .+?, [\d,]+ folders[^.]*\.")
_FENCED = re.compile(r"\s*<runtime-note (\S+)>\n.*?\n</runtime-note \1>", re.DOTALL)
_DOCSTRING = re.compile(r'^(?:#[^\n]*\n|\s*\n)*[rR]?("""|\'\'\')\s*(.+?)\s*(?:\n|\1)')
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a listing; `opens` is false for a name that no tool can be given."""

    kind: ListedKind
    path: str
    size: int = 0
    opens: bool = True


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a listing."""

    total: int
    entries: list[Listed]
    following: int | None
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was seen of a file."""

    lines: int
    bytes: int
    title: str


@dataclass(frozen=True, slots=True)
class SearchSummary:
    """What a search counted, and the first matching lines."""

    matches: int
    files: int
    searched: int
    candidates: int
    stopped: bool
    examples: list[str]


def unfenced(text: str) -> str:
    """Return a message without the runtime's notes in it."""
    return _FENCED.sub("", text)


def is_cut(text: str) -> bool:
    """Return whether a part of a result is left out."""
    return _CUT.search(text) is not None


def parse_listing(text: str) -> Listing | None:
    """Return what a listing says; None if it is an error."""
    header, *lines = text.split("\n")
    total = _ENTRIES.match(header)
    if total is None:
        return None
    following = _NEXT.search(header)
    notes = [*_LEFT_OUT.findall(header), *(f"{one}." for one in _UNREADABLE.findall(header))]
    entries = [entry for line in lines if (entry := _entry(line)) is not None]
    return Listing(_number(total[1]), entries, int(following[1]) if following else None, notes)


def parse_reading(path: str, text: str) -> Reading | None:
    """Return what was read of a file; None if it is an error."""
    header, _, body = text.partition("\n")
    found = _READ.search(header)
    if found is None or not header.startswith((path, '"')):
        return None
    seen = _CUT.split(body, maxsplit=1)[0]
    return Reading(_number(found[1]), _number(found[2]), title(path, seen))


def is_binary(text: str) -> bool:
    """Return whether a result says that the file is none of text."""
    return " is a binary file of " in text


def unread(text: str) -> str:
    """Return on one line why nothing is known of a file that was to be read."""
    if large := _LARGE.search(text.partition("\n")[0]):
        return f"it has {large[1]} bytes, too many for its lines to be counted"
    return title("", " ".join(text.split()))


def parse_search(text: str) -> SearchSummary | None:
    """Return what a search counted; None if it is an error."""
    header, *lines = text.split("\n")
    counts = _SEARCH.match(header)
    if counts is None:
        return None
    matches, files, searched, candidates = map(_number, counts.groups())
    examples = [] if is_cut(text) else [line for line in lines if line]
    stopped = " It was stopped after " in header
    return SearchSummary(matches, files, searched, candidates, stopped, examples)


def recalled(text: str) -> tuple[str, str] | None:
    """Return where a result is that was opened again, and its text; None if it is an error."""
    header, _, body = text.partition("\n")
    about = _RECALLED.match(header)
    return (about[1], body) if about and not is_cut(text) else None


def summary(text: str) -> str:
    """Return what a listing says of the whole folder, or the first line of what else it is."""
    header = _HEADER.match(text)
    return header[0] if header else title("", text)


def title(path: str, text: str) -> str:
    """Return the line that says what a file is: a docstring's first, a heading, or its first."""
    wanted: re.Match[str] | None = None
    if path.endswith((".py", ".pyi")):
        wanted = _DOCSTRING.match(text)
    elif path.endswith((".md", ".markdown")):
        wanted = _HEADING.search(text)
    if wanted is not None:
        line = wanted[wanted.lastindex or 0]
    else:
        line = next((line.strip() for line in text.split("\n") if line.strip()), "")
    printable = "".join(one if one.isprintable() else " " for one in line)
    return printable if len(printable) <= TITLE_CHARS else printable[: TITLE_CHARS - 1] + "…"


def same_path(one: str, other: str) -> bool:
    """Return whether two relative paths name the same file."""
    return posixpath.normpath(one) == posixpath.normpath(other)


def _entry(line: str) -> Listed | None:
    match = _ENTRY.fullmatch(line)
    if match is None:
        return None
    what, shown = match.groups()
    if what == "link":
        return Listed("link", shown)
    path, opens = _unquote(shown)
    if what == "-":
        return Listed("folder", path.removesuffix("/"), opens=opens)
    if what == "special":
        return Listed("special", path, opens=opens)
    return Listed("file", path, int(what), opens)


def _unquote(shown: str) -> tuple[str, bool]:
    """Return a path as it is, and whether a tool can be given it."""
    if not shown.startswith('"'):
        return shown, True
    path, end = json.JSONDecoder().raw_decode(shown)
    if end < len(shown):
        return path.encode(errors="backslashreplace").decode(), False
    return path, True


def _number(text: str) -> int:
    return int(text.replace(",", ""))
