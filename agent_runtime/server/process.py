"""Serve an application by uvicorn: say where, end its streams before it ends, and telemetry."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from agent_runtime.models.telemetry.export import exporting


class ServiceServer(uvicorn.Server):
    """A server that ends the service's streams when it is asked to stop.

    Otherwise it would wait for them until its patience ends, before the runs are drained.
    Spans and metrics are exported as the variables OTEL_* say.

    Args:
        on_start: called with the address, once it takes requests.
    """

    def __init__(
        self, config: uvicorn.Config, service: Starlette, on_start: Callable[[str], object]
    ) -> None:
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
        if self.started:
            for server in self.servers:
                for one in server.sockets:
                    host, port = one.getsockname()[:2]
                    self._on_start(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.state.service.closing.set()
        await super().shutdown(sockets)
