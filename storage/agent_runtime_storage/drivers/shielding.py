"""Waiting for what must not be left in doubt."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio


async def wait_shielded(future: asyncio.Future[Any]) -> None:
    """Wait until the future is done, whatever is cancelled meanwhile.

    A cancellation of asyncio's own that came meanwhile is raised then.
    """
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                interrupted = error
    if interrupted is not None:
        raise interrupted
