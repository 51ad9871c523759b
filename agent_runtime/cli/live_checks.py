"""`doctor --live`: what the database shows of the runs at work, in any process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING

from agent_runtime.cli.check import DoctorCheck
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime_config import Settings
    from agent_runtime_storage import Run

# Rows of one query: more than any database has at work.
MOST = 10_000
SWEEP = "Run `agent-runtime runs sweep --resume`, or let a service sweep (AGENT_RUNTIME_SWEEP)."


async def check_live(settings: Settings) -> list[DoctorCheck]:
    """Check the user's runs that are at work or could go on.

    What only a process itself knows, such as the lag of its event loop, is in `Runtime.health`.
    """
    from agent_runtime.errors import AgentRuntimeError
    from agent_runtime.human.waiting import questions_of
    from agent_runtime.runtime import Runtime

    try:
        async with Runtime.open(settings) as runtime:
            store = runtime.store.of(settings.user)
            runs = await store.runs.list(status=["running", "suspended"], limit=MOST)
            asked = [run for run in runs if run.stop_reason == "awaiting_user"]
            answered = {run.id for run in asked if not await questions_of(store, run.id)}
    except AgentRuntimeError as error:
        return [DoctorCheck("live", "fail", error.message, error.cure)]
    return [*_running(runs), *_waiting(runs, answered)]


def _running(runs: Sequence[Run]) -> Iterator[DoctorCheck]:
    from agent_runtime.log import leases

    by_process: dict[str, list[Run]] = defaultdict(list)
    dead: list[Run] = []
    for run in runs:
        if run.status != "running":
            continue
        if run.owner is None or leases.is_dead(run):
            dead.append(run)
        else:
            by_process[f"{run.owner.host}, process {run.owner.pid}"].append(run)
    for process, working in sorted(by_process.items()):
        late = [run for run in working if not run.lease_live]
        tools = sum(run.open_node is not None for run in working)
        found = f"{process}: {_runs(working)} at work, {tools} of them in tools"
        if late:
            found += f"; {len(late)} leases have expired"
            cure = "Its event loop is blocked, or the database was away; see `Runtime.health`."
            yield DoctorCheck("live", "warn", found, cure)
        else:
            yield DoctorCheck("live", "ok", found)
    if dead:
        cut = sum(run.open_node is not None for run in dead)
        found = f"{_runs(dead)} whose process is gone, {cut} of them in the middle of a call"
        yield DoctorCheck("live", "warn", found, SWEEP)
    elif not by_process:
        yield DoctorCheck("live", "ok", "no run is at work")


def _waiting(runs: Sequence[Run], answered: Set[str]) -> Iterator[DoctorCheck]:
    waiting = [run for run in runs if run.status == "suspended" and run.parent_run_id is None]
    reasons = [(run, "answered" if run.id in answered else run.stop_reason) for run in waiting]
    for reason, why, cure in (
        ("unavailable", "suspended: no model could be reached", SWEEP),
        ("interrupted", "interrupted", SWEEP),
        ("answered", "suspended although no question is open any more", SWEEP),
        (
            "awaiting_user",
            "suspended until a person answers",
            "Answer: `agent-runtime questions` lists them.",
        ),
    ):
        stopped = [run for run, why_not in reasons if why_not == reason]
        if stopped:
            state = "ok" if reason == "awaiting_user" else "warn"
            yield DoctorCheck("live", state, f"{_runs(stopped)} {why}", cure)


def _runs(runs: Sequence[Run]) -> str:
    return counted(len(runs), "run")
