"""One of the two processes that act on one thread at the same time; another kills it, or not.

As a program it reads lives from stdin, one as JSON a line, and runs each in a process forked from
this one (what is imported is imported once).  A life writes each of its actions to a file, once
before it acts and once after, so that a kill leaves what it had begun as open.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import orjson

from agent_runtime_storage import UserStore, open_store
from benchmarks.proof.interleavings.history import Op, Side
from benchmarks.proof.interleavings.world import Actor, choose

TASKS = 3
"""How many actions of one process are under way at the same time."""
LONGEST_LIFE = 120
"""Seconds after which a life that hangs is ended by a signal of its own."""


@dataclass(frozen=True, slots=True)
class Life:
    """One process, and whose thread it acts on, until it is killed or told to stop.

    Attributes:
        journal: the file to write its actions to.
        stop: the file whose being there tells it to stop.
    """

    url: str
    owner: str
    name: str
    seed: int
    journal: str
    stop: str


class Journal:
    """The actions of a process, written as they begin and as they end."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115  # it ends with the process

    def note(self, op: Op) -> None:
        """Write what is known of the action now; it survives a kill of this process."""
        self._file.write(orjson.dumps(asdict(op)) + b"\n")


def read_journal(path: Path) -> list[Op]:
    """Return the actions of a process, each as it was last known."""
    found: dict[str, Op] = {}
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    # What follows the last line break was cut short by the kill.
    for line in lines[:-1]:
        op = Op(**orjson.loads(line))
        found[op.id] = op
    return list(found.values())


def until(stop: Path) -> Iterator[int]:
    """Count up until the file is there."""
    numbers = itertools.count()
    while not stop.exists():
        yield next(numbers)


async def live(life: Life) -> None:
    """Act until told to stop."""
    store = await open_store(life.url)
    side = Side(life.name)
    numbers = until(Path(life.stop))
    journal = Journal(life.journal)
    try:
        async with anyio.create_task_group() as group:
            for task in range(TASKS):
                chance = random.Random(f"{life.seed} {life.name} {task}")
                group.start_soon(_act, store.of(life.owner), side, chance, journal, numbers)
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


async def _act(
    user: UserStore, side: Side, chance: random.Random, journal: Journal, numbers: Iterator[int]
) -> None:
    for number in numbers:
        op = Op(f"{side.name}-{number}", choose(chance), side.name, time.monotonic_ns())
        journal.note(op)
        await Actor(user, side, chance, op, journal.note).act()
        journal.note(op)


def _fork(live: Callable[[Life], Awaitable[None]], life: Life) -> int:
    child = os.fork()
    if child:
        return child
    signal.alarm(LONGEST_LIFE)
    code = 0
    try:
        anyio.run(live, life)
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


def serve(live: Callable[[Life], Awaitable[None]]) -> None:
    """Serve lives: a line begins one and is answered with its process id; an empty one waits."""
    children: list[int] = []
    for line in sys.stdin.buffer:
        if line.strip():
            children.append(_fork(live, Life(**orjson.loads(line))))
            answer: list[int] = [children[-1]]
        else:
            answer = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            children.clear()
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve(live)
