"""Read the conversation on a workflow's thread before a run."""

from __future__ import annotations

from agent_runtime.messages import AssistantMessage, UserMessage, decode_message
from agent_runtime_storage.contract.store import UserStore

HistoryMessage = UserMessage | AssistantMessage
"""A message of the state that a workflow's nodes share."""

PAGE = 50
"""How many log nodes are read at once."""


async def read_history(
    store: UserStore, thread_id: str, node_id: int | None, *, messages: int, tokens: int
) -> list[HistoryMessage]:
    """Return the newest messages of users and workflow on a branch, oldest first.

    They are whole, within both limits, and begin with a user message.  The exchanges of workflow
    nodes are left out.

    Args:
        node_id: the end of the branch; None for an empty one.
        messages: the most messages.
        tokens: the most tokens together, as counted when they were logged.
    """
    newest: list[tuple[HistoryMessage, int]] = []
    while node_id is not None and len(newest) < messages:
        page = await store.log.branch(thread_id, node_id, limit=PAGE)
        for node in reversed(page):
            message = decode_message(node.body)
            if node.kind == "message" and isinstance(message, UserMessage | AssistantMessage):
                newest.append((message, node.tokens))
        node_id = page[0].parent_id
    fitting: list[HistoryMessage] = []
    for message, size in newest[:messages]:
        tokens -= size
        # The first that does not fit ends it: a gap would change what the rest means.
        if tokens < 0:
            break
        fitting.append(message)
    # Newest first, so the last one is the oldest.
    while fitting and not isinstance(fitting[-1], UserMessage):
        fitting.pop()
    return fitting[::-1]
