"""Kill, block, deceive and starve runs from outside, and see whether the promises hold.

Each case makes one fault: signals with grandchildren, clocks that are an hour off (libfaketime),
machines of one name (namespaces), locked files, a full disk (a small tmpfs), broken connections to
Postgres, blocked event loops, hostile tools.  A case that needs root or a program that is missing
says so.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

import anyio

from benchmarks.backends import empty_databases
from benchmarks.frame import Report, Row, at_most
from benchmarks.proof.fault_cases.cases import CASES, Case, NotHere, World


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--only", action="append", choices=sorted(CASES), help="may be repeated")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="at a command")
    parser.add_argument(
        "--block", type=float, default=40, metavar="SECONDS", help="for which an event loop stands"
    )


def run(args: argparse.Namespace) -> Report:
    """Run the cases one after the other. Blocks until it is done."""
    rows: list[Row] = []
    violations = 0
    with empty_databases() as make:
        world = World(make, args.kills, args.block)
        for name in args.only or CASES:
            begun = time.monotonic()
            verdict, found = _judged(CASES[name], world)
            violations += len(found)
            for one in found:
                print(f"{name}: {one}", file=sys.stderr)
            rows.append(
                {
                    "case": name,
                    "promise": (CASES[name].__doc__ or "").strip(),
                    "verdict": verdict,
                    "what happened": "; ".join(found[:3]),
                    "seconds": round(time.monotonic() - begun, 1),
                }
            )
    return Report("faults", rows, [at_most("broken promises", violations, 0)])


def _judged(case: Case, world: World) -> tuple[str, list[str]]:
    try:
        found = anyio.run(case, world)
    except NotHere as error:
        return f"not run: {error}", []
    except Exception as error:
        traceback.print_exception(error)
        return "broken", [f"{type(error).__name__}: {error}"]
    return ("broken" if found else "held"), found
