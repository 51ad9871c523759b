"""`agent-runtime db`: maintain the database, across all of its owners."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from agent_runtime.cli import exit_codes as exits
from agent_runtime.cli.groups import CommandGroup
from agent_runtime.cli.options import json_lines_option, json_object_option
from agent_runtime.cli.terminal import say, shorten, write_json, write_row
from agent_runtime_config.counted import counted
from agent_runtime_config.urls import redact_url

if TYPE_CHECKING:
    from agent_runtime_config import Settings
    from agent_runtime_storage import Store
    from agent_runtime_storage.contract.reports import Problem, StoreSizes, StoreStatus


@click.group(cls=CommandGroup)
def db() -> None:
    """Maintain the database of AGENT_RUNTIME_DATABASE_URL, across all of its owners."""


@db.command()
@json_object_option
def status(as_json: bool) -> None:
    """Show the database and whether its schema is current; changes nothing.

    The exit code is 7 if the runtime cannot use the database.
    """
    import dataclasses

    import anyio

    from agent_runtime_config import load_settings

    settings = load_settings()
    shown = redact_url(settings.database_url)
    found = anyio.run(_status, settings)
    if found is None:
        if as_json:
            write_json({"url": shown, "there": False})
        else:
            write_row(f"{shown}: there is no database yet; the first run creates it")
        return
    ready = not found.pending and not found.problem
    if as_json:
        write_json({"url": shown, "there": True, "ready": ready, **dataclasses.asdict(found)})
    else:
        _write_status(shown, found)
    click.get_current_context().exit(exits.SUCCESS if ready else exits.DATABASE)


def _write_status(shown: str, found: StoreStatus) -> None:
    rows = {
        "url": shown,
        "server": found.server,
        "schema": f"{found.schema:04d}" if found.schema else "none",
        "pending": ", ".join(found.pending) or ("" if found.problem else "none"),
        "problem": found.problem,
        "isolation": found.isolation,
        "search": outdated_text(found),
        "cure": found.cure,
    }
    for name, text in rows.items():
        if text:
            write_row(f"{name:<10} {text}")


def outdated_text(found: StoreStatus) -> str:
    """Return a sentence about texts that an earlier version indexed; "" if there are none."""
    if not found.outdated_texts:
        return ""
    return (
        f"{counted(found.outdated_texts, 'text')} of an earlier version can be found by exact "
        "words only, until a running process, or `db reindex`, indexes them again"
    )


@db.command()
def migrate() -> None:
    """Create or update the schema; several processes may do so at once."""
    import anyio

    from agent_runtime_config import load_settings

    applied = anyio.run(_migrate, load_settings())
    for name in applied:
        write_row(name)
    if not applied:
        say("The schema is current.")


@db.command()
def reindex() -> None:
    """Index texts again that an earlier version indexed.

    Running processes do so slowly, in the background; this command does it at once. It can be
    interrupted and repeated.
    """
    import anyio

    from agent_runtime_config import load_settings

    texts = anyio.run(_reindex, load_settings())
    say(f"Indexed again: {counted(texts, 'text')}." if texts else "All texts are current.")


@db.command()
@json_object_option
def check(as_json: bool) -> None:
    """Look for damage and leftovers; changes nothing.

    The exit code is 7 if something is damaged or lost.
    """
    import dataclasses

    import anyio

    from agent_runtime_config import load_settings

    found: list[Problem] = anyio.run(_check, load_settings())
    if as_json:
        write_json([dataclasses.asdict(one) for one in found])
    for one in () if as_json else found:
        where = f" {one.user_id}/{one.thread_id}" if one.thread_id else ""
        write_row(f"{one.level}{where}: {one.detail}")
        write_row(f"    cure: {one.cure}")
    damaged = sum(one.level == "damage" for one in found)
    say(f"{damaged} damaged, {len(found) - damaged} to notice." if found else "No problems.")
    click.get_current_context().exit(exits.DATABASE if damaged else exits.SUCCESS)


@db.command()
@click.option("--threads", type=click.IntRange(min=0), default=10, show_default=True)
@json_object_option
def size(threads: int, as_json: bool) -> None:
    """Show the size of the database: in total, by table, by owner, and of its largest threads."""
    import dataclasses

    import anyio

    from agent_runtime_config import load_settings

    found: StoreSizes = anyio.run(_sizes, load_settings(), threads)
    if as_json:
        write_json(dataclasses.asdict(found))
        return
    write_row(f"{bytes_text(found.total)}  in total")
    for name, number in found.tables:
        write_row(f"{bytes_text(number)}  table {name}")
    for owner in found.owners:
        name = shorten(owner.user_id, 60)
        write_row(f"{bytes_text(owner.bytes)}  owner {name}, {counted(owner.threads, 'thread')}")
    for one in found.threads:
        name = shorten(f"{one.user_id}/{one.thread_id}  {one.title}", 100)
        write_row(f"{bytes_text(one.bytes)}  thread {name}")


@db.command()
def vacuum() -> None:
    """Free the space of deleted rows; on Postgres, remove them for good."""
    import anyio

    from agent_runtime_config import load_settings

    before, after = anyio.run(_vacuum, load_settings())
    write_row(f"{bytes_text(before).strip()} before, {bytes_text(after).strip()} now")


@db.command()
@click.argument("source", metavar="FROM_URL")
@click.argument("target", metavar="TO_URL")
@json_lines_option
def copy(source: str, target: str, as_json: bool) -> None:
    """Copy all threads of all owners from one database to another, of any kind.

    Creates the target if necessary. Existing threads of the target stay, so the command can be
    repeated. The exit code is 6 if a thread was skipped: its run is active, or the target has
    another thread with its id.
    """
    import anyio

    from agent_runtime_config import load_settings

    if source == target:
        raise click.UsageError("Give two different databases.")
    left = anyio.run(_copy, load_settings(), source, target, as_json)
    click.get_current_context().exit(exits.NOTHING if left else exits.SUCCESS)


def bytes_text(number: int) -> str:
    """Return a number of bytes with a fixed width: ` 12.3 MB`."""
    size = float(number)
    for unit in ("B ", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:>6.1f} {unit}" if unit != "B " else f"{number:>6} {unit}"
        size /= 1000
    return f"{size:>6.1f} TB"


async def _status(settings: Settings) -> StoreStatus | None:
    # Opening a file would create it, and this command changes nothing.
    if not _is_there(settings.database_url):
        return None
    async with _open(settings) as store:
        return await store.maintenance.status()


async def _migrate(settings: Settings) -> tuple[str, ...]:
    """Return the migrations that were applied, by this process or meanwhile by another."""
    pending: tuple[str, ...] = ()
    if _is_there(settings.database_url):
        async with _open(settings) as store:
            before = await store.maintenance.status()
            if not before.problem:
                pending = before.pending
    else:
        from agent_runtime_storage.sql.loader import load_migrations

        pending = tuple(f"{one.version:04d} {one.name}" for one in load_migrations("sqlite"))
    # Opening applies them, unless another process did so first.
    async with _open(settings, migrate=True):
        return pending


async def _reindex(settings: Settings) -> int:
    from agent_runtime.messages import searchable_if_readable

    _require(settings.database_url)
    texts = 0
    async with _open(settings) as store:
        for owner in await store.maintenance.outdated():
            while found := await store.of(owner).upkeep.reindex(searchable_if_readable):
                texts += found
    return texts


async def _check(settings: Settings) -> list[Problem]:
    _require(settings.database_url)
    async with _open(settings) as store:
        return await store.maintenance.check()


async def _sizes(settings: Settings, threads: int) -> StoreSizes:
    _require(settings.database_url)
    async with _open(settings) as store:
        return await store.maintenance.sizes(threads=threads)


async def _vacuum(settings: Settings) -> tuple[int, int]:
    _require(settings.database_url)
    async with _open(settings) as store:
        before = await store.maintenance.sizes(threads=0)
        await store.maintenance.vacuum()
        return before.total, (await store.maintenance.sizes(threads=0)).total


async def _copy(settings: Settings, source_url: str, target_url: str, as_json: bool) -> int:
    """Copy, write a line for each thread, and return how many were skipped."""
    import dataclasses
    from contextlib import aclosing

    from agent_runtime.messages import searchable_if_readable
    from agent_runtime_storage.upkeep.store_copy import copy_store

    _require(source_url)
    left = 0
    async with (
        _open(settings, source_url) as source,
        _open(settings, target_url, migrate=True) as target,
        aclosing(copy_store(source, target, texts=searchable_if_readable)) as copies,
    ):
        async for one in copies:
            # A thread that the target already has is no conflict, so the command can be repeated.
            left += one.outcome == "conflict"
            if as_json:
                write_json(dataclasses.asdict(one))
            else:
                why = f"  {one.detail}" if one.detail else ""
                name = f"{one.user_id}/{one.thread_id}"
                write_row(f"{one.outcome:<8}  {name}{why}")
    return left


def _is_there(url: str) -> bool:
    """Return whether the database exists; True for a server, which is not asked."""
    from agent_runtime_storage.urls import backend_of, file_path

    return backend_of(url) != "file" or file_path(url).exists()


def _require(url: str) -> None:
    from agent_runtime.errors import NotFound

    if not _is_there(url):
        raise NotFound(f"There is no database {redact_url(url)}.", cure="Check the URL.")


@asynccontextmanager
async def _open(
    settings: Settings, url: str | None = None, *, migrate: bool = False
) -> AsyncGenerator[Store]:
    import anyio

    from agent_runtime_storage import open_store

    token = settings.database_auth_token
    store = await open_store(
        url or settings.database_url,
        synchronous=settings.synchronous,
        auth_token=token.get_secret_value() if token else None,
        objects=settings.object_store_url,
        migrate=migrate,
        connections=settings.database_connections,
    )
    try:
        yield store
    finally:
        # Closing waits for the writer thread; a cancellation would leave it running.
        with anyio.CancelScope(shield=True):
            await store.close()
