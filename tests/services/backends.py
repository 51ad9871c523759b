"""The databases that the store runs on, each by a name and an empty database of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from .libsql import EXTERNAL as EXTERNAL_LIBSQL
from .libsql import Libsql, LibsqlServer
from .postgres import CREATOR, FAST, Postgres, PostgresServer, remove_scratch
from .postgres import EXTERNAL as EXTERNAL_POSTGRES

BACKENDS = ("file", "libsql-http", "libsql-ws", "postgres")


@contextmanager
def backend_url(backend: str, *, durable: bool = False) -> Generator[str]:
    """Give the URL of an empty database of a backend; for programs, tests have fixtures.

    A server is started for it and ended afterwards, unless the environment names one.

    Args:
        durable: whether a Postgres server of our own is to write as safely as it does by
            default, which costs time.

    Raises:
        MissingPart: there is no such server here.
        ValueError: there is no such backend.
    """
    with tempfile.TemporaryDirectory(prefix="agent-runtime-logs-") as folder:
        if backend == "file":
            yield f"file:{Path(folder, 'store.db')}"
        elif backend == "postgres":
            with _postgres(Path(folder), durable=durable) as url:
                yield url
        elif backend in BACKENDS:
            with _libsql(Path(folder)) as server:
                yield server.ws_url if backend == "libsql-ws" else server.http_url
        else:
            raise ValueError(f"there is no backend {backend!r}; there are {', '.join(BACKENDS)}")


@contextmanager
def _postgres(logs: Path, *, durable: bool) -> Generator[str]:
    if url := os.environ.get(EXTERNAL_POSTGRES):
        server = Postgres(url)
        name = server.create()
        try:
            yield server.url(name)
        finally:
            server.drop(name)
        return
    server = PostgresServer(logs, {} if durable else FAST)
    try:
        server.start()
        server.ensure_logins()
        yield server.url(server.create(owner=CREATOR), CREATOR)
    finally:
        server.stop()
        remove_scratch()


@contextmanager
def _libsql(logs: Path) -> Generator[Libsql]:
    if url := os.environ.get(EXTERNAL_LIBSQL):
        server = Libsql(url)
        server.wipe()
        yield server
        return
    server = LibsqlServer(logs)
    try:
        server.start()
        yield server
    finally:
        server.stop()
