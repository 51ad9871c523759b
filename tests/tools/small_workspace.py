"""A small workspace and its file tools, as fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.tools.base import Tool
from agent_runtime.tools.workspace.files import workspace_tools

Tools = dict[str, Tool]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace next to a file that it must not reach."""
    (tmp_path / "secret.txt").write_text("do not read\n")
    folder = tmp_path / "workspace"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text("# Title\n\nText\n")
    (folder / "src" / "main.py").write_text("def main():\n    return 1  # TODO\n")
    return folder


@pytest.fixture
def tools(root: Path) -> Tools:
    """The file tools, by name."""
    return {tool.name: tool for tool in workspace_tools(root)}
