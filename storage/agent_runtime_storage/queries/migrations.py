"""Bring a database's schema up to date by numbered migrations.

An empty database gets all of them in one transaction, any other one in a transaction each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from agent_runtime_storage.contract.errors import MigrationError, NotADatabase, StoreError
from agent_runtime_storage.drivers.protocol import BatchMissed, Driver, Statement
from agent_runtime_storage.sql.loader import Migration, load_migrations, load_queries

_TABLE = "schema_migrations"


async def apply_migrations(driver: Driver, migrations: Sequence[Migration] | None = None) -> None:
    """Apply the migrations that the database lacks.

    Several processes may do so at once: a migration and its record are one transaction, so exactly
    one process applies it.

    Args:
        migrations: None applies those of the driver's dialect.

    Raises:
        MigrationError: an applied migration was changed, or the schema is newer than the code.
        NotADatabase: the database belongs to another program.
    """
    queries = load_queries(driver.dialect)
    known = load_migrations(driver.dialect) if migrations is None else migrations
    applied = await _applied(driver, queries)
    # Before anything is written: an older version of the code must leave a newer schema alone.
    _check(known, applied)
    while lacking := [one for one in known if one.version not in applied]:
        # Creating a database is several times faster with a single commit.
        await _apply(driver, queries, lacking[:1] if applied else lacking)
        # Another process may have applied some, with another content.
        applied = await _applied(driver, queries)
        _check(known, applied)


async def schema_state(driver: Driver) -> tuple[int, tuple[str, ...]]:
    """Return the newest applied migration's number (0 for none), and those that the database lacks.

    Raises:
        MigrationError, NotADatabase: as `apply_migrations`.
    """
    known = load_migrations(driver.dialect)
    applied = await _applied(driver, load_queries(driver.dialect))
    _check(known, applied)
    lacking = [migration for migration in known if migration.version not in applied]
    names = tuple(f"{migration.version:04d} {migration.name}" for migration in lacking)
    return max(applied, default=0), names


async def _applied(driver: Driver, queries: Mapping[str, str]) -> dict[int, tuple[str, str]]:
    """Return the name and checksum of each applied migration, by version.

    Raises:
        NotADatabase: the database belongs to another program.
    """
    tables = {str(name) for (name,) in await driver.read(queries["schema_tables"], {}, owner=None)}
    if not tables:
        return {}
    if _TABLE not in tables:
        raise NotADatabase(
            "The database holds tables of another program and none of the runtime's schema.",
            cure="Choose a database of its own for the runtime.",
        )
    try:
        rows = await driver.read(queries["schema_applied"], {}, owner=None)
    except StoreError as error:
        # The plain class says that the database refused the query; its subclasses, that the
        # database could not answer.
        if type(error) is not StoreError:
            raise
        raise NotADatabase(
            f"The database's table {_TABLE} is another program's.",
            cure="Choose a database of its own for the runtime.",
        ) from error
    return {int(version): (str(name), str(checksum)) for version, name, checksum in rows}


async def _apply(
    driver: Driver, queries: Mapping[str, str], migrations: Sequence[Migration]
) -> None:
    batch = [Statement(queries["create_schema_migrations"], {})]
    for migration in migrations:
        values = {
            "version": migration.version,
            "name": migration.name,
            "checksum": migration.checksum,
        }
        # The record first: a process that comes second misses before it changes anything.
        batch.append(Statement(queries["schema_record"], values, rows=1, miss="applied"))
        batch += [Statement(sql, {}) for sql in migration.statements]
    # If it misses, another process was faster; the caller compares the content.
    with suppress(BatchMissed):
        await driver.batch(batch, owner=None, locks=["migrations"])


def _check(known: Sequence[Migration], applied: Mapping[int, tuple[str, str]]) -> None:
    by_version = {migration.version: migration for migration in known}
    for version, (name, checksum) in sorted(applied.items()):
        migration = by_version.get(version)
        if migration is None:
            raise MigrationError(
                f"The database's schema has migration {version:04d} ({name}), which this version "
                "of the runtime does not know.",
                cure="Upgrade the runtime to the version that wrote the database, or newer.",
            )
        if migration.checksum != checksum:
            raise MigrationError(
                f"Migration {version:04d} ({name}) was applied to the database with another "
                "content than this version of the runtime has.",
                cure="Restore the migration file as it was released; changes need a new one.",
            )
