"""Admit runs to a process: up to a limit, the others in order, and none once it closes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from agent_runtime.errors import RuntimeClosed, WrongLoop
from agent_runtime_storage.drivers.turns import Turns

Waiting = Callable[[int], None]
"""Called with the number of runs that are ahead when a run has to wait."""

_inside: ContextVar[Admission | None] = ContextVar("agent_runtime_admission", default=None)


class Admission:
    """The runs that a process has admitted, bound to the event loop that they first run on.

    Of runs that come at once, a few begin in each turn of the event loop.

    Runs below others do not wait, nor do those that a tool begins with the same runtime: a run that
    waits for them would otherwise hold the place that they need.

    Args:
        most: how many may work at once; None for any number.

    Attributes:
        working: how many work.
        closed: whether no more are admitted.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self.working = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self.closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns: Turns | None = None

    @property
    def waiting(self) -> int:
        """How many runs wait for a place."""
        return len(self._queue)

    def check_loop(self) -> None:
        """Check that this is the runtime's event loop; the first one that calls this is.

        Raises:
            WrongLoop: it is another one.
        """
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise WrongLoop(
                "This runtime is used from another event loop than the one it was opened on.",
                cure="Open a runtime in each event loop, or call this one by "
                "`asyncio.run_coroutine_threadsafe` on its own loop.",
            )

    @asynccontextmanager
    async def admitted(self, waiting: Waiting = lambda ahead: None) -> AsyncGenerator[None]:
        """Wait for a place, and hold it until the context ends.

        Raises:
            RuntimeClosed: the runtime is closed, or was closed meanwhile.
            WrongLoop: it is used from another event loop.
        """
        self.check_loop()
        if self.closed:
            raise RuntimeClosed(
                "This runtime is closed, or about to be: it begins no more runs.",
                cure="Open another runtime, and resume there what was interrupted.",
            )
        # The context variable is inherited by the tasks that a run starts, so its children see it
        # too.
        if self._is_full and _inside.get() is not self:
            waiting(len(self._queue))
            await self._wait()
        else:
            self._take()
        token = _inside.set(self)
        try:
            await self._begin()
            yield
        finally:
            _inside.reset(token)
            self._give_back()

    @property
    def _is_full(self) -> bool:
        return self._most is not None and self.working >= self._most

    async def idle(self) -> None:
        """Wait until no run works."""
        await self._idle.wait()

    def close(self) -> None:
        """Refuse further runs, and those that wait."""
        self.closed = True
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_exception(
                    RuntimeClosed(
                        "The runtime was closed before this run began.",
                        cure="Start it again in another process.",
                    )
                )

    async def _begin(self) -> None:
        """Wait for the event loop's turn in which this run may begin."""
        if self._turns is None:
            self._turns = Turns(asyncio.get_running_loop())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A run that was cancelled meanwhile does not come.
        self._turns.call(lambda: turn.done() or turn.set_result(None))
        await turn

    async def _wait(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place in self._queue:
                self._queue.remove(place)
            elif place.done() and not place.cancelled() and place.exception() is None:
                # It got the place and was cancelled in the same turn of the event loop.
                self._give_back()
            raise

    def _take(self) -> None:
        self.working += 1
        self._idle.clear()

    def _give_back(self) -> None:
        self.working -= 1
        while self._queue and not self._is_full:
            place = self._queue.popleft()
            if not place.done():
                # Taken on its behalf, so that a run that comes now does not overtake it.
                self._take()
                place.set_result(None)
                return
        if not self.working:
            self._idle.set()
