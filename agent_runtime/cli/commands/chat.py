"""`agent-runtime chat`: a conversation on one thread, each line a run."""

from __future__ import annotations

import contextlib
import importlib
import sys

import click

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import session
from agent_runtime.cli.commands.run import (
    model_option,
    new_spec,
    read_only_option,
    run_task,
    shell_option,
    steps_option,
    thread_option,
    workspace_option,
)
from agent_runtime.cli.confinement import Confinement, confinement_options
from agent_runtime.cli.terminal import say

LEAVE = frozenset({"/exit", "/quit"})
ATTACH = "/attach "


@click.command()
@thread_option
@model_option
@workspace_option
@steps_option
@shell_option
@confinement_options
@read_only_option
def chat(
    thread: str | None,
    model: str | None,
    workspace: str | None,
    max_steps: int | None,
    allow_shell: bool,
    confinement: Confinement,
    read_only: bool,
) -> None:
    """Talk with the agent: each line is a run on the same thread.

    `/attach PATH|URL` adds a file to the next line. Ctrl-C stops the active run; at the prompt it
    leaves, as do Ctrl-D and `/exit`.
    """
    import uuid

    from agent_runtime_config import load_settings

    settings = load_settings()
    spec = new_spec(settings, model, workspace, max_steps, allow_shell, read_only=read_only)
    spec = confinement.on(spec, settings)
    # Chosen here, so that the line at the end can name it even if no run began.
    thread = thread or str(uuid.uuid4())
    code = exits.SUCCESS
    files: list[str] = []
    say(f"Thread {thread}. Ctrl-D or /exit leaves.")
    while (line := _read_line()) is not None:
        if line.strip() in LEAVE:
            break
        if line.startswith(ATTACH):
            files.append(line.removeprefix(ATTACH).strip())
        elif line.strip():
            outcome = run_task(settings, spec, line, thread, files)
            files = []
            session.report(outcome, as_json=False)
            code = outcome.exit_code
    say(f"Continue with: agent-runtime chat --thread {thread}")
    # A person saw each failure; a script that pipes lines in needs the last exit code.
    click.get_current_context().exit(exits.SUCCESS if sys.stdin.isatty() else code)


def _read_line() -> str | None:
    """Return the next line; None at the end of the input or when the user leaves."""
    if not sys.stdin.isatty():
        return sys.stdin.readline() or None
    with contextlib.suppress(ImportError):
        # Its import gives `input` editing and a history; some builds of Python lack it.
        importlib.import_module("readline")
    try:
        return input("> ")
    except (EOFError, KeyboardInterrupt):
        say("")
        return None
