"""The service: clients that break off, the cost of a step, and thousands of streams."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import anyio
import httpx
import psutil

from agent_runtime import Agent, ScriptedModel
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from benchmarks.frame import Report, Row, Target, at_most
from tests.server.serving import Service, double, serving, stream

STREAMS: dict[str, Any] = {"service_max_streams": 10_000, "service_max_runs": 10_000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the benchmark."""
    parser.add_argument("--breaks", type=int, default=1000, help="disconnects of a client")
    parser.add_argument("--steps", type=int, default=200, help="steps of a run")
    parser.add_argument("--idle", type=int, default=2000, help="idle streams")
    parser.add_argument("--busy", type=int, default=200, help="busy streams")
    parser.add_argument("--database", help="a Postgres URL instead of a file")


def run(args: argparse.Namespace) -> Report:
    """Measure and return the report."""
    rows: list[Row] = []
    targets: list[Target] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate((_breaks, _cost, _crowd)):
            url = args.database or f"file:{Path(folder) / f'{number}.db'}"
            row, found = anyio.run(part, url, args)
            rows.append(row)
            targets += found
    return Report("service", rows, targets)


def counting(steps: int) -> Any:
    """Return a script of this number of calls, then an answer."""

    def answer(request: ModelRequest) -> Scripted:
        made = sum(one.role == "assistant" for one in request.messages)
        return call("double", number=made) if made % (steps + 1) < steps else say("Done.")

    return answer


async def _breaks(url: str, args: argparse.Namespace) -> tuple[Row, list[Target]]:
    """Break off a client at random moments, and compare its log with the store's."""
    chance, wrong, broken, begun = random.Random(1), 0, 0, time.monotonic()
    agents = {"worker": Agent(tools=[double], last_messages=1000)}
    settings = {**STREAMS, "observational_memory": False}
    async with serving(url, counting(20), agents=agents, settings=settings) as service:
        while broken < args.breaks:
            started = await service.start()
            path, cursor, over = f"/api/runs/{started['run_id']}/events", None, False
            got: list[int] = []
            while not over:
                left, over = chance.randint(1, 4), True
                async for at, event in stream(service.client, path, cursor):
                    cursor, left = at, left - 1
                    got.append(event["id"])
                    if not left:
                        over, broken = False, broken + 1
                        break
            rows = await service.runtime.store_of("ann").events.list(started["thread_id"])
            wrong += got != [row.id for row in rows]
    seconds = round(time.monotonic() - begun, 1)
    row = {"table": "breaks", "breaks": broken, "wrong logs": wrong, "seconds": seconds}
    return row, [at_most("logs that differ from the store's", wrong, 0)]


async def _cost(url: str, args: argparse.Namespace) -> tuple[Row, list[Target]]:
    """Compare the CPU time of a step through the service, with one stream, with the library's."""
    agent = Agent(tools=[double], last_messages=10_000, max_steps=10_000, name="worker")
    settings = {**STREAMS, "observational_memory": False}
    through: list[float] = []
    library: list[float] = []
    async with serving(
        url, counting(args.steps), agents={"worker": agent}, settings=settings
    ) as service:
        for _ in range(3):
            begun = time.process_time()
            await service.runtime.run(agent, "Work.", user="ann")
            library.append(time.process_time() - begun)
            begun = time.process_time()
            started = await service.start()
            await service.events(f"/api/runs/{started['run_id']}/events")
            through.append(time.process_time() - begun)
    ratio = median(through) / median(library)
    row = {
        "table": "cost",
        "steps": args.steps,
        "library ms a step": round(1000 * median(library) / args.steps, 3),
        "service ms a step": round(1000 * median(through) / args.steps, 3),
        "ratio": round(ratio, 3),
    }
    return row, [at_most("a step by the service, to one by the library", round(ratio, 3), 1.15)]


async def _crowd(url: str, args: argparse.Namespace) -> tuple[Row, list[Target]]:
    """Keep idle streams open, and measure how late events come to busy ones."""
    agents = {"worker": Agent(ScriptedModel(counting(5), delay=0.2), tools=[double])}
    process, late, lag = psutil.Process(os.getpid()), list[float](), list[float]()
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(serving(url, agents=agents, settings=STREAMS))
        before = process.memory_info().rss
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        client = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=service.url, headers=service.to("ann"), limits=limits, timeout=None
            )
        )
        for number in range(args.idle):
            await client.post("/api/threads", json={"id": f"idle-{number}"})
            path = f"/api/threads/idle-{number}/events"
            await stack.enter_async_context(client.stream("GET", path))
        idle_cpu = process.cpu_times().user
        await anyio.sleep(5)
        idle_cpu = (process.cpu_times().user - idle_cpu) / 5
        after = process.memory_info().rss
        watching = asyncio.create_task(_watch(lag))
        async with anyio.create_task_group() as group:
            for _ in range(args.busy):
                group.start_soon(_busy, service, client, late)
                await anyio.sleep(0.02)
        watching.cancel()
    p99 = quantiles(late, n=100)[98]
    row = {
        "table": "streams",
        "idle": args.idle,
        "busy": args.busy,
        "events": len(late),
        "KB an idle stream, with its client": round((after - before) / 1024 / args.idle, 1),
        "CPU of idle streams": round(idle_cpu, 3),
        "loop lag p99 ms": round(1000 * quantiles(lag, n=100)[98], 1),
        "delivery p50 ms": round(1000 * median(late), 1),
        "delivery p99 ms": round(1000 * p99, 1),
    }
    return row, [at_most("delivery p99", round(p99, 3), 1.0, "s")]


async def _busy(service: Service, client: httpx.AsyncClient, late: list[float]) -> None:
    started = (await client.post("/api/runs", json={"task": "Work."})).json()
    async for _, event in stream(client, f"/api/runs/{started['run_id']}/events"):
        late.append(time.time() - event["created_at"])


async def _watch(lag: list[float]) -> None:
    while True:
        begun = time.monotonic()
        await anyio.sleep(0.02)
        lag.append(time.monotonic() - begun - 0.02)
