"""What one process holds, and renews: leases for runs of any owner, and shares of rate limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from agent_runtime_storage.contract.records.rate_shares import RateShare


class HeldLease(NamedTuple):
    """A lease that this process holds or held; a takeover raises the epoch."""

    user_id: str
    run_id: str
    epoch: int


class LeaseStore(Protocol):
    """The leases of a process, renewed and polled together.

    A process may work on a thousand runs; a statement for each of them would keep a server busy.
    """

    async def renew(self, leases: Iterable[HeldLease], *, seconds: float) -> set[HeldLease]:
        """Extend the leases; return those that were extended.

        One that is missing from the result was lost, or its run is just being written; `poll`
        tells which.
        """
        ...

    async def poll(self, leases: Iterable[HeldLease]) -> Mapping[HeldLease, bool]:
        """Return the leases that are still held, and for each whether a cancel is requested."""
        ...

    async def owners_at_work(self) -> list[str]:
        """Return the owners that have running or suspended runs, for a sweep over all of them."""
        ...


class RateShareStore(Protocol):
    """The shares of processes in rate limits, which are no owner's."""

    async def renew(
        self, process: str, figures: Mapping[str, str], *, seconds: float
    ) -> Sequence[RateShare]:
        """Replace what a process says of some rate limits; return what all say of these.

        Renewals of one limit run one after another, and each sees the one before.

        Args:
            figures: by place, the digest of a limit's model, host and key.
            seconds: after which those that were not renewed are deleted.
        """
        ...

    async def leave(self, process: str) -> None:
        """Delete what a process said."""
        ...
