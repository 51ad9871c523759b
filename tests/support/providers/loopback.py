"""A loopback HTTP server: the part that all servers which play providers share."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

import anyio
import anyio.abc
import h11
import orjson

Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = tuple[int, str, list[bytes]] | tuple[int, str, list[bytes], Mapping[str, str]]
"""Status, content type, the pieces of the body, and more headers if there are any."""


class LoopbackServer(ABC):
    """The server, for the time of an `async with`; each connection serves one request."""

    def __init__(self) -> None:
        self._port = 0

    @abstractmethod
    async def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Answer:
        """Return the answer to a request."""

    @property
    def url(self) -> str:
        """The URL to give to a model."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self._port = self._listener.extra(anyio.abc.SocketAttribute.local_port)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._listener.serve, self._connection)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await close_clients()
        self._tasks.cancel_scope.cancel()
        try:
            # An error of the test has to come out unchanged.
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()

    async def _connection(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                await self._exchange(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream, h11.RemoteProtocolError):
                # The client may leave at any time.
                return

    async def _exchange(self, stream: anyio.abc.SocketStream) -> None:
        http = h11.Connection(h11.SERVER)
        path, body = "", b""
        headers: dict[str, str] = {}
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive(1 << 18))
            elif isinstance(event, h11.Request):
                path = event.target.decode()
                headers = {key.decode(): value.decode() for key, value in event.headers}
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return
        status, kind, pieces, *more = await self.answer(path, headers, orjson.loads(body))
        sent = [("content-type", kind), ("connection", "close")]
        for extra in more:
            sent += extra.items()
        await stream.send(http.send(h11.Response(status_code=status, headers=sent)) or b"")
        for piece in pieces:
            await stream.send(http.send(h11.Data(data=piece)) or b"")
        await stream.send(http.send(h11.EndOfMessage()) or b"")


def halves(text: str) -> list[str]:
    """Return a text in two pieces, without empty ones."""
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


async def close_clients() -> None:
    """Close the clients that litellm caches for this event loop, so that no socket outlives it."""
    if "litellm" not in sys.modules:
        return
    litellm: Any = sys.modules["litellm"]
    cache = litellm.in_memory_llm_clients_cache
    mine = f"-{id(asyncio.get_running_loop())}"
    for key in [key for key in cache.cache_dict if str(key).endswith(mine)]:
        client = cache.cache_dict.pop(key)
        cache.ttl_dict.pop(key, None)
        await client.close()
    # Some providers are called by this shared client; it opens another session when needed.
    shared = cast("Json", vars(litellm)).get("module_level_aclient")
    if shared is not None:
        await shared.client._transport.aclose()
