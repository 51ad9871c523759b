"""Renew the shares of this event loop's limiters, in the database that the processes have."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import defaultdict
from collections.abc import Mapping

import anyio

from agent_runtime.models.rate_limits.limiter import Limiter, limiters_here, sharing
from agent_runtime.models.rate_limits.shares import (
    EXPIRY,
    PERIOD,
    Figures,
    decode_figures,
    encode_figures,
)
from agent_runtime_storage.contract.errors import StoreError
from agent_runtime_storage.contract.leases import RateShareStore
from agent_runtime_storage.contract.records.rate_shares import RateShare

LEAVE_SECONDS = 2.0
"""How long the end of a process waits at most to say that it has ended."""

_log = logging.getLogger(__name__)


class Sharer:
    """Renews shares once a period, while any model is called."""

    def __init__(self, store: RateShareStore) -> None:
        self._store = store
        self._process = secrets.token_hex(8)
        self._wanted = asyncio.Event()
        self._fails = False
        self._joined = False

    async def work(self) -> None:
        """Renew until it is cancelled; errors of the database are logged."""
        try:
            with sharing(self._wanted.set):
                while True:
                    await self._wanted.wait()
                    self._wanted.clear()
                    if await self.renew():
                        # It asked for nothing, because it did not know yet how much there is.
                        await self.renew()
                    # Not all processes at the same instant.
                    await anyio.sleep(PERIOD * random.uniform(0.8, 1.0))
        finally:
            await self._leave()

    async def renew(self) -> bool:
        """Renew the shares that are in use once; return whether to do it again at once."""
        limiters = dict[str, Limiter]()
        for place, limiter in limiters_here().items():
            if (share := limiter.share) is None:
                continue
            if limiter.is_shareable and (share.used or not limiter.idle):
                limiters[place] = limiter
            share.used = False
        if not limiters:
            return False
        try:
            again = await self._renew(limiters)
            self._fails = False
        except StoreError as error:
            again = False
            self._warn(type(error).__name__)
        except Exception:
            again = False
            _log.exception("The shares of rate limits could not be renewed.")
        for limiter in limiters.values():
            limiter.pump()
            if not limiter.idle:
                # What is used all the time does not wake.
                self._wanted.set()
        return again

    async def _renew(self, limiters: Mapping[str, Limiter]) -> bool:
        began = asyncio.get_running_loop().time()
        figures = {place: encode_figures(limiter.figures()) for place, limiter in limiters.items()}
        # Before the write: if its answer is lost, the row may be there all the same.
        self._joined = True
        found = await self._store.renew(self._process, figures, seconds=EXPIRY)
        rows = defaultdict[str, list[RateShare]](list)
        for row in found:
            rows[row.place].append(row)
        again = False
        for place, limiter in limiters.items():
            # The rows are sorted by process, so that all processes agree about whose turn it is.
            mine = [row.process for row in rows[place]].index(self._process)
            said: list[Figures] = [decode_figures(row.figures, row.age) for row in rows[place]]
            again |= limiter.renewed(said, mine, began=began, clock=rows[place][mine].now)
        return again

    def _warn(self, what: str) -> None:
        if not self._fails:
            self._fails = True
            _log.warning(
                "The shares of rate limits could not be renewed, so requests go one by one: %s",
                what,
            )

    async def _leave(self) -> None:
        if not self._joined:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(LEAVE_SECONDS):
            try:
                await self._store.leave(self._process)
            except StoreError:
                # The others notice it a little later.
                return
