"""Recognise a pooler that gives each transaction another connection of the server's.

The store cannot work over one: its connections have settings, prepared statements and LISTEN, which
belong to a connection of the server's.  In PgBouncer's session mode each of ours has its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.drivers.postgres.pipeline import PipelineSession
from agent_runtime_storage.drivers.postgres.setup import setup_queries
from agent_runtime_storage.drivers.postgres.translation import query_command

# By chance a pooler may give both their own process once.
_ROUNDS = 4


async def require_own_connections(
    connect: Callable[[], Awaitable[PipelineSession]], shown: str
) -> None:
    """Check that two connections keep server processes of their own.

    A pooler that lends one out for each transaction mostly lends both the same, and if not, soon
    another one.

    Args:
        shown: the URL as it may be shown.

    Raises:
        StoreError: they share one, or one of them was changed.
        Unreachable: the second connection is refused.
    """
    sessions: list[PipelineSession] = []
    try:
        sessions.append(await connect())
        if not sessions[0].pooled:
            return
        sessions.append(await connect())
        for _ in range(_ROUNDS):
            # Both stay open, so that the pooler has to keep two apart.
            seen = [await _process(session) for session in sessions]
            if seen != [session.pid for session in sessions] or seen[0] == seen[1]:
                raise transaction_pooling(shown)
    finally:
        for session in sessions:
            session.discard()


async def _process(session: PipelineSession) -> int:
    ask = query_command(setup_queries()["server_process"], {}, prepare=False)
    [result] = await session.run([ask])
    return int.from_bytes(result.get_value(0, 0) or b"", signed=True)


def transaction_pooling(shown: str) -> StoreError:
    """Return the error for a pooler in transaction mode."""
    return StoreError(
        f"The database {shown} is behind a pooler in transaction mode: settings, prepared "
        "statements and LISTEN do not last there.",
        cure="Set pool_mode = session for this database in PgBouncer, or name the server itself in "
        "the URL; AGENT_RUNTIME_DATABASE_CONNECTIONS limits the connections of a process.",
    )
