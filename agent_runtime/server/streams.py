"""Events as server-sent events: without gaps and doubles, from a cursor on."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent_runtime.concurrency import single_error
from agent_runtime.errors import NotFound
from agent_runtime.server.feeds import Batches, EncodedEvent
from agent_runtime.server.problems import ServiceError, cursor_of_another_thread
from agent_runtime_storage.contract.records.log import ThreadPlace

# Bytes of a thread's digest and of its last event: a thousand threads make a header of 15 kB.
_DIGEST, _POSITION = 6, 5
_EMPTY: Mapping[str, Any] = MappingProxyType({})
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

    def of(self, threads: Mapping[str, ThreadPlace]) -> dict[str, int]:
        """Return the last event of each thread that the client has; 0 for none.

        Raises:
            ServiceError: the client has events, but of no such thread, or more than there are
                (409).  An id may be used again after a deletion: the client would miss events
                without knowing.
        """
        found = {
            thread: self.positions.get(_digest(thread, place.created_at), 0)
            for thread, place in threads.items()
        }
        if self.positions and not any(found.values()):
            raise cursor_of_another_thread()
        for thread, after in found.items():
            if after > threads[thread].last_event:
                raise ServiceError(
                    409,
                    "cursor-ahead",
                    f"Thread {thread} has {threads[thread].last_event} events, fewer than the "
                    "cursor says.",
                    cure="Begin at the start, without a cursor.",
                )
        return found


class CursorWriter:
    """Writes the cursor after each event.

    Args:
        positions: what the client has of each thread.
        threads: these and further threads.
    """

    def __init__(
        self, positions: Mapping[str, int] = _EMPTY, threads: Mapping[str, ThreadPlace] = _EMPTY
    ) -> None:
        self._keys = {one: _digest(one, place.created_at) for one, place in threads.items()}
        self._positions = {self._keys[one]: last for one, last in positions.items() if last}

    def knows(self, thread_id: str) -> bool:
        """Return whether it is known when a thread was created."""
        return thread_id in self._keys

    def add(self, thread_id: str, created_at: float) -> None:
        """Note when a thread was created."""
        self._keys[thread_id] = _digest(thread_id, created_at)

    def after(self, thread_id: str, event_id: int) -> str:
        """Return the cursor after an event. Raises `ServiceError` beyond the most threads."""
        self._positions[self._keys[thread_id]] = event_id
        if len(self._positions) > MOST_THREADS:
            raise ServiceError(
                409,
                "too-many-threads",
                f"The tree has more than {MOST_THREADS:,} threads.",
                cure="Follow its threads one by one.",
            )
        parts = (key + at.to_bytes(_POSITION, "big") for key, at in self._positions.items())
        return base64.urlsafe_b64encode(b"".join(parts)).decode()


def _digest(thread_id: str, created_at: float) -> bytes:
    # With its time: a thread that gets the id of a deleted one is another thread.
    named = struct.pack("<d", created_at) + thread_id.encode()
    return hashlib.blake2b(named, digest_size=_DIGEST).digest()


class EventStream(Response):
    """The events of a source as a response that lasts.

    It ends with the source, when the client leaves, and when the service closes; a client that
    comes again with `Last-Event-ID` continues after the last event that it got.  A client that
    reads slowly stops the reads of its own stream, which costs no memory; the server breaks the
    connection of one that reads nothing.

    Args:
        batches: yields events to send, and empty batches where a comment is due; closed at the end.
        cursor: what the client has of each thread.
        created: returns when a thread that the cursor does not know was created.
        place: held while the stream is open.
        closing: ends the stream.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        batches: Batches,
        cursor: CursorWriter,
        *,
        created: Callable[[str], Awaitable[float]],
        place: Callable[[], AbstractContextManager[None]],
        closing: anyio.Event,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"}, media_type=self.media_type)
        del self.headers["content-length"]
        self._batches = batches
        self._cursor = cursor
        self._created = created
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
            if event.id and not self._cursor.knows(event.thread_id):
                self._cursor.add(event.thread_id, await self._created(event.thread_id))
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
