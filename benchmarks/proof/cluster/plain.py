"""Run agents of the cluster in a process without a queue, to compare a worker with it.

python -m benchmarks.proof.cluster.plain AT_ONCE RUNS
"""

from __future__ import annotations

import sys

import anyio

from agent_runtime import Runtime
from benchmarks.proof.cluster.app import app
from benchmarks.proof.cluster.script import task_of


async def _work(at_once: int, runs: int) -> None:
    names = iter([f"r{number:04}" for number in range(runs)])
    async with Runtime.open(program=app.program) as runtime, anyio.create_task_group() as group:

        async def work() -> None:
            for name in names:
                await runtime.run(app.named("alone"), task_of(name, "alone"), user="ann")

        for _ in range(at_once):
            group.start_soon(work)


if __name__ == "__main__":
    anyio.run(_work, int(sys.argv[1]), int(sys.argv[2]))
