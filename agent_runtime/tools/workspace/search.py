"""Search files for a regular expression, within limits of time and memory for any pattern.

A pattern can take exponential time, and nothing ends a thread.  So another process matches, which
reads no files and is killed at the deadline.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_runtime.errors import ToolError
from agent_runtime.tools.workspace.protected_paths import DEFAULT, ProtectedPaths
from agent_runtime.tools.workspace.root import FolderEntry, Root, Walk, show

SECONDS = 20.0
"""How long a search may take; it then returns the matches so far."""
LINE_SECONDS = 1.0
"""How long the pattern may take on one line, at least; at most twice as long."""
MOST_BYTES = 16 << 20
"""Larger files are not searched."""
MOST_MEMORY = 512 << 20
"""The most bytes of memory for matching."""
SHOWN_CHARS = 300
"""How much is shown of a matching line."""
_PROGRAM = Path(__file__).with_name("line_matcher.py")


@dataclass(slots=True)
class FileSearch:
    """The state of a search."""

    limit: int
    deadline: float
    lines: list[str] = field(default_factory=list[str])
    matches: int = 0
    matching: int = 0
    searched: int = 0
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
def _matcher(pattern: str, limit: int, seconds: float) -> Generator[_Matcher]:
    options = {
        "pattern": pattern,
        "limit": limit,
        "shown": SHOWN_CHARS,
        "seconds": seconds,
        "line_seconds": LINE_SECONDS,
        "memory": MOST_MEMORY,
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-W", "ignore", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    killer = threading.Timer(seconds, process.kill)
    killer.daemon = True
    killer.start()
    try:
        matcher = _Matcher(process)
        reply = matcher.ask(json.dumps(options).encode(), b"\n")
        if "invalid" in reply:
            raise ToolError(f"{pattern!r} is no regular expression: {reply['invalid']}.")
        yield matcher
    finally:
        killer.cancel()
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate()


def is_binary(data: bytes) -> bool:
    """Return whether a file's first bytes show that it is binary."""
    return b"\0" in data[:8192]


def search_folder(
    root: Root, pattern: str, path: str, glob: str, limit: int, rules: ProtectedPaths = DEFAULT
) -> str:
    """Search below `path`; return the matching lines as text for a model.  Blocks.

    Raises:
        ToolError: the pattern is not a regular expression or takes too long, or the path does not
            exist.
    """
    state = FileSearch(limit, time.monotonic() + SECONDS)
    files, walk = _files(root, path, glob, state.deadline, rules)
    state.stopped = walk.stopped
    # For the compilation, at least, when the walk has taken all the time.
    seconds = max(state.deadline - time.monotonic(), LINE_SECONDS)
    try:
        with _matcher(pattern, limit, seconds) as matcher:
            for file in files:
                if time.monotonic() > state.deadline:
                    raise _Stopped
                _search_file(root, matcher, file, state, rules)
    except _Stopped:
        if time.monotonic() < state.deadline:
            raise ToolError("The process that matches lines has ended.") from None
        state.stopped = True
    state.left_out += [f"{show(one)}/ ({reason})" for one, reason in walk.unreadable.items()]
    return _text(state, pattern, len(files))


def _files(
    root: Root, path: str, glob: str, deadline: float, rules: ProtectedPaths
) -> tuple[list[FolderEntry], Walk]:
    if root.is_file(path):
        with root.read(path, rules) as (_, size):
            return [FolderEntry("/".join(root.parts(path)), "file", size)], Walk()
    walk = root.walk(path, recursive=True, deadline=deadline)
    start = len("/".join((*root.parts(path), "")))
    files = [one for one in walk.found if one.kind == "file" and _wanted(one.path[start:], glob)]
    return files, walk


def _wanted(path: str, glob: str) -> bool:
    if "/" not in glob:
        return fnmatch.fnmatchcase(path.rpartition("/")[2], glob)
    # `**/` also matches no folder at all.
    globs = (glob, glob.replace("**/", ""))
    return any(fnmatch.fnmatchcase(path, one.removeprefix("./")) for one in globs)


def _search_file(
    root: Root, matcher: _Matcher, file: FolderEntry, state: FileSearch, rules: ProtectedPaths
) -> None:
    if file.size > MOST_BYTES:
        state.left_out.append(f"{show(file.path)} (larger than {MOST_BYTES:,} bytes)")
        return
    try:
        with root.read(file.path, rules) as (opened, _):
            data = opened.read(MOST_BYTES)
    except ToolError as error:
        state.left_out.append(error.message.removesuffix("."))
        return
    if is_binary(data):
        state.left_out.append(f"{show(file.path)} (binary)")
        return
    reply = matcher.ask(len(data).to_bytes(8, "big"), data)
    if "slow" in reply or "memory" in reply:
        limit = f"{LINE_SECONDS:g} s" if "slow" in reply else f"{MOST_MEMORY:,} bytes of memory"
        raise ToolError(
            f"The pattern takes more than {limit} on line {next(iter(reply.values()))} of "
            f"{show(file.path)}.",
            cure="Use a simpler one, without a repetition inside a repetition.",
        )
    state.searched += 1
    state.matches += reply["matches"]
    state.matching += reply["matches"] > 0
    room = state.limit - len(state.lines)
    state.lines += [f"{show(file.path)}:{one}: {line}" for one, line in reply["lines"][:room]]


def _text(state: FileSearch, pattern: str, files: int) -> str:
    text = (
        f"{state.matches:,} matching lines in {state.matching:,} files; "
        f"{state.searched:,} of {files:,} files were searched for {pattern!r}."
    )
    if len(state.lines) < state.matches:
        text += f" The first {len(state.lines):,} lines follow."
    if state.stopped:
        text += f" It was stopped after {SECONDS:g} s; search a smaller folder."
    if state.left_out:
        text += f" Not searched: {', '.join(state.left_out[:20])}"
        text += f" and {len(state.left_out) - 20:,} more." if len(state.left_out) > 20 else "."
    return "\n".join([text, *state.lines])
