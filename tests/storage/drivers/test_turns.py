"""What becomes ready at once is spread over turns of the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_runtime_storage.drivers.protocol import Statement
from agent_runtime_storage.drivers.sqlite.driver import SqliteDriver
from agent_runtime_storage.drivers.turns import MOST, Turns


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
