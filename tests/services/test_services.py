"""The servers of the other tests start, are killed, and start again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from tests.services.fixtures import StartLibsql, StartPostgres
from tests.services.libsql import PROGRAM, Libsql, LibsqlServer
from tests.services.postgres import Logins, Postgres
from tests.support.command import ROOT

PYTHONPATH = os.pathsep.join(str(ROOT / package) for package in (".", "storage", "config"))


def test_a_killed_postgres_retains_committed_data(start_postgres: StartPostgres) -> None:
    server = start_postgres()
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        backends = [process.pid for process in psutil.Process(server.pid).children(recursive=True)]

        server.kill()

        assert backends and not any(map(psutil.pid_exists, backends))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    server.start()
    with psycopg.connect(server.admin_url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]


def test_logins_have_the_rights_of_their_names(postgres_logins: Logins) -> None:
    rights = "SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user"
    rows: list[object] = []
    for url in (postgres_logins.superuser, postgres_logins.creator, postgres_logins.plain):
        with psycopg.connect(url) as connection:
            rows += connection.execute(rights).fetchall()
            connection.execute("CREATE SCHEMA own")
            connection.execute("SELECT '[1,2]'::vector")
            connection.rollback()

    assert rows == [(True, True), (False, True), (False, False)]


def test_a_clone_is_independent_of_its_template(postgres: Postgres) -> None:
    first = postgres.create()
    postgres.run("CREATE TABLE things ()", database=first)
    second = postgres.create(first)
    postgres.drop(first)

    postgres.run("DROP TABLE things", database=second)
    postgres.drop(second)


def test_a_killed_sqld_retains_committed_data(start_libsql: StartLibsql) -> None:
    server = start_libsql()
    server.execute("CREATE TABLE kept (number)", "INSERT INTO kept VALUES (7)")

    server.kill()

    with pytest.raises(httpx.HTTPError):
        server.execute("SELECT 1")
    server.start()
    assert server.execute("SELECT number FROM kept") == [[["7"]]]


def test_sqld_has_sqlite_vec_on_request(libsql: Libsql, libsql_with_vec: LibsqlServer) -> None:
    # `sqld` gets the extension by its command line, and loads it for each connection.
    distance = "SELECT vec_distance_cosine(x'0000803f00000000', x'000000000000803f')"

    assert libsql_with_vec.execute(distance) == [[[1.0]]]
    with pytest.raises(RuntimeError, match="no such function"):
        libsql.execute(distance)


def test_a_wiped_libsql_is_empty(libsql: Libsql) -> None:
    libsql.execute(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
        "CREATE TABLE children (id INTEGER PRIMARY KEY, p INTEGER REFERENCES parents (id))",
        "CREATE INDEX by_parent ON children (p)",
        "CREATE VIRTUAL TABLE texts USING fts5 (body)",
        "CREATE VIEW everything AS SELECT * FROM children",
        "CREATE TRIGGER twice AFTER INSERT ON parents BEGIN SELECT 1; END",
        "INSERT INTO parents VALUES (1)",
        "INSERT INTO children VALUES (1, 1)",
    )

    libsql.wipe()

    assert libsql.execute("SELECT name FROM sqlite_master") == [[]]


def test_no_server_outlives_killed_tests() -> None:
    code = (
        "import pathlib, sys, tempfile\n"
        "from tests.services.libsql import LibsqlServer\n"
        "server = LibsqlServer(pathlib.Path(tempfile.mkdtemp()))\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT) as process:
        assert process.stdout is not None
        server = psutil.Process(int(process.stdout.readline()))
        process.kill()
    server.wait(60)
    assert not server.is_running()


SKIPPING_TESTS = """
import pytest

from tests.services.fixtures import *

@pytest.mark.parametrize("number", range(41))
def test_one(number):
    pytest.skip({reason!r})

def test_two(libsql):
    pass
"""


@pytest.mark.parametrize(
    ("ci", "reason", "code", "message"),
    [
        ("", "a server is missing: no npm", 0, "42 skipped"),
        ("", "it does not matter here", 1, "41 tests are skipped; at most 40 may be"),
        ("", "", 1, "is skipped without a reason"),
        ("true", "it does not matter here", 1, "a server is missing: TEST_SQLD"),
    ],
)
def test_skips_are_few_and_have_reasons(
    tmp_path: Path, ci: str, reason: str, code: int, message: str
) -> None:
    (tmp_path / "test_one.py").write_text(SKIPPING_TESTS.format(reason=reason))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.services.skips",
        "-p",
        "no:cacheprovider",
    ]
    environ = os.environ | {"CI": ci, PROGRAM: str(tmp_path / "no-sqld"), "PYTHONPATH": PYTHONPATH}

    completed = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=environ, capture_output=True, text=True
    )

    assert message in completed.stdout
    assert completed.returncode == code
