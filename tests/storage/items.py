"""A small table for tests of the driver, and a process that locks its file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import cast

import apsw

from agent_runtime_storage.drivers.protocol import Row, Statement, Value
from agent_runtime_storage.drivers.sqlite.connection import SqliteConnection
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver

CREATE = "CREATE TABLE items (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT"
INSERT = "INSERT INTO items (id, body) VALUES (:id, :body)"
IDS = "SELECT id FROM items ORDER BY id"


def insert(number: int | None, body: Value = b"") -> Statement:
    """Return the statement that adds an item."""
    return Statement(INSERT, {"id": number, "body": body}, rows=1)


async def ids(driver: SqliteDriver) -> list[int]:
    """Return the ids of all items, ascending."""
    return [row[0] for row in await driver.read(IDS, {})]


def run_raw(path: Path, *statements: str) -> list[Row]:
    """Run statements past the store, which must be closed; return the last one's rows."""
    connection = cast("SqliteConnection", apsw.Connection(str(path)))
    rows: list[Row] = []
    for sql in statements:
        rows = connection.execute(sql).fetchall()
    connection.close()
    return rows


class Blocker:
    """Holds the file's write lock in another process, so that writers wait."""

    def __init__(self, path: Path) -> None:
        # In this process, the driver's SQLite would not see the lock: apsw and sqlite3 have
        # separate libraries, and POSIX locks of one process do not exclude each other.
        code = (
            "import sys, sqlite3\n"
            "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "c.execute('BEGIN IMMEDIATE')\n"
            "print('locked', flush=True)\n"
            "sys.stdin.read()\n"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"locked\n"

    def release(self) -> None:
        if self._process.returncode is None:
            self._process.communicate()
