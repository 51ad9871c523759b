"""The asking half of a survey by sub-agents: which parts there are, and what came of each.

A part is a piece of the folder's listing; all have the same number of entries, and an attempt may
take a third more steps than a part of average size needs.  Where the files are many or large it
stops before it is through; the next one is told so by the log of attempts, goes on from there, and
may take twice as many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import orjson

from agent_runtime.messages import ToolCall, ToolSpec
from agent_runtime.models.base import RawCall
from agent_runtime.offline import reader as reading
from agent_runtime.offline import report
from agent_runtime.offline import tool_output as parse
from agent_runtime.offline.answers import STOPPED, call
from agent_runtime.offline.state import FolderPart, State

DELEGATE = "delegate"
RECALL = "recall"
MOST_PARTS = 12
LEAST_ENTRIES = 10
"""A smaller folder is one part."""
MARGIN = 4 / 3
OVERHEAD = 2
"""The steps of a reader that read nothing: it lists, and it answers."""
MOST_IDLE = 2
"""After so many attempts in a row that came no further a part is given up."""
LABEL_CHARS = 40


def can_delegate(tools: Iterable[ToolSpec]) -> bool:
    """Return whether sub-agents can read, with the tools at hand."""
    return {DELEGATE, RECALL} <= {tool.name for tool in tools}


def divide(entries: int) -> list[FolderPart]:
    """Return the parts of a folder of so many entries."""
    count = max(1, min(MOST_PARTS, entries // LEAST_ENTRIES))
    size = max(1, -(-entries // count))
    return [
        FolderPart(f"part-{number}", first, min(first + size, entries))
        for number, first in enumerate(range(0, max(entries, 1), size), 1)
    ]


def mark(state: State, place: int, path: str) -> None:
    """Keep how many files lie before the part that begins with an entry of the listing."""
    for part in state.parts:
        if part.first == place:
            part.ordinal = state.files
            part.label = path if len(path) <= LABEL_CHARS else f"{path[: LABEL_CHARS - 1]}…"


def fit_parts(state: State) -> list[dict[str, Any]]:
    """Fit the parts to what was listed; return the changes of the plan that tell of them."""
    state.parts[-1].end = max(state.parts[-1].end, state.listed)
    changes: list[dict[str, Any]] = []
    for part in state.parts:
        part.end = min(part.end, state.listed)
        part.offset, part.at = part.first, part.ordinal
        count = _chosen(state, part)
        if not count:
            part.done = True
            changes.append({"id": part.id, "status": "skipped", "result": "no files to read"})
        else:
            words = f"Read {count:,} files, from `{part.label}` on"
            changes.append({"id": part.id, "description": words})
        part.label = ""
    return changes


def wave(state: State) -> list[RawCall]:
    """Return the calls that hand over what is left to read."""
    return [_delegate(state, part) for part in state.parts if not part.done]


def asked(state: State, calls: Sequence[ToolCall]) -> None:
    """Keep which calls were made, so that their outcomes can be opened."""
    places = {part.id: place for place, part in enumerate(state.parts)}
    made = [one for one in calls if one.name == DELEGATE]
    state.outcomes = [(places[str(one.arguments["task_key"])], one.id) for one in made]


def gather(state: State, result: str) -> str:
    """Take in the next outcome; return what it adds to the report."""
    place, _ = state.outcomes.pop(0)
    part = state.parts[place]
    opened = parse.recalled(result)
    if opened is not None and opened[1].startswith(STOPPED):
        # It was stopped with this run, and is asked for again.
        return ""
    part.tries += 1
    outcome = _outcome(opened[1]) if opened else {}
    reader = reading.parse_reader_answer(str(outcome.get("result") or ""))
    ended = outcome.get("status") == "succeeded"
    if reader is None or reader.following[0] < part.offset:
        _stopped(part, _why(outcome) or "its outcome could not be opened whole", 0)
        return ""
    further = reader.following[0] > part.offset
    part.offset, part.at = reader.following
    part.done = part.offset >= part.end
    state.opened += reader.opened
    state.lines += reader.lines
    state.binary += reader.binary
    state.failed += reader.failed
    if not part.done:
        _stopped(part, "answered" if ended else _why(outcome), reader.files, further=further)
    return "".join(f"{line}\n" for line in reader.found)


def _stopped(part: FolderPart, why: str, files: int, *, further: bool = False) -> None:
    """Keep why an attempt ended too early; give the part up after too many such."""
    part.idle = 0 if further else part.idle + 1
    part.done = part.idle >= MOST_IDLE
    what = "given up after" if part.done else "stopped after"
    part.stops.append(f"attempt {part.tries} {what} {files:,} files ({why})")


def _why(outcome: dict[str, Any]) -> str:
    blockers = cast("list[str]", outcome.get("blockers") or [])
    reason = str(outcome.get("stop_reason") or "")
    if reason in ("max_steps", "cancelled"):
        return reason
    return report.one_line("; ".join([reason, *blockers][:3]).strip("; "))


def _delegate(state: State, part: FolderPart) -> RawCall:
    known: dict[str, Any] = {}
    if part.tries:
        known = {
            "diagnosis": part.stops[-1] if part.stops else "",
            "fix_applied": reading.go_on(part),
        }
    return call(
        DELEGATE,
        role=reading.ROLE,
        instructions=reading.INSTRUCTIONS,
        briefing=reading.briefing(state, part),
        tools=list(reading.TOOLS),
        task_key=part.id,
        max_steps=_steps(state) << min(part.tries, 3),
        **known,
    )


def _steps(state: State) -> int:
    """Return the steps of an attempt."""
    counts = [count for part in state.parts if (count := _chosen(state, part))]
    files = sum(counts) / len(counts)
    bytes_ = files * state.bytes / state.files
    reads = max(files / reading.TOGETHER, min(files, bytes_ / reading.TOGETHER_BYTES))
    return OVERHEAD + math.ceil(MARGIN * reads)


def _chosen(state: State, part: FolderPart) -> int:
    """Return how many files of a part are read."""
    later = [
        one.ordinal for one in state.parts if one.first > part.first and one.first < state.listed
    ]
    end = min(later, default=state.files)
    return -(-end // state.stride) - -(-part.ordinal // state.stride)


def _outcome(text: str) -> dict[str, Any]:
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
