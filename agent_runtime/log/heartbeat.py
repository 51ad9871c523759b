"""Renew the leases of a runtime's runs from a thread while its event loop is blocked."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio
import anyio.to_thread

from agent_runtime.log import leases
from agent_runtime_storage import Store
from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.contract.records.log import Lease

_log = logging.getLogger(__name__)


class LeaseHeartbeat:
    """A thread that renews leases whenever the event loop does not respond.

    Each run renews its own lease (`run.lifecycle.watch_lease`) unless a tool blocks the event loop.
    Then the thread renews them all over its own connection.  It ignores a lease that was lost: the
    run notices as soon as the loop continues.

    Args:
        connect: opens the store again, for the thread's own event loop.
    """

    def __init__(self, connect: Callable[[], Awaitable[Store]]) -> None:
        self._connect = connect
        self._leases: dict[tuple[str, str], Lease] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def renewing(self, user_id: str, lease: Lease) -> Generator[None]:
        """Renew a lease until the context ends; call it from the event loop."""
        if self._thread is None:
            loop = asyncio.get_running_loop()
            # A daemon, because a program may exit without closing its runtime.
            self._thread = threading.Thread(
                target=self._work, args=(loop,), name="agent-runtime-leases", daemon=True
            )
            self._thread.start()
        self._leases[user_id, lease.run_id] = lease
        try:
            yield
        finally:
            self._leases.pop((user_id, lease.run_id), None)

    async def close(self) -> None:
        """End the thread, and wait until it has ended."""
        self._closing.set()
        if self._thread is not None:
            await anyio.to_thread.run_sync(self._thread.join)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        # A blocked loop is noticed within a third of a lease's time.  Its runs renewed theirs at
        # most another third before, so a third is left to renew them from here.
        alive = threading.Event()
        while not self._closing.wait(leases.LEASE_SECONDS / 6):
            if not self._leases:
                continue
            alive.clear()
            try:
                loop.call_soon_threadsafe(alive.set)
            except RuntimeError:
                # The loop was closed with the runtime open: its runs are over.
                return
            if not alive.wait(leases.LEASE_SECONDS / 6) and not self._closing.is_set():
                anyio.run(self._renew)

    async def _renew(self) -> None:
        seconds = leases.LEASE_SECONDS
        try:
            # A database that does not answer must not keep `close` waiting for the thread.
            with anyio.move_on_after(seconds / 3):
                store = await self._connect()
                try:
                    for (user_id, _), lease in list(self._leases.items()):
                        await _renew_one(store, user_id, lease, seconds)
                finally:
                    with anyio.CancelScope(shield=True):
                        await store.close()
        except Exception as error:
            # The next round retries.  The error's text may contain a secret of the URL.
            _log.warning("The leases could not be renewed: %s", type(error).__name__)


async def _renew_one(store: Store, user_id: str, lease: Lease, seconds: float) -> None:
    try:
        await store.of(user_id).runs.renew_lease(lease, seconds=seconds)
    except StoreError as error:
        # The other leases still have to be renewed.
        _log.info("The lease of run %s was not renewed: %s", lease.run_id, type(error).__name__)
