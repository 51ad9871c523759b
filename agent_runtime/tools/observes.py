"""What a tool of one's own tells memory of a call: a verdict, a change, or several of them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

import anyio

from agent_runtime.concurrency import run_in_daemon_thread
from agent_runtime.messages import Change, Observed, ToolResult, Verdict, encodable
from agent_runtime.prompt.text import one_line, shorten

_log = logging.getLogger(__name__)

Observes: TypeAlias = Callable[[dict[str, Any], ToolResult], "Observed | Iterable[Observed] | None"]
"""Returns what a call with these arguments and this result shows."""

MOST = 100
"""Verdicts and changes of one call that are kept."""
CHARS = 400
"""Characters of each text in them."""
SECONDS = 2.0
"""Time that the function has; then it is abandoned."""


async def observing(
    observes: Observes, arguments: dict[str, Any], result: ToolResult
) -> ToolResult:
    """Return the result with what the call shows; unchanged if the function fails or hangs.

    Cancellation: waits for the function, as the call has had its effect and its result counts.
    """

    def run() -> tuple[Observed, ...]:
        found = observes(arguments, result)
        several = (found,) if isinstance(found, Verdict | Change) else found or ()
        return bounded(several)

    # In a thread, since its patterns meet texts of others; with a limiter of its own, so that
    # neither busy tools nor functions that hang hold it up.
    with anyio.move_on_after(SECONDS, shield=True):
        try:
            kept = await run_in_daemon_thread(run, anyio.CapacityLimiter(1))
        except Exception as error:
            # A bug in it must not fail a call that has had its effect.
            _log.warning("`observes` of a tool failed: %s", type(error).__name__)
            return result
        return replace(result, observed=kept) if kept else result
    _log.warning("`observes` of a tool took longer than %g s", SECONDS)
    return result


def bounded(observed: Iterable[Observed]) -> tuple[Observed, ...]:
    """Return what a tool tells within the bounds of the log.

    Raises:
        TypeError: one of them is neither a `Verdict` nor a `Change`.
    """
    return tuple(_bounded(one) for one in itertools.islice(observed, MOST))


def _bounded(one: Observed) -> Observed:
    # Of plain, short texts, which the log can store.
    match one:
        case Verdict():
            failing = tuple(_text(name) for name in one.failing[:MOST])
            return Verdict(_text(one.check), bool(one.passed), failing, _text(one.detail))
        case Change():
            return Change(_text(one.target), _text(one.what))
    raise TypeError(f"{type(one).__name__} is neither a Verdict nor a Change")


def _text(value: str) -> str:
    return shorten(one_line(encodable(str(value))), CHARS)
