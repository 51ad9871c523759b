"""Archived threads: moved to the object store, listed, and moved back."""

from __future__ import annotations

import math

from pydantic import Field
from starlette.requests import Request

from agent_runtime.server.access import runtime_of, user_of
from agent_runtime.server.api.cursors import decode_cursor, encode_cursor, invalid_cursor
from agent_runtime.server.api.schemas import Output, Page, PageQuery
from agent_runtime.server.operations import operation
from agent_runtime_storage.contract.reports import ArchivedThread


class ArchivedOut(Output):
    """A thread whose content is in the object store."""

    thread_id: str
    title: str
    created_at: float
    updated_at: float
    archived_at: float
    threads: int = Field(description="How many threads: itself, and those of its sub-agents.")
    records: int = Field(description="The lines of JSON that it consists of.")
    bytes: int = Field(description="Of these lines.")
    stored_bytes: int = Field(description="Of the compressed parts.")


class ArchivePage(Page):
    """Archived threads, the last archived first."""

    archives: list[ArchivedOut]


class Restored(Output):
    """What was restored."""

    threads: list[str] = Field(description="The thread, and those of its sub-agents.")


@operation("GET", "/archives", tag="threads")
async def list_archives(request: Request, query: PageQuery) -> ArchivePage:
    """List archived threads, the last archived first."""
    found = await runtime_of(request).threads.archived(
        limit=query.limit + 1, before=_place(query.cursor), user=user_of(request)
    )
    page, rest = found[: query.limit], found[query.limit :]
    return ArchivePage(
        archives=[ArchivedOut.model_validate(one) for one in page],
        next_cursor=encode_cursor(page[-1].archived_at, page[-1].thread_id) if rest else None,
    )


@operation("POST", "/threads/{thread_id}/archive", tag="threads")
async def archive_thread(request: Request, thread_id: str) -> ArchivedOut:
    """Move a thread to the object store, with the threads of its sub-agents.

    Its id stays taken. A request that failed or was cut short can be sent again.
    """
    archived = await runtime_of(request).threads.archive(thread_id, user=user_of(request))
    return ArchivedOut.model_validate(archived)


@operation("POST", "/threads/{thread_id}/restore", tag="threads")
async def restore_thread(request: Request, thread_id: str) -> Restored:
    """Move an archived thread back into the database, as it was."""
    ids = await runtime_of(request).threads.restore(thread_id, user=user_of(request))
    return Restored(threads=ids)


def _place(cursor: str | None) -> ArchivedThread | None:
    """Return the place after which a page begins; only its time and its id say where."""
    if cursor is None:
        return None
    try:
        archived_at, thread_id = decode_cursor(cursor)
        moment = float(archived_at)
        if not (math.isfinite(moment) and isinstance(thread_id, str)):
            raise ValueError("it is no place")
    except (ValueError, TypeError) as error:
        raise invalid_cursor() from error
    return ArchivedThread(thread_id, "", 0.0, 0.0, moment, "", b"", 0, 0, 0, 0)


OPERATIONS = (list_archives, archive_thread, restore_thread)
"""The operations of this module."""
