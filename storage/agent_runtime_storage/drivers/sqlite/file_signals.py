"""Signals of a database file: what other processes commit is noticed by one look for all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator

from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.drivers.signals import SignalListener, Signals

# One PRAGMA, which reads a counter in shared memory, not the file.
LOOK_SECONDS = 0.2
# Rarely, as the looks notice every commit; it only bounds what a fault of theirs could cost.
_POLL_SECONDS = 30.0


class FileSignals(Signals):
    """Signals that notice the commits of other processes; see `Signals`.

    A server follows thousands of threads, most of them idle: without this each would read the
    database several times a second.  It looks only while somebody listens.

    Args:
        version: returns a number that changes when another connection to the file has committed.
    """

    def __init__(self, version: Callable[[], Awaitable[int]]) -> None:
        super().__init__(poll_seconds=_POLL_SECONDS)
        self._version = version
        self._looking: asyncio.Task[None] | None = None
        self._count = 0

    @contextlib.contextmanager
    def listen(
        self, topic: str, listener: SignalListener | None = None
    ) -> Generator[SignalListener]:
        """Listen to a topic.  Start before reading, or a change in between is missed."""
        self._count += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            with super().listen(topic, listener) as listening:
                yield listening
        finally:
            self._count -= 1

    async def close(self) -> None:
        """End the looks."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look(self) -> None:
        known: int | None = None
        while self._count:
            # A file that cannot be read now is read by the listeners, which tell what is wrong.
            with contextlib.suppress(StoreError):
                version = await self._version()
                # Of the time before the first look nothing is known.
                if version != known:
                    self.hear_all()
                known = version
            await asyncio.sleep(LOOK_SECONDS)
