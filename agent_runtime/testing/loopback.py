"""Servers on loopback: what all servers that play providers share."""

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

CLOSE_SECONDS = 5.0
"""How long closing a client may take."""

Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = tuple[int, str, list[bytes]] | tuple[int, str, list[bytes], Mapping[str, str]]
"""Status, content type, the pieces of the body, and more headers if there are any."""


class Listener(ABC):
    """A server that listens on loopback for the time of an `async with`."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self._port = port

    @abstractmethod
    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        """Serve a connection."""

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self._port)
        self._listener = listener
        self._port = listener.extra(anyio.abc.SocketAttribute.local_port)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(listener.serve, self._connection)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await _close_clients()
        self._tasks.cancel_scope.cancel()
        try:
            # Without the error of the body, which would come out inside an exception group.
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()

    async def _connection(self, stream: anyio.abc.SocketStream) -> None:
        try:
            await self._serve(stream)
        except (anyio.BrokenResourceError, anyio.EndOfStream, h11.RemoteProtocolError):
            pass  # The client left, which it may do at any time.
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)


class LoopbackServer(Listener):
    """A server of JSON requests; each connection serves one of them."""

    @abstractmethod
    async def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Answer:
        """Return the answer to a request."""

    @property
    def url(self) -> str:
        """The URL to give to a model."""
        return f"http://{self._host}:{self._port}"

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
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
        # A forced close would drop unsent bytes.
        await stream.aclose()


def halves(text: str) -> list[str]:
    """Return a text in two pieces, without empty ones."""
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


async def _close_clients() -> None:
    """Close the clients that litellm caches for this event loop, so that no socket outlives it.

    litellm identifies clients by the loop's id, which a later loop may have as well.
    """
    if "litellm" not in sys.modules:
        return
    litellm = cast(Any, sys.modules["litellm"])
    cache: Any = litellm.in_memory_llm_clients_cache
    # The end of litellm's keys for clients that belong to one loop.
    mine = f"-{id(asyncio.get_running_loop())}"
    for key in [key for key in cache.cache_dict if str(key).endswith(mine)]:
        client = cache.cache_dict.pop(key)
        cache.ttl_dict.pop(key, None)
        with anyio.move_on_after(CLOSE_SECONDS):
            await client.close()
    # litellm shares this one between loops, and creates another when it needs it.
    shared = cast("dict[str, Any]", vars(litellm)).pop("module_level_aclient", None)
    if shared is not None:
        with anyio.move_on_after(CLOSE_SECONDS):
            await shared.client._transport.aclose()
