"""A campaign from its first process to its verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import anyio

from agent_runtime import Runtime, Settings
from agent_runtime.testing import OpenAIServer
from agent_runtime_storage import open_store
from benchmarks.proof.cluster.campaign import Campaign, Fault, Plan
from benchmarks.proof.cluster.journal import Fact, read
from benchmarks.proof.cluster.judge import Absence, Bill, Verdict, judge
from benchmarks.proof.cluster.processes import BUDGET, Cluster, Place
from benchmarks.proof.cluster.script import Asked, reply
from tests.services.postgres import CREATOR, PostgresServer

HERE = "127.0.0.1"
Places = Callable[[str, str], Sequence[Place]]
"""Takes the URLs of the database and of the model, as they are here."""


def one_place(database: str, model: str) -> Sequence[Place]:
    """Return this machine."""
    return [Place("here", database, model)]


@dataclass
class Outcome:
    """What became of a campaign.

    Attributes:
        hand_overs: by the kind of the fault, the seconds from it to the next effect of each run
            that its worker had at work, if another worker had it.
        took: seconds of the campaign.
        members: how many processes there were.
    """

    verdict: Verdict
    faults: dict[str, int] = field(default_factory=dict[str, int])
    restarts: dict[str, int] = field(default_factory=dict[str, int])
    hand_overs: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    took: float = 0.0
    members: int = 0


def disturb(
    plan: Plan, folder: Path, places: Places = one_place, networks: Sequence[str] = ()
) -> Outcome:
    """Run a campaign and judge it. Blocks until it is done.

    Args:
        folder: of the journal and the logs; both stay.
        networks: from which the database lets in more than this machine.
    """
    with ExitStack() as stack:
        server = PostgresServer(folder, {"listen_addresses": "*"} if networks else {})
        stack.callback(server.stop)
        with (server.folder / "data" / "pg_hba.conf").open("a") as file:
            file.writelines(f"host all all {network} scram-sha-256\n" for network in networks)
        server.start()
        server.ensure_logins()
        name = server.create(owner=CREATOR)
        cluster = Cluster(folder)
        stack.callback(cluster.end)
        urls = server.url(name, CREATOR), server.url(name)
        return anyio.run(_disturb, plan, cluster, server, urls, places, bool(networks))


async def _disturb(
    plan: Plan,
    cluster: Cluster,
    server: PostgresServer,
    urls: tuple[str, str],
    places: Places,
    everywhere: bool,
) -> Outcome:
    began = time.monotonic()
    settings = Settings(database_url=urls[0], budget_tokens=BUDGET, observer_model="extractive")
    async with OpenAIServer(reply, host="0.0.0.0" if everywhere else HERE) as model:
        async with Runtime.open(settings) as runtime:
            there = places(urls[0], model.base_url.replace("0.0.0.0", HERE))
            campaign = Campaign(plan, cluster, there, server, urls[1], runtime)
            await campaign.run()
        took = time.monotonic() - began
        facts = read(cluster.journal)
        store = await open_store(urls[0])
        try:
            verdict = await judge(
                store, campaign.orders, facts, bills_of(model), list(_absences(cluster))
            )
        finally:
            await store.close()
    verdict.violations[:0] = campaign.stuck
    return Outcome(
        verdict,
        _counted(fault.kind for fault in campaign.faults),
        _counted(campaign.restarts),
        hand_overs(campaign.faults, facts),
        took,
        len(cluster.members),
    )


def bills_of(model: OpenAIServer) -> list[Bill]:
    """Return what the model billed for each request; its script refuses none."""
    return [
        Bill(Asked.of(request.json), usage["prompt_tokens"] + usage["completion_tokens"])
        for request, usage in zip(model.requests, model.billed, strict=True)
    ]


def hand_overs(faults: Sequence[Fault], facts: Sequence[Fact]) -> dict[str, list[float]]:
    """Return the seconds until another worker did something for each run of a fault's worker."""
    found: dict[str, list[float]] = {}
    for fault in faults:
        for run in fault.runs:
            after = [fact for fact in facts if fact["at"] > fault.at and fact.get("run") == run]
            others = [fact["at"] for fact in after if fact["member"] != fault.member]
            if others:
                found.setdefault(fault.kind, []).append(others[0] - fault.at)
    return found


def share(values: Sequence[float], part: float) -> float:
    """Return the smallest value that this part of the values does not exceed."""
    return sorted(values)[max(0, ceil(len(values) * part) - 1)]


def _absences(cluster: Cluster) -> Iterable[Absence]:
    for member in cluster.members:
        for begin, end in member.stopped:
            yield Absence(member.name, begin, end)


def _counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
