"""How a process's runtime is doing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Health:
    """How a runtime is doing, as its own process sees it.

    Attributes:
        running: runs at work in this process, child runs included.
        waiting: runs that wait to be admitted (`AGENT_RUNTIME_MAX_RUNS`).
        background: tasks in the background: background runs, observations in progress.
        open_exchanges: runs whose tools are at work.
        loop_lag_p50, loop_lag_p99: seconds by which the event loop was late, over the last minutes.
        lease_age: seconds since the lease was renewed that was renewed longest ago.
        leases_lost: how many runs other processes have taken over from this one.
        closing: whether it admits no more runs.
        problems: what is wrong, each as a sentence with its cure.
    """

    running: int
    waiting: int
    background: int
    open_exchanges: int
    loop_lag_p50: float
    loop_lag_p99: float
    lease_age: float
    leases_lost: int
    closing: bool
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems
