"""Retry a model's call, the same way for every transport."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace

import anyio

from agent_runtime.errors import ModelStalled
from agent_runtime.models.base import ModelAnswer, ModelEvent, ModelInfo, Retrying
from agent_runtime.models.error_mapping import AttemptFailure
from agent_runtime.models.pricing.charge import cost_of

FIRST_WAIT = 0.5
"""Seconds: the first retry waits a random time up to this, each further one up to twice that."""
LONGEST_WAIT = 60.0
"""Seconds: no wait before a retry is longer, whatever `retry-after` asks for."""


class AttemptError(Exception):
    """One attempt failed; it never leaves the transport."""

    def __init__(self, failure: AttemptFailure) -> None:
        super().__init__(failure.error.message)
        self.failure = failure


async def with_retries(
    attempt: Callable[[], AsyncGenerator[ModelEvent]],
    *,
    retries: int,
    info: ModelInfo,
    service: str = "",
) -> AsyncGenerator[ModelEvent]:
    """Call `attempt` until it succeeds; yield its events, with the answer's cost.

    Args:
        attempt: makes one call; raises `AttemptError`.
        service: the service tier that it asks for.

    Raises:
        ModelError: at once where a retry cannot help, else after all retries.
    """
    lost = 0
    for number in range(1, retries + 2):
        try:
            async with aclosing(attempt()) as events:
                async for event in events:
                    yield _priced(event, info, lost, service)
            return
        except AttemptError as failed:
            failure = failed.failure
        lost += failure.billed
        if not failure.retry or number > retries:
            failure.error.lost = lost
            raise failure.error
        wait = wait_before(number, failure)
        yield Retrying(failure.error.message, number, wait, lost)
        await anyio.sleep(wait)


def until(deadline: float) -> AbstractContextManager[anyio.CancelScope]:
    """Return a scope that raises `TimeoutError` at a time of anyio's clock."""
    return anyio.fail_after(max(0.0, deadline - anyio.current_time()))


def stalled(name: str, first_byte: float, idle: float, *, began: bool) -> AttemptFailure:
    """Return the failure of a model that fell silent."""
    if began:
        what = f"{name} fell silent for {idle:g} s in mid-answer."
        variable = "AGENT_RUNTIME_IDLE_TIMEOUT"
    else:
        what = f"{name} sent nothing for {first_byte:g} s."
        variable = "AGENT_RUNTIME_FIRST_BYTE_TIMEOUT"
    error = ModelStalled(what, cure=f"Try again, or raise {variable}.")
    return AttemptFailure(error, retry=True, billed=True)


def wait_before(attempt: int, failure: AttemptFailure) -> float:
    """Return the seconds before the next attempt: what the provider asks, or a random backoff."""
    if failure.wait is not None:
        return min(failure.wait, LONGEST_WAIT)
    # Full jitter: many runs that failed together do not come back together.
    return random.uniform(0.0, min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT))


def _priced(event: ModelEvent, info: ModelInfo, lost: int, service: str) -> ModelEvent:
    if not isinstance(event, ModelAnswer):
        return event
    if event.usage is None:
        return replace(event, lost=lost)
    return replace(event, cost=cost_of(info.price, event.usage, service), lost=lost)
