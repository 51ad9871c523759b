"""Killing the database's server with SIGKILL during runs: they wait, or can be resumed.

The tools' effects are counted outside of the database, and compared with the log.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
import pytest

from agent_runtime import Agent, RunResult, Runtime, ScriptedModel, Settings, ToolContext, tool
from agent_runtime.errors import StoreUnavailable
from agent_runtime.messages import decode_result
from agent_runtime.models.base import ModelAnswer, ModelRequest
from agent_runtime.models.scripted import calls, raw_call, say
from agent_runtime_storage.contract.records.usage import UsageTotal
from agent_runtime_storage.drivers.protocol import Driver
from agent_runtime_storage.queries.migrations import apply_migrations
from agent_runtime_storage.store import SqlStore
from agent_runtime_storage.urls import backend_of
from tests.services.fixtures import StartLibsql, StartPostgres
from tests.services.libsql import LibsqlServer
from tests.services.postgres import CREATOR, PostgresServer

THREAD = "t"
STEPS = 24
CHILD_STEP = 9
"""The step that has a child run; the child's steps are numbered from `CHILD_FIRST`."""
CHILD_FIRST = 100
CHILD_STEPS = 4
KILLS = (3, 7, 12, 17, 21)
"""Steps in which the server is killed and started again."""


@dataclass
class Machine:
    """The test's own server, and the URL of an empty database on it."""

    server: PostgresServer | LibsqlServer
    url: str
    kills: int = 0

    async def kill(self) -> None:
        """Kill the server, and wait until all its processes are gone."""
        self.kills += 1
        await anyio.to_thread.run_sync(self.server.kill)

    async def start(self) -> None:
        """Start the server on its existing files, and wait until it answers."""
        await anyio.to_thread.run_sync(self.server.start)


@pytest.fixture(params=["libsql-http", "libsql-ws", "postgres"])
def machine(request: pytest.FixtureRequest, start_libsql: StartLibsql) -> Machine:
    """A server that may be killed: it writes as durably as in production."""
    if request.param == "postgres":
        start_postgres: StartPostgres = request.getfixturevalue("start_postgres")
        server = start_postgres()
        server.ensure_logins()
        return Machine(server, server.url(server.create(owner=CREATOR), CREATOR))
    libsql = start_libsql()
    return Machine(libsql, libsql.ws_url if request.param == "libsql-ws" else libsql.http_url)


async def connect(url: str, patience: float) -> Driver:
    """Connect to a server, and wait for it for at most `patience` seconds."""
    match backend_of(url):
        case "postgres":
            from agent_runtime_storage.drivers.postgres.driver import PostgresDriver

            return await PostgresDriver.open(url, patience=patience)
        case "libsql-ws":
            from agent_runtime_storage.drivers.libsql.websocket import WebSocketDriver

            return await WebSocketDriver.open(url, patience=patience)
        case _:
            from agent_runtime_storage.drivers.libsql.http import HttpDriver

            return await HttpDriver.open(url, patience=patience)


@asynccontextmanager
async def runtime_at(url: str, *, patience: float = 60.0) -> AsyncGenerator[Runtime]:
    """Open a runtime on a server."""
    driver = await connect(url, patience)
    try:
        await apply_migrations(driver)
        yield Runtime(Settings(database_url=url), SqlStore(driver))
    finally:
        with anyio.CancelScope(shield=True):
            await driver.close()


@dataclass
class Job:
    """An agent that works in steps of two parallel calls; at `CHILD_STEP`, one has a child run.

    Attributes:
        at: side effects of the first call of a step, by step.
        effects: how often each piece of work was done.
        answers: number of the model's answers.
    """

    at: dict[int, Callable[[], object]] = field(default_factory=dict[int, Callable[[], object]])
    effects: Counter[str] = field(default_factory=Counter[str])
    answers: int = 0
    before_end: anyio.Event = field(default_factory=anyio.Event)

    def agent(self) -> Agent:
        """Return the agent, as this process or another one creates it."""

        @tool
        async def work(piece: str) -> str:
            """Do a piece of work for a moment."""
            self.effects[piece] += 1
            step, _, part = piece.partition(".")
            if part == "0" and int(step) in self.at:
                self.at.pop(int(step))()
            await anyio.sleep(0.01)
            return f"did {piece}"

        @tool(idempotent=True)
        async def look(piece: str) -> str:
            """Look at something; twice does no harm."""
            self.effects[piece] += 1
            await anyio.sleep(0.01)
            return f"did {piece}"

        @tool
        async def delegate(context: ToolContext, piece: str) -> str:
            """Have a child run do a part of the work."""
            self.effects[piece] += 1
            child = Agent(ScriptedModel(self._child), tools=[work], name="child")
            return str((await context.run_agent(child, "Do your part.")).output)

        return Agent(ScriptedModel(self._answer), tools=[work, look, delegate], max_steps=100)

    async def _answer(self, request: ModelRequest) -> ModelAnswer:
        self.answers += 1
        step = next_step(request, 0)
        if step == STEPS:
            await self.before_end.wait()
            return say("done")
        second = "delegate" if step == CHILD_STEP else "look"
        return calls(
            raw_call("work", piece=f"{step}.0"),
            raw_call(second, piece=f"{step}.1"),
        )

    def _child(self, request: ModelRequest) -> ModelAnswer:
        self.answers += 1
        step = next_step(request, CHILD_FIRST)
        if step == CHILD_FIRST + CHILD_STEPS:
            return say("the child's part")
        return calls(raw_call("work", piece=f"{step}.2"))


def next_step(request: ModelRequest, first: int) -> int:
    """Return the number after the last step that the prompt contains."""
    for message in reversed(request.messages):
        if message.calls:
            return int(str(message.calls[0].arguments["piece"]).partition(".")[0]) + 1
    return first


@dataclass(frozen=True)
class LoggedCall:
    """A call in the log."""

    tool: str
    outcome: str
    text: str


async def read_log(runtime: Runtime) -> dict[str, LoggedCall]:
    """Return all calls of the run tree by their pieces; check that the log is complete."""
    store = runtime.store.of("local")
    logged: dict[str, LoggedCall] = {}
    for run in await store.runs.list(root_run_id=(await store.runs.list(thread_id=THREAD))[-1].id):
        thread = await store.threads.get(run.thread_id)
        assert thread.active_run is None and thread.head == thread.last_seq
        assert run.open_node is None and run.reserved.tokens == 0
        nodes = await store.log.branch(thread.id, thread.head or 0)
        assert [node.seq for node in nodes] == list(range(1, thread.last_seq + 1))
        events = await store.events.list(thread.id)
        assert [event.id for event in events] == list(range(1, thread.last_event + 1))
        assert [event.kind for event in events].count("run-finish") == 1
        for node in nodes:
            assert node.status == "closed"
            for call in node.calls:
                assert call.status == "done"
                result = decode_result(call.body)
                piece = pieces(node.body)[call.index]
                assert piece not in logged
                logged[piece] = LoggedCall(call.tool, result.outcome, result.text)
    return logged


def pieces(body: bytes) -> list[str]:
    """Return the pieces of work in an answer's calls."""
    from agent_runtime.messages import AssistantMessage, decode_message

    message = decode_message(body)
    assert isinstance(message, AssistantMessage)
    return [str(call.arguments["piece"]) for call in message.calls]


async def usage_of(runtime: Runtime) -> UsageTotal:
    """Return the usage of the run tree on the thread."""
    store = runtime.store.of("local")
    return await store.spending.usage_total(
        root_run_id=(await store.runs.list(thread_id=THREAD))[-1].id
    )


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
async def test_a_run_survives_repeated_kills_of_the_server(machine: Machine, seed: int) -> None:
    chance = random.Random(seed)
    reached, due = anyio.create_memory_object_stream[None](len(KILLS))
    job = Job(at=dict.fromkeys(KILLS, lambda: reached.send_nowait(None)))

    async def kill_and_start() -> None:
        async with due:
            async for _ in due:
                # At some moment of this step or the next ones.
                await anyio.sleep(chance.uniform(0, 0.05))
                await machine.kill()
                await machine.start()
                if machine.kills == len(KILLS):
                    job.before_end.set()

    async with runtime_at(machine.url) as runtime:
        results: list[RunResult] = []
        async with anyio.create_task_group() as group:
            group.start_soon(kill_and_start)
            async with reached:
                results.append(await runtime.run(job.agent(), "Go.", thread=THREAD))

        [result] = results
        assert (result.status, result.output, result.steps) == ("succeeded", "done", STEPS + 1)
        assert machine.kills == len(KILLS)
        logged = await read_log(runtime)
        usage = await usage_of(runtime)

    assert job.effects == Counter(logged.keys())
    assert len(logged) == 2 * STEPS + CHILD_STEPS
    assert {call.outcome for call in logged.values()} == {"ok"}
    assert all(
        call.text == f"did {piece}" for piece, call in logged.items() if call.tool != "delegate"
    )
    # A model call may have been repeated, but each answer's usage is counted once.
    assert usage.calls == result.steps + CHILD_STEPS + 1 == job.answers


@pytest.mark.timeout(180)
@pytest.mark.parametrize("step", [2, CHILD_STEP], ids=["in a call", "while a child works"])
@pytest.mark.slow
async def test_a_run_whose_server_does_not_return_can_be_resumed(
    machine: Machine, step: int
) -> None:
    job = Job(at={step: machine.server.kill})
    job.before_end.set()
    async with runtime_at(machine.url, patience=1.0) as runtime:
        with pytest.raises(StoreUnavailable) as raised:
            await runtime.run(job.agent(), "Go.", thread=THREAD)
    assert raised.value.cure
    assert not machine.server.alive
    before = Counter(job.effects)
    assert before[f"{step}.0"] == 1

    await machine.start()
    async with runtime_at(machine.url) as runtime:
        [run] = await runtime.store.of("local").runs.list(thread_id=THREAD)
        assert run.status == "running"
        result = await runtime.resume(run.id, job.agent())

        assert (result.status, result.output, result.steps) == ("succeeded", "done", STEPS + 1)
        logged = await read_log(runtime)

    of_child = {f"{CHILD_FIRST + number}.2" for number in range(CHILD_STEPS)}
    assert job.effects.keys() == logged.keys()
    for piece, call in logged.items():
        if call.tool == "look":
            assert call.outcome == "ok" and job.effects[piece] in (1, 2)
        else:
            assert call.outcome in ("ok", "interrupted") and job.effects[piece] == 1
    # Only calls under way when the server was killed are uncertain.
    uncertain = {piece for piece, call in logged.items() if call.outcome == "interrupted"}
    assert f"{step}.0" in uncertain
    assert uncertain <= {f"{step}.0", f"{step}.1"} | of_child
