"""One measurement of `storage` in its own process; it prints one JSON object."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median, quantiles

import anyio
import orjson

from agent_runtime import Agent, Runtime
from agent_runtime.log.leases import this_process_owner
from agent_runtime.messages import UserMessage, encode_message
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, ScriptedModel, call, say
from agent_runtime.prompt.build import encode_prefix, encode_start
from agent_runtime.prompt.view import ActivationContent, PromptPrefix
from agent_runtime_config import Settings
from agent_runtime_storage import (
    Commit,
    Finish,
    Lease,
    NewActivation,
    NewEvent,
    NewNode,
    NewRun,
    UserStore,
    open_store,
)
from agent_runtime_storage.drivers.protocol import Driver, Statement
from agent_runtime_storage.sql.loader import load_queries
from agent_runtime_storage.store import SqlStore
from agent_runtime_storage.urls import backend_of, file_path, open_driver
from benchmarks.plain_drivers import Aiosqlite, Batch, Hrana, Plain, Psycopg, Recorder

USER = "bench"
BODY = encode_message(UserMessage("a line of an agent's work, as it is written down\n" * 22))
"""About 1.1 KB, stored in the row."""
RECENT = 20
FILL = 20_000


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one measurement, in seconds and milliseconds."""

    count: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu: float


async def timed(tasks: Sequence[Sequence[Callable[[], Awaitable[object]]]]) -> Measured:
    """Run lists of operations concurrently, each list in its order, and time each operation."""
    times: list[float] = []

    async def work(operations: Sequence[Callable[[], Awaitable[object]]]) -> None:
        for operation in operations:
            begun = time.perf_counter()
            await operation()
            times.append(time.perf_counter() - begun)

    began, cpu = time.perf_counter(), time.process_time()
    async with anyio.create_task_group() as group:
        for operations in tasks:
            group.start_soon(work, operations)
    seconds = time.perf_counter() - began
    return Measured(
        count=len(times),
        seconds=seconds,
        p50_ms=median(times) * 1000,
        p99_ms=quantiles(times, n=100)[98] * 1000,
        cpu=time.process_time() - cpu,
    )


# Appending


async def append(url: str, variant: str, tasks: int, count: int) -> Measured:
    """Append messages to one thread per task, by the store or by a plain driver."""
    store = await open_store(url)
    user = store.of(USER)
    leases = [await _begin(user, number) for number in range(tasks)]
    commits = [_commit(seq) for seq in range(2, count // tasks + 2)]
    try:
        if variant == "store":
            return await timed(
                [[_committing(user, lease, commit) for commit in commits] for lease in leases]
            )
    finally:
        await store.close()
    batches = [await _record(url, lease, commits) for lease in leases]
    plain = await open_plain(url)
    try:
        return await timed([[_writing(plain, batch) for batch in own] for own in batches])
    finally:
        await plain.close()


async def _begin(user: UserStore, number: int) -> Lease:
    thread = f"thread-{number}"
    await user.threads.ensure(thread)
    run = NewRun(
        id=f"run-{number}",
        thread_id=thread,
        agent="bench",
        max_steps=1,
        spec={},
        owner=this_process_owner(),
        lease_seconds=3600,
        expect_head=None,
        expect_seq=0,
        nodes=(_message(1),),
    )
    lease, _ = await user.runs.begin(run)
    return lease


def _message(seq: int) -> NewNode:
    return NewNode(seq, seq - 1 or None, "message", "user", BODY, 250, 0)


def _commit(seq: int) -> Commit:
    return Commit(nodes=(_message(seq),), head=seq, events=(NewEvent("message", seq),))


def _committing(user: UserStore, lease: Lease, commit: Commit) -> Callable[[], Awaitable[int]]:
    return lambda: user.runs.commit(lease, commit)


def _writing(plain: Plain, batch: Batch) -> Callable[[], Awaitable[None]]:
    return lambda: plain.write(batch)


async def _record(url: str, lease: Lease, commits: Sequence[Commit]) -> list[Batch]:
    """Return the statements that the store sends for the commits."""
    recorder = Recorder("postgres" if backend_of(url) == "postgres" else "sqlite")
    user = SqlStore(recorder).of(USER)
    for commit in commits:
        await user.runs.commit(lease, commit)
    return recorder.batches


async def open_plain(url: str) -> Plain:
    """Open the plain driver for a database."""
    match backend_of(url):
        case "file":
            return await Aiosqlite.open(file_path(url))
        case "postgres":
            return await Psycopg.open(url)
        case _:
            return await Hrana.open(url.replace("ws://", "http://", 1))


# Long threads


async def fill(driver: Driver, thread: str, length: int) -> None:
    """Write a thread of messages by plain SQL; the store would need an hour for a million."""
    numbers = (
        "SELECT * FROM generate_series(:first::bigint, :last::bigint) AS n (id)"
        if driver.dialect == "postgres"
        else "SELECT id FROM (WITH RECURSIVE n (id) AS (SELECT :first UNION ALL "
        "SELECT id + 1 FROM n WHERE id < :last) SELECT id FROM n)"
    )
    insert = (
        "INSERT INTO nodes (user_id, thread_id, id, parent_id, kind, status, role, run_id, "
        "activation_id, body, blob, tokens, created_at) SELECT :user_id, :thread_id, id, "
        "nullif(id - 1, 0), 'message', 'closed', 'user', NULL, 0, :body, NULL, 250, 0.0 "
        f"FROM ({numbers}) AS numbers"
    )
    # Two foreign key checks per row would take most of Postgres' time.
    unchecked = (
        [Statement("SELECT set_config('session_replication_role', 'replica', true)", {})]
        if driver.dialect == "postgres"
        else []
    )
    owner = {"user_id": USER, "thread_id": thread}
    for first in range(1, length + 1, FILL):
        last = min(first + FILL - 1, length)
        values = {**owner, "body": BODY, "first": first, "last": last}
        await driver.batch([*unchecked, Statement(insert, values)], owner=None)
    move = "UPDATE threads SET head = :head, last_seq = :head WHERE user_id = :user_id AND id = :id"
    values = {"user_id": USER, "id": thread, "head": length}
    await driver.batch([Statement(move, values, rows=1)], owner=USER)


async def read_last(url: str, variant: str, length: int, count: int) -> Measured:
    """Read the last messages of a thread repeatedly."""
    thread = f"long-{length}"
    if variant == "store":
        store = await open_store(url)
        user = store.of(USER)
        try:
            return await timed(
                [[lambda: user.log.branch(thread, length, limit=RECENT) for _ in range(count)]]
            )
        finally:
            await store.close()
    dialect = "postgres" if backend_of(url) == "postgres" else "sqlite"
    sql = load_queries(dialect)["branch"]
    values = {"user_id": USER, "thread_id": thread, "head": length, "first": 0, "limit": RECENT}
    plain = await open_plain(url)
    try:
        return await timed([[lambda: plain.read(sql, values) for _ in range(count)]])
    finally:
        await plain.close()


async def prepare(url: str, lengths: Sequence[int]) -> Measured:
    """Write threads of these lengths, with an activation from which a run can continue."""
    began = time.perf_counter()
    store = await open_store(url)
    user = store.of(USER)
    driver = await open_driver(url)
    try:
        for length in lengths:
            thread = f"long-{length}"
            await user.threads.ensure(thread)
            await fill(driver, thread, length)
            await _activate(user, thread, length)
    finally:
        await driver.close()
        await store.close()
    seconds = time.perf_counter() - began
    return Measured(sum(lengths), seconds, 0, 0, 0)


async def _activate(user: UserStore, thread: str, length: int) -> None:
    start = ActivationContent(
        first=length - RECENT + 1, left_out=length - RECENT, last_messages=RECENT
    )
    run = NewRun(
        id=f"first-{length}",
        thread_id=thread,
        agent="bench",
        max_steps=1,
        spec={},
        owner=this_process_owner(),
        lease_seconds=3600,
        expect_head=length,
        expect_seq=length,
        activation=NewActivation(
            1, length, "begin", encode_start(start), encode_prefix(PromptPrefix(""))
        ),
    )
    lease, _ = await user.runs.begin(run)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))


async def run_steps(url: str, length: int, steps: int) -> Measured:
    """Run an agent for `steps` steps on a long thread, and return the times between its calls."""
    at: list[float] = []

    def answer(request: ModelRequest) -> Scripted:
        at.append(time.perf_counter())
        return call("look", number=len(at)) if len(at) <= steps else say("Done.")

    def look(number: int) -> str:
        """Look.

        Args:
            number: at what.
        """
        return f"{number}: " + "what was seen there, in a few words\n" * 55

    settings = Settings(database_url=url, user=USER, max_steps=steps + 1)
    model = ScriptedModel(answer)
    cpu = time.process_time()
    began = time.perf_counter()
    async with Runtime.open(settings, model=model) as runtime:
        await runtime.run(Agent(tools=[look]), "Look around.", thread=f"long-{length}")
    seconds = time.perf_counter() - began
    gaps = [after - before for before, after in pairwise(at)]
    return Measured(
        count=steps,
        seconds=seconds,
        p50_ms=median(gaps) * 1000,
        p99_ms=quantiles(gaps, n=100)[98] * 1000,
        cpu=time.process_time() - cpu,
    )


def main(arguments: Sequence[str]) -> None:
    """Run the measurement that the arguments name."""
    parser = argparse.ArgumentParser("storage_worker")
    parser.add_argument("what", choices=("append", "read", "prepare", "steps"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--variant", default="store")
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--length", type=int, action="append", default=[])
    args = parser.parse_args(arguments)

    async def measure() -> Measured:
        match args.what:
            case "append":
                return await append(args.url, args.variant, args.tasks, args.count)
            case "read":
                return await read_last(args.url, args.variant, args.length[0], args.count)
            case "prepare":
                return await prepare(args.url, args.length)
            case _:
                return await run_steps(args.url, args.length[0], args.count)

    sys.stdout.buffer.write(orjson.dumps(asdict(anyio.run(measure))))


if __name__ == "__main__":
    main(sys.argv[1:])
