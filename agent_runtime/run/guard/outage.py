"""Wait while a run's model is unavailable, then suspend the run."""

from __future__ import annotations

import random
from dataclasses import dataclass

import anyio

from agent_runtime.errors import ModelUnavailable
from agent_runtime.models.cost import scale_amount
from agent_runtime.run.reservation import Reservation
from agent_runtime_storage.contract.records.log import Amount, Commit, Finish, NewEvent

FIRST_WAIT = 5.0
"""Seconds before the first new try; each further wait is up to twice as long."""
LONGEST_WAIT = 60.0


@dataclass(slots=True)
class ModelOutage:
    """How long the model of a run has been unavailable.

    The transport has made its own retries by then, within seconds; an outage lasts minutes.

    Attributes:
        limit: seconds after which the run is suspended; 0 to fail at once.
        since: when it began.
        step: the step that it keeps the run from making; -1 before the first outage.
        tries: how often that step was tried since.
    """

    reservation: Reservation
    limit: float
    since: float = 0.0
    step: int = -1
    tries: int = 0

    async def wait(self, error: ModelUnavailable) -> Finish | None:
        """Wait before the step is tried again; return how the run ends once that took too long.

        Raises:
            ModelUnavailable: nobody waits for it; or it is a sub-agent's run, which fails, so that
                the run that delegated the task decides.
        """
        log, now = self.reservation.log, anyio.current_time()
        if not self.limit:
            raise error
        # What the call had reserved is free for other runs meanwhile.
        lost = scale_amount(log.reserved or Amount(), self.reservation.lost)
        await log.write(Commit(release=log.reserved, unsettle=lost))
        self.reservation.recorded()
        if self.step != log.steps:
            # The model has answered since the last outage.
            self.since, self.step, self.tries = now, log.steps, 0
        left = self.since + self.limit - now
        if left <= 0:
            if log.lease.is_child:
                raise error
            detail = f"{error.message} It stayed so for {self.limit:g} s."
            return Finish("suspended", "unavailable", detail)
        self.tries += 1
        longest = min(FIRST_WAIT * 2 ** (self.tries - 1), LONGEST_WAIT)
        # Random, so that many runs that failed together do not come back together.
        wait = min(random.uniform(longest / 2, longest), left)
        data = {"reason": error.message, "attempt": self.tries, "wait": wait, "outage": True}
        log.tell(NewEvent("model-retry", data=data))
        await anyio.sleep(wait)
        return None
