"""The state of a run by its events, and the lines that say what happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent_runtime.cli.display.calls import VERBOSE, CallEnd, Detail, ShownCall
from agent_runtime.cli.display.checklist import Checklist
from agent_runtime.cli.display.figures import Spent, cost_text, seconds_text
from agent_runtime.cli.display.rows import Line
from agent_runtime.cli.display.short_ids import said_id
from agent_runtime.cli.display.sub_agents import SubAgents
from agent_runtime.cli.terminal import short_number
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime.events import Event

SHOWN_WAIT = 1.0
"""Seconds; shorter waits for a rate limit are shown in the status only."""
PLAN = "plan"
"""The tool whose calls are shown as the changes of the plan."""
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


@dataclass(slots=True)
class RunTally:
    """The state of a run, as its events report it.

    Args:
        starts: whether each step, and the start of each call, is a line.
        verbose: whether each step shows the size of its prompt, and results are shown at length.
        clock: seconds.

    Attributes:
        spent: all that the person pays: with sub-agents, memory, and the use before a resume.
        running: the run's calls that have no result yet, by id.
        doing: what the run does while no call runs.
        since: when that began, in seconds on the clock.
        remembering: what observational memory is doing; empty if idle.
        plan: the run's own plan, not those of its sub-agents.
        agents: its sub-agents.
    """

    starts: bool = True
    verbose: bool = False
    clock: Callable[[], float] = time.monotonic
    step: int = 0
    max_steps: int = 0
    spent: Spent = field(default_factory=Spent)
    running: dict[str, ShownCall] = field(default_factory=dict[str, ShownCall])
    doing: str = "starting"
    since: float = 0.0
    remembering: str = ""
    plan: Checklist = field(default_factory=Checklist)
    agents: SubAgents = field(default_factory=SubAgents)
    _limits: tuple[int, int] = (0, 0)
    _sizes: tuple[int, int] | None = None
    _root: str = ""
    _introduced: bool = False

    def __post_init__(self) -> None:
        self.since = self.clock()

    def update(self, event: Event) -> list[Line]:
        """Apply an event; return the lines to show, which may be none."""
        self._root = self._root or event.run_id
        data: dict[str, Any] = dict(event.data)
        if self.is_own(event):
            return list(self._lines(event, data))
        if event.kind == "answer" or (event.kind == "observation" and data.get("calls")):
            self.spent.add(data)
        return [Line(one, style="dim") for one in self.agents.update(event)]

    def is_own(self, event: Event) -> bool:
        """Return whether an event is of the run itself, not of a sub-agent."""
        return event.run_id == self._root

    def planned(self, event: Event) -> bool:
        """Apply an event to the run's plan; return whether the plan may have changed."""
        return self.is_own(event) and self.plan.update(event)

    def now(self, mark: str) -> Line:
        """Return what happens now.

        Args:
            mark: the sign before it.
        """
        calls = list(self.running.values())
        line, since = Line(self.doing, mark), self.since
        if calls:
            before = f"{len(calls)} calls:" if len(calls) > 1 else ""
            line, since = calls[0].line(before, mark), min(one.began for one in calls)
        seconds = self.clock() - since
        facts = (seconds_text(seconds),) if seconds >= 1 else ()
        return replace(line, facts=facts, style="bold", mark_style="green")

    def status(self) -> Line:
        """Return the figures of the run on one line."""
        facts = list(self.spent.facts())
        if plan := self.plan.progress():
            facts.insert(1, plan)
        if self._sizes is not None:
            facts.append(self._held(self._sizes))
        if self.remembering:
            facts.insert(1, self.remembering)
        at = f"step {self.step}/{self.max_steps}"
        return Line(at, more=tuple(facts), style="dim")

    def unfinished(self) -> Iterator[Line]:
        """Yield the calls that have no result, for when the display ends before they do."""
        for call in self.running.values():
            yield replace(call.line(str(self.step), "…"), facts=("not finished",), style="dim")

    def _do(self, doing: str) -> None:
        if doing != self.doing:
            self.doing, self.since = doing, self.clock()

    def _lines(self, event: Event, data: dict[str, Any]) -> Iterator[Line]:
        match event.kind:
            case "run-queue":
                yield _aside(f"waits for a place: {data['ahead']} before it")
            case "run-start":
                yield from self._start(event, data)
            case "answer":
                yield from self._answer(data)
            case "text-delta":
                self._do("writing")
            case "reasoning-delta":
                self._do("thinking")
            case "tool-start" | "tool-finish":
                yield from self._call(event, data)
            case "model-retry" | "model-wait" | "model-fallback":
                yield from self._model(event, data)
            case "setting-ignored":
                yield _aside(
                    f"the model does not support the setting {data['setting']}: it is not sent"
                )
            case "activation":
                yield from _activation(data)
            case "memory":
                self._remember(data)
            case "observation":
                self._remember({})
                yield self._observation(data)
            case "file":
                # A person cannot use the id of a file that a tool returned.
                made = data["uri"].startswith("tool:")
                named = data["name"] or ("a file of a tool" if made else data["uri"])
                yield _warning(f"the model does not see {named}: {data['reason']}")
            case "recall":
                yield from _recall(data)
            case "note":
                if data["source"] == "steer":
                    yield _aside("the agent reads the message")
                elif data["source"] not in ("context", "context_ended"):
                    yield _aside(f"note from {data['source']}")
            case "plan" | "tool-progress":
                pass
            case "question":
                self._do("waiting for an answer")
            case "run-suspend" | "run-finish":
                self._do("suspended" if event.kind == "run-suspend" else "done")

    def _start(self, event: Event, data: dict[str, Any]) -> Iterator[Line]:
        self.step, self.max_steps = data.get("steps", 0), data["max_steps"]
        self._limits = data.get("observe_at", 0), data.get("reflect_at", 0)
        if used := data.get("used"):
            self.spent = Spent()
            # Its cost is None if a price is unknown.
            self.spent.add(used)
        self.running.clear()
        self._do("thinking")
        verb = "resumes" if data.get("resumed") else "starts"
        limit = f"at most {counted(self.max_steps, 'step')}"
        made = f"{self.step} of {limit} made" if self.step else limit
        named = f"model {data['model']}, thread {said_id(event.thread_id)}, "
        # After a question of this command, the run's first line is still on the screen.
        text = f"run {said_id(event.run_id)} {verb}: {named}"
        if self._introduced:
            text = f"the run {verb}: "
        self._introduced = True
        yield Line(text + made, wrapped=True, style="dim")
        for warning in data.get("warnings", ()):
            yield _warning(f"memory: {warning}")

    def _answer(self, data: dict[str, Any]) -> Iterator[Line]:
        self._do("thinking")
        self.spent.add(data)
        self.step = data["step"]
        calls = data["calls"]
        more = [counted(calls, "tool call") if calls else "answer"]
        if data.get("prompt_tokens"):
            cached = (data.get("cached_tokens") or 0) / data["prompt_tokens"]
            more.append(f"prompt {data['prompt_tokens']:,} tokens, {cached:.0%} cached")
        if "raw_tokens" in data:
            self._sizes = data["raw_tokens"], data["observed_tokens"]
            more.append(self._held(self._sizes))
        if self.starts or self.verbose:
            so_far = f"{cost_text(self.spent.cost, self.spent.unpriced)} so far"
            yield Line(f"step {self.step}/{self.max_steps}", "", (so_far,), tuple(more), "dim")

    def _call(self, event: Event, data: dict[str, Any]) -> Iterator[Line]:
        name = data["call_id"]
        if event.kind == "tool-start":
            call = ShownCall(data["tool"], data.get("arguments") or {}, self.clock())
            self.running[name] = call
            if self.starts and call.tool != PLAN:
                yield call.line(str(self.step), "●")
            return
        call = self.running.pop(name, None)
        seconds = None if call is None else self.clock() - call.began
        call = call or ShownCall(data["tool"], data.get("arguments") or {})
        ended = CallEnd(call, data["outcome"], data.get("result"), seconds)
        # What the model does next begins now.
        self.doing, self.since = "thinking", self.clock()
        lines = list(ended.lines(str(self.step), VERBOSE if self.verbose else Detail()))
        # Its start was a line already, as are the changes of a plan.
        known = self.starts or call.tool == PLAN
        if not known or not ended.ok or len(lines) > 1:
            yield from lines

    def _model(self, event: Event, data: dict[str, Any]) -> Iterator[Line]:
        if event.kind == "model-retry":
            self._do(f"waiting to retry the model: {data['reason']}")
            what = "the step is tried again" if data.get("outage") else f"retry {data['attempt']}"
            yield _warning(f"{what} in {data['wait']:.1f} s: {data['reason']}")
        elif event.kind == "model-wait":
            self._do(f"waiting: {data['reason']}")
            if data["wait"] >= SHOWN_WAIT:
                yield _aside(f"waits, up to {data['wait']:.1f} s until a reset: {data['reason']}")
        else:
            self._do("thinking")
            yield _warning(f"model {data['to']} replaces {data['from']}: {data['reason']}")
            if data.get("warning"):
                yield _warning(data["warning"])

    def _observation(self, data: dict[str, Any]) -> Line:
        if data.get("calls"):
            self.spent.add(data)
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
        return _aside(f"memory: {did.format(**data)} ({by}{why})")

    def _remember(self, data: dict[str, Any]) -> None:
        """Note what memory is doing; empty data means nothing."""
        doing = {"observe": "observing", "reflect": "condensing"}
        again = " again" if data.get("again") else ""
        self.remembering = (
            f"{doing[data['purpose']]} {data['tokens']:,} tokens{again}" if data else ""
        )

    def _held(self, sizes: tuple[int, int]) -> str:
        """Return the tokens of raw messages and of observations, with their thresholds."""
        (raw, observed), (observe_at, reflect_at) = sizes, self._limits
        return (
            f"raw {short_number(raw)} of {short_number(observe_at)}, "
            f"observed {short_number(observed)} of {short_number(reflect_at)}"
        )


def _aside(text: str) -> Line:
    return Line(text, style="dim", wrapped=True)


def _warning(text: str) -> Line:
    return Line(text, style="yellow", wrapped=True)


def _activation(data: dict[str, Any]) -> Iterator[Line]:
    if data["left_out"] or data["cut"] or data["cause"] == "late":
        cause = CAUSES.get(data["cause"], data["cause"])
        yield _aside(
            f"context: {counted(data['left_out'], 'message')} left the prompt, "
            f"{counted(data['cut'], 'tool result')} cut, {data['tokens']:,} tokens stay ({cause})"
        )


def _recall(data: dict[str, Any]) -> Iterator[Line]:
    if data["why"]:
        yield _warning(f"recall is degraded: {data['why']}")
    if count := len(data["found"]):
        yield _aside(f"recalled {counted(count, 'earlier message')}")
