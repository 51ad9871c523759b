"""Show a run on stderr as it works: lines in a pipe, with a live part below on a terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from agent_runtime.cli.display.tally import RunTally
from agent_runtime.cli.display.view import ViewOptions, current_view
from agent_runtime.cli.terminal import moves_cursor, say, stdout_is_terminal

if TYPE_CHECKING:
    from agent_runtime.events import Event
    from agent_runtime.messages import Plan

PROSE = "  "
"""Before the text of a model, so that it cannot look like a line of this display."""


class Progress(AbstractContextManager[None], Protocol):
    """Shows events as they arrive; a context manager, so that the terminal is always restored."""

    def show(self, event: Event) -> None:
        """Show one event."""
        ...

    def plan(self, plan: Plan | None) -> None:
        """Show the stored plan of the run."""
        ...

    def say(self, line: str) -> None:
        """Show a line of the command."""
        ...

    def hold(self) -> None:
        """Show nothing, so that a person can type, until `release`; what happens is kept."""
        ...

    def release(self) -> None:
        """Go on after `hold`."""
        ...

    def showed(self, text: str) -> bool:
        """Return whether this is what the agent said last, and it stands on the terminal."""
        ...


class PlainProgress:
    """Lines, for pipes, log files and terminals that cannot move the cursor."""

    def __init__(self, view: ViewOptions | None = None) -> None:
        self._view = view or ViewOptions()
        self.tally = RunTally(verbose=self._view.verbose)
        self._pieces: list[str] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Write the lines of the event."""
        lines = self.tally.update(event)
        if self.tally.is_own(event):
            self._prose(event)
        for line in lines:
            self._say(line.plain())
        if self.tally.planned(event):
            self._say_plan()

    def _prose(self, event: Event) -> None:
        """Collect what the model says, and write it if it is not the answer, which comes later."""
        if event.kind == "text-delta":
            self._pieces.append(event.data["text"])
        elif event.kind in ("answer", "model-retry", "model-fallback"):
            text, self._pieces = "".join(self._pieces), []
            if event.kind == "answer" and event.data["calls"]:
                for line in text.strip().splitlines():
                    self._say(f"{PROSE}{line}".rstrip())

    def plan(self, plan: Plan | None) -> None:
        """Write the lines of the items that changed since they were last shown."""
        self.tally.plan.take(plan)
        self._say_plan()

    def say(self, line: str) -> None:
        """Write the line."""
        say(line)

    def hold(self) -> None:
        """Do nothing: nobody types here."""

    def release(self) -> None:
        """Do nothing."""

    def showed(self, text: str) -> bool:
        """Return False: the answer is written at the end."""
        del text
        return False

    def _say_plan(self) -> None:
        for line in self.tally.plan.changed():
            self._say(f"plan: {line}")

    def _say(self, line: str) -> None:
        if not self._view.quiet:
            say(line)


def new_progress() -> Progress:
    """Return the progress for stderr: live on a terminal, plain otherwise."""
    view = current_view()
    if view.quiet or not moves_cursor():
        return PlainProgress(view)
    from agent_runtime.cli.display.screen import LiveProgress

    return LiveProgress(view, answers=stdout_is_terminal())
