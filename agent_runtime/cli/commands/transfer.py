"""`agent-runtime threads rm`, `prune`, `export` and `import`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from agent_runtime.cli.display.short_ids import short_id
from agent_runtime.cli.files import replacing
from agent_runtime.cli.options import (
    age_option,
    confirm,
    dry_run_option,
    json_lines_option,
    yes_option,
)
from agent_runtime.cli.parameters.ids import THREAD
from agent_runtime.cli.runtime_calls import with_runtime, with_store
from agent_runtime.cli.terminal import (
    output_stream,
    say,
    shorten,
    time_text,
    write_json,
    write_row,
)
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records.log import Thread

# Larger than any real number of threads, so that `prune` does not stop at a page.
_MOST = 1_000_000


@click.command("rm")
@click.argument("threads", metavar="THREAD...", nargs=-1, required=True, type=THREAD)
@click.option("--force", is_flag=True, help="Cancel active runs, and wait until they end.")
@yes_option
@json_lines_option
def remove(threads: tuple[str, ...], force: bool, yes: bool, as_json: bool) -> None:
    """Delete threads for good, with all their data and their sub-agents' threads."""
    wanted = list(dict.fromkeys(threads))
    with_store(lambda store: _require(store, wanted))
    confirm(f"Delete {counted(len(wanted), 'thread')} for good?", yes=yes)
    for thread_id in wanted:
        deleted = with_runtime(
            lambda runtime, one=thread_id: runtime.threads.delete(one, force=force)
        )
        _write_deleted(thread_id, deleted, as_json=as_json)


@click.command()
@age_option
@dry_run_option
@yes_option
@json_lines_option
def prune(age: float, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the threads that were not used for this long and have no active run.

    Also cleans up after interrupted imports and deletions.
    """
    found = with_store(lambda store: store.upkeep.idle_threads(seconds=age, limit=_MOST))
    for thread in found if dry_run or not (as_json or yes) else ():
        write_idle(thread, as_json=as_json)
    if dry_run:
        say(f"{counted(len(found), 'thread')} would be deleted.")
        return
    if found:
        confirm(f"Delete {counted(len(found), 'thread')} for good?", yes=yes)
    with_store(lambda store: _prune(store, found, as_json))


@click.command("export")
@click.argument("thread", type=THREAD)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write or replace; by default stdout.",
)
def export_thread(thread: str, output: Path | None) -> None:
    """Write THREAD and its sub-agents' threads as JSON lines.

    Keep the file private: it holds everything that was said and done on the thread.
    """
    if output is None:
        # Not to a terminal, which the bytes of an export could control.
        stdout = output_stream()
        with_store(lambda store: _export(store, thread, stdout))
        stdout.flush()
        return
    with replacing(output) as file:
        with_store(lambda store: _export(store, thread, file))


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--as", "rename", metavar="THREAD", help="Another id for the thread.")
@json_lines_option
def import_thread(file: IO[bytes], rename: str | None, as_json: bool) -> None:
    """Import a thread that `export` wrote from FILE, or from stdin if FILE is `-`.

    Imports the whole thread or nothing. Prints its id, then the ids of its sub-agents' threads.

    An imported thread is history: none of its runs can be resumed, and nothing in the file is
    executed. A new run (`run TASK --thread THREAD`) continues the conversation.
    """
    imported = with_store(lambda store: _import(store, file, rename))
    if as_json:
        write_json({"thread": imported[0], "imported": imported})
    for thread_id in () if as_json else imported:
        write_row(thread_id)


async def _require(store: UserStore, threads: Sequence[str]) -> None:
    """Check that all threads exist, archived or not, before the first one is deleted."""
    from agent_runtime.errors import ThreadArchived

    for thread_id in threads:
        with suppress(ThreadArchived):
            await store.threads.get(thread_id)


async def _prune(store: UserStore, threads: Sequence[Thread], as_json: bool) -> None:
    import math

    from agent_runtime.errors import Conflict, NotFound

    for thread in threads:
        # Skip a thread that was used since it was listed.
        since = math.nextafter(thread.updated_at, math.inf)
        try:
            deleted = await store.upkeep.delete_thread(thread.id, unchanged_since=since)
        except (Conflict, NotFound) as error:
            say(f"skipped: {error.message}")
            continue
        _write_deleted(thread.id, deleted, as_json=as_json)
    if cleaned := await store.upkeep.clean_up():
        say(f"Cleaned up after interrupted work: {', '.join(cleaned)}.")
    if stray := await store.upkeep.clean_up_archives():
        say(f"Deleted what {counted(stray, 'interrupted archive')} left.")
    if not threads:
        say("There is nothing to delete.")


async def _export(store: UserStore, thread_id: str, file: IO[bytes]) -> None:
    from contextlib import aclosing

    from agent_runtime_storage.upkeep.export_format import dump_record

    async with aclosing(store.upkeep.export_thread(thread_id)) as records:
        async for record in records:
            file.write(dump_record(record))


async def _import(store: UserStore, file: IO[bytes], rename: str | None) -> list[str]:
    from agent_runtime.messages import searchable_if_readable
    from agent_runtime.run.imported_threads import check_imported_body
    from agent_runtime_storage.upkeep.export_format import load_records

    records = load_records(_lines(file))
    return await store.upkeep.import_thread(
        records, rename=rename, texts=searchable_if_readable, vet=check_imported_body
    )


async def _lines(file: Iterable[bytes]) -> AsyncIterator[bytes]:
    for line in file:
        yield line


def _write_deleted(thread_id: str, deleted: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        write_json({"thread": thread_id, "deleted": list(deleted)})
        return
    write_row(thread_id)
    if len(deleted) > 1:
        say(f"Also deleted: {counted(len(deleted) - 1, 'thread')} of its sub-agents.")


def write_idle(thread: Thread, *, as_json: bool) -> None:
    """Write a line for a thread that is not used."""
    if as_json:
        write_json({"thread": thread.id, "title": thread.title, "updated_at": thread.updated_at})
    else:
        title = shorten(thread.title, 80)
        write_row(f"{short_id(thread.id)}  {time_text(thread.updated_at)}  {title}".rstrip())
