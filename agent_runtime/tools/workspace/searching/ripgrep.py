"""Let ripgrep choose the files in which lines may match, where it is installed.

It gets the names of files that the workspace may read, one by one, and tells only which of them to
look into.  They are then opened and matched as without it, so it cannot show a file that is hidden
or outside, and the results are the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

MOST_ARGUMENTS = 256 << 10
"""The most bytes of names for one process."""
FEWEST = 20
"""With fewer files it is quicker to look into them all."""
_OPTIONS = ("--no-config", "--files-with-matches", "--null", "--text", "--no-ignore", "--hidden")
# In character classes Rust's syntax has operators that Python's lacks, and `\<` and `\>` are the
# ends of words there.
_DIFFERENT = ("[[", "&&", "--", "~~", "\n", "\r", r"\<", r"\>", r"\b{")
# Texts in other encodings, which are decoded before they are matched: bytes that no UTF-8 has.
_NOT_UTF8 = (
    r"(?-u:[\xC0-\xFF][\x00-\x7F]|[\x00-\x7F][\x80-\xBF]|^[\x80-\xBF]|[\xC0-\xFF]$"
    r"|[\xC0\xC1\xF5-\xFF])"
)
# Characters that `\w`, `\s` and `\b` take for another kind than Python does.
_ANOTHER_KIND = r"[\p{No}\p{M}\p{Pc}\x1c-\x1f\u{200c}\u{200d}&&[^_]]"
_DOUBTFUL = ("-e", _NOT_UTF8, "-e", _ANOTHER_KIND)
_LONE_CR = r"\r[^\n]"


def ripgrep(root: Path) -> str | None:
    """Return the path of ripgrep; None where it is not installed, or lies in the workspace."""
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    found = shutil.which("rg", path=places)
    if found is None or not Path(found).is_absolute():
        return None
    # The agent may have written what lies there.
    inside = Path(found).resolve().is_relative_to(root) or Path(found).is_relative_to(root)
    return None if inside else found


def candidates(
    root: Path, names: Sequence[str], pattern: str, *, ignore_case: bool, seconds: float
) -> set[str] | None:
    """Return the files that may have matching lines; None if all may.

    Args:
        names: paths below the root.
    """
    if len(names) < FEWEST or any(one in pattern for one in _DIFFERENT):
        return None
    if (program := ripgrep(root)) is None:
        return None
    case = "--ignore-case" if ignore_case else "--case-sensitive"
    deadline = time.monotonic() + seconds
    found: set[str] = set()
    # With `--crlf`, `.`, `^` and `$` take a lone carriage return for the end of a line, as we do
    # not, and no pattern may name one: those files are found by a second look.
    for looks_for in (["--crlf", case, "-e", pattern, *_DOUBTFUL], ["-e", _LONE_CR]):
        rest = [one for one in names if one not in found]
        for some in _portions(rest):
            matching = _matching([program, *_OPTIONS, *looks_for, "--", *some], root, deadline)
            if matching is None:
                return None
            found |= matching
    return found


def _matching(command: Sequence[str], root: Path, deadline: float) -> set[str] | None:
    """Return the files that a command of ripgrep lists; None if it fails."""
    if (left := deadline - time.monotonic()) <= 0:
        return None
    try:
        ended = subprocess.run(
            command,
            cwd=root,
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=left,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    # 2 also where a file cannot be read or the pattern is Python's own.
    if ended.returncode not in (0, 1):
        return None
    return {os.fsdecode(one) for one in ended.stdout.split(b"\0") if one}


def _portions(names: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for name in names:
        length = len(os.fsencode(name)) + 1
        if some and size + length > MOST_ARGUMENTS:
            yield some
            some, size = [], 0
        some.append(name)
        size += length
    if some:
        yield some
