"""Which paths a tool call names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_runtime import tool
from agent_runtime.messages import ToolCall
from agent_runtime.run.context.named_paths import MOST_PATHS, named_paths
from agent_runtime.tools.toolset import Toolset

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n*** Add File: lib/b.py\n*** End Patch"
DIFF = "--- a/src/a.py\n+++ b/src/new.py\n@@ -1 +1 @@\n-x\n+y\n"


def named(folder: Path, arguments: dict[str, Any], *, works: bool = True) -> list[str]:
    """Return the paths that a call names, relative to the folder."""

    @tool
    def work() -> str:
        """Work."""
        return ""

    work.folder = folder if works else None
    paths = named_paths([ToolCall("c00000001", "work", arguments)], Toolset([work]))
    return [str(path.relative_to(folder)) for path in paths if path.is_relative_to(folder)]


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"path": "src/a.py", "text": "docs/x.md"}, ["src/a.py"]),
        ({"paths": ["a", "b/../c"]}, ["a", "c"]),
        ({"edits": [{"path": "src/a.py", "old": "x"}, {"path": 3}, "loose"]}, ["src/a.py"]),
        ({"command": "cd 'src' && cat lib/a.py|wc -l"}, ["cd", "src", "cat", "lib/a.py", "wc"]),
        ({"patch": PATCH}, ["src/a.py", "lib/b.py"]),
        ({"input": DIFF}, ["src/a.py", "src/new.py"]),
        ({"path": "../elsewhere"}, []),
        ({"path": ""}, []),
        ({"path": "a\0b"}, []),
        ({"path": "x" * 2000}, []),
        ({"path": None, "paths": {"a": 1}}, []),
    ],
)
def test_paths_are_found_in_arguments(
    tmp_path: Path, arguments: dict[str, Any], paths: list[str]
) -> None:
    assert named(tmp_path, arguments) == paths
    assert not named(tmp_path, arguments, works=False)


def test_an_exchange_names_a_bounded_number(tmp_path: Path) -> None:
    assert len(named(tmp_path, {"command": " ".join(map(str, range(10_000)))})) == MOST_PATHS
