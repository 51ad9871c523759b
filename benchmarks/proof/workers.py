"""Services and workers on one Postgres are killed, stopped, drained and restarted; nothing is lost.

Runs with sub-agents are enqueued through two services and the library, schedules tick, and every
few seconds a worker is killed, stopped for longer than its lease and continued, or drained, and
replaced; services and the database are restarted meanwhile.  Half of the workers have the tokens of
Procrastinate.  The effects of tools are counted in a file of their own, the bill by the server that
plays the model.  With `--hosts` the members live on two hosts: namespaces of the network, of
process ids and of names, with the same host name, and clocks that are an hour ahead and behind.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from pathlib import Path
from typing import get_args

from benchmarks.frame import Report, Row, Target, at_least, at_most
from benchmarks.proof.cluster.campaign import FaultKind, Plan
from benchmarks.proof.cluster.hosts import disturb_hosts
from benchmarks.proof.cluster.world import Outcome, disturb, share
from benchmarks.proof.verdicts import NotHere


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--runs", type=int, default=300, help="apart from their sub-agents")
    parser.add_argument("--workers", type=int, default=4, help="at a time")
    parser.add_argument("--slots", type=int, default=6, help="of each worker")
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two faults")
    parser.add_argument("--pace", type=float, default=1.5, help="seconds between a client's tasks")
    parser.add_argument("--restarts", type=int, default=2, help="of the database")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for all of it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", action="store_true", help="on two hosts; needs root")


def run(args: argparse.Namespace) -> Report:
    """Disturb, and judge. Blocks until it is done."""
    logging.disable(logging.ERROR)
    plan = Plan(
        runs=args.runs,
        workers=args.workers,
        slots=args.slots,
        every=args.every,
        pace=args.pace,
        database_restarts=args.restarts,
        limit=args.limit,
        seed=args.seed,
    )
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    try:
        outcome = disturb_hosts(plan, folder) if args.hosts else disturb(plan, folder)
    except NotHere as error:
        return Report("workers", [{"not run": str(error)}], [Target("hosts", None, "two", False)])
    for violation in outcome.verdict.violations:
        print(violation, file=sys.stderr)
    if outcome.verdict.violations:
        print(f"The journal and the logs are kept in {folder}.", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return report_of(outcome, plan)


def report_of(outcome: Outcome, plan: Plan) -> Report:
    """Return the report of a campaign."""
    verdict = outcome.verdict
    rows: list[Row] = [
        {
            "table": "campaign",
            "seconds": round(outcome.took),
            "processes": outcome.members,
            "runs": verdict.ends,
            "steps": verdict.steps,
            "ticks": verdict.ticks,
            "takeovers": verdict.takeovers,
            "uncertain calls": verdict.interrupted,
            "run again": verdict.repeated,
            "asked again": verdict.asked_again,
            **{f"restarts of a {name}": count for name, count in outcome.restarts.items()},
        }
    ]
    for kind in get_args(FaultKind):
        times = outcome.hand_overs.get(kind, [])
        rows.append(
            {
                "table": "hand-over, from the fault to the next effect",
                "fault": kind,
                "faults": outcome.faults.get(kind, 0),
                "runs": len(times),
                **({"p50 s": round(share(times, 0.5), 2)} if times else {}),
                **({"p99 s": round(share(times, 0.99), 2)} if times else {}),
            }
        )
    most = verdict.settled + verdict.unsettled
    targets = [
        at_least("runs that ended, with sub-agents and ticks", verdict.ends, plan.runs),
        at_most("violations", len(verdict.violations), 0),
        at_least("billed, of what is settled", verdict.billed / max(verdict.settled, 1), 1),
        at_most("billed, of what is settled or unsettled", verdict.billed / max(most, 1), 1),
    ]
    return Report("workers", rows, targets)
