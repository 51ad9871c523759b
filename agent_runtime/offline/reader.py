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
from typing import Any

from agent_runtime.delegation.assignment import ASKING_PROTOCOL, PROTOCOL
from agent_runtime.messages import PromptMessage, ToolCall
from agent_runtime.models.base import ModelAnswer, RawCall
from agent_runtime.models.scripted import raw_call, say
from agent_runtime.offline.answers import answer, read_state, repeat, was_stopped
from agent_runtime.offline.tool_output import (
    code,
    one_line,
    parse_file,
    parse_listing,
    without_notes,
)
from agent_runtime_config.counted import counted

ROLE = "reader"
INSTRUCTIONS = (
    "Read the files of the part that the briefing names. Answer with one line for each: its lines, "
    "its bytes and its title, or why it could not be read."
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


@dataclass(slots=True)
class FolderPart:
    """A part of a folder's listing: what is left of it to read, and what was found.

    Attributes:
        report: the file to pass over.
        stride: a file is read if its place in the listing is a multiple of this.
        offset, end: the next entry to list, and the entry before which the part ends.
        queue: paths and sizes of the files to read next.
        notes: a line of the report for each file that was opened.
        counts: entries by kind, their bytes, files `opened` and `read`, and the `lines` of those.
        attempts: how many sub-agents have ended.
        stop: why the last of them that did not finish ended.
        given_up: whether no other is tried.
    """

    folder: str
    report: str
    stride: int
    offset: int
    end: int
    queue: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    notes: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    attempts: int = 0
    stop: str = ""
    given_up: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.given_up or (self.offset >= self.end and not self.queue)

    def next_calls(self, chars: int) -> list[RawCall]:
        """Return the next calls; none if all is read, or if the notes are this long."""
        if self.done or sum(map(len, self.notes)) > chars:
            return []
        if not self.queue:
            # The queue is in each answer, so it has to stay short.
            limit = min(PAGE, QUEUE * self.stride, self.end - self.offset)
            return [list_call(self.folder, self.offset, limit)]
        sizes = itertools.accumulate(size for _, size in self.queue[:TOGETHER])
        count = max(1, sum(size <= TOGETHER_BYTES for size in sizes))
        return [
            raw_call("read_file", path=path, limit=READ_LINES) for path, _ in self.queue[:count]
        ]

    def take(self, calls: Sequence[ToolCall], results: Sequence[PromptMessage]) -> str:
        """Take the results of the last calls; return why the folder cannot be listed."""
        if calls[0].name == "read_file":
            for call, result in zip(calls, results, strict=True):
                self._note(call.arguments["path"], result)
            del self.queue[: len(calls)]
            return ""
        page = parse_listing(results[0].text)
        if page is None:
            return results[0].text
        for place, entry in enumerate(page.entries, self.offset):
            if posixpath.normpath(entry.path) != posixpath.normpath(self.report):
                self.counts[entry.kind] += 1
                self.counts["bytes"] += entry.size
                if entry.kind == "file" and place % self.stride == 0:
                    self.queue.append((entry.path, entry.size))
        # The folder may have fewer entries than were expected.
        self.offset = self.offset + (len(page.entries) or 1) if page.more else self.end
        return ""

    def _note(self, path: str, result: PromptMessage) -> None:
        summary = parse_file(result.text) if result.outcome == "ok" else None
        self.counts["opened"] += 1
        if summary is None:
            # What follows a semicolon is what a model can do about it.
            why = one_line(result.text.partition(";")[0])
            self.notes.append(f"- {code(path)}: not read: {why}")
            return
        self.counts["read"] += 1
        self.counts["lines"] += summary.lines or 0
        quoted = f"; “{summary.title}”" if summary.title else ""
        lines = "many lines" if summary.lines is None else counted(summary.lines, "line")
        self.notes.append(f"- {code(path)}: {lines}, {counted(summary.bytes, 'byte')}{quoted}")


def delegate_call(name: str, part: FolderPart, steps: int) -> RawCall:
    """Return the call that hands a part over; `steps` are those of a first attempt."""
    known: dict[str, Any] = {}
    if part.stop:
        fix = f"Begin at entry {part.offset}, with the files of the queue, and more steps."
        known = {"diagnosis": part.stop, "fix_applied": fix}
    words = (
        "The part is the entries from `offset` to `end` of the recursive listing of `folder`. Read "
        "the files of `queue` first, then those whose place is a multiple of `stride`."
    )
    return raw_call(
        "delegate",
        role=ROLE,
        instructions=INSTRUCTIONS,
        # A path may look like the tag of a block, which briefings escape; in JSON it means the
        # same.
        briefing=answer(words, part).text.replace("<", "\\u003c"),
        tools=list(TOOLS),
        task_key=name,
        # More for each attempt: the estimate was too low for this part.
        max_steps=steps << min(part.attempts, 3),
        **known,
    )


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
        part = next(filter(None, (read_state(text, FolderPart) for text in tasks)), None)
        return _answer(part) if part else say("The briefing names no part to read.")
    part, calls = read_state(messages[last].text, FolderPart), messages[last].calls
    results = results_of(messages[last + 1 :])
    if part is None:
        return say("The last answer says nothing of what was read.")
    if any(map(was_stopped, results)):
        return answer("I was stopped, and do this again.", part, *map(repeat, calls))
    if problem := part.take(calls, results):
        return answer(f"The folder could not be listed: {one_line(problem)}", part)
    return _answer(part)


def results_of(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    """Return the tool results among messages, without the runtime's notes in them."""
    results = (one for one in messages if one.role == "tool")
    return [replace(one, text=without_notes(one.text)) for one in results]


def list_call(folder: str, offset: int, limit: int) -> RawCall:
    """Return the call that lists a page of a folder and all folders in it."""
    return raw_call("glob", pattern="**", path=folder, by_path=True, offset=offset, limit=limit)


def _answer(part: FolderPart) -> ModelAnswer:
    calls = part.next_calls(FOUND_CHARS)
    words = f"{counted(part.counts['opened'], 'file')} read in this attempt."
    return answer(words, part, *calls)
