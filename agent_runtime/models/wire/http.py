"""One HTTP client for a process: kept connections, and streams that cost little a chunk.

Pools belong to an event loop, since connections do.  httpcore2 is used without httpx2 on top of it,
whose decoders and wrappers cost more a chunk than the request itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import importlib
import os
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import anyio

from agent_runtime.models.wire.base import WireRequest

if TYPE_CHECKING:
    from httpcore2 import AsyncConnectionPool, Response

    from agent_runtime.models.wire.network import Connection

KEPT = 120.0
"""Seconds that an idle connection is kept: tools often run that long between two calls."""
CONNECT = 20.0
"""Seconds until a connection must stand."""
DRAIN = 0.1
"""Seconds to wait for the end of a response whose answer is whole, to keep its connection."""

_METHOD = "POST"


class _Pools:
    """The pools of one event loop, by the proxy that they connect through."""

    def __init__(self) -> None:
        self._by_proxy: dict[str, AsyncConnectionPool] = {}
        self._end = self._close_at_end()

    async def open(self) -> None:
        """Have the pools closed together with the event loop.

        An event loop closes its asynchronous generators when it ends; nothing else tells that it
        does.
        """
        await anext(self._end)

    def pool(self, proxy: str) -> AsyncConnectionPool:
        """Return the pool for a proxy; for none if it is empty."""
        pool = self._by_proxy.get(proxy)
        if pool is None:
            import httpcore2

            from agent_runtime.models.wire.network import Backend

            pool = self._by_proxy[proxy] = httpcore2.AsyncConnectionPool(
                ssl_context=prepare(),
                proxy=httpcore2.Proxy(proxy) if proxy else None,
                # Runs are limited elsewhere; a limit here would let one run's stream hold up
                # another's call.
                max_connections=None,
                keepalive_expiry=KEPT,
                network_backend=Backend(),
            )
        return pool

    async def close(self) -> None:
        """Close all connections."""
        pools = [*self._by_proxy.values()]
        self._by_proxy.clear()
        for pool in pools:
            await pool.aclose()

    async def _close_at_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self.close()


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pools] = WeakKeyDictionary()


class StreamedResponse:
    """A response whose body arrives in chunks.

    Attributes:
        status: of HTTP.
        headers: by names in lower case.
    """

    def __init__(self, response: Response) -> None:
        self._response = response
        self._stream: AsyncIterator[bytes] = aiter(response.aiter_stream())
        self._network = cast("Connection", response.extensions["network_stream"])  # pyright: ignore[reportUnknownMemberType]
        self.status = response.status
        self.headers: Mapping[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }

    async def chunk(self, deadline: float) -> bytes:
        """Return the next chunk; empty at the end.

        Raises:
            TimeoutError: none arrived by the deadline, in the event loop's time.
        """
        # On the connection: a scope of its own for each chunk would cost more than reading the
        # chunk.
        self._network.deadline = deadline
        return await anext(self._stream, b"")

    async def text(self, most: int, deadline: float) -> str:
        """Return the body as text, at most about `most` bytes of it.

        Raises:
            TimeoutError: it did not end by the deadline, in the event loop's time.
        """
        body = bytearray()
        while len(body) < most and (chunk := await self.chunk(deadline)):
            body += chunk
        return body.decode("utf-8", "replace")

    async def close(self, *, whole: bool = False) -> None:
        """Release the connection.

        Args:
            whole: the answer is whole, so the little that may follow is read: only then can the
                connection be used again.
        """
        with anyio.CancelScope(shield=True):
            if whole:
                deadline = anyio.current_time() + DRAIN
                with contextlib.suppress(Exception):
                    while await self.chunk(deadline):
                        pass
            # The pool may give the connection to another request.
            self._network.deadline = None
            await self._response.aclose()


async def post(request: WireRequest) -> StreamedResponse:
    """Send a request and return its response as soon as its headers are here; close it.

    Raises:
        ConnectionError: there is no connection, or it broke off.
    """
    loop = asyncio.get_running_loop()
    pools = _pools.get(loop)
    if pools is None:
        pools = _pools[loop] = _Pools()
        await pools.open()
    import httpcore2

    headers = _login(request.url) | {**request.headers}
    sent = httpcore2.Request(
        _METHOD,
        request.url,
        headers={
            "host": urlsplit(request.url).netloc.rpartition("@")[2],
            "content-type": "application/json",
            "accept": "text/event-stream",
            # A compressed stream would arrive in larger pieces, and later.
            "accept-encoding": "identity",
            "content-length": str(len(request.body)),
            **headers,
        },
        content=request.body,
        extensions={"timeout": {"connect": CONNECT, "pool": None}},
    )
    return StreamedResponse(await pools.pool(_proxy(request.url)).handle_async_request(sent))


def is_connection_error(error: BaseException) -> bool:
    """Return whether an error is one of the network or of HTTP."""
    import httpcore2

    kinds: tuple[Any, ...] = (
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.ProxyError,
        httpcore2.TimeoutException,
        httpcore2.UnsupportedProtocol,
        OSError,
    )
    return isinstance(error, kinds)


async def close_connections() -> None:
    """Close the connections of this event loop that are kept; later requests open new ones."""
    pools = _pools.get(asyncio.get_running_loop())
    if pools is not None:
        await pools.close()


def _login(url: str) -> dict[str, str]:
    """Return the header for the user and password in a URL; none without them."""
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"authorization": f"Basic {base64.b64encode(login).decode()}"}


def _proxy(url: str) -> str:
    """Return the proxy for a URL, by the environment's usual variables; empty for none."""
    # Reading the names alone takes a fraction of the time of `getproxies_environment`.
    if not any(name[-6:].lower() == "_proxy" for name in os.environ):
        return ""
    proxies = urllib.request.getproxies_environment()
    if not proxies:
        return ""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return ""
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


@functools.cache
def prepare() -> ssl.SSLContext:
    """Load the client; slow the first time, so call it in a thread.

    Returns the context that trusts what the system trusts, and `SSL_CERT_FILE` if it is set.
    """
    import httpx2

    importlib.import_module("agent_runtime.models.wire.network")
    return httpx2.create_ssl_context()
