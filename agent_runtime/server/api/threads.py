"""Threads, their messages, branches, plans and events."""

from __future__ import annotations

import math
from functools import partial

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from agent_runtime.messages import Plan
from agent_runtime.server.access import runtime_of, store_of, user_of
from agent_runtime.server.api.cursors import (
    decode_cursor,
    encode_cursor,
    invalid_cursor,
)
from agent_runtime.server.api.schemas import (
    Deleted,
    DeleteQuery,
    Edit,
    EventsQuery,
    Fork,
    MessageOut,
    MessagePage,
    NewThread,
    Output,
    PageQuery,
    ThreadChange,
    ThreadOut,
    ThreadPage,
    ThreadsQuery,
    UsageByPurpose,
)
from agent_runtime.server.feeds import thread_source
from agent_runtime.server.live_batches import with_live
from agent_runtime.server.operations import made_id, operation
from agent_runtime.server.problems import cursor_of_another_thread
from agent_runtime.server.protocols.live import live_of
from agent_runtime.server.state import service_of
from agent_runtime.server.streams import CursorWriter, EventCursor, EventStream
from agent_runtime_storage import Thread, UserStore
from agent_runtime_storage.contract.ids import new_id
from agent_runtime_storage.contract.records.log import ThreadPlace


@operation("GET", "/threads", tag="threads")
async def list_threads(request: Request, query: ThreadsQuery) -> ThreadPage:
    """List threads, the most recently updated first."""
    store = store_of(request)
    before, seen = _place(query.cursor)
    # Threads of the same moment stand on both sides of a page's end.
    limit = query.limit + len(seen) + 1
    rows = await store.threads.list(limit=limit, before=before, children=query.children)
    rows = [row for row in rows if row.id not in seen]
    page, rest = rows[: query.limit], rows[query.limit :]
    return ThreadPage.of(page, _cursor(page, before, seen) if rest else None)


@operation("POST", "/threads", tag="threads", status=201)
async def create_thread(request: Request, body: NewThread) -> ThreadOut:
    """Make a thread, or return the one that has the id."""
    identity = body.id or made_id(request) or new_id()
    threads = store_of(request).threads
    row = await threads.ensure(identity, title=body.title, metadata=body.metadata)
    return ThreadOut.model_validate(row)


@operation("GET", "/threads/{thread_id}", tag="threads")
async def get_thread(request: Request, thread_id: str) -> ThreadOut:
    """Return a thread."""
    return ThreadOut.model_validate(await store_of(request).threads.get(thread_id))


@operation("PATCH", "/threads/{thread_id}", tag="threads")
async def change_thread(request: Request, thread_id: str, body: ThreadChange) -> ThreadOut:
    """Change the title or the metadata of a thread."""
    threads = store_of(request).threads
    row = await threads.update(thread_id, title=body.title, metadata=body.metadata)
    return ThreadOut.model_validate(row)


@operation("DELETE", "/threads/{thread_id}", tag="threads")
async def delete_thread(request: Request, thread_id: str, query: DeleteQuery) -> Deleted:
    """Delete a thread with all its data, and the threads of its sub-agents."""
    threads = runtime_of(request).threads
    ids = await threads.delete(thread_id, force=query.force, user=user_of(request))
    return Deleted(threads=ids)


@operation("POST", "/threads/{thread_id}/fork", tag="threads")
async def fork_thread(request: Request, thread_id: str, body: Fork) -> ThreadOut:
    """Continue a thread from another node; the other branches stay."""
    await runtime_of(request).threads.fork(thread_id, body.node_id, user=user_of(request))
    return ThreadOut.model_validate(await store_of(request).threads.get(thread_id))


@operation("POST", "/threads/{thread_id}/edit", tag="threads")
async def edit_thread(request: Request, thread_id: str, body: Edit) -> ThreadOut:
    """Continue a thread from before a message of the user, so that the next one replaces it."""
    await runtime_of(request).threads.edit(thread_id, body.node_id, user=user_of(request))
    return ThreadOut.model_validate(await store_of(request).threads.get(thread_id))


@operation("GET", "/threads/{thread_id}/messages", tag="threads")
async def list_messages(request: Request, thread_id: str, query: PageQuery) -> MessagePage:
    """List the messages of a thread's branch, a page from its end on, each page oldest first."""
    store = store_of(request)
    thread = await store.threads.get(thread_id)
    head = thread.head if query.cursor is None else _node(query.cursor, thread)
    if head is None:
        return MessagePage(messages=[], next_cursor=None)
    found = await runtime_of(request).threads.messages(
        thread_id, limit=query.limit, at=head, user=user_of(request)
    )
    before = found[0].parent_id if found else None
    return MessagePage(
        messages=[MessageOut.of(one) for one in found],
        next_cursor=None if before is None else encode_cursor(before, thread.created_at),
    )


class Branches(Output):
    """The last node of each branch, the newest first."""

    heads: list[int]


@operation("GET", "/threads/{thread_id}/branches", tag="threads")
async def list_branches(request: Request, thread_id: str) -> Branches:
    """List the branches of a thread."""
    threads = runtime_of(request).threads
    return Branches(heads=await threads.branches(thread_id, user=user_of(request)))


class PlanOut(Output):
    """The plan of a thread; null if it has none."""

    plan: Plan | None = Field(description="Its goal, phase and items.")


@operation("GET", "/threads/{thread_id}/plan", tag="threads")
async def get_plan(request: Request, thread_id: str) -> PlanOut:
    """Return the plan of a thread, with what the run at work has done of it."""
    plan = await runtime_of(request).plans.current(thread_id, user=user_of(request))
    return PlanOut(plan=plan)


@operation("GET", "/threads/{thread_id}/usage", tag="usage")
async def get_thread_usage(request: Request, thread_id: str) -> UsageByPurpose:
    """Return what the runs on a thread used, without those of sub-agents."""
    store = store_of(request)
    await store.threads.get(thread_id)
    return UsageByPurpose.of(await store.spending.usage_by_purpose(thread_id=thread_id))


@operation(
    "GET", "/threads/{thread_id}/events", tag="events", produces="text/event-stream", status=200
)
async def follow_thread(request: Request, thread_id: str, query: EventsQuery) -> Response:
    """Follow the events of a thread as server-sent events, without end.

    The `id` of each is a cursor: after a disconnect send it as `Last-Event-ID`, which browsers do,
    and the stream continues without a gap.
    """
    store, service, user = store_of(request), service_of(request), user_of(request)
    given = request.headers.get("last-event-id") or query.cursor
    thread = await store.threads.get(thread_id)
    places = {thread_id: ThreadPlace(thread.last_event, thread.created_at)}
    positions = {thread_id: 0} if given is None else EventCursor.parse(given).of(places)
    source = thread_source(store, user, thread_id)
    batches = service.feeds.events(source, positions, service.settings.service_heartbeat)
    if query.live:
        live = live_of(runtime_of(request))
        batches = with_live(batches, live, user, thread_id, positions, below=False)
    return EventStream(
        batches,
        CursorWriter(positions, places),
        created=partial(when_created, store),
        place=partial(service.limits.stream, user),
        closing=service.closing,
    )


async def when_created(store: UserStore, thread_id: str) -> float:
    """Return when a thread was created. Raises `NotFound`."""
    return (await store.threads.get(thread_id)).created_at


def _cursor(page: list[Thread], before: float | None, seen: list[str]) -> str:
    """Return the cursor after a page: a moment, and the threads of it that were shown."""
    last = page[-1].updated_at
    shown = [one.id for one in page if one.updated_at == last]
    # The page ends in the moment in which it began: what earlier pages showed of it stays known.
    if before is not None and last >= math.nextafter(before, 0):
        shown += seen
    return encode_cursor(last, shown)


def _place(cursor: str | None) -> tuple[float | None, list[str]]:
    if cursor is None:
        return None, []
    try:
        last, shown = decode_cursor(cursor)
        # `before` leaves its own moment out, so the next number above it takes that moment in
        # again.
        return math.nextafter(float(last), math.inf), [str(one) for one in shown]
    except (ValueError, TypeError) as error:
        raise invalid_cursor() from error


def _node(cursor: str, thread: Thread) -> int:
    try:
        node, created_at = decode_cursor(cursor)
        # Below 2^53, as numbers of nodes are in JSON.
        if type(node) is not int or not 0 < node < 1 << 53:
            raise invalid_cursor()
    except (ValueError, TypeError) as error:
        raise invalid_cursor() from error
    if created_at != thread.created_at:
        raise cursor_of_another_thread()
    return node


OPERATIONS = (
    list_threads, create_thread, get_thread, change_thread, delete_thread, fork_thread,
    edit_thread, list_messages, list_branches, get_plan, get_thread_usage, follow_thread,
)  # fmt: skip
"""The operations of this module."""
