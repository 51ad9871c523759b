"""Events as server-sent events: without gaps and doubles, from a cursor on."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent_runtime.concurrency import single_error
from agent_runtime.errors import NotFound
from agent_runtime.server.feeds import Batches, EncodedEvent
from agent_runtime.server.problems import ServiceError

# Bytes of a thread's digest and of its last event: a thousand threads make a header of 15 kB.
_DIGEST, _POSITION = 6, 5
_RETRY = b"retry: 1000\n\n"
_FAREWELL_SECONDS = 1.0
_MOST_BYTES = 64 << 10
"""What is given to the server at once; it takes no more while a client reads nothing."""
MOST_THREADS = 1000
"""The most threads of a stream: each adds to the cursor, which clients send in a header."""


@dataclass(frozen=True, slots=True)
class EventCursor:
    """How far a client has read each thread; opaque to clients."""

    positions: Mapping[bytes, int]

    @classmethod
    def parse(cls, text: str) -> EventCursor:
        """Return the cursor that a client sent. Raises `ServiceError` (422)."""
        try:
            data = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError, ValueError):
            data = b"?"
        size = _DIGEST + _POSITION
        if len(data) % size:
            raise ServiceError(
                422,
                "invalid-cursor",
                "The cursor is not one of this service.",
                cure="Send the id of the last event as it was, or none to begin at the start.",
            )
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        return cls({one[:_DIGEST]: int.from_bytes(one[_DIGEST:], "big") for one in parts})

    def of(self, thread_id: str) -> int:
        """Return the last event of a thread that the client has; 0 for none."""
        return self.positions.get(_digest(thread_id), 0)


class CursorWriter:
    """Writes the cursor after each event."""

    def __init__(self, positions: Mapping[str, int]) -> None:
        self._positions = {_digest(thread): last for thread, last in positions.items() if last}

    def after(self, thread_id: str, event_id: int) -> str:
        """Return the cursor after an event. Raises `ServiceError` beyond the most threads."""
        self._positions[_digest(thread_id)] = event_id
        if len(self._positions) > MOST_THREADS:
            raise ServiceError(
                409,
                "too-many-threads",
                f"The tree has more than {MOST_THREADS:,} threads.",
                cure="Follow its threads one by one.",
            )
        parts = (key + at.to_bytes(_POSITION, "big") for key, at in self._positions.items())
        return base64.urlsafe_b64encode(b"".join(parts)).decode()


def _digest(thread_id: str) -> bytes:
    return hashlib.blake2b(thread_id.encode(), digest_size=_DIGEST).digest()


class EventStream(Response):
    """The events of a source as a response that lasts.

    It ends with the source, when the client leaves, and when the service closes; a client that
    comes again with `Last-Event-ID` continues after the last event that it got.  A client that
    reads slowly stops the reads of its own stream, which costs no memory; the server breaks the
    connection of one that reads nothing.

    Args:
        batches: yields events to send, and empty batches where a comment is due; closed at the end.
        positions: what the client has of each thread.
        place: held while the stream is open.
        closing: ends the stream.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        batches: Batches,
        positions: Mapping[str, int],
        *,
        place: Callable[[], AbstractContextManager[None]],
        closing: anyio.Event,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"}, media_type=self.media_type)
        del self.headers["content-length"]
        self._batches = batches
        self._cursor = CursorWriter(positions)
        self._place = place
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place():
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            await _send(send, _RETRY)
            async with single_error(), anyio.create_task_group() as group:
                group.start_soon(_until_set, self._closing, group.cancel_scope)
                group.start_soon(_until_gone, receive, group.cancel_scope)
                await self._send_all(send)
                group.cancel_scope.cancel()
        # A client that reads nothing must not hold up the end of the service.
        with anyio.move_on_after(_FAREWELL_SECONDS):
            if self._closing.is_set():
                await _send(send, b": the service closes\n" + _RETRY)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._batches) as batches:
            try:
                async for batch in batches:
                    await self._send_batch(send, batch)
            except NotFound:
                # It was deleted meanwhile: asked again, the service says so.
                return
        await _send(send, b"event: end\ndata: {}\n\n")

    async def _send_batch(self, send: Send, batch: Sequence[EncodedEvent]) -> None:
        parts, size = [] if batch else [b": \n\n"], 0
        for event in batch:
            parts.append(self._written(event))
            size += len(event.data)
            if size >= _MOST_BYTES:
                await _send(send, b"".join(parts))
                parts, size = [], 0
        if parts:
            await _send(send, b"".join(parts))

    def _written(self, event: EncodedEvent) -> bytes:
        if not event.id:
            # A live event is in no log: the client's cursor stays.
            return event.data
        cursor = self._cursor.after(event.thread_id, event.id)
        return b"id: %s\n%s" % (cursor.encode(), event.data)


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_set(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
