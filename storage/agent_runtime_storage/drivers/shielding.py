"""Wait for a result under a shield, where cancellation would leave it in doubt."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio


async def wait_shielded(future: asyncio.Future[Any]) -> None:
    """Wait until the future is done, even if the caller is cancelled meanwhile.

    A native asyncio cancellation that arrives meanwhile is raised afterwards.
    """
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        # The scope holds off anyio's cancellations only; `Task.cancel` still interrupts the wait.
        while not future.done():
            try:
                # Awaiting the future itself would cancel it, and raise its error here.
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                interrupted = error
    if interrupted is not None:
        raise interrupted
