"""The sub-agents of a run, as their events report them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_runtime.cli.display.calls import call_text
from agent_runtime.cli.display.figures import seconds_text
from agent_runtime.cli.terminal import short_number, shorten
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime.events import Event

MOST_SHOWN = 8
"""Most sub-agents to show at once, each on a line; the others are counted."""
NAME_WIDTH = 40
DOING_WIDTH = 60
MARKS = {"succeeded": "[x]", "failed": "[!]", "cancelled": "[-]", "suspended": "[?]"}
"""Marks of sub-agents that are not active, as in the plan's checklist."""


@dataclass(slots=True)
class SubAgent:
    """A sub-agent's run.

    Attributes:
        name: its role, its task's key and the number of the attempt.
        began, ended: seconds on the clock of `SubAgents`; `ended` is None while it is active.
        how: how it ended; empty while it is active.
    """

    name: str
    depth: int
    max_steps: int
    began: float
    steps: int = 0
    tokens: int = 0
    doing: str = "thinking"
    status: str = "running"
    how: str = ""
    ended: float | None = None

    def line(self, now: float) -> str:
        """Return it as one line."""
        seconds = (now if self.ended is None else self.ended) - self.began
        used = f"{short_number(self.tokens)} tokens · {seconds_text(seconds)}"
        if self.status == "running":
            at = f"step {self.steps}/{self.max_steps} · {used}"
            return f"[>] {self.name} · {self.doing} · {at}"
        mark = MARKS.get(self.status, "[-]")
        return f"{mark} {self.name} · {self.how} · {counted(self.steps, 'step')} · {used}"


@dataclass(slots=True)
class SubAgents:
    """All sub-agents of a run, down to those of sub-agents.

    Attributes:
        clock: seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _known: dict[str, SubAgent] = field(default_factory=dict[str, SubAgent])
    _tries: dict[str, int] = field(default_factory=dict[str, int])

    def update(self, event: Event) -> list[str]:
        """Apply an event of a sub-agent; return the lines of its start and its end."""
        data: dict[str, Any] = dict(event.data)
        if event.kind == "run-start":
            return self._start(event.run_id, data)
        one = self._known.get(event.run_id)
        # Its start was before this process listened, as when a run is resumed.
        if one is None:
            return []
        match event.kind:
            case "answer" | "observation":
                one.steps = data.get("step", one.steps)
                one.tokens += data.get("prompt_tokens") or 0
                one.tokens += data.get("completion_tokens") or 0
                one.doing = "thinking"
            case "text-delta":
                one.doing = "answering"
            case "tool-start":
                one.doing = shorten(
                    call_text(data["tool"], data.get("arguments") or {}), DOING_WIDTH
                )
            case "tool-finish":
                one.doing = "thinking"
            case "model-retry":
                why = f"waiting to retry the model: {data['reason']}"
                one.doing = shorten(why, DOING_WIDTH)
            case "model-wait":
                one.doing = shorten(f"waiting: {data['reason']}", DOING_WIDTH)
            case "model-fallback":
                one.doing = shorten(f"asking {data['to']}", DOING_WIDTH)
            case "run-suspend" | "run-finish":
                return self._stop(one, data)
            case _:
                pass
        return []

    def shown(self, most: int = MOST_SHOWN) -> list[str]:
        """Return at most this many lines: the active ones first, then those that ended last."""
        known, now = list(self._known.values()), self.clock()
        active = [one for one in known if one.ended is None]
        ended = [one for one in known if one.ended is not None]
        ended.sort(key=lambda one: -(one.ended or 0))
        shown = [*active, *ended][:most]
        lines = ["  " * one.depth + one.line(now) for one in shown]
        hidden = [(len(active) - len(shown), "active")]
        # Neither shown nor active; the first number is negative if all active ones are shown.
        hidden.append((len(known) - len(shown) - max(0, hidden[0][0]), "ended"))
        more = [f"{count} more {what}" for count, what in hidden if count > 0]
        return [*lines, f"… {', '.join(more)}"] if more else lines

    def _start(self, run_id: str, data: dict[str, Any]) -> list[str]:
        above = self._known.get(data.get("parent") or "")
        known = self._known.get(run_id)
        key = data.get("task_key") or ""
        name = shorten(data["agent"], NAME_WIDTH)
        name += f" [{shorten(key, NAME_WIDTH)}]" if key else ""
        if known is None and key:
            task = f"{data.get('parent')} {key}"
            self._tries[task] = number = self._tries.get(task, 0) + 1
            name += f" again ({number})" if number > 1 else ""
        elif known is not None:
            name = known.name
        # A resumed one restarts its clock, since it did not work meanwhile.
        self._known[run_id] = SubAgent(
            name,
            above.depth + 1 if above else 0,
            data["max_steps"],
            self.clock(),
            steps=known.steps if known else 0,
            tokens=known.tokens if known else 0,
        )
        return [f"sub-agent {name} {'resumes' if data.get('resumed') else 'starts'}"]

    def _stop(self, one: SubAgent, data: dict[str, Any]) -> list[str]:
        reason = data.get("stop_reason") or ""
        one.status, one.ended = data["status"], self.clock()
        plain = reason in ("", "completed", one.status)
        one.how = one.status if plain else f"{one.status} ({reason})"
        return [f"sub-agent {one.line(one.ended)}"]
