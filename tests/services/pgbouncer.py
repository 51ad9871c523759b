"""A real PgBouncer in front of a Postgres of the tests."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import psycopg

from tests.services.postgres import give_to
from tests.services.process import MissingPart, Service, ordinary_user


class PgBouncer(Service):
    """A pooler; every database of the server can be used through it, by one login.

    Args:
        url: of a database of the server, with the login.
        mode: `session`, `transaction` or `statement`.
        size: the most connections to the server.
        round_robin: whether they are lent out in turns, not the last one first.
    """

    def __init__(
        self,
        logs: Path,
        url: str,
        *,
        mode: str = "session",
        size: int = 30,
        round_robin: bool = False,
    ) -> None:
        program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
        if program is None:
            raise MissingPart("the program pgbouncer is not installed")
        self._program = program
        self.user = ordinary_user()
        super().__init__("pgbouncer", logs)
        parts = urlsplit(url)
        login, password = unquote(parts.username or ""), unquote(parts.password or "")
        (self.folder / "users").write_text(f'"{login}" "{password}"\n')
        self._configuration = self.folder / "pgbouncer.ini"
        self._configuration.write_text(
            "[databases]\n"
            f"* = host={parts.hostname} port={parts.port}\n"
            "[pgbouncer]\n"
            "listen_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\n"
            "unix_socket_dir =\n"
            "auth_type = scram-sha-256\n"
            f"auth_file = {self.folder / 'users'}\n"
            f"pool_mode = {mode}\n"
            f"default_pool_size = {size}\n"
            "max_client_conn = 500\n"
            f"server_round_robin = {int(round_robin)}\n"
        )
        give_to(self.folder, self.user)
        place = f"{quote(login)}:{quote(password, safe='')}@127.0.0.1:{self.port}"
        self.url = urlunsplit((parts.scheme, place, parts.path, parts.query, ""))

    def command(self) -> list[str]:
        return [self._program, str(self._configuration)]

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True
