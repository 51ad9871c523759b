"""One of the two processes that act on one thread at the same time; another kills it, or not.

As a program it takes the module of a world, reads lives from stdin, one as JSON a line, and runs
each in a process forked from this one, so that what is imported is imported once.  A life writes
each action to a file before it acts and after: a kill leaves what it had begun as open.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import anyio
import orjson

from agent_runtime_storage import open_store
from benchmarks.proof.interleavings.harness import World
from benchmarks.proof.interleavings.history import Journal, Op

RETRY_SECONDS = 0.01
"""How long a process waits for what a dead one holds; nobody expires it meanwhile."""
LONGEST_LIFE = 120
"""Seconds after which a signal ends a life that hangs."""


@dataclass(frozen=True, slots=True)
class Life:
    """One process that acts on a thread until it is killed or stopped.

    Attributes:
        journal: the file to write its actions to.
        stop: the file whose existence stops it.
    """

    url: str
    owner: str
    name: str
    seed: int
    journal: str
    stop: str


def _until(stop: Path) -> Iterator[int]:
    numbers = itertools.count()
    while not stop.exists():
        yield next(numbers)


async def live(kind: type[World], life: Life) -> None:
    """Act until stopped."""
    kind.prepare(RETRY_SECONDS)
    journal = Journal(life.journal)
    world = kind(life.owner)
    world.on_sent = journal.sent
    numbers = _until(Path(life.stop))
    pauses = random.Random(f"{life.seed} {life.name}")

    async def pause(what: str) -> None:
        # A model takes its time, so that the other process comes between.
        await anyio.sleep(pauses.choice((0, 0, 0.001, 0.004 if what == "answer" else 0.02)))

    async def work() -> None:
        for number in numbers:
            chance = random.Random(f"{life.seed} {life.name} {number}")
            op = Op(f"{life.name}-{number}", world.choose(chance), life.name)
            journal.op(op)
            await world.act(op, store, chance, pause=pause, note=journal.op)
            journal.op(op)
            await anyio.sleep(kind.odds.rest)

    store = await open_store(life.url)
    try:
        async with anyio.create_task_group() as group:
            for _ in range(kind.odds.tasks):
                group.start_soon(work)
    finally:
        with anyio.CancelScope(shield=True):
            await world.close()
            await store.close()


def _fork(kind: type[World], life: Life) -> int:
    child = os.fork()
    if child:
        return child
    signal.alarm(LONGEST_LIFE)
    code = 0
    try:
        anyio.run(live, kind, life)
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


def serve(kind: type[World]) -> None:
    """Serve lives: a line begins one and is answered with its process id; an empty one waits."""
    children: list[int] = []
    for line in sys.stdin.buffer:
        if line.strip():
            children.append(_fork(kind, Life(**orjson.loads(line))))
            answer = [children[-1]]
        else:
            answer = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            children.clear()
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    kind: type[World] = import_module(sys.argv[1]).WORLD
    kind.prepare()
    serve(kind)
