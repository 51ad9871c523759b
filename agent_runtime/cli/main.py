"""The command group: its commands, and how errors become exit codes.

Nothing heavy is imported here or at the top of a command's module, to keep `--help` fast.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeGuard

import click

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli import session
from agent_runtime.cli.display.view import current_view, view_options
from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.parameters.env_file import env_file_option
from agent_runtime.cli.report.next_steps import after_error
from agent_runtime.cli.terminal import (
    leave_stdout,
    prepare_output,
    say_step,
    say_traceback,
    say_usage_error,
    stdout_failed,
    write_row,
)

COMMANDS = {
    "run": ("run", "Run a task to its end."),
    "resume": ("resume", "Resume a run that stopped."),
    "chat": ("chat", "Talk with the agent, line by line, on one thread."),
    "threads": ("threads", "List, delete, export and import threads."),
    "runs": ("runs", "List runs; show one with its sub-agents."),
    "usage": ("usage", "Show what was spent today, on a thread or by a run, and what is left."),
    "budget": ("usage", "Set what a run may spend in total."),
    "tasks": ("tasks", "List, cancel or steer background tasks."),
    "show": ("threads", "Show the messages of a thread."),
    "fork": ("branches", "Continue from another message of a thread."),
    "edit": ("branches", "Replace a message, and run the agent on it."),
    "regenerate": ("branches", "Answer a thread's newest message again."),
    "plan": ("plan", "Show the plan of a thread and its versions."),
    "memory": ("memory", "Show a thread's memory; observe, reflect, export."),
    "node-memory": ("node_memory", "List or delete what workflow nodes remember."),
    "cancel": ("human", "Cancel a run, in any process."),
    "skills": ("skills", "List the skills that an agent has here."),
    "pause": ("human", "Suspend a run at its next step, in any process."),
    "steer": ("human", "Send a message to an active run."),
    "questions": ("human", "List the questions that runs wait for."),
    "answer": ("human", "Answer a question that a run waits for."),
    "approvals": ("human", "List what is allowed for the rest of a thread; revoke it."),
    "mcp": ("mcp", "Define, try and trust MCP servers; serve the agent as one."),
    "db": ("db", "Maintain the database: status, migrate, check, size, vacuum, copy."),
    "view": ("service.view", "Open a page that shows what the model saw at each step."),
    "completion": ("completion", "Complete commands and ids with the Tab key: bash, zsh, fish."),
    "serve": ("service.serve", "Serve threads and runs by HTTP."),
    "worker": ("queue.worker", "Work on queued runs."),
    "queue": ("queue.queue", "List the queue of runs; retry, cancel or forget one."),
    "schedules": ("queue.schedules", "Enqueue runs by the clock: add, list, pause, remove."),
    "tokens": ("service.tokens", "Make, list and revoke the tokens of the service's users."),
    "config": ("config", "Show the settings and their origin."),
    "doctor": ("doctor", "Check that everything a run needs is in place."),
}


GROUPS = {
    "Run the agent": ("run", "resume", "chat", "edit", "regenerate"),
    "Take part in runs": (
        "questions", "answer", "approvals", "steer", "pause", "cancel", "tasks",
    ),
    "Look at what was done": (
        "view", "runs", "threads", "show", "plan", "memory", "usage", "budget",
    ),
    "Change threads and memory": ("fork", "node-memory"),
    "Serve": ("serve", "tokens", "worker", "queue", "schedules"),
    "Set up and maintain": ("config", "doctor", "mcp", "skills", "db", "completion"),
}  # fmt: skip
"""The commands as `--help` shows them."""


class _Commands(CommandGroup):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        place = COMMANDS[cmd_name][0]
        # Most modules are in `commands`; the others are named in full.
        place = place if "." in place else f"commands.{place}"
        module = importlib.import_module(f"agent_runtime.cli.{place}")
        return getattr(module, cmd_name.replace("-", "_"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in exits.MEANINGS.items()])

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        # `--help` and `--version` write while the arguments are read.
        prepare_output()
        with _errors_as_exit_codes(lambda: False):
            return super().make_context(*arguments, **extra)

    def main(self, *arguments: Any, **extra: Any) -> Any:
        try:
            return super().main(*arguments, **extra)
        except KeyboardInterrupt:
            # In the middle of a completion, whose output belongs to the shell.
            sys.exit(exits.INTERRUPTED)

    def invoke(self, ctx: click.Context) -> Any:
        with _errors_as_exit_codes(lambda: ctx.params["debug"]):
            return super().invoke(ctx)


@contextmanager
def _errors_as_exit_codes(debug: Callable[[], bool]) -> Generator[None]:
    """Report an error, and raise `Exit` with its exit code instead."""
    try:
        yield
    except click.exceptions.Exit:
        raise
    except click.ClickException as error:
        say_usage_error(error)
        raise click.exceptions.Exit(error.exit_code) from None
    except (KeyboardInterrupt, click.Abort):
        raise click.exceptions.Exit(exits.INTERRUPTED) from None
    except BrokenPipeError:
        # As by `head`.
        leave_stdout()
        raise click.exceptions.Exit(exits.SUCCESS) from None
    except Exception as raised:
        error = stdout_failed(raised) if _wrote_help(raised) else raised
        if debug():
            say_traceback(error)
        session.write_error(error)
        for line in after_error(error, chat=current_view().chat):
            say_step(line)
        raise click.exceptions.Exit(exits.code_of_error(error)) from None


def _wrote_help(error: Exception) -> TypeGuard[OSError]:
    """Return whether click could not write a command's help, the one thing that it writes."""
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, OSError) and frame.f_globals.get("__name__") == "click.utils"


def _version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        write_row(f"agent-runtime {version('agent-runtime-om')}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@view_options
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@env_file_option
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version.",
)
def main(debug: bool) -> None:
    """Run long autonomous agents; every step is recorded.

    Settings are environment variables, or lines of a file; `agent-runtime config` lists them. Ids
    of threads, runs and questions can be given as a unique beginning or end, or as `last`: the
    newest of this folder.
    """
