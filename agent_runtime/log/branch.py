"""Convert between the store's rows and views: read a branch, make rows of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.errors import CorruptThread
from agent_runtime.messages import AssistantMessage, LoggedMessage, encode_message, searchable
from agent_runtime.prompt.build import (
    decode_activation,
    encode_prefix,
    encode_start,
    entry_of,
    view_of,
)
from agent_runtime.prompt.constraints import unstated
from agent_runtime.prompt.observation import Observation, decode_body
from agent_runtime.prompt.parts import FrontParts
from agent_runtime.prompt.render import message_tokens
from agent_runtime.prompt.view import ActivationContent, Entry, PromptPrefix, View
from agent_runtime_storage.contract.records.log import (
    Activation,
    NewActivation,
    NewEvent,
    NewNode,
    Node,
)
from agent_runtime_storage.contract.records.observations import ObservationRow
from agent_runtime_storage.contract.store import UserStore


def empty_view() -> View:
    """Return the view of a thread that has no nodes and no activation yet."""
    return _unactivated(())


def _unactivated(entries: Sequence[Entry]) -> View:
    return view_of(0, None, ActivationContent(), PromptPrefix(system=""), None, entries)


async def load_view(store: UserStore, thread_id: str, head: int | None) -> View:
    """Return a branch as prompts see it, read from the store.

    Raises:
        CorruptThread: the chain of nodes is broken.
    """
    row = await store.log.activation(thread_id, head)
    if row is None:
        # A branch without an activation was imported: its first run makes one.
        imported = [] if head is None else await store.log.branch(thread_id, head)
        return _unactivated([entry_of(node) for node in imported])
    return view_from(await read_branch(store, thread_id, row, head))


@dataclass(frozen=True, slots=True)
class BranchRows:
    """What a view is made of, as the store has it."""

    activation: Activation
    start: ActivationContent
    prefix: PromptPrefix
    nodes: Sequence[Node] = ()
    task: Node | None = None
    context: Sequence[Node] = ()
    observations: Sequence[ObservationRow] = ()


async def read_branch(
    store: UserStore, thread_id: str, row: Activation, head: int | None, *, raw: bool = True
) -> BranchRows:
    """Read a branch under one of its activations.

    Args:
        head: the last node; the prompt of an answer ends at the node before it.
        raw: whether to read the raw nodes, which come after what prompts begin with.

    Raises:
        CorruptThread: the chain of nodes is broken, or an observation is missing.
    """
    start, prefix = decode_activation(row)
    nodes: list[Node] = []
    if raw and head is not None:
        # Reading stops at the first raw node, so a long thread costs no more than its prompt.
        nodes = await store.log.branch(thread_id, head, first=start.first)
    task = None if start.task is None else await store.log.node(thread_id, start.task)
    context = [await store.log.node(thread_id, one) for one in start.context]
    rows = await store.log.observations(thread_id, ids=start.observed) if start.observed else []
    known = {row.id: row for row in rows}
    if lost := [one for one in start.observed if one not in known]:
        raise CorruptThread(
            f"Observation {lost[0]} of thread {thread_id} is missing from the log.",
            cure="Restore the database from a backup.",
        )
    observations = [known[one] for one in start.observed]
    return BranchRows(row, start, prefix, nodes, task, context, observations)


def view_from(rows: BranchRows) -> View:
    """Return the view of rows that were read."""
    return view_of(
        rows.activation.id,
        rows.activation.anchor,
        rows.start,
        rows.prefix,
        rows.task and entry_of(rows.task),
        [entry_of(node) for node in rows.nodes],
        [observation_of(row) for row in rows.observations],
        [entry_of(node) for node in rows.context],
    )


def observation_of(row: ObservationRow) -> Observation:
    """Return the observation of a row."""
    return decode_body(
        row.body,
        identity=row.id,
        level=row.level,
        parent_id=row.parent_id,
        first=row.first,
        last=row.last,
        parts=row.parts,
        provisional=row.provisional,
    )


def activation_row(view: View, cause: str) -> NewActivation:
    """Return the row that makes this view's activation durable."""
    return NewActivation(
        id=view.activation_id,
        anchor=view.anchor,
        cause=cause,
        body=encode_start(view.start),
        prefix=encode_prefix(view.prefix),
        parts=FrontParts.of(view).to_row(),
    )


def activation_event(old: View, new: View, cause: str) -> NewEvent:
    """Return the event of an activation."""
    data = {
        "cause": cause,
        "left_out": new.start.left_out - old.start.left_out,
        "cut": len(new.start.cuts.keys() - old.start.cuts.keys()),
        "tokens": new.tokens,
    }
    if new.start.remembers and (
        left := unstated(new.start.constraints, first=new.start.first, task=new.start.task)
    ):
        data["constraints_named"] = left
    return NewEvent("activation", new.anchor, data)


def node_row(
    message: LoggedMessage, *, seq: int, parent_id: int | None, activation_id: int
) -> NewNode:
    """Return the row of a message; of an exchange, open, if it has calls."""
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return NewNode(
        seq=seq,
        parent_id=parent_id,
        kind="exchange" if calls else "message",
        role=message.type,
        body=encode_message(message),
        tokens=message_tokens(message),
        activation_id=activation_id,
        status="open" if calls else "closed",
        tools=tuple(call.name for call in calls),
        text=searchable(message),
    )
