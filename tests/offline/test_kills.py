"""A survey from the command line, repeatedly killed with SIGKILL and resumed."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from agent_runtime.cli import exit_codes as exits
from tests.support.command import COMMAND, clean_environ

TASK = "Survey this folder and write REPORT.md"
KILLS = 3
LINES = 500
"""More than a survey of this folder writes."""


def fill(root: Path) -> None:
    root.mkdir(parents=True)
    for number in range(60):
        lines = 1500 if number > 48 else 3
        text = f'"""Module {number}."""\n' + "def f(): ...  # TODO\n" * lines
        (root / f"module_{number:02}.py").write_text(text)


def live(folder: Path, *arguments: str, lines: int = LINES) -> bool:
    """Run a command until it has written this many lines; return whether it ended by itself."""
    environ = clean_environ({"AGENT_RUNTIME_DATABASE_URL": "file:store.db"})
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=environ, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        seen: list[str] = []
        for line in process.stderr:
            seen.append(line)
            if len(seen) == lines:
                process.kill()
        code = process.wait()
        # A process killed between its run's end and its own has nothing left to do.
        ended = code in (exits.SUCCESS, exits.NOTHING)
        assert ended or len(seen) >= lines, "".join(seen)
        return ended


@pytest.mark.slow
def test_a_survey_killed_at_random_instants_ends_with_the_same_findings(tmp_path: Path) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    for folder in (calm, killed):
        fill(folder / "work")
    begin = ("run", TASK, "--workspace", "work", "--thread", "t")
    assert live(calm, *begin)

    rng = random.Random(11)
    kills = 0
    ended = live(killed, *begin, lines=rng.randrange(8, 20))
    while not ended:
        kills += 1
        lines = rng.randrange(8, 20) if kills < KILLS else LINES
        ended = live(killed, "resume", "--thread", "t", lines=lines)

    assert kills > 1
    assert findings(killed) == findings(calm)


def findings(folder: Path) -> tuple[list[str], int]:
    """Return the report's findings in any order, and how many parts were read.

    The number of attempts is excluded: a resumed sub-agent may repeat steps.
    """
    report = (folder / "work" / "REPORT.md").read_text()
    sections, how = report.split("## How it was read")
    parts = re.search(r"By sub-agents: (\d+) parts?, (\d+) attempts?", how)
    assert parts is not None and int(parts[2]) >= int(parts[1])
    return sorted(sections.splitlines()), int(parts[1])
