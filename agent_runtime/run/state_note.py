"""The state note: restates at each activation what is current in a run, apart from its task."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import anyio
import anyio.to_thread

from agent_runtime.messages import encodable
from agent_runtime.models.tokens import count_text
from agent_runtime.tools.context import StateFunction, ToolContext
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
    texts: list[str] = []
    for function in functions:
        text = await _text_of(function, context)
        if text.strip():
            texts.append(encodable(text.strip()))
    return _limited("\n\n".join(texts))


async def _text_of(function: StateFunction, context: ToolContext) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        with anyio.fail_after(SECONDS):
            if is_async(function):
                text = await cast(Any, function)(context)
            else:
                call = cast(Any, function)
                # Nothing can stop a thread, so one that takes too long is left behind.
                text = await anyio.to_thread.run_sync(call, context, abandon_on_cancel=True)
    except TimeoutError:
        _log.warning("The state function %s took longer than %g seconds.", name, SECONDS)
        return ""
    except Exception as error:
        # The note only restates what is in the log, so a failure must not end the run.
        _log.warning("The state function %s failed: %s", name, type(error).__name__)
        return ""
    return text if isinstance(text, str) else ""


def _limited(text: str) -> str:
    # Counting megabytes would block the event loop, and what comes after this cannot fit.
    sample = text[: TOKENS * 20]
    tokens = count_text(sample)
    if tokens <= TOKENS and len(sample) == len(text):
        return text
    chars = len(sample) * TOKENS // max(tokens, TOKENS)
    return f"{text[:chars]}\n[... {len(text) - chars:,} more characters ...]"
