"""What the protocols over HTTP share: the body of a request, streams of events, errors."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias, TypeVar, cast

import anyio
import anyio.to_thread
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent_runtime.concurrency import single_error
from agent_runtime.errors import (
    AgentRuntimeError,
    ConfigError,
    Conflict,
    InvalidAnswer,
    InvalidFile,
    ModelError,
    NotFound,
    RuntimeClosed,
    StoreError,
    StoreUnavailable,
)
from agent_runtime.server.problems import ServiceError

MAX_BODY = 32 << 20
"""How many bytes a request may have."""
PING_SECONDS = 15.0
"""After this long without an event a comment is sent, so that proxies keep the connection."""
_IN_THREAD = 100_000
"""Bytes above which a body is read in a worker thread."""
T = TypeVar("T")

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends bytes to the client."""
Produce: TypeAlias = Callable[[Write], Awaitable[None]]
"""Writes the body of a response to its end."""

_log = logging.getLogger(__name__)


def invalid(message: str, *, cure: str, status: int = 400) -> ServiceError:
    """Return the error of a request that is not what its protocol asks for."""
    return ServiceError(status, "invalid-request", message, cure=cure)


async def read_json(request: Request, read: Callable[[Any], T]) -> T:
    """Return what a function makes of a request's JSON object.

    Raises:
        ServiceError: the body is too large, not declared as JSON, or no JSON object; or the
            function refuses it with a `ValueError`.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        # A page of another site may send anything else without being asked for its origin.
        raise invalid(
            "The body is not JSON.", cure="Send `Content-Type: application/json`.", status=415
        )
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise invalid(
                f"The request has more than {MAX_BODY:,} bytes.",
                cure="Send files as URLs.",
                status=413,
            )

    def parse() -> T:
        try:
            value = orjson.loads(bytes(body))
        except orjson.JSONDecodeError as error:
            raise invalid(f"The body is no JSON: {error}.", cure="Send JSON.") from error
        if not isinstance(value, dict):
            raise invalid("The body is no JSON object.", cure="Send an object.")
        try:
            # It reads deeper values than it writes, and what a client sends is written again.
            orjson.dumps(value)
        except TypeError as error:
            raise invalid("The body is nested too deeply.", cure="Send flatter values.") from error
        try:
            return read(cast("dict[str, Any]", value))
        except ValueError as error:
            raise invalid(f"The request is not valid: {error}", cure="Mend it.") from error

    return parse() if len(body) < _IN_THREAD else await anyio.to_thread.run_sync(parse)


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error."""
    match error:
        case ServiceError():
            return error.status
        case NotFound():
            return 404
        case Conflict():
            return 409
        case InvalidAnswer() | InvalidFile() | ConfigError():
            return 400
        case RuntimeClosed() | StoreUnavailable():
            return 503
        case ModelError():
            return 502
        case StoreError():
            # An id that cannot be stored, among others.
            return 400
        case _:
            return 500


def text_of(error: Exception) -> str:
    """Return what a client may read of an error; an unexpected one is logged instead."""
    if isinstance(error, ServiceError):
        return f"{error.message} {error.cure}".rstrip()
    if isinstance(error, AgentRuntimeError):
        return str(error)
    _log.error("A request failed.", exc_info=error)
    return "The service failed. Its log has the reason."


def headers_of(error: Exception) -> dict[str, str]:
    """Return the headers of an error's response."""
    return error.headers if isinstance(error, ServiceError) else {}


def problem(error: Exception) -> Response:
    """Return an error as problem details (RFC 9457)."""
    status = status_of(error)
    body = {
        "type": "about:blank",
        "title": type(error).__name__ if status != 500 else "Internal error",
        "status": status,
        "detail": text_of(error),
    }
    return Response(
        orjson.dumps(body), status, headers_of(error), media_type="application/problem+json"
    )


def event_of(value: object) -> bytes:
    """Return JSON as an event of a stream; what JSON does not have is written as text."""
    return b"data: " + orjson.dumps(value, default=str) + b"\n\n"


class ProtocolStream(Response):
    """Server-sent events, until all are written or the client has left."""

    def __init__(self, produce: Produce, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(
            headers={
                "cache-control": "no-cache",
                # Otherwise nginx collects events before it passes them on.
                "x-accel-buffering": "no",
                **(headers or {}),
            },
            media_type="text/event-stream",
        )
        # The length is not known.
        del self.headers["content-length"]
        self._produce = produce

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; what produces them ends when the client leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        # Two tasks write, and a ping must not stand within an event.
        sending = anyio.Lock()
        quiet = anyio.Event()

        async def write(data: bytes) -> None:
            nonlocal quiet
            async with sending:
                quiet.set()
                quiet = anyio.Event()
                await send({"type": "http.response.body", "body": data, "more_body": True})

        async def ping() -> None:
            while True:
                with anyio.move_on_after(PING_SECONDS):
                    await quiet.wait()
                    continue
                await write(b": ping\n\n")

        async def until_left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        async with single_error(), anyio.create_task_group() as group:
            group.start_soon(ping)
            group.start_soon(until_left)
            await self._produce(write)
            group.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def stream_of(
    given: AbstractAsyncContextManager[AsyncIterator[T]],
    encoded: Callable[[T], Iterable[bytes]],
    failed: Callable[[Exception], bytes],
    *,
    end: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> ProtocolStream:
    """Return a stream of the events that the parts of a turn become.

    Args:
        failed: returns the event of a failure, after which no part follows.
        end: written last in any case.
    """

    async def produce(write: Write) -> None:
        try:
            async with given as parts:
                async for part in parts:
                    for event in encoded(part):
                        await write(event)
        except Exception as error:
            await write(failed(error))
        if end:
            await write(end)

    return ProtocolStream(produce, headers)
