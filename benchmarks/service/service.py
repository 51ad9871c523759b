"""The service: clients and servers that break off, the cost of a step, and thousands of streams."""

from __future__ import annotations

import argparse
import asyncio
import functools
import random
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import anyio
import httpx

from agent_runtime_storage import open_store
from benchmarks.frame import Report, Row, Target, at_most
from tests.server.served import CREATED, Pair, ServerProcess, server_process
from tests.server.serving import stream

EVENTS_PAGE = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the benchmark."""
    parser.add_argument("--breaks", type=int, default=1000, help="disconnects of clients")
    parser.add_argument("--every", type=int, default=25, help="disconnects to one end of a server")
    parser.add_argument("--steps", type=int, default=200, help="steps of a run")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind to compare")
    parser.add_argument("--idle", type=int, default=2000, help="idle streams")
    parser.add_argument("--busy", type=int, default=200, help="busy streams")
    parser.add_argument("--delay", type=float, default=4.0, help="seconds of a call of a model")
    parser.add_argument("--stuck", type=int, default=20, help="busy streams that nobody reads")
    parser.add_argument("--only", choices=["breaks", "cost", "streams"], help="one of the parts")
    parser.add_argument("--database", help="an empty Postgres database instead of a file")


def run(args: argparse.Namespace) -> Report:
    """Measure and return the report."""
    rows: list[Row] = []
    targets: list[Target] = []
    parts = {"breaks": _breaks, "cost": _cost, "streams": _crowd}
    with tempfile.TemporaryDirectory() as folder:
        for name, part in parts.items():
            if args.only in (None, name):
                url = args.database or f"file:{Path(folder) / f'{name}.db'}"
                row, found = anyio.run(part, url, args)
                rows += row
                targets += found
    return Report("service", rows, targets)


async def _breaks(url: str, args: argparse.Namespace) -> tuple[list[Row], list[Target]]:
    """Break off clients and end servers at random moments; compare their logs with the store's."""
    chance, begun = random.Random(1), time.monotonic()
    wrong = breaks = runs = 0
    store = await open_store(url)
    async with Pair.open(url, chance) as pair, anyio.create_task_group() as group:

        def after() -> int:
            nonlocal breaks
            breaks += 1
            if breaks % args.every == 0:
                group.start_soon(pair.replace)
            return chance.randint(1, 4)

        while breaks < args.breaks:
            started = await pair.start_run()
            got = await pair.log_of(started["run_id"], after)
            kept = await store.of("ann").events.list(started["thread_id"], limit=EVENTS_PAGE)
            wrong += got != [row.id for row in kept]
            runs += 1
    await store.close()
    row = {
        "table": "breaks",
        "disconnects": breaks,
        "ends of a server": pair.ended,
        "runs": runs,
        "wrong logs": wrong,
        "seconds": round(time.monotonic() - begun, 1),
    }
    return [row], [at_most("logs that differ from the store's", wrong, 0)]


async def _cost(url: str, args: argparse.Namespace) -> tuple[list[Row], list[Target]]:
    """Compare the CPU time of a step through the service, with one stream, with the library's."""
    through: list[float] = []
    whole: list[float] = []
    library: list[float] = []
    async with (
        server_process(url, steps=args.steps) as server,
        httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=None) as client,
    ):
        for number in range(args.rounds + 1):
            alone = (await server.ask("library"))["cpu"]
            before, own = (await server.ask("state"))["cpu"], time.process_time()
            started = (await client.post("/api/runs", json={"task": "Work."})).json()
            async for _ in stream(client, f"/api/runs/{started['run_id']}/events"):
                pass
            own = time.process_time() - own
            served = (await server.ask("state"))["cpu"] - before
            if number:
                # The first round loads what is loaded once.
                library.append(alone)
                through.append(served)
                whole.append(served + own)
    ratio = round(median(through) / median(library), 3)
    row = {
        "table": "cost",
        "steps": args.steps,
        "library ms a step": round(1000 * median(library) / args.steps, 3),
        "service ms a step": round(1000 * median(through) / args.steps, 3),
        "ratio": ratio,
        "ratio with the client": round(median(whole) / median(library), 3),
    }
    return [row], [at_most("a step by the service, to one by the library", ratio, 1.15)]


async def _crowd(url: str, args: argparse.Namespace) -> tuple[list[Row], list[Target]]:
    """Keep idle streams open, and measure how late events come to busy ones."""
    rows: list[Row] = []
    targets: list[Target] = []
    # The models of the first answer as slowly as real ones, those of the second at once: then the
    # process has more to do than it can.
    for name, delay, steps in (("paced", args.delay, 5), ("flat out", 0.2, 5)):
        async with AsyncExitStack() as stack:
            database = url if url.startswith("postgres") else f"{url}-{name.replace(' ', '-')}"
            server = await stack.enter_async_context(
                server_process(database, steps=steps, delay=delay)
            )
            row, found = await _crowded(server, stack, args, delay)
        rows.append({"table": "streams", "load": name} | row)
        targets += [replace(one, name=f"{one.name}, {name}") for one in found]
    return rows, targets


async def _crowded(
    server: ServerProcess, stack: AsyncExitStack, args: argparse.Namespace, delay: float
) -> tuple[dict[str, Any], list[Target]]:
    client = await stack.enter_async_context(
        httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=None)
    )
    await client.post("/api/threads", json={"id": "warm"})
    before = await server.ask("state")
    for number in range(args.idle):
        await client.post("/api/threads", json={"id": f"idle-{number}"})
        await stack.enter_async_context(_opened(server, f"idle-{number}"))
    idle = await server.ask("state")
    await anyio.sleep(5)
    rested = await server.ask("state")
    late: list[float] = []
    begun = time.monotonic()
    own = time.process_time()
    async with anyio.create_task_group() as group:
        for number in range(args.busy):
            thread = f"busy-{number}"
            await client.post("/api/threads", json={"id": thread})
            if number < args.stuck:
                await stack.enter_async_context(_opened(server, thread))
            group.start_soon(_read, await stack.enter_async_context(_opened(server, thread)), late)
        await server.ask("state")
        begun, own = time.monotonic(), time.process_time()
        for number in range(args.busy):
            body = {"task": "Work.", "thread_id": f"busy-{number}"}
            group.start_soon(functools.partial(client.post, "/api/runs", json=body))
            await anyio.sleep(delay / args.busy)
    busy = await server.ask("state")
    seconds = time.monotonic() - begun
    p99 = quantiles(late, n=100)[98]
    # A connection of each stream, and nothing else.
    files = idle["files"] - before["files"] - args.idle
    row: dict[str, Any] = {
        "idle": args.idle,
        "busy": args.busy,
        "unread": args.stuck,
        "events": len(late),
        "KB an idle stream": round((idle["rss"] - before["rss"]) / 1024 / max(args.idle, 1), 1),
        "files other than sockets": files,
        "CPU of idle streams": round((rested["cpu"] - idle["cpu"]) / 5, 3),
        "MB after": round(busy["rss"] / 2**20),
        "server's CPU": round((busy["cpu"] - rested["cpu"]) / seconds, 2),
        "client's CPU": round((time.process_time() - own) / seconds, 2),
        "loop lag p99 ms": round(1000 * busy["lag p99"], 1),
        "written p50 ms": round(1000 * busy["written p50"], 1),
        "written p99 ms": round(1000 * busy["written p99"], 1),
        "delivery p50 ms": round(1000 * median(late), 1),
        "delivery p99 ms": round(1000 * p99, 1),
    }
    return row, [
        at_most("delivery p99", round(p99, 3), 1.0, "s"),
        at_most("file handles that idle streams add to their sockets", files, 5),
    ]


@asynccontextmanager
async def _opened(server: ServerProcess, thread: str) -> AsyncGenerator[asyncio.StreamReader]:
    """Open the stream of a thread, by a plain socket: a full client takes more than the service."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        head = [f"GET /api/threads/{thread}/events HTTP/1.1", f"Host: {host}"]
        head += [f"{name}: {value}" for name, value in server.headers.items()]
        writer.write("\r\n".join([*head, "", ""]).encode())
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"The stream was refused: {status!r}.")
        while (await reader.readline()).strip():
            pass
        yield reader
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, late: list[float]) -> None:
    """Note how late each event of a run comes, until the run has ended."""
    event = b""
    while b'"kind":"run-finish"' not in event:
        event = await reader.readuntil(b"\n\n")
        now = time.time()
        late += [now - float(at) for at in CREATED.findall(event)]
