"""Measure what the inspector's page waits for, on a thread of ten thousand steps.

A scripted model reads files in one run with observational memory, whose rules observe.  Then each
route is asked as the page asks it, of the application without a network; medians are reported.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_runtime import Agent, Runtime, ScriptedModel, Settings
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.server.inspector import inspector_routes
from agent_runtime.server.inspector.columns import decode_tables
from benchmarks.frame import Report, at_most

THREAD = "long"
OPENING_MS = 100
PAGE_MS = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--steps", type=int, default=10_000, help="of the run")
    parser.add_argument("--rounds", type=int, default=7, help="of each measurement")
    parser.add_argument("--observe-at", type=int, default=9000, help="tokens of raw messages")
    parser.add_argument("--database", type=Path, help="a file to keep the run in, or to reuse")


def run(args: argparse.Namespace) -> Report:
    """Make the thread and measure its routes."""
    with tempfile.TemporaryDirectory() as folder:
        file = args.database or Path(folder) / "run.db"
        rows = anyio.run(_measured, file, args.steps, args.rounds, args.observe_at)
    known = {row["route"]: row for row in rows}
    loaded = ("opening", "activations", "observations", "prompt")
    targets = [
        at_most("what the page paints first", known["opening"]["ms"], OPENING_MS, "ms"),
        at_most("all that it loads", sum(known[one]["ms"] for one in loaded), PAGE_MS, "ms"),
    ]
    return Report("page_data", rows, targets)


async def _measured(file: Path, steps: int, rounds: int, observe_at: int) -> list[dict[str, Any]]:
    async with opened(file, steps, observe_at) as runtime:
        app = Starlette(routes=inspector_routes(), middleware=[Middleware(_Owner)])
        app.state.runtime = runtime
        base = "http://page/api/inspector/"
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=base, timeout=60) as client:
            return [
                await _route(client, name, path, query, rounds)
                for name, path, query in await _asked(client)
            ]


@asynccontextmanager
async def opened(file: Path, steps: int, observe_at: int) -> AsyncGenerator[Runtime]:
    """Open a database with the thread, which is made if it is missing."""
    settings = Settings(
        database_url=f"file:{file}",
        observational_memory=True,
        observer_message_tokens=observe_at,
        reflector_observation_tokens=max(observe_at // 2, 500),
        loop_limit=0,
    )
    async with Runtime.open(settings) as runtime:
        if not await runtime.store_of().runs.list(thread_id=THREAD, limit=1):
            await _worked(runtime, steps)
        yield runtime


class _Owner:
    """Names the settings' user in each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["user"] = scope["app"].state.runtime.settings.user
        await self._app(scope, receive, send)


async def _worked(runtime: Runtime, steps: int) -> None:
    left = iter(range(steps - 1))

    def script(request: ModelRequest) -> Scripted:
        number = next(left, None)
        return say("Done.") if number is None else call("look", path=f"src/part_{number}.py")

    agent = Agent(ScriptedModel(script), tools=[look], max_steps=steps + 1)
    await runtime.run(agent, "Survey src. Never change config/prod.yaml.", thread=THREAD)


def look(path: str) -> str:
    """Look at a file.

    Args:
        path: the file.
    """
    return "\n".join(f"{path}:{line}: value_{line} = {line * line}" for line in range(30))


async def _asked(
    client: httpx.AsyncClient,
) -> Sequence[tuple[str, str, Mapping[str, int]]]:
    """Return what the page asks when it opens the thread, and when it goes on from there."""
    path = f"threads/{THREAD}"
    _, tables = decode_tables((await client.get(f"{path}/steps")).content)
    nodes, steps = tables["nodes"]["node"], tables["steps"]
    middle = steps["node"][len(steps["node"]) // 2]
    window = nodes[len(nodes) // 50 * 50 - 50 :][:50]
    return (
        ("home", "home", {}),
        ("opening", f"{path}/opening", {}),
        ("thread", path, {}),
        ("steps", f"{path}/steps", {}),
        ("new steps", f"{path}/steps", {"after": nodes[-20]}),
        ("activations", f"{path}/activations", {}),
        ("observations", f"{path}/observations", {}),
        ("nodes", f"{path}/nodes", {"from": window[0], "to": window[-1]}),
        ("prompt", f"{path}/prompt", {"activation": steps["activation"][-1]}),
        ("where", f"{path}/where", {"node": 2, "at": middle}),
        ("where now", f"{path}/where", {"node": 2}),
    )


async def _route(
    client: httpx.AsyncClient, name: str, path: str, query: Mapping[str, int], rounds: int
) -> dict[str, Any]:
    times: list[float] = []
    worked: list[float] = []
    sent = size = 0
    for _ in range(rounds):
        began, before = time.perf_counter(), time.process_time()
        response = await client.get(path, params=dict(query))
        times.append(time.perf_counter() - began)
        worked.append(time.process_time() - before)
        response.raise_for_status()
        size, sent = len(response.content), response.num_bytes_downloaded
    ms = round(median(times) * 1000, 1)
    # The least of the processor: other work on the machine adds to it, too.
    cpu = round(min(worked) * 1000, 1)
    return {
        "route": name,
        "ms": ms,
        "cpu_ms": cpu,
        "kb": round(size / 1000),
        "kb_sent": round(sent / 1000),
    }
