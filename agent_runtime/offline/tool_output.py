"""Parsers of what the workspace tools answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent_runtime_config.counted import counted

TITLE_CHARS = 100

# These read what `tools.workspace` writes; the tests run the real tools, so a change there fails.
_NOTE = re.compile(r"\s*<runtime-note (\S+)>\n.*?\n</runtime-note \1>", re.DOTALL)
_CUT = re.compile(r"^\[\.\.\. [\d,]+ of [\d,]+ characters are left out here;", re.MULTILINE)
_LISTED = re.compile(r"([\d,]+) entr(?:y|ies) for .*?: ([\d,]+) files? of ([\d,]+) bytes?")
_STOPPED = " It was stopped after "
_NOT_LISTED = re.compile(r" ((?:Left out|In \.gitignore|Not readable): .+)$")
_KINDS: Mapping[str, str] = {"-": "folder", "link": "link", "special": "special"}
_ENTRY = re.compile(r" *(\d+|-|link|special)  (.+)")
_READ = re.compile(r": (?:many|([\d,]+)) lines?, ([\d,]+) bytes?")
_SEARCHED = re.compile(r"([\d,]+) matching lines? in ([\d,]+) of ")
_NUMBER = re.compile(r"^\d+\|", re.MULTILINE)
_TITLE = re.compile(
    r"""^\s*(?:\#+!?|//+|/\*+|<!--|[rR]?\"{3}|[rR]?'{3})?\s*   # The mark of a heading or comment.
    (\S.*?)\s*(?:\"{3}|'{3}|\*/|-->)?\s*$""",
    re.MULTILINE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """One entry of a listing: a `file` of `size` bytes, `folder`, `link` or `special`.

    The path of a folder ends with `/`, that of a link with its target.
    """

    kind: str
    path: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class FolderListing:
    """A page of a listing, and the counts of the whole folder.

    Attributes:
        more: whether entries follow after those of the page.
        note: what was left out or not readable.
    """

    total: int
    files: int
    bytes: int
    entries: list[ListedEntry]
    more: bool
    note: str


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What is known of a file that was read; `lines` is None if they were not counted."""

    lines: int | None
    bytes: int
    title: str


def without_notes(text: str) -> str:
    """Return a message without the runtime's notes in it."""
    return _NOTE.sub("", text)


def parse_listing(text: str) -> FolderListing | None:
    """Return a page of a listing; None for any other text, and for a listing that lacks entries."""
    shown, *cut = _CUT.split(text, maxsplit=1)
    header, *lines = shown.split("\n")
    found = _LISTED.match(header)
    if found is None or _STOPPED in header:
        return None
    if cut:
        # The prompt shortened the page, perhaps in the middle of its last line.
        lines = lines[:-2] or lines
    note = _NOT_LISTED.search(header)
    entries = [entry for line in lines if (entry := _entry(line)) is not None]
    total, files, size = map(_number, found.groups())
    more = bool(cut) or "; next: offset=" in header
    return FolderListing(total, files, size, entries, more, one_line(note[1]) if note else "")


def parse_file(text: str) -> FileSummary | None:
    """Return what a result of `read_file` says of a file; None for any other text."""
    header, _, body = text.partition("\n")
    found = _READ.search(header)
    if found is None:
        return None
    lines = None if found[1] is None else _number(found[1])
    shown = _NUMBER.sub("", _CUT.split(body, maxsplit=1)[0])
    return FileSummary(lines, _number(found[2]), title(shown))


def search_counts(text: str) -> str:
    """Return what a search counted, as the report says it; for any other text, why not."""
    header = text.partition("\n")[0]
    if (found := _SEARCHED.match(header)) is None:
        return f"not known ({one_line(text)})"
    early = " (stopped early)" if _STOPPED in header else ""
    return f"{found[1]} in {counted(_number(found[2]), 'file')}{early}"


def title(text: str) -> str:
    """Return a file's first line, without the marks of a docstring, a heading or a comment."""
    found = _TITLE.search(text)
    return one_line(found[1]) if found else ""


def one_line(text: str) -> str:
    """Return a text on one line, short enough to quote."""
    line = " ".join(text.split())
    printable = "".join(char if char.isprintable() else " " for char in line)
    return printable if len(printable) <= TITLE_CHARS else printable[: TITLE_CHARS - 1] + "…"


def code(text: str) -> str:
    """Return a text as Markdown code on one line."""
    plain = "".join(char if char.isprintable() else "�" for char in text)
    return f"`` {plain} ``" if "`" in plain else f"`{plain}`"


def _entry(line: str) -> ListedEntry | None:
    match = _ENTRY.fullmatch(line)
    if match is None:
        return None
    what, path = match.groups()
    if path.startswith('"'):
        # A name that is not UTF-8 becomes one that no tool opens.
        path = json.JSONDecoder().raw_decode(path)[0].encode(errors="backslashreplace").decode()
    kind = _KINDS.get(what, "file")
    return ListedEntry(kind, path, int(what) if kind == "file" else 0)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
