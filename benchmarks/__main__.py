"""`python -m benchmarks NAME [--data DIR] [--json FILE|-] [OPTIONS]` runs one benchmark.

Without a name it lists the benchmarks by room.  Missed targets are shown and do not fail the
command.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from agent_runtime.errors import AgentRuntimeError
from benchmarks.frame import benchmarks, load, show

FILE_WIDTH = 160
"""Columns of the tables if the output is not a terminal."""


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark that the arguments name; return the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("python -m benchmarks NAME [--data DIR] [--json FILE|-] [OPTIONS]\n")
        known = benchmarks()
        width = max(map(len, known), default=0)
        for room, names in itertools.groupby(known, key=lambda name: known[name].room):
            print(f"{room}:")
            for name in names:
                print(f"  {name:{width}}  {known[name].summary}")
        return 0
    try:
        return _run(arguments[0], arguments[1:])
    except AgentRuntimeError as error:
        print(error, file=sys.stderr)
        return 1


def _run(name: str, arguments: Sequence[str]) -> int:
    benchmark = load(name)
    parser = argparse.ArgumentParser(f"python -m benchmarks {name}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of recorded runs")
    parser.add_argument("--json", metavar="FILE|-", help="write the report as JSON")
    benchmark.add_arguments(parser)
    args = parser.parse_args(arguments)
    report = benchmark.run(args)
    if args.json == "-":
        sys.stdout.buffer.write(report.to_json())
        return 0
    if args.json:
        Path(args.json).write_bytes(report.to_json())
    show(report, Console(width=None if sys.stdout.isatty() else FILE_WIDTH))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
