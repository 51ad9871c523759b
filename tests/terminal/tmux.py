"""A shell in a real tmux, whose screen tests read and at which they type."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.services.fixtures import missing
from tests.services.process import MissingPart
from tests.support.command import clean_environ

PROMPT = "sh> "
SECONDS = 90
HISTORY = 20_000
"""Rows that tmux keeps of what has left the screen."""


class Tmux:
    """A server of tmux with one window, in which a shell runs."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def rows(self, *, all_of_it: bool = True) -> list[str]:
        """Return the rows, without trailing blanks: all that tmux keeps, or the screen's."""
        start = ["-S", f"-{HISTORY}"] if all_of_it else []
        return [row.rstrip() for row in self._run("capture-pane", "-p", *start).splitlines()]

    def until(self, *texts: str, times: int = 1) -> None:
        """Wait until each of these was written so often."""

        def written() -> bool:
            rows = "\n".join(self.rows())
            return all(rows.count(text) >= times for text in texts)

        self.wait_for(written)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, "\n".join(self.rows())
            time.sleep(0.05)

    def type(self, text: str = "", *keys: str) -> None:
        """Type a text, and then keys by tmux's names; by default Enter."""
        if text:
            self._run("send-keys", "-l", text)
        self._run("send-keys", *(keys or ("Enter",)))

    def resize(self, columns: int, rows: int) -> None:
        """Change the window's size."""
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def at_prompt(self, prompt: str = PROMPT) -> bool:
        """Return whether the last row is an empty prompt."""
        rows = [row for row in self.rows(all_of_it=False) if row]
        return bool(rows) and rows[-1] == prompt.rstrip()

    def kill_command(self) -> None:
        """Send SIGKILL to what the shell runs in the foreground."""
        shell = int(self._run("display-message", "-p", "#{pane_pid}"))
        [child] = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)

    def end(self) -> None:
        """End the server, and with it the shell."""
        subprocess.run([*self._command, "kill-server"], capture_output=True, check=False)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout


@contextmanager
def shell_in_tmux(
    folder: Path, environ: Mapping[str, str], *, columns: int = 100, rows: int = 40
) -> Generator[Tmux]:
    """Start a shell in which `agent-runtime` is a command of an active virtual environment."""
    program = shutil.which("tmux")
    if program is None:
        missing(MissingPart("there is no tmux on PATH"))
    ours = Path(sys.executable).parent
    given = clean_environ(environ)
    # A path of the socket has room for about 100 characters.
    with tempfile.TemporaryDirectory(prefix="tmux-") as sockets:
        variables = {
            **given,
            "PATH": f"{ours}{os.pathsep}{given['PATH']}",
            "VIRTUAL_ENV": str(ours.parent),
            "LC_ALL": "C.UTF-8",
            "TMUX_TMPDIR": sockets,
        }
        variables = {name: value for name, value in variables.items() if name not in _OURS}
        settings = Path(sockets, "tmux.conf")
        settings.write_text(
            f"set -g history-limit {HISTORY}\nset -g default-terminal tmux-256color\n"
        )
        tmux = Tmux([program, "-S", f"{sockets}/socket", "-f", str(settings)])
        subprocess.run(
            [program, "-u", "-S", f"{sockets}/socket", "-f", str(settings), "new-session", "-d",
             "-x", str(columns), "-y", str(rows), "-c", str(folder),
             shlex.join(["env", f"PS1={PROMPT}", "bash", "--norc", "--noprofile"])],
            env=variables, check=True, timeout=30,
        )  # fmt: skip
        try:
            tmux.wait_for(tmux.at_prompt)
            yield tmux
        finally:
            tmux.end()


_OURS = ("PYTHONPATH", "TMUX", "TMUX_PANE", "COLUMNS", "LINES")
"""Variables that a person's shell would not have: the command is installed."""
