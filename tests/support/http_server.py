"""An HTTP server of the standard library, on a port of loopback, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def serving(
    handler: Callable[[Any, Any, ThreadingHTTPServer], BaseHTTPRequestHandler],
) -> Generator[str]:
    """Serve by a handler until the context ends; yield the server's URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
