"""Check the plans of the store's hot statements on a Postgres with millions of nodes.

It fills a database with nodes, calls, events, usage, runs and texts of a thousand owners, one of
whom has a tenth of the threads and one thread with a tenth of the nodes.  Each operation of the
store is asked for its statements, which then run under EXPLAIN (ANALYZE, BUFFERS), under the
settings of the store's connections.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import anyio
import psycopg

from agent_runtime_storage import (
    Commit,
    Finish,
    Lease,
    LeaseOwner,
    NewEvent,
    NewNode,
    NodeText,
    Store,
    Usage,
    UserStore,
    open_store,
)
from agent_runtime_storage.contract.leases import HeldLease
from agent_runtime_storage.contract.records.queue import NewQueuedRun, QueueLimits
from agent_runtime_storage.store import SqlStore
from benchmarks.cost.scale_data import LONG, OWNER, SHORT, WORDS, Size, fill
from benchmarks.cost.scale_plans import Captured, Explainer, Recorder
from benchmarks.frame import Report, Target, at_most
from tests.services.postgres import CREATOR, FAST, PostgresServer
from tests.storage.helpers import append, begin
from tests.support.stores import driver_of

MOST_PAGES = 1000
MOST_OF_A_ROW = 10
"""The most pages of a request: 8 MB, which a server reads from its cache in a millisecond, and more
for each row that it returns."""
RECENT = 20
HERE = LeaseOwner(host="here", boot="b1", pid=100, started="s1")
_SERVER = {"shared_buffers": "1GB", "max_wal_size": "8GB", "autovacuum": "off"} | FAST

Operation = Callable[[Store, UserStore, int], Awaitable[object]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--queued", type=int, default=10_000, help="runs that wait for a worker")
    parser.add_argument("--texts", type=int, default=500_000, help="texts that search finds")


def run(args: argparse.Namespace) -> Report:
    """Fill a database, and check the plans."""
    size = Size(args.nodes, args.threads, args.users, args.queued, args.texts)
    with tempfile.TemporaryDirectory() as folder:
        server = PostgresServer(Path(folder), _SERVER, on_disk=True)
        try:
            server.start()
            server.ensure_logins()
            name = server.create(owner=CREATOR)
            login, admin = server.url(name, CREATOR), server.url(name)
            anyio.run(_prepare, login)
            began = time.monotonic()
            fill(admin, size)
            seconds = time.monotonic() - began
            rows = anyio.run(_measure, login, size)
            with psycopg.connect(admin) as connection:
                [(total,)] = connection.execute(
                    "SELECT pg_database_size(current_database())"
                ).fetchall()
        finally:
            server.stop()
    rows.append({"table": "database", "bytes": total, "seconds_to_fill": seconds})
    return Report("scale", rows, _targets(rows))


async def _prepare(url: str) -> None:
    """Create the schema, and texts whose words the texts of the first owner take over."""
    store = await open_store(url)
    user = store.of(OWNER)
    lease = await begin(user, "words", "words")
    await append(user, lease, WORDS)
    texts = [
        NodeText(seq, None, f"step {seq} of the survey reads file number{seq} and rewrites it")
        for seq in range(1, WORDS + 1)
    ]
    await user.search.index("words", texts)
    await store.close()


async def _measure(url: str, size: Size) -> list[dict[str, Any]]:
    store = await open_store(url)
    explainer = Explainer(url)
    rows: list[dict[str, Any]] = []
    try:
        for name, operation in _OPERATIONS.items():
            recorder = Recorder(driver_of(store))
            watched = SqlStore(cast("Any", recorder))
            with suppress(Captured):
                await operation(watched, watched.of(OWNER), size.nodes // 10)
            for sent in recorder.sent:
                plans = explainer.plans(sent)
                worst = max(plans, key=lambda plan: plan.pages)
                rows.append(
                    {
                        "table": "plans",
                        "operation": name,
                        "statements": len(plans),
                        "pages": sum(plan.pages for plan in plans),
                        "rows": plans[-1].rows,
                        "ms": round(sum(plan.milliseconds for plan in plans), 2),
                        "planning_ms": round(sum(plan.planning for plan in plans), 2),
                        "dearest": worst.statement,
                        "its_pages": worst.pages,
                        "indexes": " ".join(worst.indexes),
                        "scans": " ".join(sorted({one for plan in plans for one in plan.scans})),
                    }
                )
    finally:
        explainer.close()
        await store.close()
    return rows


def _targets(rows: list[dict[str, Any]]) -> list[Target]:
    plans = [row for row in rows if row.get("table") == "plans"]
    names = dict.fromkeys(str(row["operation"]) for row in plans)
    targets: list[Target] = []
    for name in names:
        own = [row for row in plans if row["operation"] == name]
        for row in own:
            limit = MOST_PAGES + MOST_OF_A_ROW * int(row["rows"])
            what = f"{name}: pages of {row['dearest']} and its batch"
            targets.append(at_most(what, int(row["pages"]), limit))
        scans = sorted({str(row["scans"]) for row in own if row["scans"]})
        targets.append(Target(f"{name}: scans of tables", " ".join(scans), "none", not scans))
    return targets


async def _commit(store: Store, user: UserStore, long: int) -> None:
    lease = _held(long)
    node = NewNode(long + 1, long, "message", "user", b"text", 3, 0)
    usage = Usage(lease.run_id, lease.run_id, None, "step", "m", 1, 0, 0, 1, 1, 1)
    commit = Commit(nodes=(node,), head=node.seq, usage=(usage,), events=(NewEvent("answer"),))
    await user.runs.commit(lease, commit)


def _held(long: int) -> Lease:
    """Return the lease of the run at the end of the long thread."""
    run = f"00000001-{long - (long - 1) % 50:012x}-run"
    return Lease(run, LONG, run, 1)


async def _end(store: Store, user: UserStore, long: int) -> None:
    ended = Finish("succeeded", "completed")
    await user.runs.commit(_held(long), Commit(finish=ended, events=(NewEvent("run-end"),)))


async def _take_over(store: Store, user: UserStore, long: int) -> None:
    await user.runs.take_lease(_held(long).run_id, HERE, seconds=30, replaces=1)


async def _index(store: Store, user: UserStore, long: int) -> None:
    texts = [NodeText(seq, None, f"the file number{seq}") for seq in range(long - 8, long)]
    await user.search.index(LONG, texts)


async def _pick(store: Store, user: UserStore, long: int) -> None:
    known = [("app", "helper", "1")]
    await store.queue.pick(8, known, HERE, seconds=30, limits=QueueLimits(10, 1000, 1000))


async def _enqueue(store: Store, user: UserStore, long: int) -> None:
    new = NewQueuedRun("new", SHORT, "helper", "app", "task", {}, OWNER)
    await user.queue.enqueue(new)


async def _renew(store: Store, user: UserStore, long: int) -> None:
    held = [
        HeldLease(OWNER, f"{k:08x}-{1:012x}-run", 1) for k in range(20001, 20200) if k % 10 == 1
    ]
    await store.leases.renew(held, seconds=30)


async def _home(store: Store, user: UserStore, long: int) -> None:
    await user.inspection.active_roots()
    await user.inspection.ended_roots()
    await user.questions.list(status="open", limit=100)


async def _sweep(store: Store, user: UserStore, long: int) -> None:
    await store.leases.owners_at_work()
    await user.runs.list(status=("running",), limit=10_000)
    await user.runs.list(status=("suspended",), limit=10_000)


async def _retention(store: Store, user: UserStore, long: int) -> None:
    await user.upkeep.idle_threads(seconds=86_400, limit=100)
    await user.upkeep.archivable_threads(seconds=86_400, limit=100)


_OPERATIONS: dict[str, Operation] = {
    "prompt window, long thread": lambda _, user, long: user.log.branch(LONG, long, limit=RECENT),
    "prompt window, short thread": lambda _, user, long: user.log.branch(SHORT, 1, limit=RECENT),
    "activation, long thread": lambda _, user, long: user.log.activation(LONG, long),
    "events after a cursor": lambda _, user, long: user.events.list(LONG, after=long - RECENT),
    "events of a run tree": lambda _, user, long: user.events.of_tree(
        f"00000001-{long - (long - 1) % 50:012x}-run", after={LONG: long - RECENT}
    ),
    "commit of a step": _commit,
    "end of a run": _end,
    "takeover of a run": _take_over,
    "index of 8 texts": _index,
    "deletion of a short thread": lambda _, user, long: user.upkeep.delete_thread(SHORT),
    "list of threads": lambda _, user, long: user.threads.list(children=False),
    "list of threads, a later page": lambda _, user, long: user.threads.list(
        children=False, before=1.7e9 + 500_000
    ),
    "list of archived threads": lambda _, user, long: user.upkeep.archived_threads(),
    "list of runs": lambda _, user, long: user.runs.list(limit=50),
    "list of a thread's runs": lambda _, user, long: user.runs.list(thread_id=LONG, limit=50),
    "home page": _home,
    "enqueue": _enqueue,
    "pick of 8 among all": _pick,
    "renewal of 20 leases": _renew,
    "poll of a run": lambda _, user, long: user.runs.poll(Lease("words", "words", "words", 1)),
    "sweep": _sweep,
    "schedules that are due": lambda store, user, long: store.schedules.due(),
    "search, common words": lambda _, user, long: user.search.find("survey file"),
    "search, a rare word": lambda _, user, long: user.search.find("number17"),
    "search in a thread": lambda _, user, long: user.search.find("number17", thread_id=LONG),
    "spending of a day": lambda _, user, long: user.spending.of_day(),
    "usage of a run tree": lambda _, user, long: user.spending.usage_total(root_run_id="words"),
    "recent usage of a model": lambda _, user, long: user.spending.recent_usage("model-1"),
    "claim of a job": lambda _, user, long: user.jobs.claim("observe", seconds=60),
    "old threads": _retention,
    "interrupted work": lambda _, user, long: user.upkeep.clean_up(),
}
