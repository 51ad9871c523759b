"""What the user sees of a run while it works, on stderr.

`Tally` turns events into lines and a status; `PlainProgress` writes the lines, `LiveProgress`
keeps the status beneath them on a terminal.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from .checklist import Checklist
from .terminal import printable, say, short_arguments, shorten

if TYPE_CHECKING:
    from agent_runtime.events import Event
    from agent_runtime.plan import Plan

STATUS_WIDTH = 60
"""How many characters the status spends on what the run is doing, or on what the model says."""


CAUSES = {
    "observed": "observations stand for them",
    "price": "observations stand for them, it pays now",
    "idle": "the provider's cache had gone cold",
    "late": "observations are late",
    "tokens": "the window was full",
    "overflow": "the provider found the prompt too long",
    "messages": "the window moved on",
    "agent": "the agent changed",
}
"""What is said of an activation's cause."""


class Tally:
    """What a run has used so far, by its events.

    Attributes:
        remembering: what observational memory is doing; empty if nothing.
        plan: the run's own, not those of its sub-agents.
    """

    def __init__(self) -> None:
        self.step = 0
        self.max_steps = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.cost = 0
        self.unpriced = False
        self.doing = "starting"
        self.remembering = ""
        self.plan = Checklist()
        self._limits = 0, 0
        self._sizes: tuple[int, int] | None = None
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

    def planned(self, event: Event) -> bool:
        """Take in what an event tells of the run's plan; return whether that may have changed."""
        return event.run_id == self._root and self.plan.update(event)

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
                return self._activation(data)
            case "memory":
                self._remember(event, data)
            case "observation":
                self._remember(event, {})
                return self._observation(data)
            case "file":
                return [f"  the model does not see {data['name'] or data['uri']}: {data['reason']}"]
            case "recall":
                return self._recall(data)
            case "note":
                return [f"  note from {data['source']}"]
            case "plan":
                pass
            case "question":
                self.doing = "waiting for an answer"
                return [f"  question {data['id']}"]
            case "run-suspend":
                self.doing = "suspended"
            case "run-finish":
                self.doing = "done"
        return []

    def _activation(self, data: dict[str, Any]) -> list[str]:
        if not (data["left_out"] or data["cut"] or data["cause"] == "late"):
            return []
        cause = CAUSES.get(data["cause"], data["cause"])
        return [
            f"  context: {data['left_out']} messages left the prompt, {data['cut']} "
            f"tool results cut, {data['tokens']:,} tokens stay ({cause})"
        ]

    def _recall(self, data: dict[str, Any]) -> list[str]:
        lines = [f"  recall is not as asked for: {data['why']}"] if data["why"] else []
        if count := len(data["found"]):
            lines.append(f"  recalled {count} earlier message{'s' if count > 1 else ''}")
        return lines

    def _observation(self, data: dict[str, Any]) -> list[str]:
        if data.get("calls"):
            self._count(data)
        if data.get("again"):
            did = "notes by rules for {of:,} tokens written again as {tokens:,}"
        elif data["origin"] == "archive":
            did = "{of:,} tokens of observations archived as {tokens:,}"
        elif data["level"]:
            did = "{of:,} tokens of observations condensed to {tokens:,}"
        else:
            did = "{of:,} tokens observed as {tokens:,}"
        by = "by the model" if data["origin"] == "model" else "by rules"
        by += ", until the model does it" if data["provisional"] else ""
        why = f": {data['why']}" if data["why"] else ""
        return [f"  memory: {did.format(**data)} ({by}{why})"]

    def _remember(self, event: Event, data: dict[str, Any]) -> None:
        """Keep what the run's own memory is at; nothing if there is no data."""
        if event.run_id != self._root:
            return
        doing = {"observe": "observing", "reflect": "condensing"}
        again = " again" if data.get("again") else ""
        self.remembering = (
            f"{doing[data['purpose']]} {data['tokens']:,} tokens{again}" if data else ""
        )

    def _start(self, event: Event, data: dict[str, Any]) -> list[str]:
        if event.run_id != self._root:
            return [f"{data['agent']} starts"]
        self.max_steps = data["max_steps"]
        self._limits = data.get("observe_at", 0), data.get("reflect_at", 0)
        self.doing = "thinking"
        verb = "resumes" if data.get("resumed") else "starts"
        return [
            f"run {event.run_id} {verb}: model {data['model']}, thread {event.thread_id}, "
            f"at most {self.max_steps} steps",
            *(f"  memory: {warning}" for warning in data.get("warnings", ())),
        ]

    def _answer(self, event: Event, data: dict[str, Any]) -> list[str]:
        self._said, self.doing = "", "thinking"
        self._count(data)
        if event.run_id == self._root:
            self.step = data["step"]
        calls = data["calls"]
        what = f"{calls} tool call{'s' if calls != 1 else ''}" if calls else "answer"
        if data.get("prompt_tokens"):
            what += f", prompt {data['prompt_tokens']:,} tokens ({_cached(data)})"
        if "raw_tokens" in data:
            sizes = data["raw_tokens"], data["observed_tokens"]
            if event.run_id == self._root:
                self._sizes = sizes
            what += f", {self._held(sizes)}"
        return [f"step {data['step']}/{self.max_steps}: {what}; {self.spent()} so far"]

    def _count(self, data: dict[str, Any]) -> None:
        """Add what model calls used."""
        self.prompt_tokens += data.get("prompt_tokens") or 0
        self.cached_tokens += data.get("cached_tokens") or 0
        self.completion_tokens += data.get("completion_tokens") or 0
        self.cost += data.get("cost") or 0
        self.unpriced |= data.get("cost") is None

    def _held(self, sizes: tuple[int, int]) -> str:
        """Return the tokens of raw messages and of observations, each of its threshold."""
        (raw, observed), (observe_at, reflect_at) = sizes, self._limits
        return (
            f"raw {_short(raw)} of {_short(observe_at)}, "
            f"observed {_short(observed)} of {_short(reflect_at)}"
        )

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
        parts = [f"step {self.step}/{self.max_steps}", self.spent()]
        if self._sizes is not None:
            parts.append(self._held(self._sizes))
        if self.remembering:
            parts.append(self.remembering)
        return " · ".join([*parts, shorten(self.doing, STATUS_WIDTH)])


def _cached(data: dict[str, Any]) -> str:
    return f"{(data.get('cached_tokens') or 0) / data['prompt_tokens']:.0%} cached"


def _short(tokens: int) -> str:
    """Return a number of tokens in a few characters: `950`, `3.6K`, `30K`."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}".removesuffix(".0") + "K"


class Progress(AbstractContextManager[None], Protocol):
    """Shows events as they come; a context, so that a terminal is always left in order."""

    def show(self, event: Event) -> None:
        """Show one event."""
        ...

    def plan(self, plan: Plan | None) -> None:
        """Show the run's plan as the store has it."""
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
        if self.tally.planned(event):
            self._say_plan()

    def plan(self, plan: Plan | None) -> None:
        """Write the lines of the items that are not as they were told last."""
        self.tally.plan.take(plan)
        self._say_plan()

    def _say_plan(self) -> None:
        for line in self.tally.plan.changed():
            say(f"  plan: {line}")


class LiveProgress:
    """Lines with a status and the plan's checklist beneath them, for a terminal."""

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
        for line in self.tally.plan.shown():
            self._console.print(self._text(printable(line), style="dim"), soft_wrap=True)

    def show(self, event: Event) -> None:
        """Print the lines that tell of the event, and bring the status up to date."""
        for line in self.tally.update(event):
            style = "" if line.startswith(("step", "run")) else "dim"
            self._console.print(self._text(printable(line), style=style), soft_wrap=True)
        self.tally.planned(event)
        lines = [self.tally.status(), *(f"  {line}" for line in self.tally.plan.shown())]
        self._status.update(self._text(printable("\n".join(lines))))

    def plan(self, plan: Plan | None) -> None:
        """Keep the plan for the next time that something is shown."""
        self.tally.plan.take(plan)


def new_progress() -> Progress:
    """Return the progress that suits stderr."""
    return LiveProgress() if sys.stderr.isatty() else PlainProgress()
