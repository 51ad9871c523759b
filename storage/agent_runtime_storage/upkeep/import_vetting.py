"""Reduce an export that another person may have written to history, which starts nothing.

The writer of an export chose every value in it, and its checksum vouches for none of them.  So an
import takes only the record of the past: messages, calls and their results, observations, plans,
events, files and usage.  It drops everything that waits to be done, that configures work, or that
can be derived again: specs of runs, questions, approvals, inbox items, jobs, activations (system
prompt, tool schemas, model) and vectors.
"""

from __future__ import annotations

import time
from typing import Any, cast, get_args

import orjson

from agent_runtime_storage.contract.records.files import FileKind, FileOrigin
from agent_runtime_storage.contract.records.log import (
    ACTIVE,
    CallOutcome,
    JsonObject,
    NodeKind,
    NodeStatus,
    RunStatus,
    StopReason,
    Vet,
)
from agent_runtime_storage.upkeep.export_format import Fields, Section

IMPORT_REFUSAL = "Refused: the thread was imported, and nothing of an import is run."
_LEFT_OUT = ("activations", "approvals", "inbox", "jobs", "questions", "vectors")
_REFUSED_BODY = orjson.dumps({"text": IMPORT_REFUSAL, "outcome": "refused"})
"""A result as the engine encodes it."""
# About the size of `IMPORT_REFUSAL` in a prompt.
_REFUSED_TOKENS = 20
_OVER = "It was not over when its thread was exported; nothing of an import goes on."

_MOST = 10**15
"""The largest count or sum in nanodollars; thousands of them still add up within 64 bits."""
_LONGEST = 200_000
"""Characters of a text, and bytes of a JSON column; bodies have no limit."""
_END_OF_TIME = 253_402_300_800
"""The year 10,000, which Python's `datetime` cannot show."""
_FREE = {"title", "detail", "agent", "name", "tool"}
"""Columns of free text; all other texts are names, printed unescaped, and must be printable."""
_VALUES: dict[tuple[str, str], tuple[str, ...]] = {
    ("runs", "status"): get_args(RunStatus),
    ("runs", "stop_reason"): get_args(StopReason),
    ("nodes", "kind"): get_args(NodeKind),
    ("nodes", "status"): get_args(NodeStatus),
    ("calls", "status"): ("pending", "started", "done"),
    ("calls", "outcome"): get_args(CallOutcome),
    ("files", "kind"): get_args(FileKind),
    ("files", "origin"): get_args(FileOrigin),
}


def strip_to_history(section: Section, fields: Fields, max_title_chars: int) -> bool:
    """Remove everything from a record that could start work; return whether to import the rest.

    Raises:
        InvalidExport: a value is out of bounds.
    """
    if section.name in _LEFT_OUT:
        return False
    _bound(section, fields)
    match section.name:
        case "thread":
            # The limit of where it comes from may be another.
            fields.values["title"] = fields.values["title"][:max_title_chars]
            fields.values |= {"active_run": None, "last_activation": 0, "last_inbox": 0}
            # The same path is another folder on this machine.
            metadata = fields.values["metadata"]
            fields.values["metadata"] = {k: v for k, v in metadata.items() if k != "workspace"}
        case "runs":
            _end(fields.values)
        case "nodes":
            _close(fields)
        case "calls":
            _refuse(fields)
        case "observations":
            _check_parts(fields)
        case "usage":
            # The calibration of token counts learns from reported usage, and must not learn lies.
            fields.values["reported"] = False
        case _:
            pass
    return True


def validate_record_body(section: Section, fields: Fields, vet: Vet) -> int:
    """Check the body of a record; return the number of calls if it is a node, else 0.

    Raises:
        InvalidExport: the engine could not read the body.
    """
    kind = section.name.removesuffix("s")
    if kind not in ("node", "call", "observation", "plan", "document"):
        return 0
    try:
        role, calls = vet(kind, fields.bodies["body"])
    except (ValueError, TypeError, KeyError, RecursionError):
        fields.fail(f"the body of a record of {section.name} is not of the runtime's form.")
    if kind != "node":
        return 0
    if fields.values["role"] != role:
        fields.fail(f"node {fields.values['id']} has another role than its message.")
    if (fields.values["kind"] == "exchange") != bool(calls):
        fields.fail(f"node {fields.values['id']} is no exchange with calls, nor a message.")
    return calls


def _bound(section: Section, fields: Fields) -> None:
    now = time.time()
    for column in section.columns:
        value: Any = fields.values.get(column.name)
        if value is None:
            continue
        what = f"the {column.name} of a record of {section.name}"
        match column.kind:
            case "int":
                if not 0 <= value <= _MOST:
                    fields.fail(f"{what} is out of bounds.")
            case "float":
                if not 0 <= value < _END_OF_TIME:
                    fields.fail(f"{what} is no moment.")
                # A thread from the future would head every list, and never count as idle.
                fields.values[column.name] = min(value, now)
            case "json" if len(orjson.dumps(value)) > _LONGEST:
                fields.fail(f"{what} is too long.")
            case "text":
                if len(value) > _LONGEST:
                    fields.fail(f"{what} is too long.")
                if "\0" in value or not (column.name in _FREE or value.isprintable()):
                    fields.fail(f"{what} holds characters that cannot be shown.")
                known = _VALUES.get((section.name, column.name))
                if known is not None and value not in known:
                    fields.fail(f"{what} is none of {', '.join(known)}.")
            case _:
                pass


def _end(values: dict[str, Any]) -> None:
    """End a run for good: `take_run` refuses runs with the stop reason `imported`."""
    spec: JsonObject = {}
    if values["status"] in ACTIVE:
        values |= {"status": "cancelled", "detail": _OVER}
    # Only a success keeps its reason: any other may allow a run to be resumed.
    reason = "completed" if values["status"] == "succeeded" else "imported"
    values |= {"stop_reason": reason, "spec": spec, "open_node": None, "cancel_requested": False}
    values["commit_id"] = ""
    if values["finished_at"] is None:
        values["finished_at"] = values["updated_at"]
    for unit in ("tokens", "cost"):
        # What was reserved may have been billed.
        values[f"tree_unsettled_{unit}"] += values[f"tree_reserved_{unit}"]
        values |= {f"tree_reserved_{unit}": 0, f"own_reserved_{unit}": 0}


def _close(fields: Fields) -> None:
    if fields.values["status"] == "open" and fields.values["kind"] != "exchange":
        fields.fail(f"node {fields.values['id']} is open, and no exchange.")
    fields.values |= {"status": "closed", "activation_id": 0}


def _refuse(fields: Fields) -> None:
    if fields.values["status"] != "done":
        fields.values |= {"outcome": "refused", "shown": None, "tokens": _REFUSED_TOKENS}
        fields.bodies["body"] = _REFUSED_BODY
    elif fields.values["outcome"] is None:
        fields.fail("a call is done without an outcome.")
    fields.values["status"] = "done"


def _check_parts(fields: Fields) -> None:
    try:
        parts: Any = orjson.loads(fields.values["parts"])
    except orjson.JSONDecodeError:
        parts = None
    ids = cast("list[Any]", parts) if isinstance(parts, list) else [None]
    if not all(type(part) is int for part in ids):
        fields.fail("the parts of an observation are no list of ids.")
