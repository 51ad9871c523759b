"""Puts virtual time where the product's worker and keeper of leases ask for the time, or wait.

Only these names are replaced, while worlds run: clocks, waits, tasks, the identity of the process,
and who of its machine has died.  What they do with it is the product's code.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace, TracebackType
from typing import Any
from unittest.mock import patch

from agent_runtime.log import lease_keeper, leases
from agent_runtime.run import takeover
from agent_runtime.run.queue import worker
from agent_runtime_storage.contract.records.log import LeaseOwner
from agent_runtime_storage.log import runs
from benchmarks.proof.simulated.scheduler import Pause, Process, Scheduler, Task

WORKER_POLL = 15.0
KEEPER_POLL = 4.0
"""Longer than the product's, so that a world has fewer idle looks; both are far below a lease."""


class _Cancelled(BaseException):
    """Stands for asyncio's cancellation, which no virtual task gets."""


class _Event:
    """Stands for an event that nobody waits for here."""

    def set(self) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class Seams:
    """The world that the replaced names refer to.

    Attributes:
        chance: decides what the worker leaves to chance.
        processes: all processes of the world by their names, which are the instances of leases.
    """

    scheduler: Scheduler
    chance: random.Random
    processes: dict[str, Process]
    child_agent: Callable[..., Coroutine[Any, Any, Any]]

    def monotonic(self) -> float:
        """Return the time by the clock of the process at work."""
        process = self.scheduler.current
        return self.scheduler.now * process.rate + process.ahead

    def owner(self) -> LeaseOwner:
        """Return the process at work."""
        return self.scheduler.current.owner

    def is_gone(self, owner: LeaseOwner) -> bool:
        """Return whether an owner of the same machine is known to have ended."""
        found = self.processes.get(owner.instance)
        same = owner.machine == self.scheduler.current.machine
        return same and found is not None and not found.alive

    def start(self, work: Coroutine[Any, Any, Any]) -> Task:
        """Start a task of the process at work."""
        return self.scheduler.spawn(self.scheduler.current, work)


class _Group:
    """Stands for a task group of one process, of whose tasks only the first is waited for."""

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self.cancel_scope = SimpleNamespace(cancel=lambda: None)

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Start a task."""
        self._seams.start(function(*args))

    async def __aenter__(self) -> _Group:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        del kind, error, trace


async def _no_message(*_: object) -> None:
    """Deliver nothing: background tasks of simulated runs send no message."""


def _no_deadline(*_: object, **__: object) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def seams(the: Callable[[], Seams]) -> Generator[None]:
    """Replace the names until the context ends; `the` returns the world of the moment."""

    async def child_agent(*args: Any) -> Any:
        return await the().child_agent(*args)

    def start(work: Coroutine[Any, Any, Any]) -> Task:
        return the().start(work)

    def uniform(low: float, high: float) -> float:
        return the().chance.uniform(low, high)

    def is_gone(owner: LeaseOwner) -> bool:
        return the().is_gone(owner)

    clock = SimpleNamespace(monotonic=lambda: the().monotonic())
    waits = SimpleNamespace(
        Event=_Event,
        sleep=Pause,
        create_task_group=lambda: _Group(the()),
        get_cancelled_exc_class=lambda: _Cancelled,
        move_on_after=_no_deadline,
    )
    tasks = SimpleNamespace(Event=_Event, create_task=start)
    luck = SimpleNamespace(uniform=uniform)
    replaced: tuple[tuple[Any, str, Any], ...] = (
        (worker, "anyio", waits),
        (worker, "time", clock),
        (worker, "random", luck),
        (worker, "POLL_SECONDS", WORKER_POLL),
        (worker, "child_agent", child_agent),
        (worker, "deliver_end", _no_message),
        (worker._log, "disabled", True),  # pyright: ignore[reportPrivateUsage]
        (lease_keeper, "anyio", waits),
        (lease_keeper, "asyncio", tasks),
        (lease_keeper, "time", clock),
        (lease_keeper, "POLL_SECONDS", KEEPER_POLL),
        (lease_keeper._log, "disabled", True),  # pyright: ignore[reportPrivateUsage]
        (takeover, "anyio", waits),
        (runs, "time", clock),
        (leases, "this_process_owner", lambda: the().owner()),
        (leases, "is_gone", is_gone),
    )
    with ExitStack() as stack:
        for where, name, value in replaced:
            stack.enter_context(patch.object(where, name, value))
        yield
