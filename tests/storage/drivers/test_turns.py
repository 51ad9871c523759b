"""What becomes ready at once is spread over turns of the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from agent_runtime_storage.drivers.protocol import ConstraintFailed, Row, Statement
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from agent_runtime_storage.drivers.turns import MOST, Turns
from tests.server.serving import until


class TurnCounter:
    """Counts the turns of the event loop, and what is noted in each."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.noted = [0]
        self._next()

    def _next(self) -> None:
        self.noted.append(0)
        self._handle = self._loop.call_soon(self._next)

    def note(self) -> None:
        self.noted[-1] += 1

    def stop(self) -> None:
        self._handle.cancel()


async def test_calls_keep_their_order_and_a_few_are_made_in_each_turn() -> None:
    turns, counter, made = Turns(asyncio.get_running_loop(), 3), TurnCounter(), list[int]()
    everything = asyncio.Event()

    def make(number: int) -> None:
        made.append(number)
        counter.note()
        if number == 19:
            everything.set()

    for number in range(10):
        turns.call(make, number)
    await asyncio.sleep(0)
    for number in range(10, 20):
        turns.call(make, number)
    await everything.wait()
    counter.stop()
    assert made == list(range(20))
    assert max(counter.noted) == 3


async def test_many_answers_of_a_file_do_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    driver = await SqliteDriver.open(tmp_path / "a.db")
    try:
        await driver.batch([Statement("CREATE TABLE t (n INTEGER)", {})])
        counter = TurnCounter()

        async def write(number: int) -> None:
            await driver.batch([Statement("INSERT INTO t VALUES (:n)", {"n": number})])
            counter.note()

        async def read() -> None:
            await driver.read("SELECT count(*) FROM t", {})
            counter.note()

        await asyncio.gather(*(write(number) for number in range(200)), *(read() for _ in "x" * 99))
        counter.stop()
    finally:
        await driver.close()
    assert sum(counter.noted) == 299
    # Of those answered in one turn and the next, tasks may go on together.
    assert max(counter.noted) <= 2 * MOST


async def test_what_is_durable_is_announced_before_the_turns_of_the_writers(tmp_path: Path) -> None:
    driver = await SqliteDriver.open(tmp_path / "a.db")
    order: list[tuple[str, int]] = []
    try:
        await driver.batch([Statement("CREATE TABLE t (n INTEGER UNIQUE)", {})])

        async def write(number: int) -> None:
            insert = Statement("INSERT INTO t VALUES (:n) RETURNING n", {"n": number})

            def announce(rows: list[list[Row]]) -> None:
                order.append(("announced", int(str(rows[0][0][0]))))
                if number == 1:
                    raise RuntimeError("A listener's mistake must not hold up the writers.")

            await driver.batch([insert], announce=announce)
            order.append(("went on", number))

        other: Any = apsw.Connection(str(tmp_path / "a.db"))
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(write(0))
        writer: Any = driver
        await asyncio.sleep(0)
        await until(lambda: not writer._writer.waiting)
        # The thread has begun with the first one; the others become one group.
        writers = asyncio.gather(first, *map(write, range(1, 40)))
        await asyncio.sleep(0)
        other.execute("COMMIT")
        other.close()
        await writers
        heard = [place for place, (what, _) in enumerate(order) if what == "announced"]
        assert [order[place][1] for place in heard] == list(range(40))
        # The last one is heard before anyone of its group goes on.
        assert heard[-1] <= 40
        order.clear()
        with pytest.raises(ConstraintFailed):
            await write(7)
        assert not order
    finally:
        await driver.close()
