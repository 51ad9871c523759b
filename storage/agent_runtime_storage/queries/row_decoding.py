"""Decode rows, in the column order of the `.sql` files, to records.

A body is three columns: the inline body, the place of the rest, and a blob's data.  The place is
empty for an inline body, else the blob's codec, `lost` if the blob is missing, or the key of an
object.  `OwnerScope.read` fetches the objects for the queries in `BODIES`, so the functions here
find every body in its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from agent_runtime_storage.contract.records.files import FileRow
from agent_runtime_storage.contract.records.log import (
    Activation,
    Amount,
    Budget,
    CallRow,
    EventRow,
    InboxItem,
    LeaseOwner,
    Node,
    Run,
    Thread,
)
from agent_runtime_storage.contract.records.observations import ObservationRow
from agent_runtime_storage.contract.records.plans import PlanRow
from agent_runtime_storage.contract.records.usage import Usage, UsageTotal
from agent_runtime_storage.drivers.protocol import Row, Value
from agent_runtime_storage.objects.bodies import unpack_body
from agent_runtime_storage.objects.object_store import is_object_key
from agent_runtime_storage.queries.run_spec import decode_spec

_NODE = (9,)
_RUN = (15,)
BODIES: Mapping[str, tuple[int, ...]] = {
    "branch": _NODE,
    "node": _NODE,
    "children": _NODE,
    "call": _NODE,
    "activation": (7, 9),
    "activations": (5, 7),
    "activations_by_id": (5, 7),
    "observations": (8,),
    "plan": (5,),
    "plans": (5,),
    "inbox": (4,),
    "blob": (0,),
    "run": _RUN,
    "runs": _RUN,
    "runs_not_over": _RUN,
    "runs_of_thread": _RUN,
    "runs_of_parent": _RUN,
    "runs_of_parent_thread": _RUN,
    "runs_of_root": _RUN,
    "active_roots": _RUN,
    "ended_roots": _RUN,
    "export_runs": (14,),
    "export_nodes": (8,),
    "export_calls": (6,),
    "export_activations": (5, 8),
    "export_observations": (9,),
    "export_plans": (5,),
    "export_inbox": (4,),
    "export_jobs": (4,),
    "export_files": (7,),
    "file_body": (1,),
}
"""For each query with bodies, the columns that hold a body's place; the next one holds its data."""


def objects_in(rows: Sequence[Row], columns: Sequence[int]) -> set[str]:
    """Return the keys of the objects that the rows refer to in these columns."""
    return {row[column] for row in rows for column in columns if is_object_key(row[column])}


def with_bodies(
    rows: Sequence[Row], columns: Sequence[int], bodies: Mapping[str, bytes]
) -> list[Row]:
    """Return the rows with the bodies of objects instead of their keys."""
    filled: list[Row] = []
    for row in rows:
        values = list(row)
        for column in columns:
            if is_object_key(row[column]):
                values[column : column + 2] = "raw", bodies[row[column]]
        filled.append(tuple(values))
    return filled


def to_thread(row: Row) -> Thread:
    """Decode `thread_columns`."""
    identity, title, metadata, *rest = row
    return Thread(identity, title, orjson.loads(metadata), *rest)


def to_call(row: Row) -> CallRow:
    """Decode `call_columns`."""
    _, node_id, index, tool, status, outcome, _, shown, inline, codec, data, tokens, _ = row
    body = unpack_body(inline, codec, data, {"node": node_id, "call": index})
    return CallRow(node_id, index, tool, status, outcome, body, shown, tokens)


def to_nodes(rows: Sequence[Row]) -> list[Node]:
    """Decode `node_columns` and `call_columns`, in any order, to nodes in the order of `seq`."""
    calls: dict[int, list[CallRow]] = {}
    for row in rows:
        if row[0] == 1:
            calls.setdefault(row[1], []).append(to_call(row))
    nodes: list[Node] = []
    for row in rows:
        if row[0] == 1:
            continue
        _, seq, parent, kind, status, role, run, activation, inline, codec, data, tokens, at = row
        body = unpack_body(inline, codec, data, {"node": seq})
        own = tuple(sorted(calls.get(seq, ()), key=lambda call: call.index))
        nodes.append(Node(seq, parent, kind, status, role, run, activation, body, tokens, at, own))
    # Here and not in the query: sorting there would carry the bodies along.
    nodes.sort(key=lambda node: node.seq)
    return nodes


def to_activation(row: Row) -> Activation:
    """Decode the columns of `activation` from the activation's id on."""
    (identity, anchor, run_id, cause, inline, codec, data, prefix_codec, prefix, at) = row
    what = {"activation": identity}
    return Activation(
        id=identity,
        anchor=anchor,
        run_id=run_id,
        cause=cause,
        body=unpack_body(inline, codec, data, what),
        prefix=unpack_body(b"", prefix_codec, prefix, what),
        created_at=at,
    )


def to_observation(row: Row) -> ObservationRow:
    """Decode a row of `observations`."""
    identity, level, parent_id, first, last, parts, provisional, inline, codec, data, *rest = row
    return ObservationRow(
        identity,
        level,
        parent_id,
        first,
        last,
        tuple(orjson.loads(parts)),
        bool(provisional),
        unpack_body(inline, codec, data, {"observation": identity}),
        *rest,
    )


def to_plan(row: Row) -> PlanRow:
    """Decode `plan_columns`."""
    identity, node_id, call_id, run_id, inline, codec, data, at = row
    body = unpack_body(inline, codec, data, {"plan": identity})
    return PlanRow(identity, node_id, call_id, run_id, body, at)


def to_run(row: Row) -> Run:
    """Decode `run_select`."""
    (run_id, thread_id, parent, root, agent, status, stop_reason, detail, task_id) = row[:9]
    (open_node, steps, max_steps, cancel_requested, spec, inline, codec, data) = row[9:17]
    (epoch, host, boot, pid, started, lease_live) = row[17:23]
    budget, reserved, settled, unsettled = row[23:25], row[25:27], row[27:29], row[29:31]
    kept, (created_at, updated_at, finished_at) = row[31:33], row[33:36]
    machine, instance = row[36:]
    caller, internal = decode_spec(spec)
    return Run(
        id=run_id,
        thread_id=thread_id,
        parent_run_id=parent,
        root_run_id=root,
        agent=agent,
        status=status,
        stop_reason=stop_reason,
        detail=detail,
        task_id=task_id,
        open_node=open_node,
        steps=steps,
        max_steps=max_steps,
        cancel_requested=bool(cancel_requested),
        spec=caller,
        internal=internal,
        output=unpack_body(inline, codec, data, {"run": run_id}),
        epoch=epoch,
        owner=None if host is None else LeaseOwner(host, boot, pid, started, machine, instance),
        lease_live=bool(lease_live),
        budget=Budget(*budget),
        reserved=Amount(*reserved),
        settled=Amount(*settled),
        unsettled=Amount(*unsettled),
        kept=Amount(*kept),
        created_at=created_at,
        updated_at=updated_at,
        finished_at=finished_at,
    )


def to_event(row: Row) -> EventRow:
    """Decode a row of `events`."""
    identity, run_id, kind, node_id, data, at = row
    return EventRow(identity, run_id, kind, node_id, orjson.loads(data), at)


def to_appended_event(params: Mapping[str, Value], row: Row) -> EventRow:
    """Return an event from what was inserted, and the id and time that this returned."""
    identity, at = row
    run_id, kind, node_id, data = (params[name] for name in ("run_id", "kind", "node_id", "data"))
    return to_event((identity, run_id, kind, node_id, data, at))


def to_inbox_item(row: Row) -> InboxItem:
    """Decode a row of `inbox`."""
    identity, run_id, kind, inline, codec, data, at = row
    body = unpack_body(inline, codec, data, {"inbox item": identity})
    return InboxItem(identity, run_id, kind, body, at)


def to_file(row: Row) -> FileRow:
    """Decode a row of `files`."""
    return FileRow(*row)


def to_usage(row: Row) -> Usage:
    """Decode a row of `recent_usage`."""
    *figures, reported, identity, at = row
    return Usage(*figures, reported=bool(reported), id=identity, created_at=at)


def to_usage_total(row: Row) -> UsageTotal:
    """Decode `usage_sums`."""
    return UsageTotal(*(int(figure) for figure in row))
