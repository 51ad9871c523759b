"""One of two processes that act on one thread at the same time; its parent may kill it.

As a program it takes a world's module, reads lives from stdin as lines of JSON, and runs each in a
fork of itself, so that imports happen once.  A life writes each action to a file before and after
it acts: after a kill, an unfinished action is left open.
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
from benchmarks.proof.interleavings.harness import Action, World
from benchmarks.proof.interleavings.history import Journal, Op, choose

RETRY_SECONDS = 0.01
"""How long a process waits before it retries what a dead process holds; nothing expires it earlier.
"""
LONGEST_LIFE = 120
"""Seconds after which a signal ends a hanging life."""


@dataclass(frozen=True, slots=True)
class Life:
    """A process that acts on a thread until it is killed or stopped.

    Attributes:
        journal: the file of its actions.
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
        # A model takes some time, in which the other process can act.
        await anyio.sleep(pauses.choice((0, 0, 0.001, 0.004 if what == "answer" else 0.02)))

    async def work() -> None:
        for number in numbers:
            chance = random.Random(f"{life.seed} {life.name} {number}")
            op = Op(f"{life.name}-{number}", choose(kind.weights, chance), life.name)
            journal.op(op)
            await world.act(Action(op, store, chance, pause, journal.op))
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
    # Not `sys.exit`: the handlers and buffers of the parent are copied here.
    os._exit(code)


def serve(kind: type[World]) -> None:
    """Serve lives: a line starts one and is answered with its process id; an empty line waits."""
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
