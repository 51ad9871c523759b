"""Empty databases of every kind to measure on: files, and real servers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from agent_runtime_storage.urls import Backend
from tests.services.libsql import LibsqlServer
from tests.services.postgres import PostgresServer

BACKENDS: tuple[Backend, ...] = ("file", "libsql-http", "libsql-ws", "postgres")


def parse_backends(text: str) -> tuple[Backend, ...]:
    """Return the backends in an option such as `file,postgres`.

    Raises:
        ValueError: there is no such backend.
    """
    known: dict[str, Backend] = {name: name for name in BACKENDS}
    try:
        return tuple(known[part] for part in text.split(","))
    except KeyError as error:
        raise ValueError(f"no backend {error}: there are {', '.join(BACKENDS)}") from error


@contextmanager
def empty_databases() -> Generator[Callable[[Backend], str]]:
    """Yield a function that creates an empty database of a kind and returns its URL.

    Servers start on first use with their default settings, so acknowledged writes are on disk; all
    of them end with the context.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers: list[PostgresServer] = []

        def postgres() -> PostgresServer:
            if not servers:
                server = PostgresServer(folder)
                stack.callback(server.stop)
                server.start()
                servers.append(server)
            return servers[0]

        def make(backend: Backend) -> str:
            if backend == "file":
                return f"file:{folder / uuid4().hex}.db"
            if backend == "postgres":
                return postgres().url(postgres().create())
            libsql = LibsqlServer(folder)
            stack.callback(libsql.stop)
            libsql.start()
            return libsql.http_url if backend == "libsql-http" else libsql.ws_url

        yield make
