"""A second signal ends the process at once, whatever it waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from agent_runtime.cli import exit_codes as exits
from tests.support.command import clean_environ

STUCK = """
import anyio
from agent_runtime.cli.display.progress import PlainProgress
from agent_runtime.cli.session import FollowedRun, Stop, _watch

async def main():
    outcome, work = FollowedRun(), anyio.CancelScope()
    async with anyio.create_task_group() as group:
        await group.start(_watch, Stop(work), outcome, PlainProgress())
        with work, anyio.CancelScope(shield=True):
            print("ready", flush=True)
            await anyio.sleep_forever()

anyio.run(main)
"""


def test_a_second_signal_exits_at_once(tmp_path: Path) -> None:
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
        assert process.stderr.readline().startswith("Stopping:")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == exits.INTERRUPTED


HUNG_UP = """
import anyio
from agent_runtime.cli.display.progress import PlainProgress
from agent_runtime.cli.session import FollowedRun, Stop, _watch

async def main():
    outcome, work = FollowedRun(), anyio.CancelScope()
    async with anyio.create_task_group() as group:
        await group.start(_watch, Stop(work), outcome, PlainProgress())
        with work:
            print("ready", flush=True)
            await anyio.sleep_forever()
        print("recorded", flush=True)
        await anyio.to_thread.run_sync(input)
        group.cancel_scope.cancel()

anyio.run(main)
"""


def test_a_closed_terminal_stops_the_run_and_its_stop_is_recorded(tmp_path: Path) -> None:
    # The tests' parent process may have set it to be ignored.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process = subprocess.Popen(
        [sys.executable, "-c", HUNG_UP],
        cwd=tmp_path,
        env=clean_environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGHUP, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "recorded\n"
        # Both the kernel and the shell may send it: the second one changes nothing.
        process.send_signal(signal.SIGHUP)
        process.communicate("go on\n", timeout=60)
    assert process.returncode == 0
