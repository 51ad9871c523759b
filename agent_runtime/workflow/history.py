"""Read the conversation on a workflow's thread before a run: observations, then messages."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.messages import AssistantMessage, UserMessage, decode_message
from agent_runtime.prompt.constraints import render_constraints
from agent_runtime.prompt.view import View
from agent_runtime_storage.contract.store import UserStore

HistoryMessage = UserMessage | AssistantMessage
"""A message of the state that a workflow's nodes share."""

ALL = 10**12
"""More messages and tokens than any history has."""
PAGE = 50
"""How many log nodes are read at once."""
NOTES = "[Notes of the conversation before the messages below, made by the runtime's memory.]"


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
            observation stands for, behind one message with the notes of the observations.
    """
    first = view.start.first if view.observations and limits is None else None
    left = limits or HistoryLimits(ALL, ALL)
    newest: list[tuple[HistoryMessage, int]] = []
    while node_id is not None and len(newest) < left.messages:
        page = await store.log.branch(thread_id, node_id, limit=PAGE)
        for node in reversed(page):
            message = decode_message(node.body)
            spoken = isinstance(message, UserMessage | AssistantMessage)
            if spoken and node.kind == "message" and node.seq >= (first or 0):
                newest.append((message, node.tokens))
        node_id = page[0].parent_id if page[0].seq > (first or 0) else None
    fitting: list[HistoryMessage] = []
    tokens = left.tokens
    for message, size in newest[: left.messages]:
        tokens -= size
        # The first that does not fit ends it: a gap would change what the rest means.
        if tokens < 0:
            break
        fitting.append(message)
    # Newest first, so the last one is the oldest.
    while fitting and first is None and not isinstance(fitting[-1], UserMessage):
        fitting.pop()
    notes = [] if first is None else [UserMessage(_notes(view))]
    return [*notes, *fitting[::-1]]


def _notes(view: View) -> str:
    """Return the notes of a view's observations, and what the user requires."""
    start = view.start
    required = render_constraints(start.constraints, first=start.first, task=start.task)
    texts = [NOTES, *(one.text for one in view.observations), required]
    return "\n\n".join(filter(None, texts))
