"""How much a command shows, by its global options."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.terminal import say

if TYPE_CHECKING:
    from agent_runtime.events import Event
    from agent_runtime.plan.model import Plan


@dataclass(frozen=True, slots=True)
class Display:
    """The global options; the object of click's context.

    Attributes:
        quiet: show no progress: only the result, questions and errors.
        verbose: show more of each step.
        color: whether colours may be used.
    """

    quiet: bool = False
    verbose: bool = False
    color: bool = True


class Silent(AbstractContextManager[None]):
    """The progress of `--quiet`: only what the command itself has to say."""

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Show nothing."""

    def plan(self, plan: Plan | None) -> None:
        """Show nothing."""

    def say(self, line: str) -> None:
        """Write the line."""
        say(line)


def current_display() -> Display:
    """Return the global options of the command that is running."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_object(Display)
    return found or Display()
