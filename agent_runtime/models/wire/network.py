"""The client's sockets, straight on asyncio's transports.

Streamed answers arrive in hundreds of small pieces, and the client's own streams cost more for each
than everything that follows.  A read that finds data here takes no timer and no task switch.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2

HIGH_WATER = 4 * 1024 * 1024
"""Bytes that may wait to be read; the socket is not read beyond that."""


class _Protocol(asyncio.Protocol):
    """Keeps what arrives until it is read."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.data = bytearray()
        self.ended = False
        self.error: Exception | None = None
        self.reader: asyncio.Future[None] | None = None
        self.paused = False
        self._writer: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > HIGH_WATER and not self.paused and self.transport is not None:
            self.transport.pause_reading()
            self.paused = True
        self.wake()

    def eof_received(self) -> bool:
        self.ended = True
        self.wake()
        # The transport stays open: what was sent before may still be answered.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self.error = self.error or exc
        self.wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._writer = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)

    def wake(self) -> None:
        """Wake the reader."""
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)

    async def drained(self) -> None:
        """Wait until the transport takes more data."""
        if self._writer is not None:
            await self._writer

    def take(self, most: int) -> bytes:
        """Return the bytes that wait, at most `most` of them."""
        if len(self.data) <= most:
            taken = bytes(self.data)
            self.data.clear()
        else:
            taken = bytes(self.data[:most])
            del self.data[:most]
        if self.paused and self.transport is not None:
            self.paused = False
            self.transport.resume_reading()
        return taken


class Connection(httpcore2.AsyncNetworkStream):
    """One connection.

    Attributes:
        deadline: of the event loop's clock, when a read that waits raises `TimeoutError`.
    """

    def __init__(self, protocol: _Protocol) -> None:
        self._protocol = protocol
        self.deadline: float | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what has arrived, or wait for it; empty at the end.

        Raises:
            TimeoutError: the deadline has passed.
            httpcore2.ReadError: the connection broke off.
            httpcore2.ReadTimeout: nothing arrived in `timeout` seconds.
        """
        protocol = self._protocol
        if not protocol.data and not protocol.ended:
            await self._wait(timeout)
        if protocol.data:
            return protocol.take(max_bytes)
        if protocol.error is not None:
            raise httpcore2.ReadError(str(protocol.error)) from protocol.error
        return b""

    async def _wait(self, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        until = self.deadline
        if timeout is not None:
            until = min(loop.time() + timeout, until or float("inf"))
        protocol = self._protocol
        reader = protocol.reader = loop.create_future()
        # Wakes the reader, which finds that nothing has come: cheaper than a scope for each
        # chunk.
        timer = None if until is None else loop.call_at(until, protocol.wake)
        try:
            await reader
        finally:
            protocol.reader = None
            if timer is not None:
                timer.cancel()
        if protocol.data or protocol.ended or until is None or loop.time() < until:
            return
        # Whichever of the two was first says what is raised.
        if self.deadline is not None and until >= self.deadline:
            raise TimeoutError
        raise httpcore2.ReadTimeout

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send data.

        Raises:
            httpcore2.WriteError: the connection broke off.
        """
        protocol = self._protocol
        transport = protocol.transport
        if transport is None or transport.is_closing():
            raise httpcore2.WriteError("the connection is closed")
        transport.write(buffer)
        await protocol.drained()
        if protocol.error is not None:
            raise httpcore2.WriteError(str(protocol.error)) from protocol.error

    async def aclose(self) -> None:
        """Close the connection at once; what was not sent is dropped."""
        transport = self._protocol.transport
        if transport is not None:
            transport.abort()
            # `connection_lost` runs in the loop's next turn; until then the socket is open.
            await asyncio.sleep(0)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> Connection:
        """Return this connection with TLS on it.

        Raises:
            httpcore2.ConnectError: the handshake failed.
            httpcore2.ConnectTimeout: it took longer than `timeout` seconds.
        """
        protocol = _Protocol()
        assert self._protocol.transport is not None
        try:
            async with asyncio.timeout(timeout):
                transport = await asyncio.get_running_loop().start_tls(
                    self._protocol.transport,
                    protocol,
                    ssl_context,
                    server_hostname=server_hostname,
                )
        except TimeoutError as error:
            await self.aclose()
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            await self.aclose()
            raise httpcore2.ConnectError(str(error)) from error
        except BaseException:
            await self.aclose()
            raise
        assert transport is not None
        protocol.connection_made(transport)
        return Connection(protocol)

    def get_extra_info(self, info: str) -> Any:
        """Return what the client asks of a connection."""
        protocol = self._protocol
        if info == "is_readable":
            # An idle connection with something to read is one that the server has closed.
            return protocol.ended or bool(protocol.data)
        if protocol.transport is None:
            return None
        name = {"client_addr": "sockname", "server_addr": "peername"}.get(info, info)
        return protocol.transport.get_extra_info(name)


class Backend(httpcore2.AsyncNetworkBackend):
    """Opens connections."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> Connection:
        """Connect to a host.

        Raises:
            httpcore2.ConnectError: no address of it accepts the connection.
            httpcore2.ConnectTimeout: that took longer than `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        local = None if local_address is None else (local_address, 0)
        try:
            async with asyncio.timeout(timeout):
                # The delay is what RFC 8305 recommends: a host whose IPv6 does not work costs a
                # quarter of a second.
                transport, protocol = await loop.create_connection(
                    _Protocol, host, port, local_addr=local, happy_eyeballs_delay=0.25
                )
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
        return Connection(protocol)

    async def sleep(self, seconds: float) -> None:
        """Wait; the client does so between attempts to connect."""
        await asyncio.sleep(seconds)
