"""A TCP proxy on loopback that holds, cuts or refuses the traffic of a server."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit

import anyio

Mode = Literal["pass", "hold", "cut", "refuse", "unavailable"]
_UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Stands between a driver and a server; an async context manager.

    Attributes:
        mode: `pass` passes everything on; `hold` keeps the server's answers back; `cut` closes the
            connection when the server answers, so that the request was delivered; `refuse` closes
            each connection before it delivers anything; `unavailable` answers 503 by itself.
        delivered: set once the server has answered while answers are held or cut.
        refused: set once a connection was closed or answered without delivering anything.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        self._target = (parts.hostname, parts.port)
        self._scheme = parts.scheme
        self._release = anyio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._mode: Mode = "pass"
        self.delivered = anyio.Event()
        self.refused = anyio.Event()

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        self.delivered = anyio.Event()
        self.refused = anyio.Event()
        self._release.set()
        if mode == "hold":
            self._release = anyio.Event()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"{self._scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        self._release.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Break every connection that is open."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.mode in ("refuse", "unavailable"):
            self.refused.set()
            if self.mode == "unavailable":
                await reader.readuntil(b"\r\n\r\n")
                writer.write(_UNAVAILABLE)
                await writer.drain()
            writer.close()
            return
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        pair = {writer, server_writer}
        self._writers |= pair
        try:
            await asyncio.gather(
                self._forward(reader, server_writer, answers=False),
                self._forward(server_reader, writer, answers=True),
            )
        except OSError:
            pass
        finally:
            self._writers -= pair
            for end in pair:
                end.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while data := await reader.read(2**16):
            if answers and self.mode in ("cut", "hold"):
                self.delivered.set()
                if self.mode == "cut":
                    break
                await self._release.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
