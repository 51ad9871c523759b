"""`agent-runtime threads archive`, `restore` and `--archived`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from agent_runtime.cli.commands.transfer import write_idle
from agent_runtime.cli.display.short_ids import short_id
from agent_runtime.cli.options import Age, confirm, dry_run_option, json_lines_option, yes_option
from agent_runtime.cli.parameters.ids import THREAD
from agent_runtime.cli.runtime_calls import user_store, with_runtime
from agent_runtime.cli.terminal import say, shorten, time_text, write_json, write_row
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime.runtime import Runtime
    from agent_runtime_storage import ArchivedThread, Thread

# Larger than any real number of threads, so that one page holds them all.
_MOST = 1_000_000


@click.command()
@click.argument("threads", metavar="[THREAD...]", nargs=-1, type=THREAD)
@click.option(
    "--older-than",
    "age",
    type=Age(),
    help="Archive the threads that were not used for this long, such as 30d, 12h or 2w.",
)
@dry_run_option
@yes_option
@json_lines_option
def archive(
    threads: tuple[str, ...], age: float | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Move threads to the object store, with all that belongs to them.

    Archived threads stay listed (`threads --archived`), their ids stay taken, and `threads restore`
    brings each back as it was. Skips threads whose run is not over. If the command is interrupted,
    repeat it.
    """
    if bool(threads) == (age is not None):
        raise click.UsageError("Give threads, or --older-than.")
    if age is None:
        if dry_run:
            raise click.UsageError("--dry-run needs --older-than.")
        named = [(one, None) for one in dict.fromkeys(threads)]
        left = with_runtime(lambda runtime: _archive(runtime, named, as_json))
    else:
        idle = with_runtime(
            lambda runtime: user_store(runtime).upkeep.archivable_threads(seconds=age, limit=_MOST)
        )
        left = _archive_idle(idle, dry_run=dry_run, yes=yes, as_json=as_json)
    if left:
        raise left[0]


@click.command()
@click.argument("threads", metavar="THREAD...", nargs=-1, required=True)
@json_lines_option
def restore(threads: tuple[str, ...], as_json: bool) -> None:
    """Move archived threads back into the database.

    The threads of their sub-agents come with them.
    """
    for thread_id in dict.fromkeys(threads):
        restored = with_runtime(lambda runtime, one=thread_id: _restore(runtime, one))
        if as_json:
            write_json({"thread": restored[0], "restored": restored})
        else:
            write_row(restored[0])
            if len(restored) > 1:
                say(f"Also restored: {counted(len(restored) - 1, 'thread')} of its sub-agents.")


def list_archived(limit: int, *, as_json: bool) -> None:
    """Write a line for each archived thread."""
    found = with_runtime(lambda runtime: runtime.threads.archived(limit=limit))
    for one in found:
        _write_archived(one, as_json=as_json)
    if not found and not as_json:
        say("There are no archived threads.")


def _archive_idle(
    idle: Sequence[Thread], *, dry_run: bool, yes: bool, as_json: bool
) -> list[Exception]:
    import math

    for thread in idle if dry_run or not (as_json or yes) else ():
        write_idle(thread, as_json=as_json)
    if dry_run:
        say(f"{counted(len(idle), 'thread')} would be archived.")
        return []
    if not idle:
        say("There is nothing to archive.")
        return []
    confirm(f"Archive {counted(len(idle), 'thread')}?", yes=yes)
    # Skip a thread that was used since it was listed; that is no error. `unchanged_since` excludes
    # the time itself, hence the next larger float.
    wanted = [(one.id, math.nextafter(one.updated_at, math.inf)) for one in idle]
    with_runtime(lambda runtime: _archive(runtime, wanted, as_json))
    return []


async def _archive(
    runtime: Runtime, wanted: Sequence[tuple[str, float | None]], as_json: bool
) -> list[Exception]:
    """Archive threads, write a line for each, and return the errors of those that were skipped."""
    from agent_runtime.errors import Conflict, NotFound

    left: list[Exception] = []
    for thread_id, since in wanted:
        try:
            archived = await runtime.threads.archive(thread_id, unchanged_since=since)
        except (Conflict, NotFound) as error:
            left.append(error)
            if len(wanted) > 1:
                say(f"skipped: {error.message}")
            continue
        _write_archived(archived, as_json=as_json)
    return left


async def _restore(runtime: Runtime, text: str) -> list[str]:
    from agent_runtime.errors import NotFound

    try:
        return await runtime.threads.restore(text)
    except NotFound:
        # Lists show only the end of an id.
        archived = await runtime.threads.archived(limit=_MOST)
        names = [one.thread_id for one in archived if one.thread_id.endswith(text)]
        if len(names) != 1:
            raise
    return await runtime.threads.restore(names[0])


def _write_archived(archived: ArchivedThread, *, as_json: bool) -> None:
    from agent_runtime.cli.commands.db import bytes_text

    if as_json:
        write_json(
            {
                "thread": archived.thread_id,
                "title": archived.title,
                "created_at": archived.created_at,
                "updated_at": archived.updated_at,
                "archived_at": archived.archived_at,
                "threads": archived.threads,
                "records": archived.records,
                "bytes": archived.bytes,
                "stored_bytes": archived.stored_bytes,
                "place": archived.place,
            }
        )
        return
    name, used = short_id(archived.thread_id), time_text(archived.updated_at)
    size, title = bytes_text(archived.stored_bytes), shorten(archived.title, 80)
    write_row(f"{name}  {used}  {size}  {title}".rstrip())
