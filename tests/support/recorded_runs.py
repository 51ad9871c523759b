"""Recorded runs as the events that ours would send."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from agent_runtime.events import Event, EventKind

TRACES = "claude_code_traces/traces.jsonl.zst"
NAMES = {"Bash": "bash", "Read": "read_file", "Edit": "edit_file", "Write": "write_file"}


def recorded_runs(folder: Path, most: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages of recorded runs."""
    import zstandard

    with (folder / TRACES).open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        for line in islice(lines, most):
            yield json.loads(line)["messages"]


def events_of(messages: list[dict[str, Any]], steps: int) -> Iterator[Event]:
    """Yield the events of a run's first steps."""
    results = {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}
    answers = [one for one in messages if one["role"] == "assistant"]
    yield _event("run-start", agent="a", model="recorded", max_steps=len(answers), resumed=False)
    for step, message in enumerate(answers[:steps], 1):
        text = str(message.get("content") or "")
        calls: list[dict[str, Any]] = message.get("tool_calls") or []
        for start in range(0, len(text), 24):
            yield _event("text-delta", text=text[start : start + 24])
        usage: dict[str, Any] = message.get("usage") or {}
        prompt = sum(usage.get(name) or 0 for name in ("input", "cache_read", "cache_write"))
        yield _event(
            "answer", step=step, calls=len(calls), prompt_tokens=prompt,
            cached_tokens=usage.get("cache_read") or 0, completion_tokens=100, cost=prompt * 300,
        )  # fmt: skip
        for call in calls:
            yield _event(
                "tool-start", call_id=call["id"], tool=_name(call), arguments=_arguments(call)
            )
        for call in calls:
            text = str(results.get(call["id"]) or "")
            failed = text.startswith("<tool_use_error>")
            yield _event(
                "tool-finish", call_id=call["id"], tool=_name(call), chars=len(text), cut=False,
                outcome="error" if failed else "ok", result=text,
            )  # fmt: skip
    yield _event("run-finish", status="succeeded", stop_reason="completed", detail="")


def _name(call: dict[str, Any]) -> str:
    name = str(call["function"]["name"])
    return NAMES.get(name, name)


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(json.loads(call["function"]["arguments"]))
    except (ValueError, TypeError):
        return {}


def _event(kind: EventKind, **data: Any) -> Event:
    return Event(kind, "thread-1", "run-1", data=data)
