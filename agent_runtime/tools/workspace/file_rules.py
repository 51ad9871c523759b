"""`FileRules`: the rules for files of several folders, for tools that read in any of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.tools.function import FunctionTool
from agent_runtime.tools.workspace.file_tools import FileTools
from agent_runtime.tools.workspace.path_errors import hidden_error
from agent_runtime.tools.workspace.protected_paths import DEFAULT, ProtectedPaths


@dataclass(frozen=True, slots=True)
class FileRules:
    """What must not be read.

    Attributes:
        everywhere: rules for paths below any folder that is read.
        workspaces: folders, with rules for the paths below them.
    """

    everywhere: ProtectedPaths = DEFAULT
    workspaces: tuple[tuple[Path, ProtectedPaths], ...] = ()

    @classmethod
    def of(cls, tools: Iterable[object]) -> FileRules:
        """Return the rules of the file tools among an agent's tools."""
        # By identity: all tools of a workspace are methods of one object.
        found = {id(one): one for one in map(_file_tools, tools) if one is not None}
        return cls(workspaces=tuple((one.folder, one.rules) for one in found.values()))

    def __add__(self, more: ProtectedPaths) -> FileRules:
        within = tuple((folder, rules + more) for folder, rules in self.workspaces)
        return FileRules(self.everywhere + more, within)

    def check_readable(self, folder: Path, path: str) -> None:
        """Raise `ToolError` if a file lies in a workspace whose rules hide it.  Blocks."""
        try:
            real = (folder / path).resolve()
        except (OSError, ValueError):
            # Whatever opens it says what is wrong with it.
            return
        for workspace, rules in self.workspaces:
            if real.is_relative_to(workspace) and rules.hidden.matches(
                real.relative_to(workspace).parts
            ):
                raise hidden_error(path)


USUAL = FileRules()
"""The rules where no workspace has its own."""


def _file_tools(tool: object) -> FileTools | None:
    function = tool.function if isinstance(tool, FunctionTool) else None
    held = getattr(function, "__self__", None)
    return held if isinstance(held, FileTools) else None
