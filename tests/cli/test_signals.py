"""A second signal ends the process at once, whatever still waits."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from agent_runtime.cli import exits

from .command import clean_environ

STUCK = """
import anyio
from agent_runtime.cli.progress import PlainProgress
from agent_runtime.cli.session import Outcome, _watch

async def main():
    outcome, work = Outcome(), anyio.CancelScope()
    async with anyio.create_task_group() as group:
        await group.start(_watch, work, outcome, PlainProgress())
        with work, anyio.CancelScope(shield=True):
            print("ready", flush=True)
            await anyio.sleep_forever()

anyio.run(main)
"""


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK],
        cwd=tmp_path,
        env=clean_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("Stopping.")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == exits.INTERRUPTED
