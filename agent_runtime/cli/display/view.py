"""The options for what is shown: `--quiet`, `--verbose`, `--no-color`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from agent_runtime.cli.terminal import say

F = TypeVar("F", bound=Callable[..., Any])
KEY = "agent_runtime.view"


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """What a command shows of a run.

    Attributes:
        quiet: nothing but the answer, questions and failures.
        verbose: also what each prompt was, and results at length.
        color: whether colours may be used.
        chat: whether it is a line of a chat, so that a person can type another one.
    """

    quiet: bool = False
    verbose: bool = False
    color: bool = True
    chat: bool = False


def current_view() -> ViewOptions:
    """Return the view of the command that runs; colours are off where `NO_COLOR` is set."""
    context = click.get_current_context(silent=True)
    view = ViewOptions() if context is None else _chosen(context)
    # By https://no-color.org, any value counts unless it is empty.
    return replace(view, color=False) if os.environ.get("NO_COLOR") else view


def remark(text: str) -> None:
    """Write a line to stderr that `--quiet` leaves out."""
    if not current_view().quiet:
        say(text)


def _chosen(context: click.Context) -> ViewOptions:
    """Return the view so far; a chat passes its own to the commands that it runs."""
    root = context.find_root()
    return root.meta.get(KEY) or (root.obj if isinstance(root.obj, ViewOptions) else ViewOptions())


def view_options(command: F) -> F:
    """Add the options to a command, whose function does not take them: see `current_view`."""
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
    meta, name = context.find_root().meta, str(option.name)
    view = _chosen(context)
    if name == "no_color":
        view = replace(view, color=False)
    elif KEY not in meta:
        # It replaces the view of a chat.
        view = replace(view, quiet=name == "quiet", verbose=name == "verbose")
    else:
        view = replace(view, **{name: True})
    if view.quiet and view.verbose:
        raise click.UsageError("Give --quiet or --verbose, not both.")
    meta[KEY] = view
