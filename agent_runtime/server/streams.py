"""Events as server-sent events: without gaps and doubles, from a cursor on."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass

import anyio
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent_runtime.server.problems import ServiceError
from agent_runtime_storage import EventRow

_DIGEST, _POSITION = 6, 5
_RETRY_MS = 1000
MOST_THREADS = 1000
"""The most threads of a stream: each adds to the cursor, which clients send in a header."""

Events = AsyncGenerator[tuple[str, EventRow]]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a client has read each thread; opaque to clients."""

    positions: Mapping[bytes, int]

    @classmethod
    def parse(cls, text: str) -> Cursor:
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


def event_json(thread_id: str, event: EventRow) -> dict[str, object]:
    """Return an event as the API shows it."""
    return {
        "thread_id": thread_id,
        "id": event.id,
        "run_id": event.run_id,
        "kind": event.kind,
        "node_id": event.node_id,
        "data": event.data,
        "created_at": event.created_at,
    }


class EventStream(Response):
    """The events of a source as a response that lasts.

    It ends with the source, when the client leaves, and when the service closes; a client that
    comes again with `Last-Event-ID` continues after the last event that it got.

    Args:
        events: yields events with their threads; closed at the end.
        positions: what the client has of each thread.
        place: held while the stream is open.
        closing: ends the stream.
        heartbeat: seconds of silence after which a comment is sent.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: Events,
        positions: Mapping[str, int],
        *,
        place: Callable[[], AbstractContextManager[None]],
        closing: anyio.Event,
        heartbeat: float,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"}, media_type=self.media_type)
        del self.headers["content-length"]
        self._events = events
        self._cursor = CursorWriter(positions)
        self._place = place
        self._closing = closing
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place():
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            await _send(send, f"retry: {_RETRY_MS}\n\n".encode())
            # A full channel stops the reads: a slow client costs no memory.
            sender, receiver = anyio.create_memory_object_stream[bytes](16)
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, sender)
                group.start_soon(_until_set, self._closing, group.cancel_scope)
                group.start_soon(_until_gone, receive, group.cancel_scope)
                await self._write(receiver, send)
                group.cancel_scope.cancel()
            if self._closing.is_set():
                await _send(send, f": the service closes\nretry: {_RETRY_MS}\n\n".encode())
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _read(self, sender: MemoryObjectSendStream[bytes]) -> None:
        async with sender, aclosing(self._events) as events:
            async for thread_id, event in events:
                data = orjson.dumps(event_json(thread_id, event))
                cursor = self._cursor.after(thread_id, event.id)
                await sender.send(b"id: %s\ndata: %s\n\n" % (cursor.encode(), data))
            await sender.send(b"event: end\ndata: {}\n\n")

    async def _write(self, receiver: MemoryObjectReceiveStream[bytes], send: Send) -> None:
        with receiver:
            while True:
                chunk = b": \n\n"
                with anyio.move_on_after(self._heartbeat):
                    try:
                        chunk = await receiver.receive()
                    except anyio.EndOfStream:
                        return
                await _send(send, chunk)


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_set(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
