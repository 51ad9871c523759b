"""The progress of a run on a terminal: print what happened, repaint what happens now."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from agent_runtime.cli.display.live import LiveRegion, Region
from agent_runtime.cli.display.prose import Prose
from agent_runtime.cli.display.rows import EMPTY, Line, Row
from agent_runtime.cli.display.tally import RunTally
from agent_runtime.cli.display.view import ViewOptions
from agent_runtime.cli.terminal import can_write, say, terminal_size, write_frame

if TYPE_CHECKING:
    from agent_runtime.events import Event
    from agent_runtime.messages import Plan

TICK = 0.1
"""Seconds between frames while nothing is printed."""
SPINNERS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
"""The signs of the moving mark; the second set is for encodings without the first."""
MOST_ITEMS, MOST_AGENTS, MOST_WRITTEN = 6, 4, 8
"""The most rows of the plan, the sub-agents and the text being written."""

Work: TypeAlias = Callable[[], None]


class LiveProgress:
    """Lines with a few live rows below them, for a terminal.

    A thread of its own writes everything, in order, so that neither a slow terminal nor a long
    text delays the run.

    Args:
        answers: whether an answer is shown as it arrives; otherwise it is written at the end.
        hint: a line below the others.
        region: where the rows are painted; a `LiveRegion` unless it is given.
        size, write: of the terminal, as in `LiveRegion`.
        clock: seconds.
    """

    def __init__(
        self,
        view: ViewOptions | None = None,
        *,
        answers: bool = True,
        hint: str = "",
        region: Region | None = None,
        size: Callable[[], tuple[int, int]] = terminal_size,
        write: Callable[[str], None] = write_frame,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        view = view or ViewOptions()
        self.tally = RunTally(starts=False, verbose=view.verbose, clock=clock)
        self._answers = answers
        self._hint = [Line(hint, style="dim")] if hint else []
        self._region = region or LiveRegion(color=view.color, size=size, write=write)
        self._prose = Prose()
        self._text: list[str] = []
        self._said = ""
        self._spinner = itertools.cycle(SPINNERS[0] if can_write(SPINNERS[0]) else SPINNERS[1])
        self._printed: list[Row] = []
        self._last = EMPTY
        self._work: deque[Work] = deque()
        self._wake = threading.Event()
        self._held = False
        self._ended = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        self._ended = self._held = False
        # A daemon, so that a terminal that takes no more output does not keep the process alive.
        self._thread = threading.Thread(target=self._display, name="display", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._held = False
        self._ended = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # From the run's thread

    def show(self, event: Event) -> None:
        """Print the lines of the event, and change the rows below."""
        # Pieces of text arrive often: the next frame shows them.
        self._do(lambda: self._apply(event), now=not event.kind.endswith("-delta"))

    def say(self, line: str) -> None:
        """Print a line above the live rows."""
        if self._thread is None or not self._thread.is_alive():
            say(line)
            return
        self._do(lambda: self._print(Line(line, wrapped=True)))

    def plan(self, plan: Plan | None) -> None:
        """Show the plan, and print its changes."""
        self._do(lambda: self._take_plan(plan))

    def hold(self) -> None:
        """Remove the live rows and show nothing until `release`; what happens is kept."""
        held = threading.Event()

        def stop() -> None:
            self._region.erase(self._taken())
            self._held = True
            held.set()

        self._do(stop)
        # The display may fail meanwhile, so every wait has a limit.
        while self._thread is not None and self._thread.is_alive() and not held.wait(TICK):
            pass

    def release(self) -> None:
        """Go on after `hold`."""
        self._held = False
        self._wake.set()

    def showed(self, text: str) -> bool:
        """Return whether this is what the agent said last, and it stands on the terminal."""
        return bool(text.strip()) and text.strip() == self._said.strip()

    def _do(self, work: Work, *, now: bool = True) -> None:
        self._work.append(work)
        if now:
            self._wake.set()

    # In the display's own thread

    def _display(self) -> None:
        try:
            while not self._ended:
                # Woken at once by what is printed, and else in time for the next frame of the
                # spinner.
                self._wake.wait(TICK)
                self._wake.clear()
                self.tick()
            self.finish()
        except Exception as error:
            # A display that fails must not end the run.
            self._region.erase([*self._taken(), *_rows_of_failure(error)])

    def tick(self) -> None:
        """Do what was asked for, and paint a frame."""
        while self._work and not self._held:
            self._work.popleft()()
        if not self._held:
            width = self._region.width
            if self._answers:
                self._printed += self._prose.take_finished(width)
            self._region.frame(self._taken(), self._live_rows(width))

    def finish(self) -> None:
        """Print all that is left, and remove the live rows."""
        while self._work:
            self._work.popleft()()
        self._printed += self._prose.take_all(self._region.width) if self._answers else []
        for line in self.tally.unfinished():
            self._print(line)
        self.tally.running.clear()
        self._region.erase(self._taken())

    def _taken(self) -> list[Row]:
        printed: list[Row] = []
        for row in self._printed:
            # What ends with a blank row may be followed by what begins with one.
            if row is not EMPTY or self._last is not EMPTY:
                printed.append(row)
            self._last = row
        self._printed = []
        return printed

    def _live_rows(self, width: int) -> list[Row]:
        """Return the rows below: what happens now, the figures, the plan, the sub-agents."""
        third = max(1, self._region.height // 3)
        below = [self.tally.now(next(self._spinner))]
        # Before the run begins there is nothing to show.
        below += [self.tally.status()] if self.tally.max_steps else []
        plan = self.tally.plan.shown(min(MOST_ITEMS, third)) if third > 2 else []
        agents = self.tally.agents.shown(min(MOST_AGENTS, third))
        below += [Line(one, indent=2, style="dim") for one in plan + agents] + self._hint
        rows = [row for line in below for row in line.rows(width)]
        room = self._region.height - len(rows) - 1
        written = self._prose.unfinished(width, min(MOST_WRITTEN, third, room))
        return [*written, EMPTY, *rows] if written else rows

    def _print(self, line: Line) -> None:
        self._printed += line.rows(self._region.width)

    def _apply(self, event: Event) -> None:
        lines = self.tally.update(event)
        if self.tally.is_own(event):
            self._say_prose(event)
        for line in lines:
            self._print(line)
        if self.tally.planned(event):
            self._print_plan()

    def _take_plan(self, plan: Plan | None) -> None:
        self.tally.plan.take(plan)
        self._print_plan()

    def _print_plan(self) -> None:
        for line in self.tally.plan.changed():
            self._print(Line(f"plan: {line}", style="dim"))

    def _say_prose(self, event: Event) -> None:
        if event.kind == "text-delta":
            self._prose.add(event.data["text"])
            self._text.append(event.data["text"])
        elif event.kind == "answer":
            text, self._text = "".join(self._text), []
            printed = bool(event.data["calls"]) or self._answers
            if printed:
                self._printed += self._prose.take_all(self._region.width)
            self._said = text if printed else ""
            self._prose.drop()
        elif event.kind in ("model-retry", "model-fallback"):
            self._text = []
            if self._prose.drop():
                self._print(Line("(this text is void: the model is asked again)", style="yellow"))


def _rows_of_failure(error: Exception) -> list[Row]:
    text = f"The display failed, and the run goes on: {type(error).__name__}: {error}"
    return list(Line(text, style="yellow", wrapped=True).rows(terminal_size()[0] - 1))
