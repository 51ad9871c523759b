"""Run worlds by their seeds, one after another, on one database in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.proof.simulated.database import SimulatedDatabase
from benchmarks.proof.simulated.seams import Seams, seams
from benchmarks.proof.simulated.world import SMALL, Size, Verdict, World


def run_worlds(seeds: Iterable[int], size: Size = SMALL) -> Iterator[Verdict]:
    """Yield the verdict of each seed.  Replaces names of the product until it is exhausted."""
    worlds: list[World] = []

    def the() -> Seams:
        return worlds[-1].seams

    database = SimulatedDatabase()
    with seams(the):
        for seed in seeds:
            worlds[:] = [World(database, seed, size)]
            yield worlds[0].run()
