"""Read the conversation on a workflow's thread before a run: observations, then messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.messages import AssistantMessage, UserMessage, decode_message
from agent_runtime.prompt.constraints import HISTORY_NOTES, render_constraints
from agent_runtime.prompt.view import View
from agent_runtime_storage.contract.store import UserStore

HistoryMessage = UserMessage | AssistantMessage
"""A message of the state that a workflow's nodes share."""

ALL = 10**12
"""More messages and tokens than any history has."""
PAGE = 50
"""How many log nodes are read at once."""


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """The most messages of a history, and the most tokens as counted when they were logged."""

    messages: int
    tokens: int


async def read_history(
    store: UserStore, view: View, thread_id: str, node_id: int | None, limits: HistoryLimits | None
) -> list[HistoryMessage]:
    """Return the messages of users and workflow on a branch, oldest first.

    They are whole; the exchanges of workflow nodes are left out.

    Args:
        view: of the branch, which says what is observed.
        node_id: the end of the branch; None for an empty one.
        limits: older messages are left out, and the first one is the user's.  None for all that no
            observation stands for; a message with the notes of the observations is in place of the
            others.
    """
    noted = limits is None and bool(view.observations)
    left = limits or HistoryLimits(ALL, ALL)
    newest: list[tuple[int, HistoryMessage, int]] = []
    for last, first in _unobserved(view, node_id) if noted else [(node_id, 0)]:
        newest += await _read(store, thread_id, last, first, left.messages - len(newest))
    fitting: list[tuple[int, HistoryMessage]] = []
    tokens = left.tokens
    for seq, message, size in newest:
        tokens -= size
        # The first that does not fit ends it: a gap would change what the rest means.
        if tokens < 0:
            break
        fitting.append((seq, message))
    if noted:
        return _behind_notes(view, fitting[::-1])
    # Newest first, so the last one is the oldest.
    while fitting and not isinstance(fitting[-1][1], UserMessage):
        # A conversation begins with the user: providers refuse one that does not.
        fitting.pop()
    return [message for _, message in reversed(fitting)]


def _unobserved(view: View, node_id: int | None) -> list[tuple[int | None, int]]:
    """Return the stretches that no observation stands for, the newest first, by their ends."""
    first = view.start.first or 0
    raw = [(node_id, first)] if node_id is not None and node_id >= first else []
    # What left the prompt while memory was off has no notes: it is read as it was said.
    return [*raw, *((gap.last, gap.first) for gap in reversed(view.start.gaps))]


async def _read(
    store: UserStore, thread_id: str, last: int | None, first: int, most: int
) -> list[tuple[int, HistoryMessage, int]]:
    """Return at most `most` messages between two nodes, the newest first, with their tokens."""
    found: list[tuple[int, HistoryMessage, int]] = []
    while last is not None and last >= first and len(found) < most:
        page = await store.log.branch(thread_id, last, limit=PAGE)
        for node in reversed(page):
            message = decode_message(node.body)
            spoken = isinstance(message, UserMessage | AssistantMessage)
            if spoken and node.kind == "message" and node.seq >= first:
                found.append((node.seq, message, node.tokens))
        last = page[0].parent_id
    return found[:most]


def _behind_notes(
    view: View, messages: Sequence[tuple[int, HistoryMessage]]
) -> list[HistoryMessage]:
    """Return messages and what the user requires, with the notes of what was between them."""
    history: list[HistoryMessage] = []
    unsaid = list(messages)
    notes: list[str] = []
    for one in view.observations:
        if unsaid and unsaid[0][0] < one.first and notes:
            history.append(UserMessage("\n\n".join((HISTORY_NOTES, *notes))))
            notes = []
        while unsaid and unsaid[0][0] < one.first:
            history.append(unsaid.pop(0)[1])
        notes.append(one.text)
    start = view.start
    required = render_constraints(start.constraints, first=start.first, task=start.task)
    last = UserMessage("\n\n".join(filter(None, (HISTORY_NOTES, *notes, required))))
    return [*history, last, *(message for _, message in unsaid)]
