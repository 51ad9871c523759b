"""Processes that share a database and a key share the provider's rate limits."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from agent_runtime.models.rate_limits import shares
from agent_runtime.models.rate_limits.headers import Limit
from agent_runtime.models.rate_limits.limiter import (
    Limiter,
    Need,
    Ticket,
    limiter_for,
    limiters_here,
)
from agent_runtime.models.rate_limits.sharer import Sharer
from agent_runtime.models.rate_limits.shares import Figure, Figures, Share, grant_of
from agent_runtime.testing.loopback import Json
from agent_runtime_storage import open_store
from tests.models.rate_limits.test_runs import CALLS, steps
from tests.support.processes import program
from tests.support.providers.limited import Bucket, LimitedServer, Said

PROCESSES, RUNS = 4, 6
BUCKET = Bucket(requests=16, seconds=2)
MODULE = "tests.models.rate_limits.caller"


@pytest.mark.slow
@pytest.mark.backends("file", "postgres")
async def test_four_processes_are_hardly_ever_refused(database_url: str) -> None:
    async def script(body: Json) -> Said:
        # As models do, it answers later than the provider counts.
        await anyio.sleep(0.1)
        return steps(body)

    async with LimitedServer("openai", BUCKET, script) as server, AsyncExitStack() as stack:
        arguments = database_url, server.url, "openai", str(RUNS)
        programs = [
            await stack.enter_async_context(program(MODULE, *arguments)) for _ in range(PROCESSES)
        ]
        for one in programs:
            assert await one.line() == {"ready": True}
        before = len(server.served)
        for one in programs:
            await one.say("go")
        for one in programs:
            assert await one.line() == {"done": True}
        served = server.served[before:]
    assert sum(not one.refused for one in served) == PROCESSES * RUNS * (CALLS + 1)
    # Without shares about forty are: each burst meets a limit that the others have used up.
    assert sum(one.refused for one in served) <= 2 * PROCESSES


class Deployment:
    """Limiters as those of several processes, and what they say to each other."""

    def __init__(self, processes: int, left: int, most: int = 100, reset: float = 600.0) -> None:
        self.limiters = [Limiter() for _ in range(processes)]
        self.rows: dict[int, tuple[str, float]] = {}
        self.clock = 1_000_000.0
        for limiter in self.limiters:
            limiter.share = Share(lambda: None)
            # It is known what is left before anybody shares it.
            limiter.share.fresh_until = float("inf")
            ticket = limiter.enter("", Need())
            ticket.limiter.answered(
                ticket, [Limit("requests", most, left, reset)], limited=False, wait=None
            )
            ticket.leave()
            limiter.share.fresh_until = float("-inf")

    def renew(self, number: int) -> bool:
        """Renew the share of one, as a `Sharer` does."""
        limiter = self.limiters[number]
        began = anyio.current_time()
        self.rows[number] = shares.encode_figures(limiter.figures()), began
        said = [
            shares.decode_figures(text, began - at) for _, (text, at) in sorted(self.rows.items())
        ]
        return limiter.renewed(said, sorted(self.rows).index(number), began=began, clock=self.clock)

    def join_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let each find all others."""
        monkeypatch.setattr(shares, "SEEN", 0.0)
        for _ in range(3):
            for number in range(len(self.limiters)):
                self.renew(number)
        monkeypatch.undo()


def enter(limiter: Limiter, count: int) -> list[Ticket]:
    return [limiter.enter("run", Need()) for _ in range(count)]


def passed(tickets: list[Ticket]) -> int:
    return sum(ticket.passed.is_set() for ticket in tickets)


@pytest.mark.parametrize("left", [100, 30, 7, 3, 1, 0])
async def test_no_more_go_than_are_left_whatever_the_order(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment(4, left)
    deployment.join_all(monkeypatch)
    # None of these has a response yet, so nothing says how many others went.
    tickets = [enter(limiter, 50) for limiter in deployment.limiters]
    assert sum(map(passed, tickets)) <= left
    for _ in range(3):
        for number in (2, 0, 3, 1, 1, 2):
            deployment.renew(number)
            assert sum(map(passed, tickets)) <= left
        deployment.clock += shares.PERIOD
    # All of it is used but for what does not divide evenly, which goes by turns.
    assert sum(map(passed, tickets)) >= left - left % 4
    assert all(passed(some) >= left // 4 for some in tickets)


async def test_what_does_not_fit_into_an_even_part_goes_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = Deployment(4, 2, most=2)
    deployment.join_all(monkeypatch)
    tickets = [enter(limiter, 1) for limiter in deployment.limiters]
    assert sum(map(passed, tickets)) == 0
    for _ in range(4):
        for number in range(4):
            deployment.renew(number)
        deployment.clock += shares.PERIOD
    assert sum(map(passed, tickets)) == 2


async def test_who_comes_sends_one_at_a_time_until_the_others_know() -> None:
    deployment = Deployment(2, 100)
    first, second = deployment.limiters
    deployment.renew(0)
    assert not deployment.renew(1)
    tickets = enter(second, 3)
    assert passed(tickets) == 1
    tickets[0].leave()
    assert passed(tickets) == 2
    # The one that was first has left half of it to whoever comes.
    assert passed(enter(first, 100)) <= 50


async def test_a_process_that_is_alone_has_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(1, 100)
    deployment.join_all(monkeypatch)
    assert passed(enter(deployment.limiters[0], 200)) == 100


def figure(
    remaining: int, *, sent: float, heard: float, reset: float = 60.0, pledged: int = 0
) -> Figure:
    return Figure(100, remaining, reset, sent, heard, pledged, 25)


def test_the_newest_response_is_believed_and_of_those_together_the_lowest() -> None:
    old: Figures = {"requests": figure(5, sent=30, heard=29)}
    lower: Figures = {"requests": figure(40, sent=3, heard=1)}
    newest: Figures = {"requests": figure(60, sent=2, heard=1, pledged=9)}
    grant = grant_of("requests", [old, lower, newest], 0, 3)
    assert grant is not None and (grant.newest.remaining, grant.even, grant.free) == (40, 13, 31)
    # After its reset the others have what they said that they would take.
    over: Figures = {"requests": figure(5, sent=3, heard=2, reset=-1, pledged=4)}
    grant = grant_of("requests", [over, over], 0, 2)
    assert grant is not None and (grant.newest.remaining, grant.even, grant.free) == (100, 50, 75)
    assert grant_of("input", [old, lower], 0, 2) is None


def test_figures_of_another_version_count_as_a_process_that_says_nothing() -> None:
    stored = shares.encode_figures({"requests": figure(5, sent=2, heard=1)})
    assert shares.decode_figures(stored, 3.0)["requests"] == Figure(100, 5, 57.0, 5, 4, 0, 25)
    for text in ("", "7", "[]", '{"requests": [1]}', '{"tea": [1, 1, 1, 1, 1, 1, 1]}'):
        assert shares.decode_figures(text, 0.0) == {}


async def test_without_the_database_requests_go_one_by_one(tmp_path: Path) -> None:
    store = await open_store(f"file:{tmp_path / 'run.db'}")
    sharer = Sharer(store.rate_shares)
    limiter = limiter_for("api.example.com", "sk-secret", "m")
    place = next(name for name, one in limiters_here().items() if one is limiter)
    assert limiter.share is None
    second: list[Ticket] = []
    async with anyio.create_task_group() as group:
        group.start_soon(sharer.work)
        await anyio.wait_all_tasks_blocked()
        first = enter(limiter, 3)
        # The first goes at once, the others as soon as the database says that nobody else is there.
        assert passed(first) == 1
        for ticket in first:
            await ticket.turn()
        rows = await store.rate_shares.renew("other", {"place": "{}"}, seconds=60)
        assert [(row.process, row.figures) for row in rows] == [("other", "{}")]
        await store.close()
        share = limiters_here()[place].share
        assert share is not None
        share.fresh_until = 0.0
        await sharer.renew()
        for ticket in first:
            ticket.leave()
        second += enter(limiter, 3)
        assert passed(second) == 1
        group.cancel_scope.cancel()
    # Nobody shares any more.
    assert passed(second) == 3
