"""The crash sweep: runs whose process is gone are left so that they can be gone on with.

A run that died stays `running` until somebody looks at it.  The sweep looks at all of an owner's:
each is suspended, with what was under way, and its thread tells of it.  Nothing is settled that is
not known: what the run had reserved counts as spent at its bound, and a tool that was running is
told to the model as interrupted when the run is resumed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent_runtime.concurrency import run_shielded
from agent_runtime.errors import Conflict, CorruptThread, LeaseLost, NotFound
from agent_runtime.human.waiting import questions_of
from agent_runtime.log import leases
from agent_runtime.log.run_log import finish_event
from agent_runtime.log.run_spec import RunSpec, delegation_record
from agent_runtime.run.takeover import end_dead, take_lease
from agent_runtime_storage.contract.records import ACTIVE, Commit, Finish, Run
from agent_runtime_storage.contract.store import UserStore

MOST = 10_000
"""The most runs that one sweep looks at, the newest first."""
_NAMED = 10
"""So many tools that were under way are named."""

ContinuationWay = Literal["resume", "answer", "root", "task"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep did and found.

    Attributes:
        interrupted: runs that were at work in a process that is gone, sub-agents included; they
            are suspended now, and their `detail` says what was under way.
        ended: runs that nobody would go on with, as they are now: a cancel was asked for, or they
            looked after the memory of a thread.
        resumable: runs that stand still and wait for nobody, by this sweep or since before it, the
            oldest first: `resume` goes on with each.  Those that were paused are left out.
    """

    interrupted: tuple[Run, ...]
    ended: tuple[Run, ...]
    resumable: tuple[Run, ...]


async def sweep(store: UserStore) -> Sweep:
    """Suspend an owner's runs whose process is gone; see `Sweep`.

    A run is taken from its process by its lease, so of several sweeps one takes it, and a process
    that only seemed to be gone can write nothing for it any more.

    Raises:
        StoreError: the store cannot be reached; what was done until then stays.

    Cancellation: between two runs.
    """
    interrupted: list[Run] = []
    ended: list[Run] = []
    for run in await _dead(store):
        with leases.at_work(run.id):
            try:
                if run.cancel_requested or RunSpec.of(run).upkeep:
                    await end_dead(store, run)
                    ended.append(await store.run(run.id))
                else:
                    await _suspend(store, run)
                    interrupted.append(await store.run(run.id))
            except (LeaseLost, Conflict, NotFound):
                # Somebody else was quicker: took it over, ended it, or deleted its thread.
                continue
            except CorruptThread as error:
                _log.warning("Run %s is left as it is: %s", run.id, error.message)
    return Sweep(tuple(interrupted), tuple(ended), await _resumable(store))


async def continuation_of(store: UserStore, run: Run) -> ContinuationWay | None:
    """Return how a run goes on that stands still; None if it is at work, or over.

    `resume`; `answer` a question of its own, or of one below it, first; with its `root`; or, for
    a `task` in the background, when its agent delegates it again.
    """
    if run.status not in ACTIVE or not leases.is_dead(run) or RunSpec.of(run).upkeep:
        return None
    if run.status == "suspended" and await questions_of(store, run.id):
        return "answer"
    if run.parent_run_id is not None:
        record = delegation_record(run)
        return "task" if record is not None and record.background else "root"
    return "resume"


async def _dead(store: UserStore) -> Sequence[Run]:
    """Return the runs that are `running` in a process that is gone."""
    return [run for run in await store.runs(status=["running"], limit=MOST) if leases.is_dead(run)]


async def _suspend(store: UserStore, run: Run) -> None:
    finish = Finish("suspended", "interrupted", await _detail(store, run))
    lease, cancelled = await run_shielded(take_lease(store, run))
    leaving = store.commit(lease, Commit(finish=finish, events=(finish_event(finish),)))
    _, again = await run_shielded(leaving)
    if (interruption := cancelled or again) is not None:
        raise interruption


async def _detail(store: UserStore, run: Run) -> str:
    owner = run.owner
    where = f" ({owner.pid} on {owner.host})" if owner is not None else ""
    detail = f"The process that worked on it is gone{where}."
    if run.open_node is None:
        return detail
    node = await store.node(run.thread_id, run.open_node)
    tools = [call.tool for call in node.calls if call.status == "started"]
    if not tools:
        return detail
    more = f" and {len(tools) - _NAMED} more" if len(tools) > _NAMED else ""
    return f"{detail} Under way, with an effect that nobody saw: {', '.join(tools[:_NAMED])}{more}."


async def _resumable(store: UserStore) -> tuple[Run, ...]:
    found = [
        run
        for run in await store.runs(status=["suspended"], limit=MOST)
        if run.stop_reason != "paused" and await continuation_of(store, run) == "resume"
    ]
    return tuple(reversed(found))
