"""The connection pool: on demand, up to a limit, most recently used first.

psycopg_pool connects in the background, so a caller sees a timeout instead of a wrong password, and
its retries start at one second.  Here the caller connects, gets the server's answer, and decides
about retries.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from agent_runtime_storage.drivers.postgres.pipeline import PipelineSession

_IDLE_SECONDS = 300.0
_LIFE_SECONDS = 3600.0


class ConnectionPool:
    """The connections of one driver, bound to its event loop.

    Args:
        connect: makes a connection.
        limit: the most connections; further callers wait in order.
    """

    def __init__(self, connect: Callable[[], Awaitable[PipelineSession]], limit: int) -> None:
        self.limit = limit
        self._connect = connect
        self._slots = asyncio.Semaphore(limit)
        self._idle: deque[PipelineSession] = deque()
        self._pids: set[int] = set()
        self._closed = False
        self._renewed_at = 0.0

    def owns(self, pid: int) -> bool:
        """Return whether a server process belongs to one of these connections."""
        return pid in self._pids

    async def take(self) -> PipelineSession:
        """Return a connection for exclusive use until it is given back.

        Cancelling while it waits or connects takes none.

        Raises:
            Whatever `connect` raises.
        """
        await self._slots.acquire()
        try:
            # The last one used, so that those which are not needed stay idle and are closed.
            while self._idle:
                session = self._idle.pop()
                if session.alive():
                    return session
                self._discard(session)
            session = await self._connect()
            self._pids.add(session.pid)
            return session
        except BaseException:
            self._slots.release()
            raise

    def give(self, session: PipelineSession) -> None:
        """Take a connection back, and close those that were idle for long."""
        now = time.monotonic()
        oldest = max(self._renewed_at, now - _LIFE_SECONDS)
        if session.usable and not self._closed and session.born > oldest:
            self._idle.append(session)
        else:
            self._discard(session)
        # One stays, so that a rare operation does not wait for a new connection.
        while len(self._idle) > 1 and now - self._idle[0].used > _IDLE_SECONDS:
            self._discard(self._idle.popleft())
        self._slots.release()

    def renew(self) -> None:
        """Close idle connections now, and the others as they are given back; make new ones then."""
        self._renewed_at = time.monotonic()
        while self._idle:
            self._discard(self._idle.pop())

    def close(self) -> None:
        """Close idle connections now, and the others as they are given back."""
        self._closed = True
        self.renew()

    def _discard(self, session: PipelineSession) -> None:
        self._pids.discard(session.pid)
        session.discard()
