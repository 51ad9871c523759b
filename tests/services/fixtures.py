"""The servers as fixtures: started when a test first needs them, ended with the session.

Without a server, the tests that need it are skipped; under CI, they fail. A URL in the environment
names a server to use instead; its data may be lost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

import anyio
import pytest

from agent_runtime_storage import open_store
from agent_runtime_storage.urls import backend_of
from tests.services import libsql as libsql_server
from tests.services import postgres as postgres_server
from tests.services.libsql import Libsql, LibsqlServer
from tests.services.postgres import CREATOR, FAST, Logins, Postgres, PostgresServer, remove_scratch
from tests.services.process import MissingPart, in_ci

StartPostgres: TypeAlias = Callable[..., PostgresServer]
StartLibsql: TypeAlias = Callable[..., LibsqlServer]

MISSING = "a server is missing"
"""Prefix of the reasons of such skips."""


def missing(part: MissingPart) -> NoReturn:
    """Skip the test because a server is missing; under CI, fail it."""
    if in_ci():
        pytest.fail(f"{MISSING}: {part}", pytrace=False)
    pytest.skip(f"{MISSING}: {part}")


class Startable(Protocol):
    """A server that a test starts."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=Startable)


@contextmanager
def starting(make: Callable[..., S]) -> Generator[Callable[..., S]]:
    """Yield a function that makes and starts servers, which stop when the context ends."""
    started: list[S] = []

    def start(*arguments: Any, **options: Any) -> S:
        try:
            server = make(*arguments, **options)
        except MissingPart as error:
            missing(error)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the servers' logs."""
    return tmp_path_factory.mktemp("servers")


def _migrate(url: str) -> None:
    """Apply the store's schema to an empty database."""

    async def migrate() -> None:
        store = await open_store(url)
        await store.close()

    with ThreadPoolExecutor(1) as thread:
        # This thread's event loop belongs to the tests.
        thread.submit(anyio.run, migrate).result()


# Postgres


@pytest.fixture(scope="session")
def scratch() -> Iterator[None]:
    """Removes the files that Postgres servers are copied from, at the end of the session."""
    yield
    remove_scratch()


@pytest.fixture(scope="session")
def postgres(logs: Path, scratch: None) -> Iterator[Postgres]:
    """The Postgres server that the tests share; no test may kill it."""
    if url := os.environ.get(postgres_server.EXTERNAL):
        yield Postgres(url)
        return
    try:
        server = PostgresServer(logs, FAST)
    except MissingPart as error:
        missing(error)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def start_postgres(logs: Path, scratch: None) -> Iterator[StartPostgres]:
    """Return a function that starts a server of the test's own; it takes settings by name.

    The test may kill the server and start it again.
    """

    def make(**settings: str) -> PostgresServer:
        return PostgresServer(logs, settings)

    with starting(make) as start:
        yield start


@pytest.fixture(scope="session")
def postgres_template(postgres: Postgres) -> Iterator[str]:
    """The name of a database with the store's schema, as a template for others."""
    owner = _owner(postgres)
    name = postgres.create(owner=owner)
    _migrate(postgres.url(name, owner))
    yield name
    postgres.drop(name)


@pytest.fixture
def postgres_url(postgres: Postgres, postgres_template: str) -> Iterator[str]:
    """The URL of a database with the store's schema, for the ordinary login that owns it."""
    owner = _owner(postgres)
    name = postgres.create(postgres_template, owner=owner)
    yield postgres.url(name, owner)
    postgres.drop(name)


def _owner(server: Postgres) -> str | None:
    """Return the login that owns new databases; None for the URL's login on an external server."""
    if not isinstance(server, PostgresServer):
        return None
    server.ensure_logins()
    return CREATOR


@pytest.fixture
def empty_postgres_url(postgres: Postgres) -> Iterator[str]:
    """The URL of a database that holds only pgvector, for a superuser."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def postgres_logins(postgres: Postgres) -> Iterator[Logins]:
    """The URLs of a database that holds only pgvector, for logins with different rights."""
    name = postgres.create()
    yield postgres.logins(name)
    postgres.drop(name)


# Files


@pytest.fixture(scope="session")
def file_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with the store's schema, as a template for others."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    _migrate(f"file:{path}")
    return path


# libSQL


@pytest.fixture
def start_libsql(logs: Path) -> Iterator[StartLibsql]:
    """Return a function that starts a server for this test, which may kill and restart it."""
    with starting(partial(LibsqlServer, logs)) as start:
        yield start


@pytest.fixture(scope="session")
def libsql_template(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a libSQL server with the store's schema, as a template for others."""
    try:
        server = LibsqlServer(logs)
    except MissingPart as error:
        missing(error)
    try:
        server.start()
        _migrate(server.http_url)
        server.end()
        copy = tmp_path_factory.mktemp("template") / "data"
        return shutil.copytree(server.folder / "data", copy)
    finally:
        server.stop()


@pytest.fixture
def libsql(start_libsql: StartLibsql) -> Libsql:
    """A libSQL server with an empty database; a new process takes 0.03 s to start."""
    if url := os.environ.get(libsql_server.EXTERNAL):
        server = Libsql(url)
        server.wipe()
        return server
    return start_libsql()


@pytest.fixture
def libsql_with_vec(start_libsql: StartLibsql) -> LibsqlServer:
    """A libSQL server with sqlite-vec, and an empty database."""
    return start_libsql(vec=True)


# Any backend


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without rows, on each backend or those that the test's mark names.

    Where it is cheaper, the database has the store's schema already.
    """
    match request.param:
        case "file":
            shutil.copy(request.getfixturevalue("file_template"), tmp_path / "store.db")
            return f"file:{tmp_path / 'store.db'}"
        case "postgres":
            return request.getfixturevalue("postgres_url")
        case backend:
            if libsql_server.EXTERNAL in os.environ:
                server = request.getfixturevalue("libsql")
            else:
                template = request.getfixturevalue("libsql_template")
                server = request.getfixturevalue("start_libsql")(template=template)
            return server.ws_url if backend == "libsql-ws" else server.http_url


@pytest.fixture
def database_contents(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path
) -> Callable[[], bytes]:
    """Return a function that reads the whole content of the database, past the store."""
    if backend_of(database_url) == "file":
        # In another process: opening and closing the file here would drop the locks of this
        # process.
        return lambda: subprocess.check_output(
            ["cat", *sorted(path for path in tmp_path.rglob("*") if path.is_file())]
        )
    if backend_of(database_url) == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return lambda: server.contents(urlsplit(database_url).path.removeprefix("/"))
    return Libsql(database_url).contents
