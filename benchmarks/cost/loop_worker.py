"""One measurement of the loop benchmark in its own process: a variant, or the server.

`python -m benchmarks.cost.loop_worker VARIANT …` prints its `Measured` as JSON; the variant `serve`
prints its base URL and, once a line comes in, its `Served`.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import resource
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
import orjson

from agent_runtime import Agent, Runtime, Settings, model_from_name, tool
from agent_runtime.models.litellm import load_litellm
from benchmarks.peers.runners.pages import page

if TYPE_CHECKING:
    from agent_runtime.testing.model_server import Reply

CYCLES = 40
"""Steps over which the cost of a step is averaged: four cycles of the default window."""
NEAR = 50
"""The step around which the early cost is measured."""
KEY = "none"


@dataclass(frozen=True, slots=True)
class Served:
    """The server's share of the measured calls.

    Attributes:
        busy: CPU seconds of the server's process.
        prompt_bytes: of all request bodies together.
    """

    calls: int
    busy: float
    prompt_bytes: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one process: seconds over all its calls, and bytes.

    Attributes:
        early: CPU seconds of a step around step 50; None if there are too few steps.
        late: CPU seconds of a step at the end.
    """

    calls: int
    wall: float
    cpu: float
    early: float | None
    late: float | None
    database: int | None
    rss: int


@dataclass(slots=True)
class Clock:
    """Measures the time of all calls together, and the CPU time at each."""

    began: tuple[float, float] = (0.0, 0.0)
    ended: tuple[float, float] = (0.0, 0.0)
    marks: list[float] = field(default_factory=list[float])

    def start(self) -> None:
        """Start, after warming up."""
        self.began = time.perf_counter(), time.process_time()

    def mark(self) -> None:
        """Record the start of a step."""
        self.marks.append(time.process_time())

    def stop(self) -> None:
        """End."""
        self.ended = time.perf_counter(), time.process_time()

    def measured(self, calls: int, database: Path | None) -> Measured:
        """Return the figures; the database must be closed."""
        early = late = None
        if len(self.marks) >= NEAR + CYCLES // 2:
            early = self._mean(NEAR - CYCLES // 2)
            late = self._mean(len(self.marks) - 1 - CYCLES)
        return Measured(
            calls=calls,
            wall=self.ended[0] - self.began[0],
            cpu=self.ended[1] - self.began[1],
            early=early,
            late=late,
            database=None if database is None else size(database),
            rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )

    def _mean(self, first: int) -> float:
        last = min(first + CYCLES, len(self.marks) - 1)
        return (self.marks[last] - self.marks[first]) / (last - first)


def size(database: Path) -> int:
    """Return the bytes of a database file and its companions (WAL, shared memory)."""
    return sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))


async def runtime(args: argparse.Namespace) -> Measured:
    """Run the task with the runtime and its default settings."""
    clock = Clock()

    @tool
    async def read_page(number: int) -> str:
        """Read a page.

        Args:
            number: of the page.
        """
        clock.mark()
        return page(number)

    model = model_from_name("openai/bench", base_url=args.url, api_key=KEY)
    database = args.folder / "loop.db"
    # The first page takes longer, because it looks for all of them.
    page(0)
    warm = Settings(database_url=f"file:{args.folder / 'warm.db'}")
    async with Runtime.open(warm, model=model) as engine:
        await engine.run(Agent(), "Warm up.")
    settings = Settings(database_url=f"file:{database}", max_steps=args.steps + 1)
    async with Runtime.open(settings, model=model) as engine:
        agent = Agent(tools=[read_page], instructions="Read all pages, then say that it is done.")
        clock.start()
        result = await engine.run(agent, f"Read {args.steps} pages.")
        clock.stop()
    if not result.ok or result.steps != args.steps + 1:
        raise RuntimeError(f"the run ended with {result}")
    return clock.measured(result.steps, database)


def recorded(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the first requests that the runtime sent."""
    with cast("Path", args.prompts).open("rb") as file:
        for _ in range(args.steps + 1):
            yield orjson.loads(file.readline())


async def litellm(args: argparse.Namespace) -> Measured:
    """Send the same prompts by bare litellm, streaming; store nothing."""
    module = await load_litellm()

    async def ask(messages: list[dict[str, Any]], **options: Any) -> None:
        stream = await module.acompletion(
            model="openai/bench",
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            api_base=args.url,
            api_key=KEY,
            max_retries=0,
            **options,
        )
        async for _ in stream:
            pass

    await ask([{"role": "user", "content": "Warm up."}])
    return await _replay(
        args, lambda request: ask(request["messages"], tools=request["tools"]), None
    )


async def bare(args: argparse.Namespace) -> Measured:
    """Send the same prompts by bare httpx, and append each prompt's last message to SQLite."""
    # Not above: the memory of the other variants is measured, too.
    import httpx

    database = args.folder / "bare.db"
    with closing(sqlite3.connect(database)) as file:
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("PRAGMA synchronous=FULL")
        file.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, body BLOB)")
        async with httpx.AsyncClient(base_url=args.url, timeout=60) as client:

            async def ask(request: dict[str, Any]) -> None:
                parts: list[Any] = []
                body = orjson.dumps(request)
                json = {"content-type": "application/json"}
                async with client.stream(
                    "POST", "/chat/completions", content=body, headers=json
                ) as reply:
                    async for line in reply.aiter_lines():
                        if line.startswith("data: {"):
                            parts.append(orjson.loads(line[6:]))
                row = orjson.dumps([request["messages"][-1], parts[-1]])
                file.execute("INSERT INTO log (body) VALUES (?)", (row,))
                file.commit()

            hello = [{"role": "user", "content": "Warm up."}]
            await ask({"model": "bench", "stream": True, "messages": hello})
            measured = await _replay(args, ask, database)
    return measured


async def _replay(
    args: argparse.Namespace,
    ask: Callable[[dict[str, Any]], Awaitable[None]],
    database: Path | None,
) -> Measured:
    clock = Clock()
    clock.start()
    # A real loop has its messages as objects, so reading the recording is subtracted.
    aside_wall = aside_cpu = 0.0
    requests = recorded(args)
    for _ in range(args.steps + 1):
        before = time.perf_counter(), time.process_time()
        request = next(requests)
        aside_wall += time.perf_counter() - before[0]
        aside_cpu += time.process_time() - before[1]
        await ask(request)
    clock.stop()
    clock.began = clock.began[0] + aside_wall, clock.began[1] + aside_cpu
    return clock.measured(args.steps + 1, database)


async def serve(args: argparse.Namespace) -> Served:
    """Serve until a line comes in; count the calls with tools, which the agent alone makes."""
    from agent_runtime.testing.model_server import OpenAIServer, Reply, call_then_answer
    from agent_runtime.testing.observer import is_for_memory, notes_for

    calls, total, began = 0, 0, 0.0
    answer = call_then_answer(args.steps)
    record = None if args.prompts is None else cast("Path", args.prompts).open("wb")

    def script(request: dict[str, Any], n: int) -> Reply:
        nonlocal calls, total, began
        recorded = server.requests[n]
        # Thousands of ever longer prompts would fill the server's memory.  The list itself stays:
        # ids of calls are made from the number of requests.
        server.requests[n] = replace(recorded, body=b"", json={})
        if is_for_memory(request):
            return Reply(text=notes_for(request))
        if "tools" not in request:
            return Reply(text="Warm.")
        began = began or time.process_time()
        calls, total = calls + 1, total + len(recorded.body)
        if record is not None:
            record.write(orjson.dumps(request) + b"\n")
        return answer(request, calls - 1)

    server = OpenAIServer(script)
    async with server:
        print(server.base_url, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
    if record is not None:
        record.close()
    return Served(calls, time.process_time() - began, total)


VARIANTS: dict[str, Callable[[argparse.Namespace], Awaitable[Any]]] = {
    "runtime": runtime,
    "litellm": litellm,
    "httpx": bare,
    "serve": serve,
}


def main() -> None:
    """Measure one variant and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--url", help="of the server")
    parser.add_argument("--folder", type=Path, help="for databases")
    parser.add_argument(
        "--prompts", type=Path, help="recorded requests, to replay or (serve) write"
    )
    parser.add_argument("--profile", type=Path, help="write what cProfile saw")
    args = parser.parse_args()
    variant = functools.partial(VARIANTS[args.variant], args)
    if args.profile is None:
        measured = anyio.run(variant)
    else:
        with cProfile.Profile() as profile:
            measured = anyio.run(variant)
        profile.dump_stats(args.profile)
    print(orjson.dumps(measured).decode(), flush=True)


if __name__ == "__main__":
    main()
