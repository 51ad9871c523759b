"""What the page paints first, in one answer: the thread, its steps, its last messages."""

from __future__ import annotations

from typing import Any

from agent_runtime.server.inspector.branches import Branch
from agent_runtime.server.inspector.nodes import nodes_of
from agent_runtime.server.inspector.steps import steps_of
from agent_runtime.server.inspector.threads import thread_of
from agent_runtime_storage.contract.store import UserStore

LAST = 30
"""How many messages fill a tall window."""


async def opening_of(store: UserStore, thread_id: str, head: int | None = None) -> bytes:
    """Return the tables of `steps_of`, with the summary and the last nodes in their header.

    Raises:
        NotFound: there is no such thread or closed node.
        CorruptThread: the branch is broken.
    """

    async def more(branch: Branch) -> dict[str, Any]:
        # After the branch: what closes meanwhile is in the next answer as well.
        last = [node.seq for node in branch.nodes[-LAST:]]
        nodes: list[Any] = []
        if last:
            nodes = (await nodes_of(store, thread_id, last[0], last[-1], head))["nodes"]
        return {"summary": await thread_of(store, thread_id), "last": nodes}

    return await steps_of(store, thread_id, head, more=more)
