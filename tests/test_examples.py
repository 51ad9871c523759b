"""Examples run offline, each in its own folder, and print what their docstrings state."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_docstring_states(path: Path, tmp_path: Path) -> None:
    expected = textwrap.dedent(stated_output(path))
    assert expected.strip(), "the docstring must end with the output, after `Prints:`"
    completed = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.strip() == expected.strip()


def stated_output(path: Path) -> str:
    """Return the output that the docstring states."""
    text = ast.get_docstring(ast.parse(path.read_text()), clean=True) or ""
    return text.partition("Prints:\n")[2]


def environment() -> dict[str, str]:
    """Return the environment without settings and keys, and with real model calls forbidden."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AGENT_RUNTIME_") and not name.endswith("_API_KEY")
    }
    environ.pop("DATABASE_URL", None)
    path = os.pathsep.join(path_entry for path_entry in sys.path if path_entry)
    return environ | {"PYTHONPATH": path, "AGENT_RUNTIME_FORBID_REAL_MODELS": "1"}
