"""Runs: start, watch, steer, pause, cancel, resume; their trees, usage and budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from agent_runtime.errors import Conflict, NotFound
from agent_runtime.files.references import file_id, ref_of
from agent_runtime.log import branches
from agent_runtime.messages import FileRef
from agent_runtime.run.process.detached import StartedRun
from agent_runtime.run.queue.background_tasks import agent_run_of
from agent_runtime.server.access import runtime_of, store_of, user_of
from agent_runtime.server.api.schemas import (
    Amounts,
    BudgetChange,
    EventsQuery,
    Output,
    Reached,
    Regenerate,
    Resume,
    RunOut,
    RunPage,
    RunsQuery,
    RunToStart,
    SpendingOut,
    Started,
    Steer,
    Swept,
    TreeOut,
    UsageByPurpose,
)
from agent_runtime.server.api.threads import when_created
from agent_runtime.server.feeds import Batches, Positions, Source, rest_of, tree_source
from agent_runtime.server.live_batches import with_live
from agent_runtime.server.operations import made_id, operation
from agent_runtime.server.problems import ServiceError
from agent_runtime.server.protocols.live import live_of
from agent_runtime.server.state import ServiceState, service_of, start_within_limits
from agent_runtime.server.streams import CursorWriter, EventCursor, EventStream
from agent_runtime_storage import ACTIVE, Run, UserStore
from agent_runtime_storage.contract.records.log import ThreadPlace
from agent_runtime_storage.contract.records.spending import UNCHANGED


class ListedAgents(Output):
    """What the service can run, the default first."""

    agents: list[str]


@operation("GET", "/agents", tag="runs")
async def list_agents(request: Request) -> ListedAgents:
    """List the agents and workflows of the service."""
    return ListedAgents(agents=list(service_of(request).registry.names))


@operation("GET", "/runs", tag="runs")
async def list_runs(request: Request, query: RunsQuery) -> RunPage:
    """List runs, the newest first."""
    store = store_of(request)
    rows = await store.runs.list(
        thread_id=query.thread_id,
        status=None if query.status is None else [query.status],
        before=query.cursor,
        # One more than the page, which shows whether there is a next one.
        limit=query.limit + 1,
    )
    page = rows[: query.limit]
    more = page[-1].id if len(rows) > query.limit else None
    return RunPage(runs=[await RunOut.of(store, row) for row in page], next_cursor=more)


@operation("POST", "/runs", tag="runs", status=201)
async def start_run(request: Request, body: RunToStart) -> Started:
    """Start a run; it goes on whatever becomes of the connection.

    Under an idempotency key a task is started once, also across crashes of the service.
    """
    runtime, service, store = runtime_of(request), service_of(request), store_of(request)
    run_id = made_id(request)
    if run_id is not None and (run := await _known(store, run_id)) is not None:
        return Started(run_id=run.id, thread_id=run.thread_id)
    agent = service.registry.named(body.agent)
    files, user = await _files(store, body.files), user_of(request)
    spec, context = service.registry.spec(body.agent), body.user_context or None
    if body.queue:
        queued = await runtime.enqueue(
            agent, body.task, app=service.registry, thread=body.thread_id, files=files, user=user,
            spec=spec, user_context=context, run_id=run_id, at=body.at, priority=body.priority,
        )  # fmt: skip
        return Started(run_id=queued.run_id, thread_id=queued.thread_id)
    start = partial(
        runtime.start, agent, body.task, thread=body.thread_id, files=files, user=user,
        spec=spec, user_context=context, run_id=run_id,
    )  # fmt: skip
    return await _begin(request, start)


@operation("POST", "/threads/{thread_id}/regenerate", tag="runs", status=201)
async def regenerate(request: Request, thread_id: str, body: Regenerate) -> Started:
    """Answer the newest message of the user again; the present answer stays as a branch."""
    runtime, service, store = runtime_of(request), service_of(request), store_of(request)
    run_id = made_id(request)
    if run_id is not None and (run := await _known(store, run_id)) is not None:
        return Started(run_id=run.id, thread_id=run.thread_id)
    agent = service.registry.named(body.agent)

    async def start() -> StartedRun:
        # Inside, so that a request beyond the limits leaves the thread's head where it is.
        await branches.regenerate(store, thread_id)
        return await runtime.start(
            agent,
            None,
            thread=thread_id,
            user=user_of(request),
            spec=service.registry.spec(body.agent),
            user_context=body.user_context or None,
            run_id=run_id,
        )

    return await _begin(request, start)


@operation("GET", "/runs/{run_id}", tag="runs")
async def get_run(request: Request, run_id: str) -> RunOut:
    """Return a run, with its output if it is over."""
    store = store_of(request)
    return await RunOut.of(store, await store.runs.get(run_id))


@operation("POST", "/runs/{run_id}/resume", tag="runs", status=201)
async def resume_run(request: Request, run_id: str, body: Resume) -> Started:
    """Continue a run that waits, was paused, or was ended by a limit, an error or a crash."""
    store = store_of(request)
    run = await agent_run_of(store, await store.runs.get(run_id))
    agent = service_of(request).registry.of_run(run)
    if agent is None:
        raise Conflict(
            f"Run {run_id} is that of another program, whose agent this service does not have.",
            cure="Resume it there.",
        )
    start = partial(
        runtime_of(request).start_resumed, run_id, agent, user=user_of(request),
        rerun=body.rerun, accept=body.accept, fail=body.fail,
    )  # fmt: skip
    return await _begin(request, start)


@operation("POST", "/runs/{run_id}/steer", tag="runs")
async def steer_run(request: Request, run_id: str, body: Steer) -> None:
    """Send a message to a run, which its model reads at the next step."""
    await runtime_of(request).steer(run_id, body.text, user=user_of(request))


@operation("POST", "/runs/{run_id}/pause", tag="runs")
async def pause_run(request: Request, run_id: str) -> None:
    """Suspend a run at its next step; resume continues it."""
    await runtime_of(request).pause(run_id, user=user_of(request))


@operation("POST", "/runs/{run_id}/cancel", tag="runs")
async def cancel_run(request: Request, run_id: str) -> Reached:
    """Cancel a run and all runs below it."""
    return Reached(run_ids=await runtime_of(request).cancel(run_id, user=user_of(request)))


@operation("POST", "/runs/{run_id}/budget", tag="usage")
async def set_budget(request: Request, run_id: str, body: BudgetChange) -> RunOut:
    """Set what a run and its sub-agents may spend, with what they have spent already."""
    given = body.model_fields_set
    await runtime_of(request).set_budget(
        run_id,
        tokens=body.tokens if "tokens" in given else UNCHANGED,
        usd=body.usd if "usd" in given else UNCHANGED,
        user=user_of(request),
    )
    store = store_of(request)
    return await RunOut.of(store, await store.runs.get(run_id))


@operation("POST", "/runs/sweep", tag="runs")
async def sweep_runs(request: Request) -> Swept:
    """Suspend runs whose process is dead, so that they can be resumed."""
    found = await runtime_of(request).sweep(user=user_of(request))
    parts = {
        "interrupted": found.interrupted,
        "ended": found.ended,
        "resumable": found.resumable,
        "tasks": found.tasks,
    }
    return Swept(**{name: [run.id for run in runs] for name, runs in parts.items()})


@operation("GET", "/runs/{run_id}/tree", tag="runs")
async def get_tree(request: Request, run_id: str) -> TreeOut:
    """Return a run and all runs below it."""
    return TreeOut.of(await runtime_of(request).tree(run_id, user=user_of(request)))


@operation("GET", "/runs/{run_id}/usage", tag="usage")
async def get_run_usage(request: Request, run_id: str) -> UsageByPurpose:
    """Return what a run used; of a root, with the runs below it."""
    store = store_of(request)
    run = await store.runs.get(run_id)
    which = {"run_id" if run.parent_run_id else "root_run_id": run.id}
    return UsageByPurpose.of(await store.spending.usage_by_purpose(**which))


@operation("GET", "/usage", tag="usage")
async def get_usage(request: Request) -> SpendingOut:
    """Return what the user's runs have spent today, by UTC."""
    day = await store_of(request).spending.of_day()
    spent, reserved = Amounts.of(day.spent), Amounts.of(day.reserved)
    return SpendingOut(spent=spent, reserved=reserved, ends_at=day.ends_at)


@operation("GET", "/runs/{run_id}/events", tag="events", produces="text/event-stream", status=200)
async def follow_run(request: Request, run_id: str, query: EventsQuery) -> Response:
    """Follow the events of a run and all runs below it as one stream of server-sent events.

    The `id` of each is a cursor: after a disconnect send it as `Last-Event-ID`, which browsers do,
    and the stream continues without a gap.  When no run of the tree is active any more, an event
    `end` comes, and then the stream ends; asked again with the last cursor, the answer is 204.
    """
    store, service = store_of(request), service_of(request)
    run = await store.runs.get(run_id)
    given = request.headers.get("last-event-id") or query.cursor
    positions: dict[str, int] = {}
    places: dict[str, ThreadPlace] = {}
    if given is not None:
        cursor, places = EventCursor.parse(given), await store.events.places_of_tree(run_id)
        positions = cursor.of(places)
        # Before the events are read: one that comes between the two reads then keeps the stream
        # open.
        over = await _is_over(store, run)
        if over and not await store.events.of_tree(run_id, after=positions, limit=1):
            return Response(status_code=204)
    user = user_of(request)
    batches = _events(service, tree_source(store, user, run_id), store, run, positions)
    if query.live:
        live = live_of(runtime_of(request))
        batches = with_live(batches, live, user, run.thread_id, positions, below=True)
    return EventStream(
        batches,
        CursorWriter(positions, places),
        created=partial(when_created, store),
        place=partial(service.limits.stream, user),
        closing=service.closing,
    )


async def _events(
    service: ServiceState, source: Source, store: UserStore, run: Run, after: Positions
) -> Batches:
    """Yield the events of a run and those below until none of them is active any more."""
    known = dict(after)
    if not await _is_over(store, run):
        heartbeat = service.settings.service_heartbeat
        async with aclosing(service.feeds.events(source, known, heartbeat)) as batches:
            async for batch in batches:
                known.update((one.thread_id, one.id) for one in batch)
                yield batch
                # Only the end of a run can end the tree, so nothing is read for the other events.
                ended = any(one.kind == "run-finish" for one in batch)
                if ended and await _is_over(store, run):
                    break
    # What was committed between the last batch and the look at the runs.
    async with aclosing(rest_of(source, known)) as batches:
        async for batch in batches:
            yield batch


async def _is_over(store: UserStore, run: Run) -> bool:
    """Return whether neither the run nor one below it is active."""
    if run.parent_run_id is not None:
        return (await store.runs.get(run.id)).status not in ACTIVE
    active = await store.runs.list(root_run_id=run.id, status=list(ACTIVE), limit=1)
    return not active


async def _begin(request: Request, start: Callable[[], Awaitable[StartedRun]]) -> Started:
    started = await start_within_limits(service_of(request), user_of(request), start)
    return Started(run_id=started.run_id, thread_id=started.thread_id)


async def _known(store: UserStore, run_id: str) -> Run | None:
    try:
        return await store.runs.get(run_id)
    except NotFound:
        return None


async def _files(store: UserStore, uris: list[str]) -> list[FileRef]:
    """Return references to the user's own stored files; paths and URLs are never taken."""
    ids = [file_id(FileRef("custom", uri)) for uri in uris]
    found = {row.id: ref_of(row) for row in await store.files.find([one for one in ids if one])}
    for uri, identity in zip(uris, ids, strict=True):
        if identity not in found:
            raise ServiceError(
                422, "no-such-file", f"There is no file {uri[:100]!r}.",
                cure="Upload it, and give the `uri` of the answer.",
            )  # fmt: skip
    return [found[one] for one in ids]


OPERATIONS = (
    list_agents, list_runs, start_run, regenerate, get_run, resume_run, steer_run, pause_run,
    cancel_run, set_budget, sweep_runs, get_tree, get_run_usage, get_usage, follow_run,
)  # fmt: skip
"""The operations of this module."""
