"""What the clients of recall's models share: a pause after a failure, and the run that pays.

All runs of a runtime share one client, so a model that is down is not called by each of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from agent_runtime.errors import (
    LeaseLost,
    ModelError,
    ModelProtocolError,
    ModelStalled,
    ModelUnavailable,
)
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.accounting import record_failed_calls, reserve_for_memory
from agent_runtime.models.base import Checkable
from agent_runtime.models.telemetry.tally import TALLY
from agent_runtime_storage.contract.records.log import Amount
from agent_runtime_storage.contract.records.usage import Usage

T = TypeVar("T")

BACKOFF_SECONDS = 60.0
"""How long a failed model is not called."""
TOKEN_RATIO = 2
"""Upper bound of the model's tokens per token of ours, for reservations."""


class ProviderClient:
    """The state of a model that runs share.

    Args:
        name: under which its usage is stored.
        purpose: of its usage.
        seconds: timeout of a call that names none.
        role: what the settings call it.
        gives: what an answer consists of.
    """

    def __init__(self, name: str, purpose: str, *, seconds: float, role: str, gives: str) -> None:
        self.name = name
        self.seconds = seconds
        self._purpose = purpose
        self._role = role
        self._gives = gives
        self._retry_at = 0.0
        self._failure: Exception | None = None
        self._reported = False

    @property
    def down(self) -> bool:
        """Whether the model failed within the last `BACKOFF_SECONDS`."""
        return anyio.current_time() < self._retry_at

    def back_off(self, failure: Exception) -> None:
        """Make no calls for `BACKOFF_SECONDS`."""
        self._failure = failure
        self._retry_at = anyio.current_time() + BACKOFF_SECONDS

    def worked(self) -> None:
        """Note that the model answered."""
        # A failure of the store is not mended by the model's answer.
        if isinstance(self._failure, ModelError):
            self._failure, self._reported = None, False

    def first_report(self) -> bool:
        """Return True on the first call since the model last worked."""
        reported, self._reported = self._reported, True
        return not reported

    def check_up(self) -> None:
        """Raise `ModelUnavailable` if the model failed a moment ago."""
        if self.down and self._failure is not None:
            raise ModelUnavailable(f"{self.name} failed a moment ago: {self._failure}")

    async def answered(
        self, model: object, call: Callable[[], Awaitable[T]], seconds: float | None
    ) -> T:
        """Return the model's answer within some seconds.

        Raises:
            ModelError: it refuses, fails, or takes longer.
        """
        limit = self.seconds if seconds is None else seconds
        try:
            if isinstance(model, Checkable):
                # Outside of the timeout: loading litellm takes seconds, once.
                await model.check()
            with anyio.move_on_after(limit):
                return await call()
        except ModelError:
            raise
        except Exception as error:
            # A bug in the model must not end the run.
            raise ModelProtocolError(
                f"{self.name} failed unexpectedly: {type(error).__name__}.", lost=1
            ) from error
        raise ModelStalled(
            f"{self.name} gave no {self._gives} within {limit:g} s.",
            cure=f"Check the {self._role}, or raise AGENT_RUNTIME_{self._role.upper()}_TIMEOUT and "
            "AGENT_RUNTIME_SEMANTIC_RECALL_TIMEOUT.",
            lost=1,
        )

    async def reserve(self, log: RunLog, bound: Amount) -> Amount:
        """Reserve the most that a call may cost; nothing for a run that has ended.

        Raises:
            BudgetExceeded: the run's budget does not allow the call.
        """
        if log.ended:
            return Amount()
        try:
            await reserve_for_memory(log, bound)
        except LeaseLost:
            return Amount()
        return bound

    async def record(self, log: RunLog, usage: Sequence[Usage], *, held: Amount, lost: int) -> None:
        """Record what a call cost, and release what was reserved for it."""
        if not log.ended:
            try:
                await record_failed_calls(log, usage, held=held, lost=bool(lost))
                return
            except LeaseLost:
                # The run ended during the call.
                pass
        if usage:
            await log.store.spending.record_late(log.lease, usage)
            for one in usage:
                TALLY.spent(one)

    def usage(self, log: RunLog, *, tokens: int, counted: int, cost: int | None) -> Usage:
        """Return the usage of a call.

        Args:
            tokens: as the provider reported them.
            counted: as we count them.
            cost: in nanodollars; None if the price is unknown.
        """
        return Usage(
            run_id=log.lease.run_id,
            root_run_id=log.lease.root_run_id,
            node_id=None,
            purpose=self._purpose,
            model=self.name,
            prompt_tokens=tokens,
            cached_tokens=0,
            cache_write_tokens=0,
            completion_tokens=0,
            counted_tokens=counted,
            cost=cost,
        )
