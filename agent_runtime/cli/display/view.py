"""What a person chose to see: `--quiet`, `--verbose`, `--no-color`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
KEY = "agent_runtime.view"


@dataclass(frozen=True, slots=True)
class View:
    """What a command shows of a run.

    Attributes:
        quiet: nothing but the answer, questions and failures.
        verbose: also what each prompt was, and results at length.
        color: whether colours may be used.
    """

    quiet: bool = False
    verbose: bool = False
    color: bool = True


def current_view() -> View:
    """Return the view of the command that runs; colours are off where `NO_COLOR` is set."""
    context = click.get_current_context(silent=True)
    view = View()
    if context is not None:
        root = context.find_root()
        # A chat gives its own view to the commands that it runs.
        view = root.meta.get(KEY) or (root.obj if isinstance(root.obj, View) else view)
    # As https://no-color.org asks for: whatever its value, unless it is empty.
    return replace(view, color=False) if os.environ.get("NO_COLOR") else view


def view_options(command: F) -> F:
    """Add the options to a command, which need not take them: `current_view` returns them."""
    for names, text in (
        (("--no-color",), "Use no colours, as with NO_COLOR=1."),
        (("-v", "--verbose"), "Show what each prompt was, and results at length."),
        (("-q", "--quiet"), "Show only the answer, questions and failures."),
    ):
        option = click.option(*names, is_flag=True, expose_value=False, callback=_take, help=text)
        command = option(command)
    return command


def _take(context: click.Context, option: click.Parameter, given: bool) -> None:
    if not given:
        return
    meta = context.find_root().meta
    view: View = meta.get(KEY, View())
    change = {"color": False} if option.name == "no_color" else {str(option.name): True}
    view = replace(view, **change)
    if view.quiet and view.verbose:
        raise click.UsageError("Give --quiet or --verbose, not both.")
    meta[KEY] = view
