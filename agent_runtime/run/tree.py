"""The tree of a run and the runs below it: status, usage and duration of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent_runtime.log import leases
from agent_runtime.log.run_spec import delegation_record
from agent_runtime.models.cost import NANO
from agent_runtime_storage.contract.records.log import Run, RunStatus, StopReason
from agent_runtime_storage.contract.records.usage import UsageTotal
from agent_runtime_storage.contract.store import UserStore

MOST = 10_000
"""The most runs of a tree that are read."""


@dataclass(frozen=True, slots=True)
class TreeRun:
    """A run of a tree.

    Attributes:
        agent: its agent's name; for a sub-agent, its role.
        alive: whether a process works on it; a run that is `running` and not alive was interrupted
            and can be resumed.
        usage: of this run alone.
        duration: seconds from its beginning to its end, or to its newest write.
        task_key: the key under which it was delegated; empty if it was not.
        children: the runs that it began, in that order.
    """

    run_id: str
    thread_id: str
    parent_run_id: str | None
    agent: str
    status: RunStatus
    stop_reason: StopReason | None
    detail: str
    alive: bool
    steps: int
    usage: UsageTotal
    created_at: float
    duration: float
    task_key: str = ""
    children: list[TreeRun] = field(default_factory=list["TreeRun"])

    def __iter__(self) -> Iterator[TreeRun]:
        """Iterate over this run and all below it, each before those below."""
        yield self
        for child in self.children:
            yield from child

    @property
    def cost_usd(self) -> float | None:
        """Dollars that this run alone cost; None if a price is unknown."""
        return None if self.usage.unpriced_calls else self.usage.cost / NANO


async def tree_of(store: UserStore, run_id: str) -> TreeRun:
    """Return a run and all runs below it, as they are now. Raises `NotFound`."""
    top = await store.runs.get(run_id)
    runs = await store.runs.list(root_run_id=top.root_run_id, limit=MOST)
    usage = await store.spending.usage_by_run(top.root_run_id)
    nodes = {run.id: _tree_run(run, usage.get(run.id)) for run in runs}
    for run in sorted(runs, key=lambda run: (run.created_at, run.id)):
        parent = nodes.get(run.parent_run_id or "")
        if parent is not None:
            parent.children.append(nodes[run.id])
    # Of a larger tree the oldest runs were not read, so the run itself may be missing.
    return nodes.get(run_id) or _tree_run(top, usage.get(run_id))


def _tree_run(run: Run, usage: UsageTotal | None) -> TreeRun:
    record = delegation_record(run)
    return TreeRun(
        run_id=run.id,
        thread_id=run.thread_id,
        parent_run_id=run.parent_run_id,
        agent=run.agent,
        status=run.status,
        stop_reason=run.stop_reason,
        detail=run.detail,
        alive=run.status == "running" and not leases.is_dead(run),
        steps=run.steps,
        usage=usage or UsageTotal.of(()),
        created_at=run.created_at,
        duration=(run.finished_at or run.updated_at) - run.created_at,
        task_key=record.key if record else "",
    )
