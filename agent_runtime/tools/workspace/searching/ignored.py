"""Which files `.gitignore` files leave out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent_runtime.errors import ToolError
from agent_runtime.tools.workspace.protected_paths import fits
from agent_runtime.tools.workspace.root import Root

NAME = ".gitignore"
MOST_BYTES = 256 << 10
"""The most bytes that are read of such a file."""
_ESCAPED = re.compile(r"\\(.)")

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line: globs of names, whether it ignores or takes in again, and only folders or all."""

    names: Parts
    ignores: bool
    folders: bool


class IgnoredFiles:
    """The rules of a workspace's `.gitignore` files, each read when its folder is reached.

    As git has it, the rules of deeper folders come first, and nothing in an ignored folder can be
    taken in again.  Only files of the workspace count, not the user's own or those above it.
    """

    def __init__(self, root: Root, start: Parts) -> None:
        self._root = root
        self._rules: dict[Parts, tuple[_Rule, ...]] = {}
        self._from = 0
        for end in range(1, len(start) + 1):
            # Whoever names an ignored folder wants what is in it.
            if self.matches(start[:end], True):
                self._from = end

    def matches(self, parts: Parts, folder: bool) -> bool:
        """Return whether a path is ignored, in a folder that is not."""
        # The deepest file first, and in it the last line: git decides in this order.
        for end in range(len(parts) - 1, self._from - 1, -1):
            for rule in reversed(self._of(parts[:end])):
                if (folder or not rule.folders) and fits(rule.names, parts[end:], whole=True):
                    return rule.ignores
        return False

    def _of(self, folder: Parts) -> tuple[_Rule, ...]:
        if folder not in self._rules:
            self._rules[folder] = tuple(self._read(folder))
        return self._rules[folder]

    def _read(self, folder: Parts) -> Iterator[_Rule]:
        try:
            with self._root.read("/".join((*folder, NAME))) as (file, _):
                lines = file.read(MOST_BYTES).decode(errors="replace").splitlines()
        except ToolError:
            return
        for line in lines:
            # Blanks at the end count only after a backslash.
            line = re.sub(r"(?<!\\)\s+$", "", line)
            if line and not line.startswith("#"):
                yield _rule(line)


def _rule(line: str) -> _Rule:
    ignores, line = not line.startswith("!"), line.removeprefix("!")
    folders, line = line.endswith("/"), line.rstrip("/")
    # Python's globs have no escapes by backslash, and `!` in place of `^`.
    plain = _ESCAPED.sub(lambda found: f"[{found[1]}]", line).replace("[^", "[!")
    names = [part for part in plain.split("/") if part]
    if "/" not in line:
        names.insert(0, "**")
    elif names[-1:] == ["**"]:
        # All that is in a folder, and not the folder itself.
        names.append("*")
    return _Rule(tuple(names), ignores, folders)
