"""The process that `benchmarks.proof.chaos` kills: an agent's run over a database.

The agent does the same each time: its model answers from its prompt alone.  Every effect of a tool,
and other facts needed after a kill, are lines of a journal in the run's folder, written at once and
without the runtime.  A life ends by itself or by SIGKILL: at the n-th passing of a named point in
this module, or from outside after some seconds.

As a program it reads lives from stdin as lines of JSON, runs each in a fork of itself (so imports
happen once), and answers with how it ended.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Awaitable
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
import anyio.lowlevel
import orjson

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, ToolContext, tool
from agent_runtime.errors import ToolError
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import ModelAnswer, ModelRequest, TokenUsage
from agent_runtime.models.scripted import calls, raw_call, say
from agent_runtime.models.tokens import count_message, count_text, count_tools
from agent_runtime.run.tool_calls import INTERRUPTED
from agent_runtime_storage import (
    ACTIVE,
    Commit,
    Job,
    LateObservation,
    Lease,
    LeaseOwner,
    NewRun,
    Store,
    UserStore,
    open_store,
)
from agent_runtime_storage.contract.runs import JobStore, RunStore
from agent_runtime_storage.urls import Backend, backend_of
from benchmarks.proof.interleavings.memory_actions import MarkedStore

T = TypeVar("T")

THREAD = "chaos"
USER = "local"
TASK = "Do what the plan says."
CHILD_TASK = "Do the child's part."

PLAN: tuple[tuple[str, ...], ...] = (
    ("send",),
    ("put",),
    ("send", "send", "put"),
    ("press",),
    ("press", "fetch"),
    ("no_such_tool", "send"),
    ("fail",),
    ("tell",),
    ("send", "send", "send"),
    ("delegate", "send"),
    ("fetch", "press", "put"),
)
"""The tools that each step calls; then the agent answers."""
CHILD_PLAN: tuple[tuple[str, ...], ...] = (("press", "send"), ("put",))
IDEMPOTENT = frozenset({"put", "fetch"})

_DRIVERS: dict[Backend, tuple[str, ...]] = {
    "file": ("apsw",),
    "libsql-http": ("httpx",),
    "libsql-ws": ("libsql_client",),
    "postgres": ("psycopg",),
}

LONGEST_LIFE = 60
"""Seconds after which a hanging life ends itself by a signal."""


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a run.

    Attributes:
        folder: of the journal, and of the database if there is no URL.
        url: of a database that many runs may share.
        user: the owner of the run in it.
        point: where the process kills itself; empty for nowhere.
        passing: at which passing of the point, from 1.
        after: seconds after which it is killed from outside; None for never.
        trace: whether to journal the points that are passed.
        budget: the tokens that the run tree may use; None for no limit.
        memory: whether observational memory is on, with thresholds that a run reaches.
    """

    folder: str
    url: str = ""
    user: str = USER
    point: str = ""
    passing: int = 1
    after: float | None = None
    trace: bool = False
    budget: int | None = None
    memory: bool = False

    @property
    def database_url(self) -> str:
        """The URL of the run's database."""
        return self.url or f"file:{Path(self.folder, 'run.db')}"


@dataclass(frozen=True, slots=True)
class Death:
    """How a life ended: its signal (0 for none), its exit code, and after how long."""

    signal: int
    code: int
    seconds: float


class World:
    """The outside world: the journal, and the points at which the process may die."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._passed: Counter[str] = Counter()
        # Some tools run in threads, so two may pass a point at once.
        self._lock = threading.Lock()
        path = Path(life.folder, "journal")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, **facts: Any) -> None:
        """Append a line to the journal, by a single write."""
        os.write(self._file, orjson.dumps({"what": what, **facts}) + b"\n")

    def reach(self, point: str) -> None:
        """Pass a point, or die there."""
        with self._lock:
            self._passed[point] += 1
            passing = self._passed[point]
        if self._life.trace:
            self.note("point", point=point, passing=passing)
        if point == self._life.point and passing == self._life.passing:
            os.kill(os.getpid(), signal.SIGKILL)
            # The signal may arrive a little later: nothing may happen until then.
            signal.pause()

    async def around(self, point: str, work: Awaitable[T]) -> T:
        """Await something between two points."""
        self.reach(f"before {point}")
        result = await work
        self.reach(f"after {point}")
        return result

    def effect(self, name: str, context: ToolContext) -> None:
        """Have a tool's effect."""
        self.reach(f"before the effect of {name}")
        self.note("effect", thread=context.thread_id, call=context.call_id, tool=name)
        self.reach(f"after the effect of {name}")


def world_of(context: ToolContext) -> World:
    """Return the run's world."""
    return cast(World, context.deps)


# The agent


@tool
async def send(context: ToolContext) -> str:
    """Send a message: it must not be sent twice."""
    world_of(context).effect("send", context)
    await anyio.lowlevel.checkpoint()
    return "sent"


@tool(idempotent=True)
async def put(context: ToolContext) -> str:
    """Put a value; putting it again does no harm."""
    world_of(context).effect("put", context)
    return "put"


@tool
def press(context: ToolContext) -> str:
    """Press a button, in a thread; it must not be pressed twice."""
    world_of(context).effect("press", context)
    return "pressed"


@tool(idempotent=True)
def fetch(context: ToolContext) -> str:
    """Fetch a page, in a thread; fetching it again does no harm."""
    world_of(context).effect("fetch", context)
    return "a page of text\n" * 1000


@tool
async def fail(context: ToolContext) -> str:
    """Have an effect, then fail."""
    world_of(context).effect("fail", context)
    raise ToolError("it failed after its effect")


@tool
async def tell(context: ToolContext) -> str:
    """Post a message to the run itself."""
    world = world_of(context)
    world.effect("tell", context)
    body = f"posted by {context.call_id}".encode()
    posting = context.store.inbox.post(context.thread_id, "steer", body, run_id=context.run_id)
    await world.around("the post", posting)
    world.note("posted", call=context.call_id)
    return "delivered"


@tool
async def delegate(context: ToolContext) -> str:
    """Have a child run do a part of the work."""
    world = world_of(context)
    world.effect("delegate", context)
    result = await context.run_agent(agent_of(world, child=True), CHILD_TASK)
    return str(result.output)


def agent_of(world: World, *, child: bool = False) -> Agent:
    """Return the agent, or the child that it delegates to."""
    tools = [send, put, press, fetch, fail, tell, delegate]
    plan, name = (CHILD_PLAN, "child") if child else (PLAN, "chaos")

    def respond(request: ModelRequest) -> ModelAnswer:
        world.reach("before the model's answer")
        world.note(
            "prompt",
            thread=request.session,
            messages=list(map(digest, request.messages)),
            sent=[
                (message.role, message.text, [call.id for call in message.calls], message.call_id)
                for message in request.messages
            ],
        )
        so_far = Progress.of(request)
        if so_far.step < len(plan):
            answer = calls(
                *(raw_call(tool_name) for tool_name in plan[so_far.step]), text=so_far.text
            )
        else:
            answer = say(so_far.report)
        prompt = sum(map(count_message, request.messages)) + count_tools(request.tools)
        completion = count_text(answer.text) + 16 * len(answer.calls)
        world.note("billed", tokens=prompt + completion)
        world.reach("after the model's answer")
        return replace(answer, usage=TokenUsage(prompt, completion))

    return Agent(ScriptedModel(respond), tools=tools, instructions="Be exact.", name=name)


def digest(message: PromptMessage) -> str:
    """Return a short digest of a message as sent."""
    return hashlib.blake2b(repr(message).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the run, from the model's last text and the results after it.

    Older messages may have left the prompt, so each answer repeats the sums.
    """

    step: int = 0
    results: int = 0
    interrupted: int = 0

    @classmethod
    def of(cls, request: ModelRequest) -> Progress:
        """Read it from a prompt."""
        step = results = interrupted = 0
        for message in request.messages:
            if message.role == "assistant" and (match := _PROGRESS.fullmatch(message.text)):
                step, results, interrupted = (int(number) for number in match.groups())
            elif message.role == "tool":
                results += 1
                interrupted += INTERRUPTED in message.text
        return cls(step, results, interrupted)

    @property
    def text(self) -> str:
        """The model's text with its next calls."""
        return f"Step {self.step + 1} after {self.report}."

    @property
    def report(self) -> str:
        """The model's last text."""
        return f"{self.results} results, {self.interrupted} interrupted"


_PROGRESS = re.compile(r"Step (\d+) after (\d+) results, (\d+) interrupted\.")


# The points of the store


def kind_of(commit: Commit) -> str:
    """Return the purpose of a commit."""
    kinds = (
        (commit.observation, "an observation"),
        (commit.finish, "the end"),
        (commit.activation, "an activation"),
        (commit.close, "a close"),
        (any(node.tools for node in commit.nodes), "an answer"),
        (commit.start, "a start"),
        (commit.done, "a result"),
        (commit.nodes, "notes"),
        (commit.reserve, "a reservation"),
    )
    return next((kind for part, kind in kinds if part), "an event")


class FaultyUserStore:
    """A store with faulty runs and jobs; everything else is delegated."""

    def __init__(self, store: UserStore, world: World) -> None:
        self._store = store
        self.runs = FaultyRuns(store.runs, world)
        self.jobs = FaultyJobs(store.jobs, world)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class FaultyJobs:
    """Jobs with a point before and after each claim."""

    def __init__(self, jobs: JobStore, world: World) -> None:
        self._jobs = jobs
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    async def claim(self, kind: str, **options: Any) -> Job | None:
        """Claim a job between two points."""
        return await self._world.around("a claim", self._jobs.claim(kind, **options))


class FaultyRuns:
    """Runs with a point before and after each write."""

    def __init__(self, runs: RunStore, world: World) -> None:
        self._runs = runs
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)

    async def begin(self, run: NewRun) -> tuple[Lease, int]:
        """Begin a run between two points."""
        kind = "a child's beginning" if run.parent_run_id else "the beginning"
        return await self._world.around(f"the commit of {kind}", self._runs.begin(run))

    async def take_lease(self, run_id: str, owner: LeaseOwner, **options: Any) -> Lease:
        """Take a run over between two points."""
        taking = self._runs.take_lease(run_id, owner, **options)
        return await self._world.around("the commit of a takeover", taking)

    async def commit_late(self, lease: Lease, commit: LateObservation) -> int:
        """Commit between two points."""
        writing = self._runs.commit_late(lease, commit)
        return await self._world.around("the commit of a late observation", writing)

    async def commit(self, lease: Lease, commit: Commit) -> int:
        """Commit between two points, and journal the calls recorded as done."""
        point = f"the commit of {kind_of(commit)}"
        last = await self._world.around(point, self._runs.commit(lease, commit))
        for call in commit.done:
            self._world.note("done", thread=lease.thread_id, node=call.node_id, index=call.index)
        return last


class FaultyStore:
    """An open store of `FaultyUserStore`s; what concerns all owners is delegated."""

    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def of(self, user_id: str) -> UserStore:
        """Return the store as one owner sees it."""
        return cast(UserStore, FaultyUserStore(self._store.of(user_id), self._world))


# A life


async def live(life: Life) -> None:
    """Begin the run, or take it over from the dead process, and run it to its end."""
    world = World(life)
    store = await open_store(life.database_url)
    try:
        settings = Settings(
            budget_tokens=life.budget,
            user=life.user,
            observational_memory=life.memory,
            loop_limit=0,
            observer_message_tokens=1000,
            reflector_observation_tokens=500,
            last_messages=4 if life.memory else 20,
        )
        marked = cast(Store, MarkedStore(store))
        runtime = Runtime(settings, cast(Store, FaultyStore(marked, world)))
        own = store.of(life.user)
        await own.threads.ensure(THREAD)
        runs = await own.runs.list(thread_id=THREAD)
        if not runs:
            await runtime.run(agent_of(world), TASK, thread=THREAD, deps=world)
        elif runs[0].status in ACTIVE:
            await runtime.resume(runs[0].id, agent_of(world), deps=world)
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


def fork(life: Life) -> Death:
    """Run a life in its own process and wait for its end."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        # Not `sys.exit`: the handlers and buffers of the parent are copied here.
        os._exit(_live_here(life))
    if life.after is not None:
        time.sleep(life.after)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
    return Death(killed, code, time.monotonic() - began)


def _live_here(life: Life) -> int:
    signal.alarm(LONGEST_LIFE)
    try:
        anyio.run(live, life)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@functools.cache
def preload(backend: Backend) -> None:
    """Import everything that a life over such a database needs, before the first fork."""
    count_text("load the vocabulary before the first fork")
    for module in _DRIVERS[backend]:
        import_module(module)


def main() -> None:
    """Run the lives that stdin names."""
    for line in sys.stdin.buffer:
        life = Life(**orjson.loads(line))
        preload(backend_of(life.database_url))
        death = fork(life)
        sys.stdout.buffer.write(orjson.dumps(asdict(death)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
