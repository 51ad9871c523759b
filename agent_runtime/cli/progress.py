"""What the user sees of a run while it works, on stderr.

`Tally` turns events into lines and a status; `PlainProgress` writes the lines, `LiveProgress`
keeps the status beneath them on a terminal.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from .terminal import printable, say, short_arguments, shorten

if TYPE_CHECKING:
    from agent_runtime.events import Event

STATUS_WIDTH = 60
"""How many characters the status spends on what the run is doing, or on what the model says."""


class Tally:
    """What a run has used so far, by its events."""

    def __init__(self) -> None:
        self.step = 0
        self.max_steps = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.cost = 0
        self.unpriced = False
        self.doing = "starting"
        self._root = ""
        self._said = ""

    def update(self, event: Event) -> list[str]:
        """Take an event in; return the lines that tell of it, perhaps none."""
        self._root = self._root or event.run_id
        data: dict[str, Any] = dict(event.data)
        lines = self._lines(event, data)
        if event.run_id == self._root:
            return lines
        return [f"    sub-agent: {line.strip()}" for line in lines]

    def _lines(self, event: Event, data: dict[str, Any]) -> list[str]:
        match event.kind:
            case "run-start":
                return self._start(event, data)
            case "answer":
                return self._answer(event, data)
            case "text-delta":
                self._said = (self._said + data["text"])[-STATUS_WIDTH:]
                self.doing = self._said
            case "reasoning-delta":
                self.doing = "thinking"
            case "tool-start":
                arguments = short_arguments(data.get("arguments") or {})
                self.doing = f"{data['tool']} {arguments}".strip()
                return [f"  {self.doing}"]
            case "tool-finish":
                self.doing = "thinking"
                if data["outcome"] != "ok":
                    return [f"  {data['tool']}: {data['outcome']}"]
            case "model-retry":
                self.doing = f"waiting to try the model again: {data['reason']}"
                return [f"  retry {data['attempt']} in {data['wait']:.1f} s: {data['reason']}"]
            case "activation":
                if data["left_out"] or data["cut"]:
                    return [
                        f"  context: {data['left_out']} messages left the prompt, {data['cut']} "
                        f"tool results cut, {data['tokens']:,} tokens stay ({data['cause']})"
                    ]
            case "observation":
                why = f": {data['why']}" if data["why"] else ""
                return [
                    f"  memory: {data['of']:,} tokens observed as {data['tokens']:,} "
                    f"({data['origin']}{why})"
                ]
            case "note":
                return [f"  note from {data['source']}"]
            case "run-finish":
                self.doing = "done"
        return []

    def _start(self, event: Event, data: dict[str, Any]) -> list[str]:
        if event.run_id != self._root:
            return [f"{data['agent']} starts"]
        self.max_steps = data["max_steps"]
        self.doing = "thinking"
        verb = "resumes" if data.get("resumed") else "starts"
        return [
            f"run {event.run_id} {verb}: model {data['model']}, thread {event.thread_id}, "
            f"at most {self.max_steps} steps"
        ]

    def _answer(self, event: Event, data: dict[str, Any]) -> list[str]:
        self._said, self.doing = "", "thinking"
        self.prompt_tokens += data.get("prompt_tokens") or 0
        self.cached_tokens += data.get("cached_tokens") or 0
        self.completion_tokens += data.get("completion_tokens") or 0
        self.cost += data.get("cost") or 0
        self.unpriced |= data.get("cost") is None
        if event.run_id == self._root:
            self.step = data["step"]
        calls = data["calls"]
        what = f"{calls} tool call{'s' if calls != 1 else ''}" if calls else "answer"
        return [f"step {data['step']}/{self.max_steps}: {what}, {self.spent()}"]

    def spent(self) -> str:
        """Return tokens, cache share and cost so far, on one line."""
        text = f"{self.prompt_tokens + self.completion_tokens:,} tokens"
        if self.prompt_tokens:
            text += f", {self.cached_tokens / self.prompt_tokens:.0%} of input cached"
        if self.unpriced:
            return f"{text}, cost unknown"
        return f"{text}, ${self.cost / 1e9:.4f}"

    def status(self) -> str:
        """Return what the run is at, on one line."""
        doing = shorten(self.doing, STATUS_WIDTH)
        return f"step {self.step}/{self.max_steps} · {self.spent()} · {doing}"


class Progress(AbstractContextManager[None], Protocol):
    """Shows events as they come; a context, so that a terminal is always left in order."""

    def show(self, event: Event) -> None:
        """Show one event."""
        ...


class PlainProgress:
    """Lines, for pipes and log files."""

    def __init__(self) -> None:
        self.tally = Tally()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Write the lines that tell of the event."""
        for line in self.tally.update(event):
            say(line)


class LiveProgress:
    """Lines with a status beneath them, for a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.text import Text

        self.tally = Tally()
        self._text = Text
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status(Text("starting"))

    def __enter__(self) -> None:
        self._status.start()

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def show(self, event: Event) -> None:
        """Print the lines that tell of the event, and bring the status up to date."""
        for line in self.tally.update(event):
            style = "" if line.startswith(("step", "run")) else "dim"
            self._console.print(self._text(printable(line), style=style), soft_wrap=True)
        self._status.update(self._text(self.tally.status()))


def new_progress() -> Progress:
    """Return the progress that suits stderr."""
    return LiveProgress() if sys.stderr.isatty() else PlainProgress()
