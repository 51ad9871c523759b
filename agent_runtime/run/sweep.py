"""The crash sweep: suspend runs whose process is dead, so that they can be resumed.

A run whose process died stays `running` until it is examined.  The sweep examines all runs of an
owner, suspends each and names the tools that were running.  What the run had reserved counts as
spent at its bound; the result of a running tool is `interrupted` when the run is resumed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent_runtime.concurrency import run_shielded
from agent_runtime.delegation.background import is_left
from agent_runtime.errors import Conflict, CorruptThread, LeaseLost, NotFound
from agent_runtime.human.waiting import AWAITING_CHILDREN, questions_of
from agent_runtime.log import leases
from agent_runtime.log.run_log import finish_event
from agent_runtime.log.run_spec import RunSpec, delegation_record
from agent_runtime.run.takeover import end_dead, take_lease
from agent_runtime_storage.contract.records.log import ACTIVE, Commit, Finish, Run
from agent_runtime_storage.contract.store import UserStore

MOST = 10_000
"""The most runs that one sweep examines, the newest first."""
_NAMED = 10
"""The most running tools that a detail names."""

ContinuationWay = Literal["resume", "answer", "root", "task"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep did and found.

    Attributes:
        interrupted: runs that were `running` in a dead process, including sub-agents; they are
            suspended now, and their `detail` names the tools that were running.
        ended: runs that it ended, because their cancellation was requested or they only maintained
            a thread's memory.
        resumable: suspended runs that `resume` can continue at once, the oldest first, whoever
            suspended them; paused runs are left out.
        tasks: background tasks that wait for nobody and that nobody works on, the oldest first;
            `resume` continues each with the agent that delegated it.
    """

    interrupted: tuple[Run, ...]
    ended: tuple[Run, ...]
    resumable: tuple[Run, ...]
    tasks: tuple[Run, ...] = ()


async def sweep(store: UserStore) -> Sweep:
    """Suspend an owner's runs whose process is dead; see `Sweep`.

    The sweep takes each run's lease, so only one of several sweeps suspends it, and a process that
    only seemed dead can write nothing for it any more.

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
                    ended.append(await store.runs.get(run.id))
                else:
                    await _suspend(store, run)
                    interrupted.append(await store.runs.get(run.id))
            except (LeaseLost, Conflict, NotFound):
                # Another process was faster: it took the run over, ended it or deleted its thread.
                continue
            except CorruptThread as error:
                _log.warning("Run %s was not swept: %s", run.id, error.message)
    return Sweep(tuple(interrupted), tuple(ended), *await _resumable(store))


async def continuation_of(store: UserStore, run: Run) -> ContinuationWay | None:
    """Return how a run that nobody works on can continue; None if it is running or over.

    By `resume`; after an `answer` to a question of its own or of a run below it; with its `root`;
    or, for a background `task`, by a resume with the agent that delegated it.
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
    """Return the runs that are `running` in a dead process."""
    return [
        run for run in await store.runs.list(status=["running"], limit=MOST) if leases.is_dead(run)
    ]


async def _suspend(store: UserStore, run: Run) -> None:
    finish = Finish("suspended", "interrupted", await _detail(store, run))
    # Shielded to the end: with the lease taken and nothing committed, the run would seem to be at
    # work in this process.
    lease, cancelled = await run_shielded(take_lease(store, run))
    leaving = store.runs.commit(lease, Commit(finish=finish, events=(finish_event(finish),)))
    _, again = await run_shielded(leaving)
    if (interruption := cancelled or again) is not None:
        raise interruption


async def _detail(store: UserStore, run: Run) -> str:
    owner = run.owner
    where = f" ({owner.pid} on {owner.host})" if owner is not None else ""
    detail = f"The process that worked on it is gone{where}."
    if run.open_node is None:
        return detail
    node = await store.log.node(run.thread_id, run.open_node)
    tools = [call.tool for call in node.calls if call.status == "started"]
    if not tools:
        return detail
    more = f" and {len(tools) - _NAMED} more" if len(tools) > _NAMED else ""
    return f"{detail} Interrupted, with an unverified effect: {', '.join(tools[:_NAMED])}{more}."


async def _resumable(store: UserStore) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Return the suspended runs that can be continued by themselves, and the tasks among them."""
    resumable: list[Run] = []
    tasks: list[Run] = []
    for run in reversed(await store.runs.list(status=["suspended"], limit=MOST)):
        if run.stop_reason in ("paused", AWAITING_CHILDREN):
            continue
        match await continuation_of(store, run):
            case "resume":
                resumable.append(run)
            case "task" if await is_left(store, run):
                tasks.append(run)
            case _:
                continue
    return tuple(resumable), tuple(tasks)
