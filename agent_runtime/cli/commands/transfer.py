"""`agent-runtime threads rm`, `prune`, `export` and `import`: threads that go, and that come."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from agent_runtime.cli.commands.files import replacing
from agent_runtime.cli.options import json_lines_option
from agent_runtime.cli.terminal import say, shorten, time_text, write_json, write_output

if TYPE_CHECKING:
    from agent_runtime.runtime import Runtime
    from agent_runtime_config import Settings
    from agent_runtime_storage import UserStore
    from agent_runtime_storage.contract.records import Thread

STOP_SECONDS = 30.0
"""How long a run that was cancelled may take to end before its thread is deleted."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MOST = 1_000_000

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


class Age(click.ParamType[float]):
    """A time span such as `30d`, in seconds."""

    name = "age"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is no age. Write 30d, 12h or 2w.", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


age_option = click.option(
    "--older-than", "age", type=Age(), required=True, help="Such as 30d, 12h or 2w without use."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only list them.")


@click.command("rm")
@click.argument("threads", metavar="THREAD...", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Cancel the runs that are at work, and wait for them.")
@yes_option
@json_lines_option
def remove(threads: tuple[str, ...], force: bool, yes: bool, as_json: bool) -> None:
    """Delete threads, with all that belongs to them and their sub-agents' threads, for good."""
    import anyio

    from agent_runtime_config import load_settings

    settings = load_settings()
    wanted = list(dict.fromkeys(threads))
    anyio.run(_require, settings, wanted)
    confirm(f"Delete {_count(len(wanted), 'thread')} for good?", yes=yes)
    for thread_id in wanted:
        _tell_deleted(thread_id, anyio.run(_remove, settings, thread_id, force), as_json=as_json)


@click.command()
@age_option
@dry_run_option
@yes_option
@json_lines_option
def prune(age: float, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the threads that were not used for so long and have no run at work.

    Also cleans up after imports and deletions that were cut short.
    """
    import anyio

    from agent_runtime_config import load_settings

    settings = load_settings()
    found = anyio.run(_idle, settings, age)
    for thread in found if dry_run or not (as_json or yes) else ():
        _tell_idle(thread, as_json=as_json)
    if dry_run:
        say(f"{_count(len(found), 'thread')} would be deleted.")
        return
    if found:
        confirm(f"Delete {_count(len(found), 'thread')} for good?", yes=yes)
    anyio.run(_prune, settings, found, as_json)


@click.command("export")
@click.argument("thread")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write, or to replace; else stdout.",
)
def export_thread(thread: str, output: Path | None) -> None:
    """Write THREAD, with its sub-agents' threads, as JSON lines.

    The file holds everything that was said and done on the thread: keep it as private as that.
    """
    import anyio

    from agent_runtime_config import load_settings

    settings = load_settings()
    if output is None:
        if sys.stdout.isatty():
            raise click.UsageError("Give -o FILE, or send the output to a file or a pipe.")
        anyio.run(_export, settings, thread, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    with replacing(output) as file:
        anyio.run(_export, settings, thread, file)


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--as", "rename", metavar="THREAD", help="Another id for the thread.")
@json_lines_option
def import_thread(file: IO[bytes], rename: str | None, as_json: bool) -> None:
    """Read a thread that `export` wrote from FILE, or from stdin if that is `-`.

    It is there whole, or not at all.  Prints its id, then those of its sub-agents' threads.

    What comes is history: whoever wrote the file, nothing of it runs, and no run of it can be
    resumed.  A new run (`run TASK --thread THREAD`) goes on with the conversation.
    """
    import anyio

    from agent_runtime_config import load_settings

    imported = anyio.run(_import, load_settings(), file, rename)
    if as_json:
        write_json({"thread": imported[0], "imported": imported})
    for thread_id in () if as_json else imported:
        write_output(thread_id)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal, unless the answer was given; leave the command if it is no.

    Raises:
        click.UsageError: there is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask on: give --yes.")
    click.confirm(question, abort=True, err=True)


async def _require(settings: Settings, threads: Sequence[str]) -> None:
    """Look that all threads are there, before the first one is deleted."""
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        for thread_id in threads:
            await store.thread(thread_id)


async def _remove(settings: Settings, thread_id: str, force: bool) -> list[str]:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        return await delete_thread(runtime, thread_id, force=force)


async def delete_thread(
    runtime: Runtime, thread_id: str, *, force: bool = False, unchanged_since: float | None = None
) -> list[str]:
    """Delete a thread, ending first the runs whose process is dead.

    Args:
        force: cancel runs that are at work, in whatever process, and wait until they have ended.
        unchanged_since: as for `UserStore.delete_thread`.

    Raises:
        NotFound, Conflict: as `UserStore.delete_thread`.
        ThreadBusy: a run is at work, or did not end in time.
    """
    import anyio

    from agent_runtime.errors import ThreadBusy
    from agent_runtime.log.leases import is_dead
    from agent_runtime.run.takeover import end_if_dead

    store = runtime.store.of(runtime.settings.user)
    deadline = anyio.current_time() + STOP_SECONDS
    while True:
        try:
            return await store.delete_thread(thread_id, unchanged_since=unchanged_since)
        except ThreadBusy as error:
            run = await store.run(error.run_id)
            gone = is_dead(run)
            if await end_if_dead(store, run):
                # Ending it has changed the thread; nobody else has.
                unchanged_since = None
            elif not (force or gone) or anyio.current_time() > deadline:
                raise
            elif not gone and not run.cancel_requested:
                await runtime.cancel(run.id)
            await anyio.sleep(0.1)


async def _idle(settings: Settings, age: float) -> list[Thread]:
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        return await runtime.store.of(settings.user).idle_threads(seconds=age, limit=_MOST)


async def _prune(settings: Settings, threads: Sequence[Thread], as_json: bool) -> None:
    import math

    from agent_runtime.errors import Conflict, NotFound
    from agent_runtime.runtime import Runtime

    async with Runtime.open(settings) as runtime:
        store: UserStore = runtime.store.of(settings.user)
        for thread in threads:
            # Whoever used it since it was listed keeps it.
            since = math.nextafter(thread.updated_at, math.inf)
            try:
                deleted = await store.delete_thread(thread.id, unchanged_since=since)
            except (Conflict, NotFound) as error:
                say(f"left: {error.message}")
                continue
            _tell_deleted(thread.id, deleted, as_json=as_json)
        if cleaned := await store.clean_up():
            say(f"Cleaned up what was cut short: {', '.join(cleaned)}.")
    if not threads:
        say("There is nothing to delete.")


async def _export(settings: Settings, thread_id: str, file: IO[bytes]) -> None:
    from contextlib import aclosing

    from agent_runtime.runtime import Runtime
    from agent_runtime_storage.upkeep.export_format import dump_record

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        async with aclosing(store.export_thread(thread_id)) as records:
            async for record in records:
                file.write(dump_record(record))


async def _import(settings: Settings, file: IO[bytes], rename: str | None) -> list[str]:
    from agent_runtime.run.imported_threads import check_imported_body
    from agent_runtime.runtime import Runtime
    from agent_runtime_storage.upkeep.export_format import load_records

    async with Runtime.open(settings) as runtime:
        store = runtime.store.of(settings.user)
        records = load_records(_lines(file))
        return await store.import_thread(
            records, rename=rename, texts=text_of, vet=check_imported_body
        )


def text_of(kind: str, body: bytes) -> str:
    """Return what search finds a node or a result by; nothing for what is no message of ours."""
    from agent_runtime.messages import searchable_body

    try:
        return searchable_body("node" if kind == "node" else "call", body)
    except (ValueError, KeyError, TypeError):
        return ""


async def _lines(file: Iterable[bytes]) -> AsyncIterator[bytes]:
    for line in file:
        yield line


def _tell_deleted(thread_id: str, deleted: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        write_json({"thread": thread_id, "deleted": list(deleted)})
        return
    click.echo(thread_id)
    if len(deleted) > 1:
        say(f"With it went {_count(len(deleted) - 1, 'thread')} of sub-agents.")


def _tell_idle(thread: Thread, *, as_json: bool) -> None:
    if as_json:
        write_json({"thread": thread.id, "title": thread.title, "updated_at": thread.updated_at})
    else:
        title = shorten(thread.title, 80)
        write_output(f"{thread.id}  {time_text(thread.updated_at)}  {title}".rstrip())


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
