"""What all transports of a model share: arguments, facts, and the retries of a call."""

from __future__ import annotations

import functools
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from typing import TypedDict

import anyio
import anyio.to_thread

from agent_runtime.errors import ModelStalled
from agent_runtime.messages import FileKind
from agent_runtime.models.access import ModelAccess
from agent_runtime.models.base import (
    ModelAnswer,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    Price,
    Retrying,
)
from agent_runtime.models.catalog import model_info
from agent_runtime.models.error_mapping import AttemptFailure
from agent_runtime.models.pricing.charge import cost_of

FIRST_WAIT = 0.5
"""Seconds: the first retry waits a random time up to this, each further one up to twice that."""
LONGEST_WAIT = 60.0
"""Seconds: no wait before a retry is longer, whatever `retry-after` asks for."""


class ModelOptions(TypedDict, total=False):
    """The arguments of `LiteLLMModel`, which says what each means, without its name."""

    base_url: str | None
    api_key: str | None
    first_byte_timeout: float
    idle_timeout: float
    retries: int
    price: Price | None
    window: int | None
    max_output: int | None
    takes: Iterable[FileKind] | None
    local_only: bool


class ProviderModel(ABC):
    """A language model of a provider, called over the network.

    Its arguments are described where users look for them, at `LiteLLMModel`.

    Raises:
        ConfigError: the name is empty.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        first_byte_timeout: float = 120.0,
        idle_timeout: float = 60.0,
        retries: int = 4,
        price: Price | None = None,
        window: int | None = None,
        max_output: int | None = None,
        takes: Iterable[FileKind] | None = None,
        local_only: bool = False,
    ) -> None:
        self._access = ModelAccess.of(
            name, base_url=base_url, api_key=api_key, local_only=local_only
        )
        self._name = self._access.name
        self._first_byte_timeout = first_byte_timeout
        self._idle_timeout = idle_timeout
        self._retries = retries
        self._known = functools.partial(
            model_info,
            self._name,
            price=price,
            window=window,
            max_output=max_output,
            takes=None if takes is None else tuple(takes),
            base_url=base_url,
        )
        self._info: ModelInfo | None = None

    @property
    def name(self) -> str:
        """litellm's name of the model."""
        return self._name

    async def info(self) -> ModelInfo:
        """Return window, output limit and price; reads the table of models on first use."""
        if self._info is None:
            self._info = await anyio.to_thread.run_sync(self._known)
        return self._info

    @abstractmethod
    async def check(self) -> None:
        """Check that the model can be called, without calling it.

        Raises:
            RealModelForbidden: it may not be called.
            ModelAuthError: its key is missing.
        """

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        """Call the model; retry failures that may pass.

        Raises (from the iterator):
            RealModelForbidden, ModelAuthError, ModelNotFound, ModelRejected, ModelOverflow: at
                once.
            ModelUnavailable, ModelStalled, ModelProtocolError: after all retries.
        """
        async with aclosing(self._events(request)) as events:
            yield events

    @abstractmethod
    def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Call the model, with retries."""


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
    # The first attempt, then the retries.
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
    # Figures that contradict each other, such as more cached tokens than there are, settle
    # nothing.
    if event.usage is None or not event.usage.possible:
        return replace(event, usage=None, lost=lost)
    return replace(event, cost=cost_of(info.price, event.usage, service), lost=lost)
