"""Sends requests to a server in a few lanes: one that goes carries several of those that wait.

Every request costs the client and the server far more than what it carries, and more of them at
once cost more each.  So no more than a few are on their way, and each carries what came meanwhile.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from agent_runtime_storage.drivers.libsql.error_mapping import TransientFailure
from agent_runtime_storage.drivers.shielding import wait_shielded

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(eq=False, slots=True)
class _Job(Generic[Item, Answer]):
    item: Item
    size: int
    answer: asyncio.Future[Answer]


class Sender(Generic[Item, Answer]):
    """What is on its way to a server, and what waits for it; it belongs to one event loop.

    Args:
        deliver: sends some items and returns for each its answer or its error; or raises for all.
        lanes: how many requests are on their way at once.
        group: how many items a request carries at most.
        abandon: whether an item that was sent may be left alone when its sender is cancelled.
        group_bytes: from which size on a request carries no further item.
    """

    def __init__(
        self,
        deliver: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        *,
        lanes: int,
        group: int,
        abandon: bool,
        group_bytes: int = 2**20,
    ) -> None:
        self._deliver = deliver
        self._lanes = lanes
        self._group = group
        self._abandon = abandon
        self._group_bytes = group_bytes
        self._waiting: deque[_Job[Item, Answer]] = deque()
        self._sent: dict[asyncio.Task[None], list[_Job[Item, Answer]]] = {}

    @property
    def waiting(self) -> int:
        """How many items are not on their way yet."""
        return len(self._waiting)

    async def send(self, item: Item, size: int) -> Answer:
        """Send an item of about so many bytes and return the answer.

        Cancelled before it is on its way, it is withdrawn.  After that it is abandoned if that is
        allowed; else its answer is awaited, and then the cancellation goes on.

        Raises:
            Failure, StoreError: there is no answer.
        """
        job = _Job(item, size, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._fill()
        try:
            return await asyncio.shield(job.answer)
        except asyncio.CancelledError:
            if job in self._waiting:
                self._waiting.remove(job)
                job.answer.cancel()
            elif self._abandon:
                job.answer.cancel()
                self._drop_request_of(job)
            else:
                await wait_shielded(job.answer)
                job.answer.exception()
            raise

    async def close(self) -> None:
        """Wait until everything that is on its way has its answer."""
        while self._sent:
            await wait_shielded(next(iter(self._sent)))

    def _fill(self) -> None:
        while self._waiting and len(self._sent) < self._lanes:
            jobs = [self._waiting.popleft()]
            size = jobs[0].size
            while self._waiting and len(jobs) < self._group:
                size += self._waiting[0].size
                if size > self._group_bytes:
                    break
                jobs.append(self._waiting.popleft())
            task = asyncio.create_task(self._run(jobs))
            self._sent[task] = jobs
            task.add_done_callback(self._ended)

    def _drop_request_of(self, job: _Job[Item, Answer]) -> None:
        """End the request that carries the job if nobody waits for any part of it."""
        for task, jobs in self._sent.items():
            if job in jobs and all(other.answer.done() for other in jobs):
                task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._sent[task]
        self._fill()

    async def _run(self, jobs: Sequence[_Job[Item, Answer]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = await self._deliver([job.item for job in jobs])
        except asyncio.CancelledError:
            # Nobody waits any more, or the event loop is being torn down.
            _settle(jobs, [TransientFailure("lost", "the program ended") for _ in jobs])
            raise
        except Exception as error:
            answers = [copy.copy(error) for _ in jobs]
        _settle(jobs, answers)


def _settle(jobs: Sequence[_Job[Item, Answer]], answers: Sequence[Answer | Exception]) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        if job.answer.done():
            continue
        if isinstance(answer, Exception):
            job.answer.set_exception(answer)
        else:
            job.answer.set_result(answer)
