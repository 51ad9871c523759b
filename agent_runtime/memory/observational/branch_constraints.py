"""Reading a branch for what the user requires, before prompts begin from another place."""

from __future__ import annotations

from collections.abc import Container

import anyio.to_thread

from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.observational import constraint_reader as required
from agent_runtime.messages import LoggedMessage, decode_message
from agent_runtime.prompt.constraints import Constraints

OFF_LOOP = 20_000
"""Characters of the user's words from which on they are read in a thread."""
ANSWERS = 10_000
"""How many of the thread's newest answers are looked at."""


async def constraints_of(log: RunLog) -> Constraints:
    """Return what the user requires on the run's branch, up to its head.

    What the activation knows already is not read again; what left before it knew of anything, as
    with an earlier version, is read from the store once.
    """
    view, known = log.view, log.view.start.constraints
    if not view.entries or view.entries[-1].seq <= known.read:
        return known
    messages = [(one.seq, one.message) for one in view.entries if one.seq > known.read]
    answers = await log.store.questions(
        thread_id=log.lease.thread_id, status="answered", limit=ANSWERS
    )
    answered = {row.node_id for row in answers}
    messages = [*await _before(log, known, answered), *messages]
    if sum(len(one.text) for _, one in messages if one.type != "assistant") > OFF_LOOP:
        return await anyio.to_thread.run_sync(required.read_constraints, known, messages, answers)
    return required.read_constraints(known, messages, answers)


async def _before(
    log: RunLog, known: Constraints, answered: Container[int]
) -> list[tuple[int, LoggedMessage]]:
    """Return the nodes before the raw ones that nobody has read yet.

    Args:
        answered: of the agent's nodes, those at which people answered.
    """
    parent = log.view.entries[0].parent_id
    if parent is None or parent <= known.read:
        return []
    nodes = await log.store.branch(log.lease.thread_id, parent)
    unread = [
        node
        for node in nodes
        if node.seq > known.read and (node.role != "assistant" or node.seq in answered)
    ]
    return await anyio.to_thread.run_sync(
        lambda: [(node.seq, decode_message(node.body)) for node in unread]
    )
