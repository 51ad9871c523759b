"""The sub-agent's half of a survey: it reads the files of one part, and tells what it saw.

It is told where its part begins and ends in the listing of the folder, and finds out by itself
which files lie there.  Each of its answers repeats what it has found so far: one that runs out of
steps leaves that behind, and the next attempt goes on where the log of attempts says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from agent_runtime.delegation.assignment import PROTOCOL
from agent_runtime.messages import PromptMessage, ToolCall
from agent_runtime.models.base import ModelAnswer, RawCall
from agent_runtime.offline import report
from agent_runtime.offline import tool_output as parse
from agent_runtime.offline.answers import STOPPED, ask, call, repeat, say
from agent_runtime.offline.state import (
    LARGE_PAGE,
    LEAST_PAGE,
    FolderPart,
    State,
    from_text,
    to_text,
)

ROLE = "reader"
INSTRUCTIONS = (
    "Read the files of the part that the briefing names. Answer with a line for each: how many "
    "lines and bytes it has, and which of its lines says best what it is; or why it could not be "
    "read. Where the log of earlier attempts says where to go on, begin there."
)
TOOLS = ("list_files", "read_file")
TOGETHER = 4
TOGETHER_BYTES = 24_000
"""So many files are read at once, if they are no larger together."""
FOUND_CHARS = 5500
"""With so many characters of findings a reader ends: outcomes are told in a bounded length."""
QUEUE_CHARS = 2000

_PART = re.compile(r"^Part: (\{.*\})$", re.MULTILINE)
_FIX = re.compile(r"^- fix_applied: (.*)$", re.MULTILINE)
_GO_ON = re.compile(r"Go on at entry (\d+), file (\d+)\.")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A file to read.

    Attributes:
        offset, ordinal: its place among the entries of the folder, and among its files.
        size: in bytes.
        opens: false for a name that no tool can be given.
    """

    offset: int
    ordinal: int
    path: str
    size: int = 0
    opens: bool = True


@dataclass(slots=True)
class Reader:
    """What a reader knows.

    Attributes:
        offset, ordinal: where its listing goes on, among the entries and among the files.
        end: the entry before which the part ends.
        queue: files to read next.
        reading: files being read.
        found: a line for each file that was read, or could not be.
    """

    folder: str
    report: str
    stride: int
    offset: int
    ordinal: int
    end: int
    page: int = LARGE_PAGE
    queue: list[Chosen] = field(default_factory=list[Chosen])
    reading: list[Chosen] = field(default_factory=list[Chosen])
    opened: int = 0
    lines: int = 0
    binary: int = 0
    failed: int = 0
    found: list[str] = field(default_factory=list[str])

    @property
    def following(self) -> tuple[int, int]:
        """The entry and the file at which another attempt goes on."""
        for one in (*self.reading, *self.queue):
            return one.offset, one.ordinal
        return self.offset, self.ordinal

    @property
    def files(self) -> int:
        """How many files are done."""
        return self.opened + self.binary + self.failed


def briefing(state: State, part: FolderPart) -> str:
    """Return what the reader of a part is told."""
    told = orjson.dumps(
        {
            "folder": state.folder,
            "report": state.report,
            "stride": state.stride,
            "offset": part.first,
            "ordinal": part.ordinal,
            "end": part.end,
        }
    ).decode()
    return (
        "The part lies in the recursive listing of `folder`: its entries from `offset` on, those "
        "from `end` on left out. `ordinal` files lie before it. Of all files, `report` left out, "
        "one of every `stride` is read, from the very first on.\n"
        f"Part: {told}".replace("<", "\\u003c")
    )


def go_on(part: FolderPart) -> str:
    """Return what the log of attempts tells the next one."""
    return f"Go on at entry {part.offset}, file {part.at}."


def is_reader(messages: Sequence[PromptMessage]) -> bool:
    """Return whether a prompt is that of a reader."""
    first = messages[0].text if messages else ""
    return first.startswith(PROTOCOL) and INSTRUCTIONS in first


def parse_reader_answer(text: str) -> Reader | None:
    """Return what a reader's answer tells; None if it tells nothing whole."""
    reader = from_text(text, Reader)
    if reader is None:
        return None
    reader.queue = [Chosen(**cast("dict[str, Any]", one)) for one in reader.queue]
    reader.reading = [Chosen(**cast("dict[str, Any]", one)) for one in reader.reading]
    reader.found = [line for line in text.split("\n") if line.startswith("- ")]
    return reader if len(reader.found) == reader.files else None


def next_reader_answer(messages: Sequence[PromptMessage]) -> ModelAnswer:
    """Return a reader's next answer, from its prompt alone."""
    last = max((i for i, one in enumerate(messages) if one.role == "assistant"), default=-1)
    reader = parse_reader_answer(messages[last].text) if last >= 0 else None
    if reader is None:
        return _begin(messages)
    calls = messages[last].calls
    results = [parse.unfenced(one.text) for one in messages[last + 1 :]]
    if any(one.startswith(STOPPED) for one in results):
        return _ask(reader, *map(repeat, calls))
    if reader.reading:
        _note(reader, results)
    elif (problem := _list(reader, calls[0], results[0])) is not None:
        return _say(reader, problem)
    return _next(reader)


def _begin(messages: Sequence[PromptMessage]) -> ModelAnswer:
    task = next((one.text for one in reversed(messages) if one.role == "user"), "")
    part = _PART.search(task)
    if part is None:
        return say("The briefing names no part to read.")
    reader = Reader(**orjson.loads(part[1]))
    fixes = _FIX.findall(task)
    if fixes and (place := _GO_ON.search(fixes[-1])):
        reader.offset, reader.ordinal = int(place[1]), int(place[2])
    return _next(reader)


def _next(reader: Reader) -> ModelAnswer:
    full = sum(map(len, reader.found)) > FOUND_CHARS
    while reader.queue and not full:
        count = _together(reader.queue)
        reader.reading, reader.queue = reader.queue[:count], reader.queue[count:]
        if calls := [_open(one) for one in reader.reading if one.opens]:
            return _ask(reader, *calls)
        _note(reader, [])
    if reader.offset < reader.end and not full:
        limit = min(reader.page, reader.end - reader.offset)
        return _ask(
            reader,
            call(
                "list_files", path=reader.folder, recursive=True, offset=reader.offset, limit=limit
            ),
        )
    return _say(reader, "That is the whole part." if not reader.queue else "More is too long.")


def _list(reader: Reader, asked: ToolCall, result: str) -> str | None:
    """Take in a page of the listing; return what is wrong with it, None if nothing is."""
    page = parse.parse_listing(result)
    if page is None:
        return f"The folder could not be listed: {report.one_line(result)}"
    if parse.is_cut(result) and reader.page > LEAST_PAGE:
        reader.page = max(LEAST_PAGE, asked.arguments["limit"] // 2)
        return None
    queued = 0
    for entry in page.entries:
        is_file = entry.kind == "file" and not parse.same_path(entry.path, reader.report)
        if is_file and reader.ordinal % reader.stride == 0:
            queued += len(entry.path)
            if reader.queue and queued > QUEUE_CHARS:
                return None
            reader.queue.append(
                Chosen(reader.offset, reader.ordinal, entry.path, entry.size, entry.opens)
            )
        reader.offset += 1
        reader.ordinal += is_file
    if page.following is None:
        reader.offset = max(reader.offset, reader.end)
    return None


def _together(queue: Sequence[Chosen]) -> int:
    """Return how many files are read at once."""
    sizes = itertools.accumulate(one.size for one in queue[:TOGETHER])
    return max(1, sum(size <= TOGETHER_BYTES for size in sizes))


def _open(one: Chosen) -> RawCall:
    return call("read_file", path=one.path, limit=report.READ_LINES)


def _note(reader: Reader, results: Sequence[str]) -> None:
    """Take in what came of the files being read."""
    answers = iter(results)
    for one in reader.reading:
        result = next(answers, "") if one.opens else "its name is no UTF-8"
        seen = parse.parse_reading(one.path, result)
        reader.found.append(report.line(report.FileOutcome(one.path, seen, parse.unread(result))))
        if seen is not None:
            reader.opened += 1
            reader.lines += seen.lines
        elif parse.is_binary(result):
            reader.binary += 1
        else:
            reader.failed += 1
    reader.reading = []


def _ask(reader: Reader, *calls: RawCall) -> ModelAnswer:
    return ask(_text(reader, _progress(reader)), *calls)


def _say(reader: Reader, words: str) -> ModelAnswer:
    return say(_text(reader, f"{_progress(reader)} {words}"))


def _progress(reader: Reader) -> str:
    return f"{reader.files} {'file' if reader.files == 1 else 'files'} read in this attempt."


def _text(reader: Reader, words: str) -> str:
    return to_text("\n".join([words, *reader.found]), reader, without=("found",))
