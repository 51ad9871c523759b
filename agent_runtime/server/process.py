"""Serve an application by uvicorn: say where, end its streams in time, and telemetry."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent_runtime.models.telemetry.export import exporting

_log = logging.getLogger(__name__)


def impatient(seconds: float) -> type[H11Protocol]:
    """Return HTTP/1.1 that breaks a connection whose client takes nothing for so long.

    Otherwise a client that stops to read would keep its stream, its buffer and its place for ever:
    a plain close waits until the buffer is sent.
    """

    class Impatient(H11Protocol):
        _left = 0
        _timer: asyncio.TimerHandle | None = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self._look_later()

        def resume_writing(self) -> None:
            self._stop()
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _look_later(self) -> None:
            # Compared with what is left later: a slow client that takes anything at all keeps its
            # connection.
            self._left = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(seconds, self._look)

        def _look(self) -> None:
            if self.transport.get_write_buffer_size() < self._left:
                self._look_later()
                return
            _log.warning("A client took nothing for %g s: its connection is broken.", seconds)
            # Not `close`, which waits until the client has taken the rest.
            self.transport.abort()

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()

    return Impatient


class ServiceServer(uvicorn.Server):
    """A server that ends the service's streams when it is asked to stop.

    Otherwise it would wait for them until its patience ends, before the runs are drained.
    It breaks the connections of clients that read nothing, as `AGENT_RUNTIME_SERVICE_STALL` says.
    Spans and metrics are exported as the variables OTEL_* say.

    Args:
        on_start: called with the address, once it takes requests.
    """

    def __init__(
        self, config: uvicorn.Config, service: Starlette, on_start: Callable[[str], object]
    ) -> None:
        config.http = impatient(service.state.service.settings.service_stall)
        super().__init__(config)
        self._service = service
        self._on_start = on_start

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # Inside: a signal that was caught is raised again at the end, and ends the process.
        with super().capture_signals(), exporting():
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What was imported stays: collections would look at it again in every large answer.
        gc.freeze()
        if self.started:
            for server in self.servers:
                for one in server.sockets:
                    host, port = one.getsockname()[:2]
                    self._on_start(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # First: uvicorn waits for open responses, and a stream of events has no end of its own.
        self._service.state.service.closing.set()
        await super().shutdown(sockets)
