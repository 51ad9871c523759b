# ruff: noqa: ASYNC110, ASYNC221, ASYNC240 - no event loop of a run is blocked here
"""The cases: each makes one fault and returns what was broken; nothing if the promise held."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import psycopg

from agent_runtime import Agent, Runtime, Settings, tool
from agent_runtime.models.scripted import ScriptedModel, calls, raw_call, say
from agent_runtime_storage.contract.records.log import ACTIVE
from agent_runtime_storage.urls import Backend
from benchmarks.proof.fault_cases.processes import Worker, alive, swept, worker
from benchmarks.proof.verdicts import Case, NotHere
from tests.services.libsql import LibsqlServer
from tests.services.process import MissingPart

END_SECONDS = 3.0
"""Seconds within which a killed runtime's commands have to be gone."""
HOUR = 3600


@dataclass(frozen=True, slots=True)
class World:
    """What cases work with.

    Attributes:
        make: returns the URL of a new database.
        kills: how often the runtime is killed at a command.
        block: seconds for which the event loop is blocked; a lease lasts 30.
    """

    make: Callable[[Backend], str]
    kills: int
    block: float


async def commands_end_with_the_runtime(world: World) -> list[str]:
    """SIGKILL of the runtime ends a command's children, also those of `setsid` and `nohup`."""
    return await _children_end("command", world)


async def background_commands_end_with_the_runtime(world: World) -> list[str]:
    """SIGKILL of the runtime ends the children of a command that it keeps in the background."""
    return await _children_end("background", world)


async def _children_end(mode: str, world: World) -> list[str]:
    faults: list[str] = []
    for number in range(world.kills):
        with tempfile.TemporaryDirectory() as folder:
            async with worker(mode, world.make("file"), folder) as running:
                await _appears(Path(folder, "ready"))
                pids = [int(pid) for pid in Path(folder, "pids").read_text().split()]
                os.kill(running.process.pid, signal.SIGKILL)
                with anyio.move_on_after(END_SECONDS):
                    while alive(pids):
                        await anyio.sleep(0.05)
            if left := alive(pids):
                faults.append(f"kill {number + 1}: {len(left)} of {len(pids)} children live")
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
    return faults


async def a_blocked_event_loop_keeps_its_run(world: World) -> list[str]:
    """A tool that blocks the event loop for longer than a lease does not lose its run."""
    database = world.make("file")
    async with worker("block", database, str(world.block)) as running:
        await running.until("working")
        taken = await _sweep_until_end(database, running, world.block + 60)
        return taken + await _ended(running)


async def a_clock_ahead_takes_no_live_run(world: World) -> list[str]:
    """A process whose clock is an hour ahead or behind does not take over a live run."""
    library = faketime()
    faults: list[str] = []
    for step in (HOUR, -HOUR):
        database = world.make("file")
        fake = {"LD_PRELOAD": library, "FAKETIME": f"{step:+d}"}
        fake["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
        async with worker("hold", database, "20") as running:
            await running.until("working")
            for _ in range(3):
                if await swept(database, fake):
                    faults.append(f"a sweep at {step:+d} s took the run over")
            faults += await _ended(running)
        database = world.make("file")
        async with worker("hold", database, "600", environment=fake) as running:
            await running.until("working")
            if await swept(database):
                faults.append(f"a sweep took over a run of a clock at {step:+d} s")
            os.kill(running.process.pid, signal.SIGKILL)
            await running.process.wait()
            if not await swept(database):
                faults.append(f"a dead run of a clock at {step:+d} s was not swept at once")
    return faults


async def a_machine_of_the_same_name_keeps_its_run(world: World) -> list[str]:
    """A run in another process-id namespace on a machine of the same name is left alone."""
    namespace = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
    _require_program("unshare")
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        raise NotHere("unshare is not permitted")
    faults: list[str] = []
    for backend in ("file", "postgres"):
        database = world.make(backend)
        async with worker("hold", database, "12", before=namespace) as running:
            await running.until("working")
            faults += [f"{backend}: {one}" for one in await _sweep_until_end(database, running, 60)]
            faults += await _ended(running)
    return faults


async def a_locked_file_is_waited_for(world: World) -> list[str]:
    """A write lock that another program holds for 20 seconds is waited for."""
    database = world.make("file")
    path = database.removeprefix("file:")
    async with worker("steps", database, "30") as running:
        await running.until("step 10")

        def lock() -> None:
            with sqlite3.connect(path, isolation_level=None, timeout=30) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("SELECT 1")
                time.sleep(20)
                connection.execute("ROLLBACK")
            connection.close()

        await anyio.to_thread.run_sync(lock)
        return await _ended(running)


async def a_full_disk_is_waited_out(world: World) -> list[str]:
    """A run on a full disk goes on once there is room again."""
    del world
    async with _small_disk() as disk:
        database = f"file:{disk / 'log.db'}"
        async with worker("steps", database, "200") as running:
            await running.until("step 10")
            await anyio.to_thread.run_sync(_fill, disk / "ballast")
            await anyio.sleep(8)
            (disk / "ballast").unlink()
            return await _ended(running)


async def a_restarting_postgres_is_waited_for(world: World) -> list[str]:
    """Connections to Postgres that break again and again end no run."""
    database = world.make("postgres")
    async with worker("steps", database, "150") as running:
        await running.until("step 10")

        def cut() -> None:
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )

        for _ in range(25):
            await anyio.to_thread.run_sync(cut)
            await anyio.sleep(0.15)
        return await _ended(running)


async def a_killed_libsql_server_is_waited_for(world: World) -> list[str]:
    """A libSQL server that is killed and comes back, again and again, ends no run."""
    del world
    with tempfile.TemporaryDirectory() as folder:
        try:
            server = LibsqlServer(Path(folder))
        except MissingPart as error:
            raise NotHere(str(error)) from error
        await anyio.to_thread.run_sync(server.start)
        try:
            async with worker("steps", server.http_url, "150") as running:
                await running.until("step 10")
                for _ in range(5):
                    await anyio.to_thread.run_sync(server.kill)
                    await anyio.sleep(1)
                    await anyio.to_thread.run_sync(server.start)
                    await anyio.sleep(1)
                return await _ended(running)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(server.stop)


class Odd(BaseException):
    """A base exception that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


async def hostile_tools_leave_a_valid_log(world: World) -> list[str]:
    """Whatever a tool raises, its run ends and its log is whole."""
    faults: list[str] = []
    raised: Sequence[tuple[str, Callable[[], BaseException]]] = (
        ("SystemExit", SystemExit),
        ("KeyboardInterrupt", KeyboardInterrupt),
        ("GeneratorExit", GeneratorExit),
        ("a base exception without a text", Odd),
        ("CancelledError", anyio.get_cancelled_exc_class()),
    )
    for threaded in (False, True):
        for name, make in raised:
            async with Runtime.open(Settings(database_url=world.make("file"))) as runtime:
                where = f"{name} {'in a thread' if threaded else 'on the event loop'}"
                faults += [f"{where}: {one}" for one in await _hostile(runtime, make, threaded)]
    return faults


async def _hostile(
    runtime: Runtime, make: Callable[[], BaseException], threaded: bool
) -> list[str]:
    @tool
    async def fine() -> str:
        """Return a result."""
        return "fine"

    async def on_the_loop() -> str:
        """Raise."""
        raise make()

    def in_a_thread() -> str:
        """Raise."""
        raise make()

    hostile = tool(in_a_thread if threaded else on_the_loop, name="hostile")
    script = [calls(raw_call("fine"), raw_call("hostile")), say("Done.")]
    agent = Agent(ScriptedModel(script), tools=[fine, hostile])
    with suppress(BaseException):
        await runtime.run(agent, "Work.", thread="t")
    store = runtime.store.of(runtime.settings.user)
    [run] = await store.runs.list(thread_id="t")
    faults = [f"the run is {run.status}"] if run.status in ACTIVE else []
    faults += ["its exchange is open"] if run.open_node is not None else []
    thread = await store.threads.get("t")
    if thread.head is not None:
        nodes = await store.log.branch("t", thread.head)
        if [node.seq for node in nodes] != list(range(1, thread.last_seq + 1)):
            faults.append("a node is not on the branch")
    return faults + [one.detail for one in await runtime.store.maintenance.check()]


CASES: dict[str, Case[World]] = {
    case.__name__: case
    for case in (
        commands_end_with_the_runtime,
        background_commands_end_with_the_runtime,
        a_blocked_event_loop_keeps_its_run,
        a_clock_ahead_takes_no_live_run,
        a_machine_of_the_same_name_keeps_its_run,
        a_locked_file_is_waited_for,
        a_full_disk_is_waited_out,
        a_restarting_postgres_is_waited_for,
        a_killed_libsql_server_is_waited_for,
        hostile_tools_leave_a_valid_log,
    )
}


# Parts


async def _sweep_until_end(database: str, running: Worker, seconds: float) -> list[str]:
    """Sweep from other processes until the worker's run has ended."""
    faults: list[str] = []
    with anyio.fail_after(seconds):
        async with anyio.create_task_group() as group:

            async def sweep() -> None:
                while True:
                    if await swept(database):
                        faults.append("another process took the live run over")
                    await anyio.sleep(0.5)

            group.start_soon(sweep)
            await running.until("ended", seconds)
            group.cancel_scope.cancel()
    return faults


async def _ended(running: Worker) -> list[str]:
    """Return a fault unless the worker's run has succeeded, or does now."""
    try:
        line = next((line for line in running.lines if line.startswith("ended")), "")
        line = line or await running.until("ended")
    except (TimeoutError, EOFError) as error:
        return [f"the run did not end: {error}"]
    return [] if line == "ended succeeded" else [f"the run {line}"]


async def _appears(path: Path) -> None:
    with anyio.fail_after(60):
        while not path.exists():
            await anyio.sleep(0.02)


def _require_program(name: str) -> None:
    if shutil.which(name) is None:
        raise NotHere(f"the program {name} is missing")


def faketime() -> str:
    """Return the path of the library that deceives a process about the time. Raises `NotHere`."""
    for folder in Path("/usr/lib").glob("*/faketime"):
        if (library := folder / "libfaketime.so.1").exists():
            return str(library)
    raise NotHere("libfaketime is missing (Debian's package `faketime`)")


@asynccontextmanager
async def _small_disk() -> AsyncGenerator[Path]:
    """Yield a folder on a disk of 16 MiB of its own."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder]
        if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
            raise NotHere("mounting a small disk needs root")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=False)


def _fill(path: Path) -> None:
    """Write a file until the disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
