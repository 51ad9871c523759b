"""Search files for a regular expression, within limits of time and memory for any pattern.

A pattern can take exponential time, and nothing ends a thread.  So another process matches, which
reads no files and is killed at the deadline.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_runtime.errors import ToolError
from agent_runtime.tools.workspace.editing.text_file import NotText, TextFile
from agent_runtime.tools.workspace.path_errors import show
from agent_runtime.tools.workspace.protected_paths import DEFAULT, ProtectedPaths
from agent_runtime.tools.workspace.root import FolderEntry, Root, Walk
from agent_runtime.tools.workspace.searching.globs import FileFilter
from agent_runtime.tools.workspace.searching.ignored import IgnoredFiles
from agent_runtime.tools.workspace.searching.ripgrep import candidates
from agent_runtime_config.counted import counted

SECONDS = 20.0
"""How long a search may take; it then returns the matches so far."""
LINE_SECONDS = 1.0
"""How long the pattern may take on one line, at least; at most twice as long."""
MOST_BYTES = 16 << 20
"""Larger files are not searched."""
MOST_MEMORY = 512 << 20
"""The most bytes of memory for matching."""
SHOWN_CHARS = 300
"""How much is shown of a line."""
RESULT_CHARS = 7000
"""How much is shown of all lines, about 2,000 tokens."""
_PROGRAM = Path(__file__).with_name("line_matcher.py")
# A line break itself, or how a pattern writes one.
_BREAK = re.compile(r"\n|(?<!\\)\\[nr]|\(\?[a-z]*s")


@dataclass(frozen=True, slots=True)
class Query:
    """What to search for.

    Attributes:
        globs: which files; see `FileFilter`.
        before, after: how many lines to show around each match.
        files_only: whether to show only the files, with their numbers of matching lines.
        ignored: whether to search files that `.gitignore` leaves out.
        skip: how many matching lines, or files, not to show.
        limit: how many to show.
    """

    pattern: str
    path: str = "."
    globs: str = ""
    ignore_case: bool = False
    before: int = 0
    after: int = 0
    files_only: bool = False
    ignored: bool = False
    skip: int = 0
    limit: int = 100


@dataclass(slots=True)
class FileSearch:
    """The state of a search.

    Attributes:
        matches: how many lines match so far.
        matching: the files that have them.
        shown: how many of the matches, or of the files, are in `lines`.
        full: whether the rest is only counted.
    """

    deadline: float
    room: int
    files: int = 0
    searched: int = 0
    matches: int = 0
    matching: int = 0
    lines: list[str] = field(default_factory=list[str])
    shown: int = 0
    full: bool = False
    ignored: int = 0
    left_out: list[str] = field(default_factory=list[str])
    stopped: bool = False


class _Stopped(Exception):
    """The process was killed at the deadline, or ended by itself."""


class _Matcher:
    """The other process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask(self, *pieces: bytes) -> dict[str, Any]:
        """Send bytes and return the answer.  Raises `_Stopped`."""
        source, output = self._process.stdin, self._process.stdout
        assert source is not None
        assert output is not None
        try:
            for piece in pieces:
                source.write(piece)
            source.flush()
        except BrokenPipeError:
            raise _Stopped from None
        if not (line := output.readline()).endswith(b"\n"):
            raise _Stopped
        return json.loads(line)


@contextlib.contextmanager
def _matcher(query: Query, seconds: float) -> Generator[_Matcher]:
    options = {
        "pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "before": query.before,
        "after": query.after,
        "limit": 0 if query.files_only else query.skip + query.limit,
        "shown": SHOWN_CHARS,
        "seconds": seconds,
        "line_seconds": LINE_SECONDS,
        "memory": MOST_MEMORY,
    }
    process = subprocess.Popen(
        # Isolated, without site packages: it starts in a fraction of the time, and nothing that
        # the agent wrote can be imported.
        [sys.executable, "-I", "-S", "-W", "ignore", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Ctrl-C in a terminal goes to the whole group, and must reach the runtime only.
        start_new_session=True,
    )
    # A reply is awaited without a deadline of its own: killing the process ends the wait.
    killer = threading.Timer(seconds, process.kill)
    killer.daemon = True
    killer.start()
    try:
        matcher = _Matcher(process)
        reply = matcher.ask(json.dumps(options).encode(), b"\n")
        if "invalid" in reply:
            raise ToolError(
                f"{query.pattern!r} is no regular expression: {reply['invalid']}.",
                cure="Put \\ before characters that are meant as they are.",
            )
        yield matcher
    finally:
        killer.cancel()
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate()


def search_files(root: Root, query: Query, rules: ProtectedPaths = DEFAULT) -> str:
    """Search one file, or those below a folder; return the lines as text for a model.  Blocks.

    Raises:
        ToolError: the pattern is not a regular expression or takes too long, a glob is not usable,
            or the path does not exist.
    """
    state = FileSearch(time.monotonic() + SECONDS, RESULT_CHARS)
    files, walk = _files(root, query, state.deadline, rules)
    state.files, state.ignored, state.stopped = len(files), walk.ignored, walk.stopped
    # For the compilation, at least, when the walk has taken all the time.
    seconds = max(state.deadline - time.monotonic(), LINE_SECONDS)
    try:
        with _matcher(query, seconds) as matcher:
            for file in _worth_while(root, query, files, state, rules):
                if time.monotonic() > state.deadline:
                    raise _Stopped
                _search_file(root, matcher, query, file, state, rules)
    except _Stopped:
        if time.monotonic() < state.deadline:
            raise ToolError("The process that matches lines has ended.") from None
        state.stopped = True
    state.left_out += [f"{show(one)}/ ({reason})" for one, reason in walk.unreadable.items()]
    return _text(state, query)


def _files(
    root: Root, query: Query, deadline: float, rules: ProtectedPaths
) -> tuple[list[FolderEntry], Walk]:
    if root.is_file(query.path):
        with root.read(query.path, rules) as (_, size):
            return [FolderEntry("/".join(root.parts(query.path)), "file", size)], Walk()
    start, wanted = root.parts(query.path), FileFilter.of(query.globs)
    ignored = None if query.ignored else IgnoredFiles(root, start).matches
    walk = root.walk(query.path, deadline=deadline, ignored=ignored)
    files = [
        one
        for one in walk.found
        if one.kind == "file" and wanted.takes(one.path.split("/")[len(start) :])
    ]
    return files, walk


def _worth_while(
    root: Root,
    query: Query,
    files: list[FolderEntry],
    state: FileSearch,
    rules: ProtectedPaths,
) -> Iterator[FolderEntry]:
    """Yield the files to look into, and count the others as searched."""
    readable: list[FolderEntry] = []
    for file in files:
        if file.size > MOST_BYTES:
            state.left_out.append(f"{show(file.path)} (larger than {MOST_BYTES:,} bytes)")
        elif rules.hidden.matches(file.path.split("/")):
            state.left_out.append(f"{show(file.path)} (hidden: it may hold secrets)")
        else:
            readable.append(file)
    chosen = candidates(
        root.path,
        [one.path for one in readable],
        query.pattern,
        ignore_case=query.ignore_case,
        seconds=state.deadline - time.monotonic(),
    )
    for file in readable:
        state.searched += 1
        if chosen is None or file.path in chosen:
            yield file


def _search_file(
    root: Root,
    matcher: _Matcher,
    query: Query,
    file: FolderEntry,
    state: FileSearch,
    rules: ProtectedPaths,
) -> None:
    try:
        with root.read(file.path, rules) as (opened, _):
            data = opened.read(MOST_BYTES)
    except ToolError as error:
        state.left_out.append(error.message.removesuffix("."))
        return
    try:
        text = TextFile.of(data)
    except NotText:
        return
    # The process decodes UTF-8 only.
    if text.bom or text.encoding != "utf-8":
        data = text.raw.encode("utf-8", "surrogateescape")
    reply = matcher.ask(len(data).to_bytes(8, "big"), data)
    if "slow" in reply or "memory" in reply:
        limit = f"{LINE_SECONDS:g} s" if "slow" in reply else f"{MOST_MEMORY:,} bytes of memory"
        raise ToolError(
            f"The pattern takes more than {limit} on line {next(iter(reply.values()))} of "
            f"{show(file.path)}.",
            cure="Use a simpler one, without a repetition inside a repetition.",
        )
    if reply["matches"]:
        _add(state, query, file.path, reply["matches"], reply["lines"])


def _add(
    state: FileSearch, query: Query, path: str, matches: int, lines: list[tuple[int, bool, str]]
) -> None:
    """Add what is shown of a file, as far as there is room."""
    before = state.matching if query.files_only else state.matches
    state.matching += 1
    state.matches += matches
    if query.files_only:
        if before >= query.skip and not state.full:
            _show(state, query, [f"{show(path)}: {matches:,}"])
        return
    skip, last = query.skip - before, 0
    if skip >= matches:
        return
    waiting = [show(path)]
    for number, matched, line in lines:
        if state.full:
            return
        skipped = skip > 0
        skip -= matched
        if skipped:
            continue
        if last and number != last + 1 and (query.before or query.after):
            waiting.append("--")
        waiting.append(f"{number}{':' if matched else '-'}{line}")
        last = number
        if matched:
            _show(state, query, waiting)
            waiting = []
    if last:
        # Lines after the last match.
        state.lines += waiting
        state.room -= sum(map(len, waiting)) + len(waiting)


def _show(state: FileSearch, query: Query, lines: list[str]) -> None:
    size = sum(map(len, lines)) + len(lines)
    if state.shown and (size > state.room or state.shown >= query.limit):
        state.full = True
        return
    state.room -= size
    state.shown += 1
    state.lines += lines


def _text(state: FileSearch, query: Query) -> str:
    text = (
        f"{counted(state.matches, 'matching line')} in {state.matching:,} of "
        f"{counted(state.files, 'file')} for {query.pattern!r}."
    )
    total = state.matching if query.files_only else state.matches
    what = "files" if query.files_only else "matches"
    end = query.skip + state.shown
    if end < total and state.shown:
        text += f" {what.capitalize()} {query.skip + 1:,}-{end:,} follow; next: offset={end}."
    elif query.skip and not state.shown:
        text += f" There are no {what} after {query.skip:,}."
    if not state.matches and _BREAK.search(query.pattern):
        text += " A match lies within one line: search for a part without line breaks."
    if not state.matches and state.ignored:
        left_out = counted(state.ignored, "file or folder", "files or folders")
        text += f" Left out, by .gitignore: {left_out}."
    if state.stopped:
        text += f" It was stopped after {SECONDS:g} s and {counted(state.searched, 'file')};"
        text += " search a smaller folder."
    if state.left_out:
        text += f" Not searched: {', '.join(state.left_out[:20])}"
        text += f" and {len(state.left_out) - 20:,} more." if len(state.left_out) > 20 else "."
    return "\n".join([text, *state.lines])
