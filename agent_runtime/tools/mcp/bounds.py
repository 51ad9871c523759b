"""Pass on what a server may send, and no more of it than calls can need."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

MAX_MESSAGE_BYTES = 8 << 20
"""The largest message of a server."""
MAX_NOTICES = 100_000
"""How many notifications a server may send between two answers."""
MAX_REQUESTS = 100
"""How many requests a server may send between two answers within `REQUEST_SECONDS`."""
REQUEST_SECONDS = 60.0
PASSED = ("notifications/progress", "notifications/tools/list_changed")
"""The notifications that are used; others, such as those for a log, are dropped."""
_SUBSCRIPTIONS = "notifications/subscriptions/"

Received: TypeAlias = SessionMessage | Exception


class ServerMisbehaves(Exception):
    """A server sends what no call can need; its text is ours, without any of the server's."""


@dataclass(slots=True)
class _Budget:
    """What a server has sent since its last answer."""

    notices: int = 0
    requests: int = 0
    since: float = -REQUEST_SECONDS

    def admits(self, received: Received) -> bool:
        """Return whether to pass a message on.  Raises `ServerMisbehaves` for one too many."""
        passed = True
        if isinstance(received, Exception):
            # What is no valid message cannot be an answer; it counts, so that rubbish ends as
            # well.
            passed = False
            self.notices += 1
        elif isinstance(received.message, JSONRPCNotification):
            method = received.message.method
            passed = method in PASSED or method.startswith(_SUBSCRIPTIONS)
            self.notices += 1
        elif isinstance(received.message, JSONRPCRequest):
            # Some servers ping every few seconds, however long nothing is asked of them.
            now = anyio.current_time()
            if now - self.since >= REQUEST_SECONDS:
                self.requests, self.since = 0, now
            self.requests += 1
        else:
            self.notices = self.requests = 0
        if self.notices > MAX_NOTICES or self.requests > MAX_REQUESTS:
            raise ServerMisbehaves("it sends messages without an end")
        return passed


@asynccontextmanager
async def bounded(
    streams: TransportStreams, ended: Callable[[str], None]
) -> AsyncGenerator[TransportStreams]:
    """Put the limits between a transport's streams and the session.

    Args:
        ended: called once with why, when nothing more comes from the server.
    """
    read, write = streams
    # Without a buffer: a server that sends faster than it is read has to wait.
    send, receive = anyio.create_memory_object_stream[Received](0)

    async def pump() -> None:
        budget, why = _Budget(), "it closed the connection"
        try:
            async with send:
                async for received in read:
                    if budget.admits(received):
                        await send.send(received)
        except ServerMisbehaves as error:
            why = str(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            ended(why)

    async with send, receive, anyio.create_task_group() as group:
        group.start_soon(pump)
        try:
            yield receive, write
        finally:
            group.cancel_scope.cancel()
