"""The transport of a server over streamable HTTP, with limits on what it answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from agent_runtime.tools.mcp.bounds import MAX_MESSAGE_BYTES
from agent_runtime.tools.mcp.server import McpServer

CONNECT_SECONDS = 30.0
MAX_STREAM_BYTES = 8 * MAX_MESSAGE_BYTES
"""How much the answer to one request may hold when it is a stream of messages."""


@dataclass(slots=True)
class HttpState:
    """What the HTTP responses showed, which the protocol's errors do not tell.

    Attributes:
        refused: the status of the last response, if it was 401 or 403.
        status: of the last response, if it was an error.
        problem: why a response was not read to its end; otherwise empty.
    """

    refused: int = 0
    status: int = 0
    problem: str = ""


@asynccontextmanager
async def http_streams(
    server: McpServer, state: HttpState, auth: httpx2.Auth | None = None
) -> AsyncGenerator[TransportStreams]:
    """Connect to a server while the context is open; give the streams of its messages.

    Redirects to another origin are not followed: the headers are for this one.
    """

    async def watch(response: httpx2.Response) -> None:
        state.refused = response.status_code if response.status_code in (401, 403) else 0
        state.status = response.status_code if response.status_code >= 400 else 0
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            # A few kilobytes can unpack to gigabytes, and none was asked for.
            state.problem = "its answer is compressed, which it was asked not to be"
            raise httpx2.ReadError(state.problem)
        stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if stream and response.request.method == "GET":
            # It stays open for as long as the connection; each message has its own limit.
            return
        most = MAX_STREAM_BYTES if stream else MAX_MESSAGE_BYTES
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(response.stream, most, state)

    client = httpx2.AsyncClient(
        headers={"accept-encoding": "identity", **server.headers},
        auth=auth,
        # Answers are awaited for as long as their calls may take.
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        event_hooks={"response": [watch]},
    )
    async with (
        client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, up to a size."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int, state: HttpState) -> None:
        self._inner = inner
        self._left = most
        self._state = state

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            self._left -= len(part)
            if self._left < 0:
                self._state.problem = "its answer is too large"
                raise httpx2.ReadError(self._state.problem)
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
