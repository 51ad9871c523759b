"""Prepare a database for the migrations: a schema, pgvector, two roles.

Row-level security backs up the owner that every statement names.  An owner's statements run as the
role `agent_runtime_app`, which sees only that owner's rows, even if the login is a superuser.  Work
over all owners runs as the login, which gets the right from the role `agent_runtime_system`.  A
login that may not create or use these roles is restricted by FORCE and by the connection's settings
alone.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from agent_runtime_storage.contract.errors import MigrationError
from agent_runtime_storage.drivers.postgres.error_mapping import map_refusal
from agent_runtime_storage.drivers.postgres.pipeline import ServerError
from agent_runtime_storage.drivers.protocol import Row, Value
from agent_runtime_storage.sql.loader import parse_blocks

SCHEMA = "agent_runtime"
APP_ROLE = "agent_runtime_app"
# "agent_rt" in ASCII; other programs lock numbers of their own.
_LOCK = 0x6167656E745F7274
_OLDEST_SERVER = 140000
_OLDEST_VECTOR = (0, 8)
_DENIED = "42501"
# Another database of the cluster changed the role at the same time.
_CONCURRENT = frozenset({"XX000", "23505", "42710"})
_TRIES = 20

Ask = Callable[[str, Mapping[str, Value]], Awaitable[list[Row]]]
"""Runs one statement in a transaction of its own; raises `ServerError`."""

Wall = Literal["role", "forced", "none"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """How the database separates owners, in addition to the owner that each statement names.

    Attributes:
        wall: `role`: an owner's statements run as a role that sees only that owner's rows.
            `forced`: the tables hold the login itself to its settings.  `none`: the login
            bypasses row-level security, or a table has none.
        detail: why.
        cure: how to get a better wall; empty for `role`.
    """

    wall: Wall
    detail: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    version: int
    login: str
    bypasses: bool
    standby: bool
    schema: bool
    vector: str | None
    vector_schema: str | None
    public: bool
    roles: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the setup found, valid while the store is open.

    Attributes:
        path: the search path of every connection.
        uses_role: whether an owner's statements can run as the application's role.
    """

    path: str
    uses_role: bool


@functools.cache
def setup_queries() -> Mapping[str, str]:
    """Return the named blocks of `setup.sql`."""
    file = resources.files(__package__ or "").joinpath("setup.sql")
    return parse_blocks(file.read_text("utf-8"))


class Setup:
    """Prepares a database for the migrations.

    Args:
        ask: runs statements as the login.
        shown: the URL as it may be shown.
    """

    def __init__(self, ask: Ask, shown: str) -> None:
        self._ask = ask
        self._shown = shown

    async def prepare(self) -> Prepared:
        """Create what is missing, as far as the login may; safe in concurrent processes.

        Raises:
            MigrationError: something is missing that the login cannot create; the cure is the SQL.
        """
        found = await self._look()
        if found.version < _OLDEST_SERVER:
            raise MigrationError(
                f"The server of {self._shown} is Postgres {found.version // 10000}.",
                cure="Use Postgres 14 or newer.",
            )
        usable = await self._roles_usable()
        if not (found.schema and found.vector and usable) and not found.standby:
            # A lock of the session: each statement here is a transaction of its own.
            await self._query("lock", key=_LOCK)
            try:
                # Look again: another process may have created it while this one waited.
                found = await self._create(await self._look())
                usable = await self._roles_usable()
            finally:
                await self._query("unlock", key=_LOCK)
        uses_role = await self._settle(found, usable=usable)
        path = SCHEMA
        if found.vector_schema not in (None, SCHEMA):
            path += f", {found.vector_schema}"
        return Prepared(path, uses_role)

    async def _look(self) -> _Found:
        [row] = await self._query("look")
        version, login, bypasses, standby, schema, vector, vector_schema, public, roles = row
        return _Found(
            version,
            login,
            bool(bypasses),
            bool(standby),
            bool(schema),
            vector,
            vector_schema,
            bool(public),
            roles,
        )

    async def _query(self, name: str, **params: Value) -> list[Row]:
        try:
            return await self._ask(setup_queries()[name], params)
        except ServerError as error:
            raise map_refusal(error, self._shown) from None

    async def _roles_usable(self) -> bool:
        [(usable,)] = await self._query("roles_usable")
        return bool(usable)

    async def _create(self, found: _Found) -> _Found:
        if not found.schema:
            await self._must(
                "create_schema",
                f"The login {found.login} may not create the schema {SCHEMA}",
                f'Run as an administrator: CREATE SCHEMA {SCHEMA} AUTHORIZATION "{found.login}";',
            )
        if not found.vector:
            # A database has an extension only once: in `public` its other programs can use it.
            await self._must(
                "create_extension_in_public" if found.public else "create_extension",
                "The extension pgvector cannot be created",
                "Install pgvector 0.8 or newer on the server, then run there as an administrator: "
                "CREATE EXTENSION vector;",
            )
        if not await self._roles_usable():
            await self._create_roles(found)
        return await self._look()

    async def _must(self, name: str, what: str, cure: str) -> None:
        try:
            await self._ask(setup_queries()[name], {})
        except ServerError as error:
            raise MigrationError(
                f"{what} (database {self._shown}: {error.message}).", cure=cure
            ) from None

    async def _create_roles(self, found: _Found) -> None:
        names = ["grant_roles"]
        if found.roles < 2:
            names = ["create_role_app", "create_role_system", *names]
        for name in names:
            if not await self._may(name):
                return

    async def _may(self, name: str) -> bool:
        """Run a statement about roles; return whether the login may run it."""
        for attempt in range(_TRIES):
            try:
                await self._ask(setup_queries()[name], {})
            except ServerError as error:
                if error.sqlstate == _DENIED:
                    return False
                if error.sqlstate not in _CONCURRENT or attempt == _TRIES - 1:
                    raise map_refusal(error, self._shown) from None
                await asyncio.sleep(0.01 * (attempt + 1))
            else:
                return True
        return False

    async def _settle(self, found: _Found, *, usable: bool) -> bool:
        """Check pgvector and the policies; return whether the role can be used."""
        if found.vector is not None and _version(found.vector) < _OLDEST_VECTOR:
            raise MigrationError(
                f"The database {self._shown} has pgvector {found.vector}.",
                cure="Install pgvector 0.8 or newer, then run: ALTER EXTENSION vector UPDATE;",
            )
        [(by_role, by_setting, foreign)] = await self._query("policies")
        if by_role and not usable:
            raise MigrationError(
                f"The login {found.login} is no member of the roles that guard the tables of "
                f"{self._shown}.",
                cure=f"Run as an administrator: GRANT {APP_ROLE}, {APP_ROLE[:-3]}system TO "
                f'"{found.login}";',
            )
        if by_setting and usable and not foreign and not found.standby:
            # The roles were created after the tables.
            await self._query("guard_again")
            return True
        return usable and not by_setting

    async def isolation(self, *, uses_role: bool) -> Isolation:
        """Return how the database separates owners."""
        found = await self._look()
        unforced = [str(name) for (name,) in await self._query("unforced")]
        if unforced:
            return Isolation(
                "none",
                f"Row-level security is off for {', '.join(unforced)}.",
                f"Run as the tables' owner: SELECT {SCHEMA}.guard_table(name) for each that has a "
                f"user_id; for any other REVOKE ALL ON it FROM PUBLIC, {APP_ROLE}.",
            )
        if uses_role:
            if await self._query("app_bypasses"):
                return Isolation(
                    "none",
                    f"The role {APP_ROLE} bypasses row-level security.",
                    f"Run as an administrator: ALTER ROLE {APP_ROLE} NOSUPERUSER NOBYPASSRLS;",
                )
            return Isolation("role", f"An owner's statements run as the role {APP_ROLE}.")
        cure = (
            f"Run as an administrator: CREATE ROLE {APP_ROLE} NOLOGIN; CREATE ROLE "
            f"{APP_ROLE[:-3]}system NOLOGIN; GRANT {APP_ROLE}, {APP_ROLE[:-3]}system TO "
            f'"{found.login}"; then open the store again.'
        )
        if found.bypasses:
            return Isolation("none", f"The login {found.login} bypasses row-level security.", cure)
        # It cannot have a policy, and what hides it from others cannot hide it from its owner.
        detail = f"The tables hold the login {found.login} by FORCE, except the full-text index."
        return Isolation("forced", detail, cure)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
