"""Attack runs by models, tools, files, imports and other users, and see whether promises hold.

Each case tries what a malicious party of SECURITY.md would: imports that start something, approvals
that hide what runs, rules that do not match, paths out of the workspace, commands that look for
keys, slow patterns, forged notes, terminal sequences, inputs of any size, other owners' rows, late
answers, changed archives.  A case that needs a program that is missing says so.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

from benchmarks.backends import empty_databases
from benchmarks.frame import Report
from benchmarks.proof.attack_cases import (
    approvals,
    commands,
    doors,
    files,
    imports,
    inputs,
    owners,
    texts,
)
from benchmarks.proof.attack_cases.world import World
from benchmarks.proof.verdicts import Case, judged

CASES: dict[str, Case[World]] = {
    case.__name__: case
    for room in (imports, approvals, files, commands, texts, inputs, owners, doors)
    for case in room.CASES
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--only", action="append", choices=sorted(CASES), help="may be repeated")


def run(args: argparse.Namespace) -> Report:
    """Run the cases one after the other. Blocks until it is done."""
    # What is refused is logged, too.
    logging.disable(logging.ERROR)
    with empty_databases() as make, tempfile.TemporaryDirectory() as folder:
        return judged("attacks", CASES, args.only or CASES, World(make, Path(folder)))
