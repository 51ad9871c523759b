"""The state note: restates at each activation what is current in a run, apart from its task."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import anyio
import anyio.to_thread

from agent_runtime.messages import encodable
from agent_runtime.models.tokens import count_text
from agent_runtime.tools.base import StateFunction, ToolContext
from agent_runtime.tools.signature import is_async

_log = logging.getLogger(__name__)


SECONDS = 5.0
"""Timeout of one state function."""
TOKENS = 2000
"""Limit of the state note, without the task, in our tokens."""


async def state_note(functions: Sequence[StateFunction], context: ToolContext) -> str:
    """Return the functions' texts in their order; empty if all are empty.

    A function that fails or exceeds its timeout is skipped with a warning.
    """
    said: list[str] = []
    for function in functions:
        text = await _said(function, context)
        if text.strip():
            said.append(encodable(text.strip()))
    return _within(said)


async def _said(function: StateFunction, context: ToolContext) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        with anyio.fail_after(SECONDS):
            if is_async(function):
                found = await cast(Any, function)(context)
            else:
                call = cast(Any, function)
                found = await anyio.to_thread.run_sync(call, context, abandon_on_cancel=True)
    except TimeoutError:
        _log.warning("The state function %s took longer than %g seconds.", name, SECONDS)
        return ""
    except Exception as error:
        # What only restates must not end the run.
        _log.warning("The state function %s failed: %s", name, type(error).__name__)
        return ""
    return found if isinstance(found, str) else ""


def _within(said: Sequence[str]) -> str:
    text = "\n\n".join(said)
    # Counting megabytes would hold up the event loop; what comes behind cannot fit.
    looked_at = text[: TOKENS * 20]
    tokens = count_text(looked_at)
    if tokens <= TOKENS and len(looked_at) == len(text):
        return text
    kept = len(looked_at) * TOKENS // max(tokens, TOKENS)
    return f"{text[:kept]}\n[... {len(text) - kept:,} more characters ...]"
