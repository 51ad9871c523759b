"""Index texts again that an earlier version of the runtime indexed, in the background."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from agent_runtime.errors import AgentRuntimeError
from agent_runtime.messages import searchable_body
from agent_runtime_storage import Store, UserStore

START_SECONDS = 3.0
"""The pause before the first text, so that a short command ends without it."""
PORTION = 10
"""Texts that are indexed together; writers of other texts wait for them."""
PAUSES = 4.0
"""How many times as long as its work each pause is, so that runs keep the processor."""

_log = logging.getLogger(__name__)


async def reindex_outdated(store: Store, *, start: float = START_SECONDS) -> None:
    """Index the outdated texts of all owners again, with pauses; failures are logged.

    Each text is replaced by itself, so whoever comes next continues where this is cancelled.
    """
    await anyio.sleep(start)
    with _logged_failure():
        for owner in await store.maintenance.outdated():
            # A text that fails must not keep those of other owners from being found.
            with _logged_failure():
                await _reindex_owner(store.of(owner))


async def _reindex_owner(store: UserStore) -> None:
    began = time.monotonic()
    while await store.upkeep.reindex(searchable_body, limit=PORTION):
        await anyio.sleep(PAUSES * (time.monotonic() - began))
        began = time.monotonic()


@contextmanager
def _logged_failure() -> Generator[None]:
    """Log an error instead of raising it."""
    try:
        yield
    except AgentRuntimeError as error:
        _log.warning(
            "Indexing older texts again failed and is continued by the next process: %s",
            type(error).__name__,
        )
    except Exception:
        _log.exception("Indexing older texts again failed.")
