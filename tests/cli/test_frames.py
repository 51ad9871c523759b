"""Every frame of the display, on a terminal in memory, at several widths."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.cli.display.live import LiveRegion
from agent_runtime.cli.display.rows import Row
from agent_runtime.cli.display.screen import SPINNERS, LiveProgress
from agent_runtime.cli.display.view import ViewOptions
from agent_runtime.cli.terminal import cells
from agent_runtime.events import Event, EventKind
from tests.support.emulator import Emulator
from tests.support.recorded_runs import events_of, recorded_runs

WIDTHS = [60, 80, 100, 200]
PROSE = """\
I will look at **everything** first, since the totals of the warehouse and of the invoices differ.

- the warehouse counts whole boxes, which is what the customers order
- the invoices count pieces

```python
def total(items: list[int]) -> int:
    return sum(items)
```

Then comes `a_rather_long_identifier_of_a_function` and the end.
"""
LONG = "python -m pytest --verbose tests/warehouse/test_invoices.py && " * 4
EDIT = {"path": "src/warehouse/invoices.py", "old": "    a\n    b\n", "new": "    a\n    c\n"}


class Watched:
    """A display, and the terminal that it writes to; each frame is checked."""

    def __init__(self, columns: int, rows: int = 30) -> None:
        self.terminal = Emulator(columns, rows)
        self.now = 0.0
        self.printed: list[str] = []
        self.progress = LiveProgress(
            ViewOptions(),
            size=self.terminal.size,
            write=self.terminal.write,
            clock=lambda: self.now,
        )

    def above(self) -> list[str]:
        """Return what is printed: all rows above the cursor."""
        rows = self.terminal.rows[: self.terminal.screen.cursor.y]
        return [*self.terminal.scrollback, *rows]

    def show(self, event: Event) -> None:
        """Show an event, and check the frame."""
        self.now += 0.4
        self.progress.show(event)
        self.frame()

    def frame(self) -> None:
        """Paint a frame and check it."""
        self.progress.tick()
        screen, above = self.terminal.screen, self.above()
        # What was printed stays as it is; more comes after it.
        assert above[: len(self.printed)] == self.printed
        new, self.printed = above[len(self.printed) :], above
        below = self.terminal.rows[screen.cursor.y :]
        marked = [row for row in [*above, *below] if row.startswith(tuple(SPINNERS[0]))]
        assert len(marked) == 1 and marked[0] in below, below
        tally = self.progress.tally
        calls = list(tally.running.values())
        expected = calls[0].tool if calls else tally.doing.split(":")[0]
        assert expected in marked[0], (expected, below)
        assert screen.cursor.x == 0
        # No terminal wraps a row that is shorter than itself.
        assert all(cells(row) < screen.columns for row in new + below)

    def finish(self) -> None:
        """End the display, as for a question, and check that only what was printed is left."""
        self.progress.finish()
        above = self.above()
        assert above[: len(self.printed)] == self.printed
        assert not any(self.terminal.rows[self.terminal.screen.cursor.y :])
        self.printed = above


def event(kind: EventKind, run: str = "run", **data: Any) -> Event:
    """An event of a run."""
    return Event(kind, "thread", run, data=data)


def answer(step: int, calls: int) -> Event:
    """The event of a step."""
    return event(
        "answer", step=step, calls=calls, prompt_tokens=1000 * step, cached_tokens=900 * step,
        completion_tokens=50, cost=1_000_000, raw_tokens=900 * step, observed_tokens=100,
    )  # fmt: skip


def pieces(text: str) -> Iterator[Event]:
    """The deltas of a text."""
    for start in range(0, len(text), 11):
        yield event("text-delta", text=text[start : start + 11])


def called(name: str, tool: str, result: str, outcome: str = "ok", **given: Any) -> list[Event]:
    """The events of a call."""
    ends: dict[str, Any] = {
        "outcome": outcome,
        "result": result,
        "chars": len(result),
        "cut": False,
    }
    return [
        event("tool-start", call_id=name, tool=tool, arguments=given),
        event("tool-finish", call_id=name, tool=tool, **ends),
    ]


def scene() -> Iterator[Event]:
    """A run with all that the display shows."""
    yield event(
        "run-start", agent="a", model="some/model", max_steps=50, resumed=False,
        observe_at=30_000, reflect_at=40_000,
    )  # fmt: skip
    yield from pieces(PROSE)
    yield answer(1, 2)
    one, two = (
        called("c1", "read_file", "a\nb", path="src/" * 30 + "invoices.py"),
        called(
            "c2", "bash", "Exit code 1.\n" + "\x1b[31mfailed\x1b[0m in a test\n" * 40, command=LONG
        ),
    )
    yield from (one[0], two[0], two[1], one[1])
    yield from pieces("This is not to be.\n\nIt ends in the")
    yield event("model-retry", reason="the provider is overloaded", attempt=1, wait=2.0)
    yield answer(2, 1)
    yield from called("c3", "edit_file", "Replaced 1.", **EDIT)
    yield answer(3, 1)
    yield from called("c4", "fetch", "The page does not exist. " * 20, "error", url="https://x.y")
    yield event("run-start", "child", agent="reader", model="m", max_steps=9, parent="run",
                resumed=False, task_key="part 中文 " * 9)  # fmt: skip
    yield event("memory", purpose="observe", tokens=20_000)
    yield from pieces("And that is the end of it, after all the work that was done on it.")
    yield answer(4, 0)
    yield event("run-finish", status="succeeded", stop_reason="completed", detail="")


def words(rows: Iterable[str]) -> set[str]:
    """Return the words in rows."""
    return set(re.findall(r"\w+", "\n".join(rows)))


@pytest.mark.parametrize("columns", WIDTHS)
def test_each_frame_shows_what_happens_now_and_keeps_what_was(columns: int) -> None:
    watched = Watched(columns)
    for one in scene():
        watched.show(one)
    watched.finish()
    rows = watched.printed
    prose = rows[rows.index(next(row for row in rows if "I will look" in row)) :]
    prose = prose[: prose.index(next(row for row in prose if row.startswith("✗ 1")))]
    # A word that is broken at a row's end would leave parts that the text does not have.
    assert words(prose) == words([PROSE]) - {"python"}
    text = "\n".join(rows)
    for expected in ("exit code 1", "+1 −1", "    - ", "    + ", "failed in a test", "void"):
        assert expected in text, text
    assert "\x1b" not in text and "[31m" not in text
    assert "invoices.py" in next(row for row in rows if row.startswith("✓ 1 read_file"))
    assert watched.progress.showed("And that is the end of it, after all the work that was done"
                                   " on it.")  # fmt: skip


def test_a_question_and_its_answer_stay_and_the_display_goes_on_below() -> None:
    watched = Watched(80, rows=12)
    for one in list(scene())[:20]:
        watched.show(one)
    watched.finish()
    for line in ("The agent wants to call bash:", "  command: make", "[y: yes] > n not this one"):
        watched.terminal.write(f"{line}\r\n")
        watched.printed.append(line)
    for one in list(scene())[20:]:
        watched.show(one)
    watched.finish()
    assert "[y: yes] > n not this one" in watched.printed


@pytest.mark.parametrize(("before", "after"), [(60, 120), (120, 60)])
def test_a_window_that_changes_leaves_no_stale_row(before: int, after: int) -> None:
    watched = Watched(before)
    for number, one in enumerate(scene()):
        if number == 50:
            watched.terminal.resize(after, 30)
            # What the terminal itself cut is no matter of the display.
            watched.printed = watched.above()
        watched.show(one)
    watched.finish()


def test_rows_that_are_too_long_by_the_time_they_are_shown_leave_no_stale_row() -> None:
    """A frame is laid out by the size from before a change that the terminal knows already."""
    terminal = Emulator(60, 30)
    region = LiveRegion(color=False, size=lambda: (100, 30), write=terminal.write)
    rows = [Row(text, text) for text in ("now", "w" * 99)]
    for number in range(3):
        rows[0] = Row(f"now {number}", f"now {number}")
        region.frame([], rows)
    region.erase([Row("done", "done")])
    assert [row for row in terminal.rows if row] == ["done"]


@pytest.mark.slow
@pytest.mark.parametrize("columns", WIDTHS)
def test_recorded_runs_at_every_width(columns: int) -> None:
    folder = os.environ.get("TEST_DATA_DIR")
    if not folder:
        pytest.skip("TEST_DATA_DIR names no folder of recorded runs")
    for messages in recorded_runs(Path(folder), most=5):
        watched = Watched(columns)
        for one in events_of(messages, steps=12):
            watched.show(one)
        watched.finish()
