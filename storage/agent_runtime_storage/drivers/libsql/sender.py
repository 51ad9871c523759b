"""Sends batches to a server that writes one at a time: a few requests, each with what waits.

More writers at once make such a server slower, and its lock a lottery.  So no more than a couple
of requests are on their way, and each carries several of the batches that waited meanwhile; every
batch is still a transaction of its own.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agent_runtime_storage.drivers.waiting import outlast

from .failures import Failure
from .hrana import BatchAnswer, Plan, Step, StepResult


class Transport(Protocol):
    """A way to a server."""

    async def query(self, step: Step) -> StepResult:
        """Run one reading statement.

        Raises:
            Failure, StoreError: there is no answer.
        """
        ...

    async def write(self, plans: Sequence[Plan]) -> list[BatchAnswer | Exception]:
        """Run batches one after another, and return for each its answer or its error.

        Raises:
            Failure, StoreError: there is no answer to any of them.
        """
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...


class _Job(NamedTuple):
    plan: Plan
    answer: asyncio.Future[BatchAnswer]


class Sender:
    """The batches on their way, and those that wait for it; it belongs to one event loop.

    Args:
        lanes: how many requests are on their way at once.
        group: how many batches a request carries at most.
        group_bytes: from which size on a request carries no further batch.
    """

    def __init__(
        self, transport: Transport, *, lanes: int = 2, group: int = 8, group_bytes: int = 2**20
    ) -> None:
        self._transport = transport
        self._lanes = lanes
        self._group = group
        self._group_bytes = group_bytes
        self._waiting: deque[_Job] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many batches are not on their way yet."""
        return len(self._waiting)

    async def send(self, plan: Plan) -> BatchAnswer:
        """Send a batch and return the answer.

        Cancelled before it is on its way, it is withdrawn; after that its answer is awaited, and
        then the cancellation goes on.

        Raises:
            Failure, StoreError: there is no answer.
        """
        job = _Job(plan, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._fill()
        try:
            return await asyncio.shield(job.answer)
        except asyncio.CancelledError:
            if job in self._waiting:
                self._waiting.remove(job)
                job.answer.cancel()
            else:
                await outlast(job.answer)
                job.answer.exception()
            raise

    async def close(self) -> None:
        """Wait until everything has its answer."""
        while self._tasks:
            await outlast(next(iter(self._tasks)))

    def _fill(self) -> None:
        while self._waiting and len(self._tasks) < self._lanes:
            jobs, size = [self._waiting.popleft()], 0
            while self._waiting and len(jobs) < self._group:
                size += jobs[-1].plan.size
                if size + self._waiting[0].plan.size > self._group_bytes:
                    break
                jobs.append(self._waiting.popleft())
            task = asyncio.create_task(self._deliver(jobs))
            self._tasks.add(task)
            task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._fill()

    async def _deliver(self, jobs: Sequence[_Job]) -> None:
        answers: Sequence[BatchAnswer | Exception]
        try:
            answers = await self._transport.write([job.plan for job in jobs])
        except asyncio.CancelledError:
            # The event loop is being torn down.
            _settle(jobs, [Failure("lost", "the program ended") for _ in jobs])
            raise
        except Exception as error:
            answers = [copy.copy(error) for _ in jobs]
        _settle(jobs, answers)


def _settle(jobs: Sequence[_Job], answers: Sequence[BatchAnswer | Exception]) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        if job.answer.done():
            continue
        if isinstance(answer, Exception):
            job.answer.set_exception(answer)
        else:
            job.answer.set_result(answer)
