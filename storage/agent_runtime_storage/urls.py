"""Open the store that a database URL names; the URL alone selects the backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from agent_runtime_config.state import known_state_folder
from agent_runtime_config.urls import is_misspelt, redact_url, url_scheme
from agent_runtime_storage.contract.errors import StoreError, UnknownScheme
from agent_runtime_storage.contract.names import MAX_TITLE_CHARS

if TYPE_CHECKING:
    from agent_runtime_storage.contract.store import Store
    from agent_runtime_storage.drivers.protocol import Driver
    from agent_runtime_storage.objects.object_store import Objects

Synchronous = Literal["full", "normal"]
Backend = Literal["file", "libsql-http", "libsql-ws", "postgres"]

_BACKENDS: dict[str, Backend] = {
    "": "file",
    "file": "file",
    "libsql": "libsql-http",
    "http": "libsql-http",
    "https": "libsql-http",
    "ws": "libsql-ws",
    "wss": "libsql-ws",
    "postgres": "postgres",
    "postgresql": "postgres",
}
CONNECTIONS = 8
"""The most connections to Postgres at a time, unless the caller says another number."""
_USE_FILE = "Use a local file, such as `file:agent_runtime.db`."


def backend_of(url: str) -> Backend:
    """Return which database a URL, or a bare path, names.

    Raises:
        UnknownScheme: the URL's scheme names no backend.
        StoreError: the URL is empty.
    """
    if not url.strip():
        raise StoreError("The database URL is empty.", cure=_USE_FILE)
    scheme = url_scheme(url)
    backend = _BACKENDS.get(scheme)
    if backend is None:
        known = ", ".join(sorted(filter(None, _BACKENDS)))
        raise UnknownScheme(
            f"No database backend has the URL scheme {scheme!r}.",
            cure=f"Use one of {known}, or the path of a file.",
        )
    return backend


def file_path(url: str) -> Path:
    """Return the path of the database file that a URL or bare path names.

    Raises:
        UnknownScheme: the URL's scheme names no backend.
        StoreError: the URL names a server, or has more parts than a path.
    """
    if backend_of(url) != "file":
        raise StoreError(f"The database URL {redact_url(url)} names a server.", cure=_USE_FILE)
    path = _path_of_file_url(url) if url_scheme(url) else url
    if path == ":memory:":
        raise StoreError(
            "A database in memory cannot be shared by the store's connections.",
            cure="Use a file in a temporary folder, as `tempfile.TemporaryDirectory()` makes one.",
        )
    # Every call on such a path raises a bare ValueError.
    if not url_scheme(url) and is_misspelt(url):
        raise StoreError(
            f"The database {redact_url(url)} looks like a URL whose scheme is misspelt.",
            cure="Write `postgresql://…`, `libsql://…`, or `file:…` before a path, without quotes.",
        )
    if "\0" in path:
        raise StoreError("The database's path holds a zero byte.", cure=_USE_FILE)
    return Path(path)


def _path_of_file_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise StoreError(
            f"The file URL {redact_url(url)} names a host.",
            cure="Write `file:relative/path` or `file:///absolute/path`.",
        )
    if parts.query or parts.fragment:
        raise StoreError(
            f"The file URL {redact_url(url)} has parameters, and the file backend knows none.",
            cure="Remove everything from `?` or `#` on (in a file name write %3F or %23).",
        )
    path = unquote(parts.path)
    if not path:
        raise StoreError("The file URL names no file.", cure=_USE_FILE)
    return path


async def open_driver(
    url: str,
    *,
    synchronous: Synchronous = "full",
    auth_token: str | None = None,
    connections: int = CONNECTIONS,
) -> Driver:
    """Connect to the database that the URL names; see `open_store`."""
    match backend_of(url):
        # Imported here, so that a program loads only the client of its own database.
        case "file":
            from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver

            path = file_path(url)
            if path.parent == known_state_folder():
                # Only the state folder itself is private; other programs share its parents.
                path.parent.parent.mkdir(parents=True, exist_ok=True)
                path.parent.mkdir(mode=0o700, exist_ok=True)
            return await SqliteDriver.open(path, synchronous=synchronous)
        case "libsql-http":
            from agent_runtime_storage.drivers.libsql.http import HttpDriver

            return await HttpDriver.open(url, auth_token=auth_token)
        case "libsql-ws":
            from agent_runtime_storage.drivers.libsql.websocket import WebSocketDriver

            return await WebSocketDriver.open(url, auth_token=auth_token)
        case "postgres":
            from agent_runtime_storage.drivers.postgres.driver import PostgresDriver

            return await PostgresDriver.open(url, connections=connections)


async def open_store(
    url: str,
    *,
    synchronous: Synchronous = "full",
    auth_token: str | None = None,
    objects: str | None = None,
    migrate: bool = True,
    connections: int = CONNECTIONS,
    max_title_chars: int = MAX_TITLE_CHARS,
) -> Store:
    """Open the database that the URL names, create or upgrade its schema, and return the store.

    The store belongs to the running event loop, and to the caller, who closes it.  While a file
    is open, this process must not open it by other means (Python's `sqlite3`, a plain `open`):
    closing it again would drop the locks that keep other processes out.

    Args:
        url: a file, as `file:relative`, `file:/absolute`, `file:///absolute` or a bare path (it
            is created if it does not exist, its folder only if it is the user's state folder); a
            libSQL server, as `libsql:`, `http:`, `https:`, `ws:` or `wss:`; or Postgres, as
            `postgresql:`.
        synchronous: for a file: `full` survives a loss of power; `normal` is faster and may then
            lose the last commits, though never the file's consistency.
        auth_token: for a libSQL server, if it requires one.
        objects: the URL of the object store for the largest bodies: a folder, or `s3:`, `gs:`,
            `az:` or `abfss:`.  None uses a folder next to a database file; with a server it stores
            these bodies in the database, as other machines cannot read a folder of this one.
        migrate: whether to bring the schema up to date; without it only `maintenance` can be used.
        connections: to Postgres: the most at a time; listening takes one more.
        max_title_chars: the most characters of a thread's title; an import cuts longer ones.

    Raises:
        UnknownScheme, StoreUnavailable (and its subclasses), MigrationError, StoreError.
    """
    import anyio

    from agent_runtime_storage.queries.migrations import apply_migrations as bring_up_to_date
    from agent_runtime_storage.store import SqlStore

    driver = await open_driver(
        url, synchronous=synchronous, auth_token=auth_token, connections=connections
    )
    try:
        if migrate:
            await bring_up_to_date(driver)
        # After the migrations, which choose the database's room in the object store.
        object_store = await _open_objects(driver, url, objects)
    except BaseException:
        # Shielded, or a cancelled opening would leave connections and threads behind.
        with anyio.CancelScope(shield=True):
            await driver.close()
        raise
    return SqlStore(driver, object_store, max_title_chars=max_title_chars)


async def _open_objects(driver: Driver, url: str, objects: str | None) -> Objects | None:
    from agent_runtime_storage.drivers.protected_files import protect_folder
    from agent_runtime_storage.objects.object_store import default_object_folder, parse_folder_url
    from agent_runtime_storage.upkeep.orphans import open_object_store

    if objects is None:
        if backend_of(url) != "file":
            return None
        objects = str(default_object_folder(file_path(url)))
    object_store = await open_object_store(driver, objects)
    if object_store is not None and url_scheme(objects) in ("", "file"):
        protect_folder(parse_folder_url(objects), object_store)
    return object_store
