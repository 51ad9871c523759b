"""The database's server is killed with SIGKILL in the middle of runs: they wait, or can be resumed.

The tools' effects are counted outside of the database, and compared with what the log says.
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
"""The step that has a child run, whose own steps are numbered from `CHILD_FIRST` on."""
CHILD_FIRST = 100
CHILD_STEPS = 4
KILLS = (3, 7, 12, 17, 21)
"""The steps in which a server is killed that comes back at once."""


@dataclass
class Machine:
    """A server of the test's own, and the URL of an empty database on it."""

    server: PostgresServer | LibsqlServer
    url: str
    kills: int = 0

    async def kill(self) -> None:
        """Kill it, and wait until all its processes are gone."""
        self.kills += 1
        await anyio.to_thread.run_sync(self.server.kill)

    async def start(self) -> None:
        """Start it on what it wrote before, and wait until it serves."""
        await anyio.to_thread.run_sync(self.server.start)


@pytest.fixture(params=["libsql-http", "libsql-ws", "postgres"])
def machine(request: pytest.FixtureRequest, start_libsql: StartLibsql) -> Machine:
    """A server that may be killed: it writes as safely as it does where it is used."""
    if request.param == "postgres":
        start_postgres: StartPostgres = request.getfixturevalue("start_postgres")
        server = start_postgres()
        server.ensure_logins()
        return Machine(server, server.url(server.create(owner=CREATOR), CREATOR))
    libsql = start_libsql()
    return Machine(libsql, libsql.ws_url if request.param == "libsql-ws" else libsql.http_url)


async def connect(url: str, patience: float) -> Driver:
    """Connect to a server that is waited for no longer than so many seconds."""
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
    """Open a runtime over a server."""
    driver = await connect(url, patience)
    try:
        await apply_migrations(driver)
        yield Runtime(Settings(database_url=url), SqlStore(driver))
    finally:
        with anyio.CancelScope(shield=True):
            await driver.close()


@dataclass
class Job:
    """An agent that works in steps, each with two calls at once, one of them with a child run.

    Attributes:
        effects: how often each piece of work was done.
        at: what the first call of a step does beside its work.
        asked: how many answers the model gave.
    """

    at: dict[int, Callable[[], object]] = field(default_factory=dict[int, Callable[[], object]])
    effects: Counter[str] = field(default_factory=Counter[str])
    asked: int = 0
    before_end: anyio.Event = field(default_factory=anyio.Event)

    def agent(self) -> Agent:
        """Return the agent, as the same process or another one makes it."""

        @tool
        async def work(piece: str) -> str:
            """Do a piece of work, which takes a moment."""
            self.effects[piece] += 1
            step, _, part = piece.partition(".")
            if part == "0" and int(step) in self.at:
                self.at.pop(int(step))()
            await anyio.sleep(0.01)
            return f"did {piece}"

        @tool(idempotent=True)
        async def look(piece: str) -> str:
            """Look at something, which does no harm twice."""
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
        self.asked += 1
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
        self.asked += 1
        step = next_step(request, CHILD_FIRST)
        if step == CHILD_FIRST + CHILD_STEPS:
            return say("the child's part")
        return calls(raw_call("work", piece=f"{step}.2"))


def next_step(request: ModelRequest, first: int) -> int:
    """Return the number of the step after the last one that the prompt tells of."""
    for message in reversed(request.messages):
        if message.calls:
            return int(str(message.calls[0].arguments["piece"]).partition(".")[0]) + 1
    return first


@dataclass(frozen=True)
class Told:
    """What the log says of a call: its tool, its piece of work, and how it came out."""

    tool: str
    outcome: str
    text: str


async def read_log(runtime: Runtime) -> dict[str, Told]:
    """Return what the log of the whole run tree says of each piece; check that it is whole."""
    store = runtime.store.of("local")
    told: dict[str, Told] = {}
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
            for one in node.calls:
                assert one.status == "done"
                result = decode_result(one.body)
                piece = pieces(node.body)[one.index]
                assert piece not in told
                told[piece] = Told(one.tool, result.outcome, result.text)
    return told


def pieces(body: bytes) -> list[str]:
    """Return the pieces of work that the calls of an answer name."""
    from agent_runtime.messages import AssistantMessage, decode_message

    message = decode_message(body)
    assert isinstance(message, AssistantMessage)
    return [str(one.arguments["piece"]) for one in message.calls]


async def usage_of(runtime: Runtime) -> UsageTotal:
    """Return what the run tree on the thread has used."""
    store = runtime.store.of("local")
    return await store.spending.usage_total(
        root_run_id=(await store.runs.list(thread_id=THREAD))[-1].id
    )


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
async def test_a_run_outlives_a_server_that_is_killed_again_and_again(
    machine: Machine, seed: int
) -> None:
    chance = random.Random(seed)
    reached, due = anyio.create_memory_object_stream[None](len(KILLS))
    job = Job(at=dict.fromkeys(KILLS, lambda: reached.send_nowait(None)))

    async def kill_and_start() -> None:
        async with due:
            async for _ in due:
                # Some instant within this step or the next ones.
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
        told = await read_log(runtime)
        usage = await usage_of(runtime)

    assert job.effects == Counter(told.keys())
    assert len(told) == 2 * STEPS + CHILD_STEPS
    assert {one.outcome for one in told.values()} == {"ok"}
    assert all(one.text == f"did {piece}" for piece, one in told.items() if one.tool != "delegate")
    # A model call may have had to be made again; what was used is counted once for each answer.
    assert usage.calls == result.steps + CHILD_STEPS + 1 == job.asked


@pytest.mark.timeout(180)
@pytest.mark.parametrize("step", [2, CHILD_STEP], ids=["in a call", "while a child works"])
@pytest.mark.slow
async def test_a_run_whose_server_stays_away_can_be_resumed(machine: Machine, step: int) -> None:
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
        told = await read_log(runtime)

    of_child = {f"{CHILD_FIRST + number}.2" for number in range(CHILD_STEPS)}
    assert job.effects.keys() == told.keys()
    for piece, one in told.items():
        if one.tool == "look":
            assert one.outcome == "ok" and job.effects[piece] in (1, 2)
        else:
            assert one.outcome in ("ok", "interrupted") and job.effects[piece] == 1
    # What was under way when the server went away is told as uncertain, and nothing else is.
    uncertain = {piece for piece, one in told.items() if one.outcome == "interrupted"}
    assert f"{step}.0" in uncertain
    assert uncertain <= {f"{step}.0", f"{step}.1"} | of_child
