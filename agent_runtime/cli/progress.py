"""Show on stderr what a run does.

`Tally` turns events into lines and a status; `PlainProgress` writes the lines, `LiveProgress`
shows the status below them on a terminal.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from agent_runtime.cli.checklist import MOST_SHOWN as MOST_ITEMS
from agent_runtime.cli.checklist import Checklist
from agent_runtime.cli.report.costs import cost_text
from agent_runtime.cli.sub_agents import MOST_SHOWN, SubAgents
from agent_runtime.cli.terminal import (
    is_terminal,
    printable,
    rich_console,
    say,
    short_arguments,
    short_number,
    shorten,
)

if TYPE_CHECKING:
    from rich.text import Text

    from agent_runtime.events import Event
    from agent_runtime.plan.model import Plan

STATUS_WIDTH = 60
"""Length of the status text for what the run is doing, or what the model says."""


SHOWN_WAIT = 1.0
"""Seconds: shorter waits for a rate limit are shown in the status only."""
DELEGATED = ("role", "task_key", "background")
"""The arguments to show of a call of `delegate`."""

CAUSES = {
    "observed": "observations replace them",
    "price": "observations replace them, which now costs less",
    "idle": "the provider's cache had expired",
    "late": "observations are late",
    "tokens": "the window was full",
    "overflow": "the provider found the prompt too long",
    "messages": "the window moved",
    "agent": "the agent changed",
    "model": "another model is in use",
}
"""Texts for the causes of activations."""


class Tally:
    """The state of a run, as its events report it.

    Attributes:
        remembering: what observational memory is doing; empty if idle.
        plan: the run's own plan, not those of its sub-agents.
        agents: its sub-agents.
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
        self.agents = SubAgents()
        self._limits = 0, 0
        self._sizes: tuple[int, int] | None = None
        self._root = ""
        self._said = ""

    def update(self, event: Event) -> list[str]:
        """Apply an event; return the lines to show, which may be none."""
        self._root = self._root or event.run_id
        data: dict[str, Any] = dict(event.data)
        if event.run_id == self._root:
            return self._lines(event, data)
        # The sum is what the person pays: sub-agents and memory are in it.
        if event.kind == "answer" or (event.kind == "observation" and data.get("calls")):
            self._count(data)
        return self.agents.update(event)

    def planned(self, event: Event) -> bool:
        """Apply an event to the run's plan; return whether the plan may have changed."""
        return event.run_id == self._root and self.plan.update(event)

    def _lines(self, event: Event, data: dict[str, Any]) -> list[str]:
        match event.kind:
            case "run-queue":
                return [f"  waits for a place: {data['ahead']} before it"]
            case "run-start":
                return self._start(event, data)
            case "answer":
                return self._answer(event, data)
            case "text-delta":
                # Only its end is shown, and an answer may be long.
                self._said = (self._said + data["text"])[-STATUS_WIDTH:]
                self.doing = self._said
            case "reasoning-delta":
                self.doing = "thinking"
            case "tool-start":
                given: dict[str, Any] = data.get("arguments") or {}
                shown = DELEGATED if data["tool"] == "delegate" else given
                arguments = short_arguments({name: given[name] for name in shown if name in given})
                self.doing = f"{data['tool']} {arguments}".strip()
                return [f"  {self.doing}"]
            case "tool-finish":
                self.doing = "thinking"
                if data["outcome"] != "ok":
                    return [f"  {data['tool']}: {data['outcome']}"]
            case "model-retry":
                # What the failed attempt said is void.
                self._said = ""
                self.doing = f"waiting to retry the model: {data['reason']}"
                return [f"  retry {data['attempt']} in {data['wait']:.1f} s: {data['reason']}"]
            case "model-wait":
                self.doing = f"waiting: {data['reason']}"
                if data["wait"] >= SHOWN_WAIT:
                    return [f"  waits, up to {data['wait']:.1f} s until a reset: {data['reason']}"]
            case "model-fallback":
                self._said, self.doing = "", "thinking"
                lines = [f"  model {data['to']} replaces {data['from']}: {data['reason']}"]
                return [*lines, f"  {data['warning']}"] if data.get("warning") else lines
            case "setting-ignored":
                return [f"  the model does not take the setting {data['setting']}"]
            case "activation":
                return self._activation(data)
            case "memory":
                self._remember(data)
            case "observation":
                self._remember({})
                return self._observation(data)
            case "file":
                return [f"  the model does not see {data['name'] or data['uri']}: {data['reason']}"]
            case "recall":
                return self._recall(data)
            case "note":
                return [f"  note from {data['source']}"]
            case "plan" | "tool-progress":
                pass
            case "question":
                self.doing = "waiting for an answer"
                return [f"  question {data['id']}"]
            case "run-suspend" | "run-finish":
                self.doing = "suspended" if event.kind == "run-suspend" else "done"
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
        lines = [f"  recall is degraded: {data['why']}"] if data["why"] else []
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

    def _remember(self, data: dict[str, Any]) -> None:
        """Note what memory is doing; empty data means nothing."""
        doing = {"observe": "observing", "reflect": "condensing"}
        again = " again" if data.get("again") else ""
        self.remembering = (
            f"{doing[data['purpose']]} {data['tokens']:,} tokens{again}" if data else ""
        )

    def _start(self, event: Event, data: dict[str, Any]) -> list[str]:
        self.step, self.max_steps = data.get("steps", 0), data["max_steps"]
        self._limits = data.get("observe_at", 0), data.get("reflect_at", 0)
        self.doing = "thinking"
        verb = "resumes" if data.get("resumed") else "starts"
        limit = f"at most {self.max_steps} steps"
        return [
            f"run {event.run_id} {verb}: model {data['model']}, thread {event.thread_id}, "
            + (f"{self.step} of {limit} made" if self.step else limit),
            *(f"  memory: {warning}" for warning in data.get("warnings", ())),
        ]

    def _answer(self, event: Event, data: dict[str, Any]) -> list[str]:
        self._said, self.doing = "", "thinking"
        self._count(data)
        self.step = data["step"]
        calls = data["calls"]
        what = f"{calls} tool call{'s' if calls != 1 else ''}" if calls else "answer"
        if data.get("prompt_tokens"):
            what += f", prompt {data['prompt_tokens']:,} tokens ({_cached(data)})"
        if "raw_tokens" in data:
            sizes = data["raw_tokens"], data["observed_tokens"]
            self._sizes = sizes
            what += f", {self._held(sizes)}"
        return [f"step {data['step']}/{self.max_steps}: {what}; {self.spent()} so far"]

    def _count(self, data: dict[str, Any]) -> None:
        """Add the usage of model calls."""
        self.prompt_tokens += data.get("prompt_tokens") or 0
        self.cached_tokens += data.get("cached_tokens") or 0
        self.completion_tokens += data.get("completion_tokens") or 0
        self.cost += data.get("cost") or 0
        self.unpriced |= data.get("cost") is None

    def _held(self, sizes: tuple[int, int]) -> str:
        """Return the tokens of raw messages and of observations, with their thresholds."""
        (raw, observed), (observe_at, reflect_at) = sizes, self._limits
        return (
            f"raw {short_number(raw)} of {short_number(observe_at)}, "
            f"observed {short_number(observed)} of {short_number(reflect_at)}"
        )

    def spent(self) -> str:
        """Return tokens, cache share and cost so far, on one line."""
        text = f"{self.prompt_tokens + self.completion_tokens:,} tokens"
        if self.prompt_tokens:
            text += f", {self.cached_tokens / self.prompt_tokens:.0%} of input cached"
        return f"{text}, {cost_text(self.cost, int(self.unpriced))}"

    def status(self) -> str:
        """Return the state of the run on one line."""
        parts = [f"step {self.step}/{self.max_steps}", self.spent()]
        if self._sizes is not None:
            parts.append(self._held(self._sizes))
        if self.remembering:
            parts.append(self.remembering)
        return " · ".join([*parts, shorten(self.doing, STATUS_WIDTH)])


def _cached(data: dict[str, Any]) -> str:
    return f"{(data.get('cached_tokens') or 0) / data['prompt_tokens']:.0%} cached"


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


class PlainProgress:
    """Lines, for pipes and log files."""

    def __init__(self) -> None:
        self.tally = Tally()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Write the lines of the event."""
        for line in self.tally.update(event):
            say(line)
        if self.tally.planned(event):
            self._say_plan()

    def plan(self, plan: Plan | None) -> None:
        """Write the lines of the items that changed since they were last shown."""
        self.tally.plan.take(plan)
        self._say_plan()

    def say(self, line: str) -> None:
        """Write the line."""
        say(line)

    def _say_plan(self) -> None:
        for line in self.tally.plan.changed():
            say(f"  plan: {line}")


class LiveProgress:
    """Lines with a status, the plan's checklist and the sub-agents below, for a terminal."""

    def __init__(self) -> None:
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        self.tally = Tally()
        # Kept on the object: importing rich takes time that `--help` and pipes do not need.
        self._text = Text
        self._console = rich_console()
        self._spinner = Spinner("dots", style="green")
        self._above = ["starting"]
        self._new = partial(
            Live, get_renderable=self._status_lines, console=self._console, refresh_per_second=10,
            transient=True,
        )  # fmt: skip
        self._live = self._new()

    def __enter__(self) -> None:
        # A `Live` that is started again erases as many lines as it had before, and these may since
        # be a question and its answer.
        self._live = self._new()
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        # The live display erases itself when it stops; this is what remains of the plan.
        for line in self.tally.plan.shown():
            self._print(line, "dim")

    def _status_lines(self) -> Text:
        """Return the text below the lines; another thread calls this repeatedly.

        It has fewer rows than the terminal, and leaves room in each for the `^C` that the terminal
        itself writes; otherwise it could not be erased completely.
        """
        rows = max(1, self._console.height - 2)
        agents = [f"  {line}" for line in self.tally.agents.shown(min(MOST_SHOWN, rows // 3))]
        lines = [self._text(printable(one)) for one in self._above[: rows - len(agents)] + agents]
        for line in lines:
            line.truncate(max(1, self._console.width - 5), overflow="ellipsis")
        frame = cast("Text", self._spinner.render(self._console.get_time()))
        return self._text.assemble(frame, " ", self._text("\n").join(lines))

    def show(self, event: Event) -> None:
        """Print the lines of the event, and update the text below."""
        for line in self.tally.update(event):
            self._print(line, "" if line.startswith(("step", "run")) else "dim")
        self.tally.planned(event)
        # The other half stays for the lines above.
        rows = self._console.height // 2
        plan = self.tally.plan.shown(max(3, min(MOST_ITEMS, rows)))
        self._above = [self.tally.status(), *(f"  {line}" for line in plan)]

    def say(self, line: str) -> None:
        """Print the line above the status; writing it directly would break the status."""
        self._print(line)

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(self._text(printable(line), style=style), soft_wrap=True)

    def plan(self, plan: Plan | None) -> None:
        """Show the plan with the next event."""
        self.tally.plan.take(plan)


def new_progress() -> Progress:
    """Return the progress for stderr: live on a terminal, plain otherwise."""
    return LiveProgress() if is_terminal() else PlainProgress()
