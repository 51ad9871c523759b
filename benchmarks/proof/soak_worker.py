"""The process that `soak` kills: it runs agents, and writes down which events it saw.

python -m benchmarks.proof.soak_worker DATABASE JOURNAL NAME
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import anyio

from agent_runtime import Event, Runtime, StoreError
from benchmarks.proof.soak_agents import agent, settings

CLIENTS = 3


def journal(path: Path) -> dict[str, list[tuple[int, str]]]:
    """Return the events that a killed process saw, by thread."""
    events: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for line in path.read_text().splitlines(keepends=True) if path.exists() else []:
        # The kill may have come in the middle of the last line.
        if line.endswith("\n"):
            thread, number, kind = line.split()
            events[thread].append((int(number), kind))
    return events


async def _work(database: str, path: Path, name: str) -> None:
    with path.open("a", buffering=1) as file:

        def listen(event: Event) -> None:
            if event.id:
                file.write(f"{event.thread_id} {event.id} {event.kind}\n")

        async with Runtime.open(settings(database)) as runtime:

            async def repeat(client: int) -> None:
                number = 0
                while True:
                    number += 1
                    thread = f"{name}-{client}-{number}"
                    # Postgres may be killed while a run begins; that must not cancel the others.
                    with suppress(StoreError):
                        await runtime.run(agent("steps"), "Read.", thread=thread, on_event=listen)

            async with anyio.create_task_group() as group:
                for client in range(CLIENTS):
                    group.start_soon(repeat, client)


if __name__ == "__main__":
    anyio.run(_work, sys.argv[1], Path(sys.argv[2]), sys.argv[3])
