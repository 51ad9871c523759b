"""Send requests to a server in a few lanes, several items in each request.

A request costs client and server far more than its content, and concurrent requests cost more each.
So only a few are in flight, and each carries the items that arrived meanwhile.
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
    """The requests in flight and the items that wait, bound to one event loop.

    Args:
        deliver: sends items and returns for each its answer or its error; raises if all fail.
        lanes: the number of concurrent requests.
        group: the most items in a request.
        abandon: whether cancelling abandons an item that was sent, instead of awaiting its answer.
        group_bytes: the size in bytes from which a request takes no further item.
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
        """The number of items that have not been sent."""
        return len(self._waiting)

    async def send(self, item: Item, size: int) -> Answer:
        """Send an item and return the answer; `size` is its approximate size in bytes.

        Cancelling withdraws an item that was not sent.  One that was sent is abandoned if allowed,
        else its answer is awaited first.

        Raises:
            Failure, StoreError: no answer came.
        """
        job = _Job(item, size, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._fill()
        try:
            # Shielded: the request also carries the items of others, and the outcome of a write has
            # to be known.
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
                # Retrieved, or asyncio would log the error that the cancellation replaces.
                job.answer.exception()
            raise

    async def close(self) -> None:
        """Wait until everything in flight is answered."""
        # One at a time, as a request that ends sends what waits.
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
        """Cancel the job's request if none of its items is awaited any more."""
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
            # The caller has left, or the event loop is shutting down.
            _settle(jobs, [TransientFailure("lost", "the program ended") for _ in jobs])
            raise
        except Exception as error:
            # One object raised in several tasks would collect all their tracebacks.
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
