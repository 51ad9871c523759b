"""Find the paths that tool calls name, so that instructions there can be shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from agent_runtime.messages import ToolCall
from agent_runtime.tools.toolset import Toolset

MOST_PATHS = 100
"""The most paths of one exchange."""
LONGEST = 1000
"""Characters of a path."""
COMMAND_CHARS = 4000
"""How much of a command or a patch is read."""
_PATHS = ("path", "paths", "file", "files", "file_path", "filename", "folder", "directory", "cwd")
_COMMANDS = ("command", "cmd", "script")
_PATCHES = ("patch", "diff", "input")
# The words of a command, without quotes and operators.
_WORD = re.compile(r"""[^\s"'`;|&<>()$={}]+""")
_PATCHED = re.compile(
    r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?|--- (?:a/)?)(\S.*)$", re.MULTILINE
)


def named_paths(calls: Sequence[ToolCall], tools: Toolset) -> list[Path]:
    """Return the paths that calls of tools with a folder name; they need not exist."""
    found: dict[Path, None] = {}
    for call in calls:
        tool = tools.get(call.name)
        if tool is None or tool.folder is None:
            continue
        for name in _names(call.arguments):
            if len(found) >= MOST_PATHS:
                return list(found)
            if 0 < len(name) <= LONGEST and "\0" not in name and not name.startswith("-"):
                # Not `resolve`: it reads the disk for each word of a command, and most are no
                # paths.
                found[Path(os.path.normpath(tool.folder / name))] = None
    return list(found)


def _names(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        values: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
        for one in values[:MOST_PATHS]:
            if isinstance(one, dict):
                # Such as one of several edits.
                inner = cast("dict[str, Any]", one)
                yield from (inner[key] for key in _PATHS if isinstance(inner.get(key), str))
            elif not isinstance(one, str):
                continue
            elif key in _PATHS:
                yield one
            elif key in _COMMANDS:
                yield from _WORD.findall(one[:COMMAND_CHARS])
            elif key in _PATCHES:
                yield from _PATCHED.findall(one[:COMMAND_CHARS])
