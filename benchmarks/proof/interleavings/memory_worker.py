"""One of the two processes that run agents with memory on one thread; another kills it, or not.

As a program it reads lives from stdin, one as JSON a line, and runs each in a process forked from
this one.  A life writes what it does, and each prompt that it sends, to a file before it does so.
"""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path

import anyio
import orjson

from agent_runtime.models.tokens import count_text
from agent_runtime_storage import open_store
from benchmarks.proof.interleavings.memory_world import Actor, Op, Sent, World, choose, quick
from benchmarks.proof.interleavings.worker import Life, serve, until

RETRY_SECONDS = 0.01
"""How long the memory waits for the claim of one that died; nobody expires it meanwhile."""


class Journal:
    """What a process does and sends, written at once."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115  # it ends with the process

    def op(self, op: Op) -> None:
        """Write what is known of an action now."""
        self._file.write(orjson.dumps({"op": asdict(op)}) + b"\n")

    def sent(self, sent: Sent) -> None:
        """Write a prompt."""
        self._file.write(orjson.dumps({"sent": asdict(sent)}) + b"\n")


def read_journal(path: Path) -> tuple[list[Op], list[Sent]]:
    """Return the actions of a process, each as it was last known, and its prompts."""
    ops: dict[str, Op] = {}
    sent: list[Sent] = []
    # What follows the last line break was cut short by the kill.
    for line in path.read_bytes().split(b"\n")[:-1]:
        entry = orjson.loads(line)
        if "op" in entry:
            op = Op(**entry["op"])
            ops[op.id] = op
        else:
            sent.append(Sent(**entry["sent"]))
    return list(ops.values()), sent


async def live(life: Life) -> None:
    """Act until told to stop."""
    quick(RETRY_SECONDS)
    journal = Journal(life.journal)
    chance = random.Random(f"{life.seed} {life.name}")

    async def pause(what: str) -> None:
        # A model takes its time, so that the other process comes between.
        await anyio.sleep(chance.choice((0, 0, 0.001, 0.004 if what == "answer" else 0.02)))

    store = await open_store(life.url)
    world = World(life.name, pause, journal.sent)
    try:
        for number in until(Path(life.stop)):
            op = Op(f"{life.name}-{number}", choose(chance), life.name)
            journal.op(op)
            own = random.Random(f"{life.seed} {op.id}")
            await Actor(store, life.owner, world, own, op).act()
            journal.op(op)
            # While the other one works on the thread there is little to do.
            await anyio.sleep(0.002)
    finally:
        with anyio.CancelScope(shield=True):
            await world.end()
            await store.close()


if __name__ == "__main__":
    count_text("load the vocabulary before the first fork")
    serve(live)
