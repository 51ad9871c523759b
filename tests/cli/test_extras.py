"""Commands whose extra is not installed name it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.command import clean_environ

WITHOUT = """
import sys
sys.modules["starlette"] = sys.modules["mcp"] = None
from agent_runtime.cli import main
for arguments in (
    ["serve"], ["tokens", "make", "ann"], ["view", "t", "--export", "t.html"], ["mcp", "serve"],
):
    try:
        main.main(arguments, prog_name="agent-runtime")
    except SystemExit as end:
        print(end.code)
"""


def test_commands_name_the_extra_that_they_lack(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=tmp_path, env=clean_environ(), capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["2", "2", "2", "2"], done.stderr
    assert done.stderr.count("needs packages that are not installed, such as starlette.") == 3
    assert done.stderr.count("pip install 'agent-runtime-om[server]'") == 3
    assert "The MCP server needs packages that are not installed, such as mcp." in done.stderr
    assert done.stderr.count("pip install 'agent-runtime-om[mcp]'") == 1
    assert not (tmp_path / "t.html").exists()
