"""Signals between processes, by LISTEN and NOTIFY.

A NOTIFY inside the writing transaction would serialize all commits of the database, so topics are
sent afterwards, all pending ones in one statement.  A lost topic only delays a listener until its
next poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TypeAlias

import psycopg

from agent_runtime_storage.drivers.signals import WORK, SignalListener, Signals

CHANNEL = "agent_runtime"
NOTIFY = (
    f"SELECT count(pg_notify('{CHANNEL}', t.topic)) "
    "FROM json_array_elements_text(:topics::json) AS t (topic)"
)
NOTIFY_OF_WORK = (
    # A token for one worker spares all others the search for work.
    f"{NOTIFY} "
    f"WHERE CASE WHEN t.topic = '{WORK}' THEN NOT agent_runtime.wake_workers() ELSE true END"
)
_POLL_SECONDS = 5.0
# The pause between two sends, so that many commits share one.
_REST_SECONDS = 0.005
# Of more the oldest are dropped: a server that is down must not fill the memory.
_PENDING = 10_000
_LONGEST_WAIT = 5.0

AnyConnection: TypeAlias = psycopg.AsyncConnection[tuple[object, ...]]


class PostgresSignals(Signals):
    """Signals that reach other processes on the database too; see `Signals`.

    Sending and listening start on first use, so a short program pays for neither.

    Args:
        connect: makes a connection to listen on.
        send: sends topics; raises any exception on failure.
        is_own: returns whether a notification from a server process is this driver's own.
    """

    def __init__(
        self,
        *,
        connect: Callable[[], Awaitable[AnyConnection]],
        send: Callable[[Sequence[str]], Awaitable[None]],
        is_own: Callable[[int], bool],
    ) -> None:
        super().__init__(poll_seconds=_POLL_SECONDS, forward=self._enqueue)
        self._connect = connect
        self._send = send
        self._is_own = is_own
        # An ordered set: a topic that waits already is not sent twice.
        self._pending: dict[str, None] = {}
        self._sender: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    @contextlib.contextmanager
    def listen(
        self, topic: str, listener: SignalListener | None = None
    ) -> Generator[SignalListener]:
        """Listen to a topic.  Start before reading, or a change in between is missed."""
        if self._listening is None and not self._closed:
            self._listening = asyncio.create_task(self._hear_others())
        with super().listen(topic, listener) as listening:
            yield listening

    async def close(self) -> None:
        """Try once to send pending topics, then end both tasks."""
        self._closed = True
        tasks = [task for task in (self._sender, self._listening) if task is not None]
        if self._sender is not None:
            # A second at most: others poll as well, so that a lost signal only delays them.
            await asyncio.wait([self._sender], timeout=1.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _enqueue(self, topic: str) -> None:
        if self._closed:
            return
        if len(self._pending) >= _PENDING:
            self._pending.pop(next(iter(self._pending)))
        self._pending[topic] = None
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_pending())

    async def _send_pending(self) -> None:
        wait = _REST_SECONDS
        while self._pending:
            topics = list(self._pending)
            self._pending.clear()
            try:
                await self._send(topics)
            except Exception:
                if self._closed:
                    return
                # Keep the order; the wait spares an overloaded server.
                self._pending = dict.fromkeys([*topics, *self._pending][-_PENDING:])
                wait = min(max(wait * 2, 0.1), _LONGEST_WAIT)
            else:
                wait = _REST_SECONDS
            if not self._closed:
                await asyncio.sleep(wait)

    async def _hear_others(self) -> None:
        wait = 0.1
        while True:
            # Whatever goes wrong, listeners poll meanwhile, and this connects again.
            with contextlib.suppress(Exception):
                connection = await self._connect()
                try:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    wait = 0.1
                    # Notifications from before LISTEN are lost.
                    self.hear_all()
                    async for notification in connection.notifies():
                        if not self._is_own(notification.pid):
                            self.hear(notification.payload)
                finally:
                    await connection.close()
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(wait * 2, _LONGEST_WAIT)
