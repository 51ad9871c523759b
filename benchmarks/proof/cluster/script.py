"""What the runs of the cluster do: the steps of each kind, and a model that knows only its prompt.

Every tool call has an item of its own, `NAME/STEP/INDEX/TOOL`, so whoever counts effects needs
nothing of the runtime.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from agent_runtime.testing import Reply

Kind = Literal["alone", "inside", "placed", "tick", "part"]
ROOTS: tuple[Kind, ...] = ("alone", "placed", "inside", "placed")
"""The kinds of the runs that are enqueued, in turn."""
IDEMPOTENT = frozenset({"put", "fetch"})
PARTS = 2
"""How many sub-agents a run has that has any."""
_DELEGATES = (("send",), ("delegate",) * PARTS, ("put", "press"))
PLANS: Mapping[Kind, tuple[tuple[str, ...], ...]] = {
    "alone": (("send",), ("put", "press"), ("send", "fetch"), ("press",)),
    "inside": _DELEGATES,
    "placed": _DELEGATES,
    "tick": (("press",),),
    "part": (("send",), ("press", "put")),
}
"""The tools that each step calls; then the agent answers."""
SLOWEST = 0.4
"""Seconds that the model takes at most, so that faults meet calls."""

_TASK = re.compile(rf"Do (\S+) as ({'|'.join(get_args(Kind))})\.")
_STEP = re.compile(r"Step (\d+)\.")


def task_of(name: str, kind: Kind) -> str:
    """Return the task of a run."""
    return f"Do {name} as {kind}."


def answer_of(name: str) -> str:
    """Return the last answer of a run."""
    return f"{name} is done."


def part_of(name: str, index: int) -> str:
    """Return the name of a run's sub-agent."""
    return f"{name}+{index}"


def root_of(name: str) -> str:
    """Return the name of the run at the root of a run's tree."""
    return name.partition("+")[0]


def items_of(name: str, kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield the items of a run and of its sub-agents, each with its tool."""
    for step, tools in enumerate(PLANS[kind]):
        for index, tool in enumerate(tools):
            if tool == "delegate":
                yield from items_of(part_of(name, index), "part")
            else:
                yield _item(name, step, index, tool), tool


def _item(name: str, step: int, index: int, tool: str) -> str:
    return f"{name}/{step}/{index}/{tool}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for: the next step of a run."""

    name: str
    kind: Kind
    step: int

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Asked:
        """Read it from a request in OpenAI's form."""
        name, kind, step = "", "", 0
        for message in request["messages"]:
            text = _text(message)
            if message["role"] == "assistant" and (found := _STEP.match(text)):
                step = int(found[1]) + 1
            elif not name and message["role"] == "user" and (found := _TASK.search(text)):
                name, kind = found.groups()
        return cls(name, cast(Kind, kind), step)


def reply(request: dict[str, Any], n: int) -> Reply:
    """Answer a request of any run."""
    del n
    asked = Asked.of(request)
    # The same at each attempt, and different for each step.
    share = zlib.crc32(f"{asked.name} {asked.step}".encode()) / 2**32
    delay, plan = SLOWEST * share, PLANS[asked.kind]
    if asked.step >= len(plan):
        return Reply(text=answer_of(asked.name), delay=delay)
    calls = tuple(
        (tool, _arguments(asked, index, tool)) for index, tool in enumerate(plan[asked.step])
    )
    return Reply(text=f"Step {asked.step}.", calls=calls, delay=delay)


def _arguments(asked: Asked, index: int, tool: str) -> dict[str, Any]:
    if tool != "delegate":
        return {"item": _item(asked.name, asked.step, index, tool)}
    part = part_of(asked.name, index)
    briefing = task_of(part, "part")
    return {"role": "worker", "instructions": "Work.", "briefing": briefing, "task_key": part}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, Any]]", content or [])
    return "\n".join(str(part.get("text", "")) for part in parts)
