"""Kill, block, deceive and starve runs from outside, and see whether the promises hold.

Each case makes one fault: signals with grandchildren, clocks that are an hour off (libfaketime),
machines of one name (namespaces), locked files, a full disk (a small tmpfs), broken connections to
Postgres, a libSQL server that is killed, blocked event loops, hostile tools.  A case that needs
root or a program that is missing says so.
"""

from __future__ import annotations

import argparse

from benchmarks.backends import empty_databases
from benchmarks.frame import Report
from benchmarks.proof.fault_cases.cases import CASES, World
from benchmarks.proof.verdicts import judged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--only", action="append", choices=sorted(CASES), help="may be repeated")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="at a command")
    parser.add_argument(
        "--block", type=float, default=40, metavar="SECONDS", help="for which an event loop stands"
    )


def run(args: argparse.Namespace) -> Report:
    """Run the cases one after the other. Blocks until it is done."""
    with empty_databases() as make:
        world = World(make, args.kills, args.block)
        return judged("faults", CASES, args.only or CASES, world)
