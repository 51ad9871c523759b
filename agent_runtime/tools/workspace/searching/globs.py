"""Globs of files: `*`, `?`, `[…]`, `**` for any folders, `{a,b}`, and `!` for exceptions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.errors import ToolError
from agent_runtime.tools.workspace.protected_paths import fits

MOST_CHOICES = 64
"""How many globs one with braces may stand for."""
LONGEST = 1000
_BRACES = re.compile(r"\{([^{}]*)\}")
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class PathGlob:
    """One glob, as the globs of names that it stands for."""

    choices: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, glob: str, *, any_depth: bool = False) -> PathGlob:
        """Return a glob.

        Args:
            any_depth: whether one without `/` matches a name in any folder.

        Raises:
            ToolError: it stands for too many.
        """
        made: list[tuple[str, ...]] = []
        for one in _choices(glob):
            names = tuple(part for part in one.split("/") if part not in ("", "."))
            made.append(("**", *names) if any_depth and "/" not in one else names)
        return cls(tuple(made))

    def matches(self, parts: Sequence[str]) -> bool:
        """Return whether the parts of a path match."""
        return any(fits(names, parts, whole=True) for names in self.choices)

    @property
    def start(self) -> tuple[str, ...]:
        """The folders that every match lies in."""
        (first, *others) = self.choices
        fixed = 0
        while (
            fixed < len(first) - 1
            and not _MAGIC.search(first[fixed])
            and all(one[: fixed + 1] == first[: fixed + 1] for one in others)
            and all(len(one) > fixed + 1 for one in others)
        ):
            fixed += 1
        return first[:fixed]

    @property
    def depth(self) -> int | None:
        """How many names a match has at most; None for any number."""
        if any("**" in names for names in self.choices):
            return None
        return max(map(len, self.choices))


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Globs of which a path must match one, and none of those that begin with `!`."""

    wanted: tuple[PathGlob, ...] = ()
    unwanted: tuple[PathGlob, ...] = ()

    @classmethod
    def of(cls, globs: str) -> FileFilter:
        """Return the filter of globs with commas between them; an empty one takes all files.

        Raises:
            ToolError: one of them stands for too many.
        """
        if len(globs) > LONGEST:
            raise ToolError(f"The globs are longer than {LONGEST:,} characters.")
        # Not at the commas within braces.
        split = [one.strip() for one in re.split(r",(?![^{}]*\})", globs)]
        given = [one for one in split if one.strip("!")]
        return cls(
            tuple(PathGlob.of(one, any_depth=True) for one in given if one[0] != "!"),
            tuple(PathGlob.of(one[1:], any_depth=True) for one in given if one[0] == "!"),
        )

    def takes(self, parts: Sequence[str]) -> bool:
        """Return whether a file is wanted."""
        if self.wanted and not any(one.matches(parts) for one in self.wanted):
            return False
        # An exception may also name a folder.
        heads = [parts[:end] for end in range(1, len(parts) + 1)] if self.unwanted else []
        return not any(one.matches(head) for one in self.unwanted for head in heads)


def _choices(glob: str) -> list[str]:
    if len(glob) > LONGEST:
        raise ToolError(f"The glob is longer than {LONGEST:,} characters.")
    done: list[str] = []
    waiting = [glob]
    while waiting:
        one = waiting.pop(0)
        if len(done) + len(waiting) > MOST_CHOICES:
            raise ToolError(f"The glob stands for more than {MOST_CHOICES} others.")
        if (found := _BRACES.search(one)) is None:
            done.append(one)
            continue
        before, after = one[: found.start()], one[found.end() :]
        waiting += [before + choice + after for choice in found[1].split(",")]
    return done
