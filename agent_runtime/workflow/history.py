"""What was said on a workflow's thread before a run of it."""

from __future__ import annotations

from agent_runtime.messages import AssistantMessage, UserMessage, decode_message
from agent_runtime_storage.contract.store import UserStore

HistoryMessage = UserMessage | AssistantMessage
"""A message of the state that the nodes of a workflow share."""

PAGE = 50
"""How many nodes are read at once."""


async def said_before(
    store: UserStore, thread_id: str, node_id: int | None, *, messages: int, tokens: int
) -> list[HistoryMessage]:
    """Return what users and workflow said on the branch that ends at a node, oldest first.

    These are the newest whole messages within both limits, from one of the user's on.  What nodes
    did is not among them.

    Args:
        node_id: None for an empty branch.
        messages: how many there may be.
        tokens: how many tokens they may have together, as they were counted when they were kept.
    """
    found: list[tuple[HistoryMessage, int]] = []
    while node_id is not None and len(found) < messages:
        page = await store.branch(thread_id, node_id, limit=PAGE)
        for node in reversed(page):
            message = decode_message(node.body)
            if node.kind == "message" and isinstance(message, UserMessage | AssistantMessage):
                found.append((message, node.tokens))
        node_id = page[0].parent_id
    kept: list[HistoryMessage] = []
    for message, size in found[:messages]:
        tokens -= size
        if tokens < 0:
            break
        kept.append(message)
    while kept and not isinstance(kept[-1], UserMessage):
        kept.pop()
    return kept[::-1]
