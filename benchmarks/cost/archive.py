"""Measure archiving a thread and restoring it: rows and bytes before and after, and the speed.

The thread has messages of a kilobyte and results of four, in the form of a run on files; its
texts are indexed.  Each backend has a new database and a folder of objects.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from agent_runtime_storage import (
    CallDone,
    Commit,
    Finish,
    NewEvent,
    NewNode,
    NodeText,
    Store,
    UserStore,
    open_store,
)
from agent_runtime_storage.urls import Backend
from benchmarks.backends import empty_databases, parse_backends
from benchmarks.frame import Report, Target, at_most
from tests.storage.helpers import begin
from tests.support.stores import driver_of

USER, THREAD = "ann", "old"
MOST_ROWS = 5
"""The most rows that an archived thread leaves: its own, and the owner's, such as a day's."""
_TABLES = (
    "threads", "runs", "nodes", "calls", "activations", "observations", "plans", "events", "usage",
    "inbox", "jobs", "files", "questions", "approvals", "blobs", "search_texts", "archives",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--backends", type=parse_backends, default=("file", "postgres"))
    parser.add_argument("--steps", type=int, default=5000, help="of the thread: one exchange each")
    parser.add_argument("--threads", type=int, default=50, help="small threads, of 20 steps each")


def run(args: argparse.Namespace) -> Report:
    """Measure on each backend."""
    rows: list[dict[str, Any]] = []
    with empty_databases() as make:
        for backend in args.backends:
            rows += anyio.run(_measure, backend, make(backend), args.steps, args.threads)
    return Report("archive", rows, _targets(rows))


async def _measure(backend: Backend, url: str, steps: int, threads: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(url, objects=str(Path(folder) / "objects"))
        try:
            user = store.of(USER)
            await _write(user, THREAD, steps)
            large = await _move(store, user, backend, [THREAD])
            names = [f"small-{number}" for number in range(threads)]
            for name in names:
                await _write(user, name, 20)
            return [large, await _move(store, user, backend, names)]
        finally:
            await store.close()


async def _write(user: UserStore, thread: str, steps: int) -> None:
    """Write a thread of exchanges; 50 texts are indexed together."""
    words = [f"word{number}" for number in range(5000)]
    chance = random.Random(thread)
    lease = await begin(user, f"run-{thread}", thread)
    await user.search.index(thread, [NodeText(1, None, "the task")])
    for first in range(0, steps, 50):
        texts: list[NodeText] = []
        for step in range(first, min(first + 50, steps)):
            node = 2 + step
            said = " ".join(chance.choices(words, k=150))
            result = " ".join(chance.choices(words, k=600))
            calls = NewNode(
                node, node - 1, "exchange", "assistant", said.encode(), 250, 0, "open", ("read",)
            )
            done = CallDone(node, 0, "ok", result.encode(), 1000)
            texts.append(NodeText(node, None, said))
            await user.runs.commit(lease, Commit(nodes=(calls,), events=(NewEvent("step"),)))
            await user.runs.commit(lease, Commit(done=(done,), close=(node,), head=node))
        await user.search.index(thread, texts)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))


async def _move(
    store: Store, user: UserStore, backend: Backend, names: list[str]
) -> dict[str, Any]:
    rows, size = await _rows(store), await _bytes(store)
    began, cpu = time.perf_counter(), time.process_time()
    archived = [await user.upkeep.archive_thread(name) for name in names]
    archiving, cpu_of_archive = time.perf_counter() - began, time.process_time() - cpu
    left = await _rows(store)
    if backend != "libsql-http" and backend != "libsql-ws":
        await store.maintenance.vacuum()
    left_bytes = await _bytes(store)
    began, cpu = time.perf_counter(), time.process_time()
    for name in names:
        await user.upkeep.restore_thread(name, texts=_text)
    restoring, cpu_of_restore = time.perf_counter() - began, time.process_time() - cpu
    assert await _rows(store) == rows
    lines = sum(one.bytes for one in archived) / 1e6
    return {
        "backend": backend,
        "threads": len(names),
        "rows": rows,
        "rows_left": left,
        "database_mb": size / 1e6,
        "left_mb": left_bytes / 1e6,
        "lines_mb": lines,
        "stored_mb": sum(one.stored_bytes for one in archived) / 1e6,
        "archive_mb_s": lines / archiving,
        "archive_mb_cpu_s": lines / cpu_of_archive,
        "restore_mb_s": lines / restoring,
        "restore_mb_cpu_s": lines / cpu_of_restore,
        "ms_a_thread": archiving / len(names) * 1000,
    }


def _text(kind: str, body: bytes) -> str:
    return body.decode() if kind == "node" else ""


async def _rows(store: Store) -> int:
    driver = driver_of(store)
    sql = " + ".join(f"(SELECT count(*) FROM {table})" for table in _TABLES)
    [(number,)] = await driver.read(f"SELECT {sql}", {}, owner=None)
    return int(number)


async def _bytes(store: Store) -> int:
    return (await store.maintenance.sizes(threads=0)).total


def _targets(rows: list[dict[str, Any]]) -> list[Target]:
    return [
        at_most(
            f"{row['backend']}, {row['threads']} threads: rows left of each",
            row["rows_left"] / row["threads"],
            MOST_ROWS,
        )
        for row in rows
        if row["threads"] == 1
    ]
