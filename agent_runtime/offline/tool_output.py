"""Parsers of what the workspace tools answer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ListedKind = Literal["file", "folder", "link", "special"]
TITLE_CHARS = 100
NOTE_CHARS = 300

# These read what `tools.workspace` writes; the tests run the real tools, so a change there fails.
_NOTE = re.compile(r"\s*<runtime-note (\S+)>\n.*?\n</runtime-note \1>", re.DOTALL)
_CUT = re.compile(r"^\[\.\.\. [\d,]+ of [\d,]+ characters are left out here;", re.MULTILINE)
_LISTED = re.compile(r"([\d,]+) entries for .*?: ([\d,]+) files of ([\d,]+) bytes")
_STOPPED = re.compile(r"\. It was stopped after [^ ]+ s, so entries are missing\.")
_NOT_LISTED = re.compile(r" ((?:Left out|In \.gitignore|Not readable): .+)$")
_ENTRY = re.compile(r" *(\d+|-|link|special)  (.+)")
_READ = re.compile(r": (?:many|([\d,]+)) lines, ([\d,]+) bytes")
_SEARCHED = re.compile(r"([\d,]+) matching lines in ([\d,]+) of ")
_NUMBER = re.compile(r"^\d+\|", re.MULTILINE)
_MATCH = re.compile(r"(\d+):(.*)")
_DOCSTRING = re.compile(r'^(?:#[^\n]*\n|\s*\n)*[rR]?("""|\'\'\')\s*(.+?)\s*(?:\n|\1)')
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """One entry of a listing; `size` is that of a file, in bytes."""

    kind: ListedKind
    path: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class FolderListing:
    """A page of a listing, and the counts of the whole folder.

    Attributes:
        stopped: whether the folder was listed for as long as a call may take, so entries are
            missing.
        note: what was left out or not readable.
    """

    total: int
    files: int
    bytes: int
    entries: list[ListedEntry]
    stopped: bool
    note: str


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What is known of a file that was read; `lines` is None if they were not counted."""

    lines: int | None
    bytes: int
    title: str


@dataclass(frozen=True, slots=True)
class SearchSummary:
    """The counts of a search, and its first matching lines."""

    matches: int
    files: int
    stopped: bool
    examples: list[str]


def without_notes(text: str) -> str:
    """Return a message without the runtime's notes in it."""
    return _NOTE.sub("", text)


def is_cut(text: str) -> bool:
    """Return whether the prompt shows a result shortened."""
    return _CUT.search(text) is not None


def parse_listing(text: str) -> FolderListing | None:
    """Return a page of a listing; None for any other text."""
    header, *lines = text.split("\n")
    found = _LISTED.match(header)
    if found is None:
        return None
    note = _NOT_LISTED.search(header)
    entries = [entry for line in lines if (entry := _entry(line)) is not None]
    total, files, size = map(_number, found.groups())
    stopped = _STOPPED.search(header) is not None
    return FolderListing(total, files, size, entries, stopped, note[1][:NOTE_CHARS] if note else "")


def parse_file(path: str, text: str) -> FileSummary | None:
    """Return what a result of `read_file` says of a file; None for any other text."""
    header, _, body = text.partition("\n")
    found = _READ.search(header)
    if found is None:
        return None
    lines = None if found[1] is None else _number(found[1])
    shown = _NUMBER.sub("", _CUT.split(body, maxsplit=1)[0])
    return FileSummary(lines, _number(found[2]), title(path, shown))


def parse_search(text: str) -> SearchSummary | None:
    """Return what a search counted; None for any other text."""
    header, *lines = text.split("\n")
    found = _SEARCHED.match(header)
    if found is None:
        return None
    examples = [] if is_cut(text) else _matches(lines)
    stopped = " It was stopped after " in header
    return SearchSummary(_number(found[1]), _number(found[2]), stopped, examples)


def _matches(lines: Sequence[str]) -> list[str]:
    """Return the matching lines with their files, which stand above them."""
    found: list[str] = []
    path = ""
    for line in lines:
        if match := _MATCH.fullmatch(line):
            found.append(f"{path}:{match[1]}: {match[2]}")
        else:
            path = line
    return found


def title(path: str, text: str) -> str:
    """Return the line that describes a file: of its docstring, its heading, or its first line."""
    wanted: re.Match[str] | None = None
    if path.endswith((".py", ".pyi")):
        wanted = _DOCSTRING.match(text)
    elif path.endswith((".md", ".markdown")):
        wanted = _HEADING.search(text)
    if wanted is not None:
        line = wanted[wanted.lastindex or 0]
    else:
        line = next((line.strip() for line in text.split("\n") if line.strip()), "")
    printable = "".join(char if char.isprintable() else " " for char in line)
    return printable if len(printable) <= TITLE_CHARS else printable[: TITLE_CHARS - 1] + "…"


def one_line(text: str) -> str:
    """Return an error's text on one line, short enough to quote."""
    return title("", " ".join(text.split()))


def code(text: str) -> str:
    """Return a text as Markdown code on one line."""
    plain = "".join(char if char.isprintable() else "�" for char in text)
    return f"`` {plain} ``" if "`" in plain else f"`{plain}`"


def counted(number: int, word: str) -> str:
    """Return a number with what it counts, such as `1 file`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _entry(line: str) -> ListedEntry | None:
    match = _ENTRY.fullmatch(line)
    if match is None:
        return None
    what, path = match.groups()
    if what == "link":
        return ListedEntry("link", path)
    if path.startswith('"'):
        # A name that is not UTF-8 becomes one that no tool opens.
        path = json.JSONDecoder().raw_decode(path)[0].encode(errors="backslashreplace").decode()
    if what == "-":
        return ListedEntry("folder", path.removesuffix("/"))
    return (
        ListedEntry("special", path) if what == "special" else ListedEntry("file", path, int(what))
    )


def _number(text: str) -> int:
    return int(text.replace(",", ""))
