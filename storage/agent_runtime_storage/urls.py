"""From a database URL to an open store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from agent_runtime_config.urls import redact_url, url_scheme

from .errors import StoreError, UnknownScheme

if TYPE_CHECKING:
    from .contract import Store

Synchronous = Literal["full", "normal"]

_REMOTE = frozenset({"libsql", "http", "https", "ws", "wss", "postgres", "postgresql"})
_USE_FILE = "Use a local file, such as `file:agent_runtime.db`."


def file_path(url: str) -> Path:
    """Return the path of the database file that a URL or bare path names.

    Raises:
        UnknownScheme: the URL's scheme names no backend.
        StoreError: the scheme's backend is not served, or the URL says more than a path.
    """
    if not url.strip():
        raise StoreError("The database URL is empty.", cure=_USE_FILE)
    scheme = url_scheme(url)
    if scheme in _REMOTE:
        raise StoreError(
            f"The database URL {redact_url(url)} names a {scheme} server; this version of the "
            "runtime serves local files only.",
            cure=_USE_FILE,
        )
    if scheme not in ("", "file"):
        raise UnknownScheme(f"No database backend has the URL scheme {scheme!r}.", cure=_USE_FILE)
    path = _path_of_file_url(url) if scheme else url
    if path == ":memory:":
        raise StoreError(
            "A database in memory cannot be shared by the store's connections.",
            cure="Use a file in a temporary folder.",
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


async def open_store(url: str, *, synchronous: Synchronous = "full") -> Store:
    """Open the database that the URL names, create or upgrade its schema, and return the store.

    The store belongs to the running event loop, and to the caller, who closes it.  While it is
    open, this process must not open its files by other means (Python's `sqlite3`, a plain `open`):
    closing them again would drop the locks that keep other processes out.

    Args:
        url: `file:relative`, `file:/absolute`, `file:///absolute` or a bare path.  The file is
            created if it is not there, its folder is not.
        synchronous: `full` survives a loss of power; `normal` is faster and may lose the last
            commits then, though never the file's consistency.

    Raises:
        UnknownScheme, StoreUnavailable (and its subclasses), MigrationError, StoreError.
    """
    path = file_path(url)

    import anyio

    from .drivers.sqlite.driver import SqliteDriver
    from .migrations import migrate
    from .store import SqlStore

    driver = await SqliteDriver.open(path, synchronous=synchronous)
    try:
        await migrate(driver)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await driver.close()
        raise
    return SqlStore(driver)
