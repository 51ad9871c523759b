"""Find what runs below a turn's run ask: its sub-agents, and background tasks of its thread.

Their questions are in threads of their own, and a background task may work in another process, so
they are looked for while the turn's run delegates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from agent_runtime.errors import AgentRuntimeError, NotFound
from agent_runtime.human.questions import Question
from agent_runtime.human.waiting import questions_on
from agent_runtime_storage import UserStore
from agent_runtime_storage.contract.records.log import ACTIVE

POLL_SECONDS = 1.0
"""How often they are looked for."""

_log = logging.getLogger(__name__)


async def asked_below(store: UserStore, thread: str) -> list[Question]:
    """Return the open questions of the runs below those of a thread, oldest first."""
    return [one for one in await questions_on(store, thread) if one.thread_id != thread]


async def watch_below(
    store: UserStore, thread: str, delegates: anyio.Event, tell: Callable[[Question], None]
) -> None:
    """Call `tell` with each question once, until cancelled.

    Args:
        delegates: set once a run of the thread delegates; before that nothing is looked for, unless
            runs below one are at work.
    """
    known: set[str] = set()
    while True:
        try:
            if not delegates.is_set() and not await _has_below(store, thread):
                await delegates.wait()
            for question in await asked_below(store, thread):
                if question.id not in known:
                    known.add(question.id)
                    tell(question)
        except NotFound:
            # The thread is gone, which ends the turn.
            return
        except AgentRuntimeError as error:
            _log.warning("Questions are looked for again: %s", type(error).__name__)
        await anyio.sleep(POLL_SECONDS)


async def _has_below(store: UserStore, thread: str) -> bool:
    return bool(await store.runs.list(parent_thread_id=thread, status=ACTIVE, limit=1))
