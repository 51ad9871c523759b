"""A service as a process of its own: `ServerProcess` starts one, kills it, and asks what it costs.

Run as a program, this serves on a free port: it prints a line of JSON with its address and a token
of the user ann, then answers each line of its input with one of JSON.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import anyio
import httpx
import orjson
import psutil
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_runtime import Agent
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, ScriptedModel, call, say
from tests.server.serving import Service, double, serving, stream

REPOSITORY = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {
    "service_max_streams": 10_000,
    "service_max_runs": 10_000,
    "max_runs": 10_000,
    "observational_memory": False,
    "sweep": 0.2,
}


CREATED = re.compile(rb'"created_at":([0-9.e+]+)\}\n\n')
"""The end of an event in a stream."""


class Written:
    """An application that notes how late the events of its streams were given to their sockets."""

    def __init__(self, app: ASGIApp) -> None:
        self.late: list[float] = []
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            await send(message)
            if CREATED.search(body := message.get("body", b"")):
                now = time.time()
                self.late += [now - float(at) for at in CREATED.findall(body)]

        await self._app(scope, receive, sending)


def counting(steps: int) -> Callable[[ModelRequest], Scripted]:
    """Return a script of this number of calls, then an answer."""

    def answer(request: ModelRequest) -> Scripted:
        made = sum(one.role == "assistant" for one in request.messages)
        return call("double", number=made) if made % (steps + 1) < steps else say("Done.")

    return answer


@dataclass
class ServerProcess:
    """A service in a process of its own.

    Attributes:
        url: where it listens.
        headers: of requests of the user ann.
    """

    url: str
    headers: dict[str, str]
    process: asyncio.subprocess.Process
    asking: anyio.Lock = field(default_factory=anyio.Lock)

    @classmethod
    async def start(cls, database_url: str, *, steps: int = 20, delay: float = 0) -> ServerProcess:
        """Start one over a database, whose agent makes a number of steps."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.server.served", database_url, str(steps), str(delay),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=REPOSITORY,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            with anyio.fail_after(60):
                answer = orjson.loads(await process.stdout.readline())
        except BaseException:
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()
            raise
        return cls(answer["url"], {"Authorization": f"Bearer {answer['token']}"}, process)

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self.process.returncode is None

    async def ask(self, *words: str) -> Any:
        """Send a line, and return its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        async with self.asking:
            self.process.stdin.write(" ".join(words).encode() + b"\n")
            return orjson.loads(await self.process.stdout.readline())

    async def end(self, sent: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, and wait for the end; return the process's exit code."""
        if self.alive:
            self.process.send_signal(sent)
        return await self.process.wait()


@asynccontextmanager
async def server_process(database_url: str, **options: Any) -> AsyncGenerator[ServerProcess]:
    """Give a server, and kill it at the end."""
    server = await ServerProcess.start(database_url, **options)
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await server.end()


@dataclass
class Pair:
    """Two servers on one database, of which one is replaced now and then."""

    database_url: str
    servers: list[ServerProcess]
    chance: random.Random
    ended: int = 0
    replacing: bool = False

    @classmethod
    @asynccontextmanager
    async def open(cls, database_url: str, chance: random.Random) -> AsyncGenerator[Pair]:
        """Give two servers, and kill them at the end."""
        # One after the other: the first one makes the tables.
        pair = cls(database_url, [await ServerProcess.start(database_url)], chance)
        try:
            pair.servers.append(await ServerProcess.start(database_url))
            yield pair
        finally:
            with anyio.CancelScope(shield=True):
                for server in pair.servers:
                    await server.end()

    def any(self) -> ServerProcess:
        """Return one of the servers that are alive."""
        return self.chance.choice([one for one in self.servers if one.alive])

    async def replace(self) -> None:
        """End a server by a kill or a plain stop, and start another in its place.

        While one is replaced, the other one stays.
        """
        if self.replacing:
            return
        self.replacing = True
        victim = self.chance.choice(self.servers)
        await victim.end(self.chance.choice([signal.SIGKILL, signal.SIGTERM]))
        self.ended += 1
        self.servers[self.servers.index(victim)] = await ServerProcess.start(self.database_url)
        self.replacing = False

    async def start_run(self) -> dict[str, Any]:
        """Start a run on one of the servers, once, whichever ends meanwhile; return its ids."""
        key = {"Idempotency-Key": f"run-{self.chance.random()}"}
        while True:
            server = self.any()
            try:
                async with httpx.AsyncClient(timeout=30) as client:
                    answer = await client.post(
                        f"{server.url}/api/runs",
                        json={"task": "Work."},
                        headers=server.headers | key,
                    )
                if answer.status_code == 201:
                    return answer.json()
                assert answer.status_code in (409, 503), answer.text
            except httpx.TransportError:
                pass
            await anyio.sleep(0.05)

    async def log_of(self, run_id: str, breaks: Callable[[], int]) -> list[int]:
        """Follow a run to its end over many connections, each broken off after some events."""
        got: list[int] = []
        cursor: str | None = None
        while True:
            left, server = breaks(), self.any()
            try:
                async with httpx.AsyncClient(
                    base_url=server.url, headers=server.headers, timeout=30
                ) as client:
                    events = stream(client, f"/api/runs/{run_id}/events", cursor)
                    async for at, event in events:
                        got.append(event["id"])
                        cursor, left = at, left - 1
                        if event["kind"] == "run-finish":
                            return got
                        if not left:
                            break
            except httpx.TransportError:
                # Its server ended; another one continues the run and the stream.
                await anyio.sleep(0.02)


async def _main(database_url: str, steps: int, delay: float) -> None:
    agent = Agent(
        ScriptedModel(counting(steps), delay=delay),
        tools=[double], last_messages=10_000, max_steps=10_000, name="worker",
    )  # fmt: skip
    async with serving(database_url, agents={"worker": agent}, settings=SETTINGS) as service:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        _say({"url": service.url, "token": service.tokens["ann"]})
        lags: list[float] = []
        # Each connection takes it when it is made.
        config: Any = service.server.config
        config.loaded_app = written = Written(config.loaded_app)
        tasks = [
            asyncio.create_task(_answer(service, agent, reader, lags, written, stopped)),
            asyncio.create_task(_watch(lags)),
        ]
        await stopped.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _answer(
    service: Service,
    agent: Agent,
    reader: asyncio.StreamReader,
    lags: list[float],
    written: Written,
    stopped: asyncio.Event,
) -> None:
    process = psutil.Process()
    while line := await reader.readline():
        if line.strip() == b"library":
            begun = time.process_time()
            await service.runtime.run(agent, "Work.", user="ann")
            _say({"cpu": time.process_time() - begun})
        else:
            late, sent = [*lags, 0.0, 0.0], [*written.late, 0.0, 0.0]
            lags.clear()
            written.late.clear()
            _say(
                {
                    "cpu": time.process_time(),
                    "rss": process.memory_info().rss,
                    "files": process.num_fds(),
                    "lag p99": quantiles(late, n=100)[98],
                    "written p50": median(sent),
                    "written p99": quantiles(sent, n=100)[98],
                    "streams": service.state.limits.open_streams,
                    "feeds": len(service.state.feeds),
                }
            )
    # The one who started it is gone.
    stopped.set()


async def _watch(lags: list[float]) -> None:
    while True:
        begun = time.monotonic()
        await anyio.sleep(0.02)
        lags.append(time.monotonic() - begun - 0.02)


def _say(answer: dict[str, Any]) -> None:
    print(orjson.dumps(answer).decode(), flush=True)


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
