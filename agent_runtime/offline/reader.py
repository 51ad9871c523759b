"""Read one part of a folder: for the survey itself, or as its sub-agent.

A sub-agent repeats in each answer everything that it found and what is left to do.  If it runs out
of steps, the next attempt begins where its last answer ends.
"""

from __future__ import annotations

import itertools
import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agent_runtime.delegation.assignment import ASKING_PROTOCOL, PROTOCOL
from agent_runtime.messages import PromptMessage, ToolCall
from agent_runtime.models.base import ModelAnswer, RawCall
from agent_runtime.models.scripted import raw_call, say
from agent_runtime.offline.answers import answer, read_state, repeat, was_stopped
from agent_runtime.offline.tool_output import (
    ListedEntry,
    ListedKind,
    code,
    counted,
    is_cut,
    one_line,
    parse_file,
    parse_listing,
    without_notes,
)

ROLE = "reader"
INSTRUCTIONS = (
    "Read the files of the part that the briefing names. Answer with one line for each: its lines, "
    "its bytes and the line that describes it best, or why it could not be read."
)
TOOLS = ("glob", "read_file")
READ_LINES = 60
"""Lines of a file to read; the tool counts them all."""
TOGETHER = 4
TOGETHER_BYTES = 24_000
"""Files to read at once, and their bytes."""
QUEUE = 12
"""Files to choose from one page of the listing."""
PAGE = 400
FOUND_CHARS = 5500
"""Length of findings at which a sub-agent ends; a longer outcome would come as a file."""
MOST_EXTENSIONS = 40
OTHERS = "others"
MOST_BIG = 5
PATH_CHARS = 80


@dataclass(slots=True)
class Findings:
    """What was found: the lines of files that were opened, and the counts of all listed entries.

    Attributes:
        extensions: files and bytes by extension.
        biggest: sizes and paths, the biggest first.
    """

    opened: int = 0
    read: int = 0
    lines: int = 0
    text: list[str] = field(default_factory=list[str])
    entries: Counter[ListedKind] = field(default_factory=Counter[ListedKind])
    extensions: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    biggest: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def add(self, other: Findings) -> None:
        """Add what another reader found, but for its lines of text."""
        self.opened += other.opened
        self.read += other.read
        self.lines += other.lines
        self.entries += other.entries
        for name, (files, size) in other.extensions.items():
            self._add_files(name, files, size)
        self._add_biggest(other.biggest)

    def count(self, entry: ListedEntry) -> None:
        """Count an entry of the listing."""
        self.entries[entry.kind] += 1
        if entry.kind == "file":
            suffix = posixpath.splitext(entry.path)[1].lower()
            self._add_files(suffix if 1 < len(suffix) <= 12 else "none", 1, entry.size)
            path = entry.path
            shown = path if len(path) <= PATH_CHARS else f"{path[: PATH_CHARS - 1]}…"
            self._add_biggest([(entry.size, shown)])

    def _add_files(self, name: str, files: int, size: int) -> None:
        # The counts are in each answer too.
        if name not in self.extensions and len(self.extensions) >= MOST_EXTENSIONS:
            name = OTHERS
        known, total = self.extensions.get(name, (0, 0))
        self.extensions[name] = (known + files, total + size)

    def _add_biggest(self, files: Sequence[tuple[int, str]]) -> None:
        ordered = sorted([*self.biggest, *files], key=lambda file: (-file[0], file[1]))
        self.biggest = ordered[:MOST_BIG]


@dataclass(slots=True)
class Reader:
    """Reads a part of a folder's listing.

    Attributes:
        report: the file to pass over.
        stride: a file is read if its place in the listing is a multiple of this.
        offset, end: the next entry to list, and the entry before which the part ends.
        queue: paths and sizes of the files to read next.
        reading: how many of these are being read.
    """

    folder: str
    report: str
    stride: int
    offset: int
    end: int
    page: int = PAGE
    queue: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    reading: int = 0
    found: Findings = field(default_factory=Findings)

    @property
    def done(self) -> bool:
        """Whether nothing is left to read."""
        return self.offset >= self.end and not self.queue

    def rest(self) -> Reader:
        """Return a reader of what is left."""
        return replace(self, reading=0, found=Findings())

    def next_calls(self, chars: int) -> list[RawCall]:
        """Return the next calls; none if all is read, or if the findings are this long."""
        self.reading = 0
        if self.done or sum(map(len, self.found.text)) > chars:
            return []
        if not self.queue:
            # The queue is in each answer, so it has to stay short.
            limit = min(self.page, QUEUE * self.stride, self.end - self.offset)
            return [list_call(self.folder, self.offset, limit)]
        sizes = itertools.accumulate(size for _, size in self.queue[:TOGETHER])
        self.reading = max(1, sum(size <= TOGETHER_BYTES for size in sizes))
        chosen = self.queue[: self.reading]
        return [raw_call("read_file", path=path, limit=READ_LINES) for path, _ in chosen]

    def take(self, calls: Sequence[ToolCall], results: Sequence[PromptMessage]) -> str:
        """Take the results of the last calls; return why the folder cannot be listed."""
        if self.reading:
            for (path, _), result in zip(self.queue[: self.reading], results, strict=True):
                self._note(path, result)
            del self.queue[: self.reading]
            return ""
        text, limit = results[0].text, int(calls[0].arguments["limit"])
        page = parse_listing(text)
        if page is None:
            return text
        # The prompt shortened the page, so it lacks entries: ask for smaller ones.
        if is_cut(text) and limit > 1:
            self.page = limit // 2
            return ""
        for place, entry in enumerate(page.entries, self.offset):
            if posixpath.normpath(entry.path) != posixpath.normpath(self.report):
                self.found.count(entry)
                if entry.kind == "file" and place % self.stride == 0:
                    self.queue.append((entry.path, entry.size))
        if page.stopped:
            first, last = self.offset + 1, self.offset + limit
            self.found.text.append(
                f"- Entries {first:,} to {last:,}: "
                "the listing took too long, so some may be missing."
            )
        # A page has a limit of its own, too.
        self.offset += len(page.entries) or limit
        return ""

    def _note(self, path: str, result: PromptMessage) -> None:
        summary = parse_file(path, result.text) if result.outcome == "ok" else None
        self.found.opened += 1
        if summary is None:
            # An image is read as a file, which the result names.
            why = one_line(result.text.removesuffix("; it is attached."))
            self.found.text.append(f"- {code(path)}: not read: {why}")
            return
        self.found.read += 1
        self.found.lines += summary.lines or 0
        quoted = f"; “{summary.title}”" if summary.title else ""
        lines = "many lines" if summary.lines is None else counted(summary.lines, "line")
        self.found.text.append(f"- {code(path)}: {lines}, {counted(summary.bytes, 'byte')}{quoted}")


def is_reader(messages: Sequence[PromptMessage]) -> bool:
    """Return whether a prompt is that of a reader."""
    first = messages[0].text if messages else ""
    # By the system prompt: a task could quote the instructions.
    return first.startswith((PROTOCOL, ASKING_PROTOCOL)) and INSTRUCTIONS in first


def next_reader_answer(messages: Sequence[PromptMessage]) -> ModelAnswer:
    """Return a sub-agent's next answer, from its prompt alone."""
    last = max((i for i, one in enumerate(messages) if one.role == "assistant"), default=-1)
    if last < 0:
        tasks = [one.text for one in messages if one.role == "user"]
        reader = next(filter(None, (read_state(text, Reader) for text in tasks)), None)
        return _answer(reader) if reader else say("The briefing names no part to read.")
    reader, calls = read_state(messages[last].text, Reader), messages[last].calls
    results = results_of(messages[last + 1 :])
    if reader is None:
        return say("The last answer says nothing of what was read.")
    if any(map(was_stopped, results)):
        return answer("I was stopped, and do this again.", reader, *map(repeat, calls))
    if problem := reader.take(calls, results):
        return answer(f"The folder could not be listed: {one_line(problem)}", reader)
    return _answer(reader)


def results_of(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    """Return the tool results among messages, without the runtime's notes in them."""
    results = (one for one in messages if one.role == "tool")
    return [replace(one, text=without_notes(one.text)) for one in results]


def list_call(folder: str, offset: int, limit: int) -> RawCall:
    """Return the call that lists a page of a folder and all folders in it."""
    return raw_call("glob", pattern="**", path=folder, by_path=True, offset=offset, limit=limit)


def _answer(reader: Reader) -> ModelAnswer:
    calls = reader.next_calls(FOUND_CHARS)
    words = f"{counted(reader.found.opened, 'file')} read in this attempt."
    return answer(words, reader, *calls)
