"""Run the command line without this process's settings, in a process of its own or in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "agent_runtime.cli"]
ROOT = Path(__file__).parents[2]


def clean_environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without settings, plus `extra`.

    The database is in the command's working directory, and real model calls are forbidden.
    """
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AGENT_RUNTIME_") and name != "DATABASE_URL"
    }
    environ["PYTHONPATH"] = os.pathsep.join(
        str(ROOT / package) for package in (".", "storage", "config")
    )
    environ["AGENT_RUNTIME_FORBID_REAL_MODELS"] = "1"
    if "DATABASE_URL" not in (extra or {}):
        environ["AGENT_RUNTIME_DATABASE_URL"] = "file:agent_runtime.db"
    return environ | dict(extra or {})


def without_settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make a folder the current one, and remove all settings from the environment."""
    monkeypatch.chdir(folder)
    for name in list(os.environ):
        if name.startswith("AGENT_RUNTIME_") or name == "DATABASE_URL":
            monkeypatch.delenv(name)


def run_command(
    *arguments: str, cwd: Path, environ: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one command until it exits; its stdin is a pipe."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=clean_environ(environ),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
    )


def invoke_command(
    *arguments: str, cwd: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command in this process: where the start of a process is not what a test is of."""
    # Not at the top: programs that tests start import this module.
    from click.testing import CliRunner

    from agent_runtime.cli import main

    with chdir(cwd):
        done = CliRunner().invoke(main, arguments, env=clean_environ(environ), input="")
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
