"""Get one page: no cookies, no keys, no proxy, and only from addresses that were checked."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

import anyio.to_thread
import httpcore2

from agent_runtime.errors import ToolError
from agent_runtime.models.wire.http import prepare
from agent_runtime.models.wire.network import Backend, Connection
from agent_runtime.tools.web.policy import WebPolicy, is_public

SECONDS = 30.0
"""How long a page may take, with its redirects."""
CONNECT_SECONDS = 10.0
MOST_BYTES = 5_000_000
"""Bytes that are read of a page, sent or unpacked."""
MOST_ADDRESSES = 4
"""Addresses of a host that are tried."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer.

    Attributes:
        headers: by names in lower case.
        cut: whether there was more than is read.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool = False


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to the very addresses that it has checked.

    A name that is resolved again to connect could lead elsewhere the second time.
    """

    def __init__(self, policy: WebPolicy) -> None:
        self._policy = policy
        self._inner = Backend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> Connection:
        """Connect to a host. Raises `ToolError` if no address of it may be used."""
        # Resolved and connected here in one go: between a check and another look-up the name
        # could change (DNS rebinding).
        found = await _addresses(host, port)
        private = self._policy.is_private(host.lower(), port)
        allowed = [one for one in found if private or is_public(one)]
        if not allowed:
            raise ToolError(
                f"{host} has no public address. A private one is read only if the user names the "
                "host in AGENT_RUNTIME_WEB_PRIVATE_HOSTS."
            )
        for address in allowed[:-1]:
            try:
                return await self._inner.connect_tcp(address, port, timeout)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(allowed[-1], port, timeout)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


async def _addresses(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ToolError(f"The host {host} is not known.") from None
    return list(dict.fromkeys(str(info[4][0]) for info in infos))[:MOST_ADDRESSES]


async def get(url: str, policy: WebPolicy) -> Answer:
    """Send one GET request to a canonical URL, and return the answer; follows no redirect.

    Raises:
        ToolError: it may not be read, or there is no answer; the text says why.
    """
    if problem := policy.problem(url):
        raise ToolError(problem)
    context = await anyio.to_thread.run_sync(prepare)
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=context, network_backend=_CheckedBackend(policy), max_keepalive_connections=0
    )
    try:
        async with (
            pool,
            pool.stream("GET", url, headers=_headers(url), extensions=_limits()) as got,
        ):
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in got.headers
            }
            body, cut = await _body(got, headers.get("content-encoding", ""))
            return Answer(got.status, headers, body, cut)
    except (httpcore2.TimeoutException, TimeoutError):
        raise ToolError(f"{url} did not answer in time.") from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
        raise ToolError(
            f"{url} cannot be read: {str(error).rstrip('.') or type(error).__name__}."
        ) from None


def _headers(url: str) -> list[tuple[str, str]]:
    return [
        ("host", urlsplit(url).netloc),
        ("user-agent", f"agent-runtime/{_version()}"),
        ("accept", "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.5"),
        ("accept-encoding", "gzip, deflate"),
    ]


def _version() -> str:
    try:
        return version("agent-runtime-om")
    except PackageNotFoundError:
        return "0"


def _limits() -> dict[str, dict[str, float]]:
    return {"timeout": {"connect": CONNECT_SECONDS, "read": SECONDS, "write": CONNECT_SECONDS}}


async def _body(response: httpcore2.Response, encoding: str) -> tuple[bytes, bool]:
    """Return the body as it was before it was packed, and whether it was cut."""
    encoding = encoding.strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise ToolError(f"The page is packed as {encoding[:40]}, which is not supported.")
    unpacker = None if encoding in ("", "identity") else _Unpacker(raw=encoding == "deflate")
    body, sent = bytearray(), 0
    async for chunk in response.aiter_stream():
        sent += len(chunk)
        room = MOST_BYTES - len(body)
        # With a limit for each piece: a few bytes can unpack to gigabytes.
        body += chunk[:room] if unpacker is None else unpacker.unpack(chunk, room)
        if sent > MOST_BYTES or len(body) >= MOST_BYTES:
            return bytes(body), True
    return bytes(body), False


class _Unpacker:
    """Unpacks gzip and zlib's format; with `raw` also deflate without its header."""

    def __init__(self, *, raw: bool) -> None:
        # 32 lets zlib tell gzip from zlib by the first bytes.
        self._unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        self._raw = raw

    def unpack(self, data: bytes, most: int) -> bytes:
        """Return at most `most` unpacked bytes. Raises `ToolError` if they are not valid."""
        unpacked = bytearray()
        while data and len(unpacked) < most:
            if self._unpacker.eof:
                # Another member of the same body, or padding, which gzip ignores as well.
                data = data.lstrip(b"\0")
                if not data.startswith(b"\x1f"):
                    break
                self._unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
            unpacked += self._decompress(data, most - len(unpacked))
            data = self._unpacker.unused_data
        return bytes(unpacked)

    def _decompress(self, data: bytes, most: int) -> bytes:
        try:
            try:
                unpacked = self._unpacker.decompress(data, most)
            except zlib.error:
                if not self._raw:
                    raise
                self._unpacker = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
                unpacked = self._unpacker.decompress(data, most)
        except zlib.error:
            raise ToolError("The page is packed in a way that cannot be unpacked.") from None
        self._raw = False
        return unpacked
