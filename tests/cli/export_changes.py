"""Changes of an export that leave it as the runtime could have written it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias, get_args

from hypothesis import strategies as st

from agent_runtime.messages import AssistantMessage, UserMessage, encode_message
from agent_runtime_storage.contract.records.log import CallOutcome, RunStatus, StopReason
from agent_runtime_storage.upkeep.export_format import BODY_KINDS, SECTIONS_BY_NAME, Column

Records: TypeAlias = list[dict[str, Any]]
Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=20)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(0, 2**40) | WORDS | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
HOSTILE_SPEC = {"workspace": "/", "allow_shell": True, "memory": True, "kind": "workflow"}
OBJECTS = st.just(HOSTILE_SPEC) | st.dictionaries(WORDS, JSON, max_size=3)
TIED = frozenset({"id", "bytes", "kind", "role", "thread", "head", "open_node", "active_run"})
"""Columns that other records depend on; those whose names end as below depend on others."""
TIED_ENDS = ("_id", "_node", "last_seq", "last_activation", "last_event", "last_usage", "position")
ENUMS: dict[tuple[str, str], tuple[str, ...]] = {
    ("runs", "status"): get_args(RunStatus),
    ("runs", "stop_reason"): get_args(StopReason),
    ("nodes", "status"): ("closed",),
    ("calls", "status"): ("pending", "started", "done"),
    ("calls", "outcome"): get_args(CallOutcome),
    ("files", "origin"): ("upload", "tool"),
}
DROPPED = ("questions", "approvals", "inbox", "jobs", "activations")
"""Sections with what waits or configures, of which nothing may be taken in."""


def _changed_value(draw: Draw, records: Records) -> Records:
    """Give a column that nothing depends on another value of its type."""
    places = [
        (place, column)
        for place, record in enumerate(records[1:-1], 1)
        for column in SECTIONS_BY_NAME[record["section"]].columns
        if column.name not in TIED and not column.name.endswith(TIED_ENDS)
        if column.kind not in BODY_KINDS and column.name in record
    ]
    chosen: tuple[int, Column] = draw(st.sampled_from(places))
    place, column = chosen
    record = records[place]
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "text": WORDS,
        "int": st.integers(0, 10**9),
        "float": st.floats(0, 4e9),
        "flag": st.booleans(),
        "json": OBJECTS,
    }
    known = ENUMS.get((record["section"], column.name))
    value = draw(st.sampled_from(known) if known else kinds[column.kind])
    if column.name == "parts":
        value = "[]"
    return [*records[:place], record | {column.name: value}, *records[place + 1 :]]


def _changed_body(draw: Draw, records: Records) -> Records:
    """Change a text or the arguments of a call inside a body, which stays well-formed."""
    places = [
        place
        for place, record in enumerate(records)
        if record.get("section") in ("nodes", "calls", "observations", "plans", *DROPPED)
        if isinstance(record.get("body"), str) and record["body"].startswith("{")
    ]
    place: int = draw(st.sampled_from(places))
    body: dict[str, Any] = json.loads(records[place]["body"])
    for one in body.get("calls", ()):
        if draw(st.booleans()):
            one["arguments"] = draw(OBJECTS)
        if draw(st.booleans()):
            one["name"] = draw(st.sampled_from(["bash", "write_file", "ask_user", "none"]))
    for name in ("text", "state", "system"):
        if isinstance(body.get(name), str):
            body[name] = draw(WORDS)
    return [
        *records[:place],
        records[place] | {"body": json.dumps(body)},
        *records[place + 1 :],
    ]


def _more_of(draw: Draw, records: Records) -> Records:
    """Repeat a record of what waits, under another id and with other values."""
    found = [place for place, one in enumerate(records) if one.get("section") in DROPPED]
    place: int = draw(st.sampled_from(found))
    record = records[place]
    again = record | {"id": record["id"] + 1} if isinstance(record["id"], int) else record
    return [*records[: place + 1], again, *records[place + 1 :]]


def _another_run(draw: Draw, records: Records) -> Records:
    """Add a run: a copy below or above another one, of any status."""
    found = [place for place, one in enumerate(records) if one.get("section") == "runs"]
    place: int = draw(st.sampled_from(found))
    record, new = records[place], str(draw(st.uuids()))
    status = draw(st.sampled_from(get_args(RunStatus)))
    run = record | {"id": new, "status": status, "open_node": None, "task_id": None}
    if draw(st.booleans()):
        run |= {"parent_run_id": record["id"], "root_run_id": record["root_run_id"]}
        return [*records[: place + 1], run, *records[place + 1 :]]
    above = record | {"parent_run_id": new, "root_run_id": new}
    return [*records[:place], above, run | {"root_run_id": new}, *records[place + 1 :]]


def _another_head(draw: Draw, records: Records) -> Records:
    """Move the head to another node, or before the first; end or begin the thread's run."""
    thread = records[1]
    nodes = [one for one in records if one.get("section") == "nodes" and one["status"] == "closed"]
    runs = [one["id"] for one in records if one.get("section") == "runs"]
    head = draw(st.sampled_from([None, *(one["id"] for one in nodes)]))
    active = draw(st.sampled_from([None, *runs]))
    return [records[0], thread | {"head": head, "active_run": active}, *records[2:]]


def _another_node(draw: Draw, records: Records) -> Records:
    """Append a message: of the user, or of the model."""
    last = max(place for place, one in enumerate(records) if one.get("section") == "nodes")
    count = records[1]["last_seq"] + 1
    closed = [one["id"] for one in records if one.get("section") == "nodes"][:-1]
    role = draw(st.sampled_from(["user", "assistant"]))
    message = UserMessage(draw(WORDS)) if role == "user" else AssistantMessage(draw(WORDS))
    node = records[last] | {
        "id": count,
        "parent_id": draw(st.sampled_from(closed)),
        "kind": "message",
        "status": "closed",
        "role": role,
        "body": encode_message(message).decode(),
    }
    records = [*records[: last + 1], node, *records[last + 1 :]]
    return [records[0], records[1] | {"last_seq": count}, *records[2:]]


def _a_memory(draw: Draw, records: Records) -> Records:
    """Add a node memory."""
    turn = {"message_id": "m", "parent_message_id": None, "role": "user", "content": draw(WORDS)}
    memory = {
        "section": "documents",
        "version": 1,
        "collection": "node_memory",
        "scope": "app",
        "name": f"{draw(st.uuids())}.json",
        "body": json.dumps({"version": 1, "messages": [turn]}),
    }
    return [*records[:-1], memory, records[-1]]


CHANGES = (
    _changed_value,
    _changed_value,
    _changed_body,
    _more_of,
    _another_run,
    _another_head,
    _another_node,
    _a_memory,
)
