"""The queue: who goes when, by what responses said, in any order of events."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from agent_runtime.models.rate_limits import limiter as limiters
from agent_runtime.models.rate_limits.headers import Kind, Limit
from agent_runtime.models.rate_limits.limiter import KEPT, Limiter, Need, Ticket, limiter_for

HOUR = 3600.0
NEED = Need(prompt=10, fresh=10, max_output=10)


def said(remaining: int, most: int = 10, reset: float = HOUR, kind: Kind = "requests") -> Limit:
    return Limit(kind, most, remaining, reset)


def answer(ticket: Ticket, *limits: Limit) -> None:
    """Play a response to the request, and the end of it."""
    ticket.limiter.answered(ticket, list(limits), limited=False, wait=None)
    ticket.leave()


def gone(tickets: list[Ticket]) -> list[bool]:
    """Return which tickets were let through."""
    return [ticket.passed.is_set() for ticket in tickets]


async def known(*limits: Limit) -> Limiter:
    """Return a limiter that has heard one response."""
    limiter = Limiter()
    answer(limiter.enter("", NEED), *limits)
    return limiter


async def refused_once() -> Limiter:
    """Return a limiter of which one request was refused, without a wait."""
    limiter = await known()
    refused = limiter.enter("", NEED)
    limiter.answered(refused, [], limited=True, wait=None)
    refused.leave()
    return limiter


async def test_before_the_limits_are_known_nothing_waits() -> None:
    limiter = limiter_for("api.example.com", "sk-1", "m")
    tickets = [limiter.enter(f"{n}", NEED) for n in range(20)]
    assert all(gone(tickets))
    answer(tickets[0], said(3))
    # What the others hold counts from now on, though no response says so yet.
    assert "leaves 3 of 10 requests, 19 of them taken" in limiter.enter("x", NEED).reason


async def test_after_a_refusal_one_goes_first_and_the_others_go_by_what_it_says() -> None:
    limiter = await refused_once()
    tickets = [limiter.enter(f"{n}", NEED) for n in range(5)]
    assert gone(tickets) == [True, False, False, False, False]
    assert "goes first" in tickets[1].reason and "3 more wait" in tickets[4].reason
    answer(tickets[0], said(3))
    assert gone(tickets) == [True, True, True, True, False]


async def test_if_the_first_fails_without_a_response_the_next_goes_first() -> None:
    limiter = await refused_once()
    tickets = [limiter.enter("a", NEED) for _ in range(3)]
    tickets[0].leave()
    assert gone(tickets) == [True, True, False]


async def test_the_others_do_not_wait_for_a_next_response_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limiters, "NEXT_RESPONSE", 0.001)
    limiter = await known()
    refused = limiter.enter("", NEED)
    # It said what is left, so that its own wait is over at once.
    limiter.answered(refused, [said(9)], limited=True, wait=None)
    refused.leave()
    tickets = [limiter.enter("a", NEED) for _ in range(3)]
    await tickets[2].turn()
    assert all(gone(tickets))


async def test_requests_wait_until_the_reset() -> None:
    limiter = await known(said(0, most=2, reset=0.5))
    tickets = [limiter.enter("a", NEED) for _ in range(3)]
    assert gone(tickets) == [False, False, False]
    await tickets[1].turn()
    # After it there is as much as the limit allows, and no more.
    assert gone(tickets) == [True, True, False]


@pytest.mark.parametrize("kind", ["input", "produced", "asked"])
async def test_tokens_are_reserved(kind: Kind) -> None:
    limiter = await known(said(45, most=100, kind=kind))
    tickets = [limiter.enter("a", NEED) for _ in range(5)]
    fit = 4 if kind == "input" else 2
    assert gone(tickets) == [True] * fit + [False] * (5 - fit)
    # A response that counts one of them lets others through as far as it says.
    answer(tickets[0], said(45, most=100, kind=kind))
    assert sum(gone(tickets)) == fit + 1


async def test_answers_that_are_being_produced_hold_their_tokens() -> None:
    limiter = await known(said(20, most=100, kind="output"))
    tickets = [limiter.enter("a", NEED) for _ in range(3)]
    assert gone(tickets) == [True, True, False]
    limiter.answered(tickets[0], [said(20, most=100, kind="output")], limited=False, wait=None)
    assert gone(tickets) == [True, True, False]
    tickets[0].finished(5)
    tickets[0].leave()
    # Of 20, 5 are used and 10 held.
    assert gone(tickets) == [True, True, False]
    tickets[1].finished(0)
    tickets[1].leave()
    assert all(gone(tickets))


async def test_what_never_fits_goes_when_all_is_there() -> None:
    limiter = await known(said(50, most=100, reset=0.001, kind="input"))
    huge = limiter.enter("a", Need(prompt=1000, fresh=1000))
    assert not huge.passed.is_set()
    await huge.turn()
    small = limiter.enter("b", NEED)
    assert not small.passed.is_set()
    huge.leave()
    assert small.passed.is_set()


async def test_the_first_in_the_queue_is_sent_after_the_longest_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limiters, "LONGEST_WAIT", 0.001)
    limiter = await known(said(0))
    tickets = [limiter.enter("a", NEED) for _ in range(2)]
    assert gone(tickets) == [False, False]
    await tickets[0].turn()
    await tickets[1].turn()


async def test_responses_in_another_order_than_counted_do_not_give_more() -> None:
    limiter = await known(said(5))
    tickets = [limiter.enter("a", NEED) for _ in range(5)]
    # The provider counted them in order; the first counted arrives last.
    for left, ticket in enumerate(reversed(tickets)):
        answer(ticket, said(left))
        assert not limiter.enter("b", NEED).passed.is_set()


async def test_a_response_from_before_a_reset_hides_none_from_after_it() -> None:
    limiter = await known(said(2, reset=0.001))
    new, old = limiter.enter("a", NEED), limiter.enter("a", NEED)
    # One was counted after the provider's reset, though it was sent before ours.
    answer(new, said(0))
    answer(old, said(0, reset=0.001))
    assert not limiter.enter("a", NEED).passed.is_set()


async def test_a_limit_that_shrinks_counts_at_once() -> None:
    limiter = await known(said(100, most=100))
    tickets = [limiter.enter("a", NEED) for _ in range(10)]
    assert all(gone(tickets))
    for ticket in tickets:
        answer(ticket, said(1, most=2))
    assert gone([limiter.enter("a", NEED) for _ in range(3)]) == [True, False, False]


async def test_a_refusal_holds_back_all_and_then_one_goes_alone() -> None:
    limiter = await known()
    refused, other = limiter.enter("a", NEED), limiter.enter("b", NEED)
    limiter.answered(refused, [], limited=True, wait=0.001)
    tickets = [limiter.enter("c", NEED), limiter.enter("d", NEED)]
    assert "asks to wait" in tickets[0].reason
    refused.leave()
    await tickets[0].turn()
    assert gone(tickets) == [True, False]
    answer(tickets[0])
    assert all(gone(tickets))
    other.leave()


async def test_after_a_refusal_without_limits_more_go_with_each_response() -> None:
    limiter = await known()
    refused = limiter.enter("a", NEED)
    tickets = [refused]
    limiter.answered(refused, [], limited=True, wait=None)
    tickets += [limiter.enter("a", NEED) for _ in range(9)]
    refused.leave()
    assert sum(gone(tickets)) == 1 + 1
    answer(tickets[1])
    assert sum(gone(tickets)) == 1 + 1 + 2
    answer(tickets[2])
    assert sum(gone(tickets)) == 1 + 1 + 2 + 2
    answer(tickets[3], said(10))
    assert all(gone(tickets))


async def test_a_refusal_that_asks_for_days_holds_back_for_the_longest_wait() -> None:
    limiter = await known()
    limiter.hold(10**6)
    assert limiter.enter("a", NEED).wait <= limiters.LONGEST_WAIT


async def test_runs_take_turns_and_a_run_keeps_its_order() -> None:
    limiter = await known(said(1))
    first = limiter.enter("", NEED)
    greedy = [limiter.enter("greedy", NEED) for _ in range(20)]
    modest = [limiter.enter(f"modest {n}", NEED) for n in range(3)]
    order = [first]
    while limiter.waiting:
        answer(order[-1], said(1))
        order += [one for one in (*greedy, *modest) if one.passed.is_set() and one not in order]
    assert [order.index(ticket) for ticket in modest] == [2, 3, 4]
    assert [ticket for ticket in order if ticket in greedy] == greedy


async def test_while_a_run_waits_each_other_has_at_most_one_turn() -> None:
    chance = random.Random(7)
    limiter = await known(said(1))
    ticket = limiter.enter("first", NEED)
    runs = [f"{n}" for n in range(30)]
    waiting = {run: [limiter.enter(run, NEED)] for run in runs}
    since: dict[str, Counter[str]] = {run: Counter() for run in runs}
    for _ in range(3000):
        answer(ticket, said(1))
        (run,) = [one for one in runs if waiting[one] and waiting[one][0].passed.is_set()]
        ticket = waiting[run].pop(0)
        for other in runs:
            since[other][run] += other != run and bool(waiting[other])
        assert max(since[run].values()) <= 1
        since[run] = Counter()
        # Some ask for much at a time, as runs with many sub-agents do.
        more = 1 if len(waiting[run]) > 20 else chance.choice([1, 1, 2, 3])
        waiting[run] += [limiter.enter(run, NEED) for _ in range(more)]


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_is_cancelled_leaves_nothing(seed: int) -> None:
    chance = random.Random(seed)
    limiter = await known(said(3))
    tasks: list[asyncio.Task[None]] = []

    async def request(run: str) -> None:
        ticket = limiter.enter(run, NEED)
        try:
            await ticket.turn()
            await asyncio.sleep(0)
            limiter.answered(ticket, [said(chance.randint(0, 5))], limited=False, wait=None)
            await asyncio.sleep(0)
        finally:
            ticket.leave()
            ticket.leave()

    for _ in range(200):
        tasks.append(asyncio.create_task(request(f"{chance.randint(0, 9)}")))
        if chance.random() < 0.5:
            chance.choice(tasks).cancel()
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (limiter.waiting, limiter.idle) == (0, True)
    assert set(limiter.held.values()) == {0}


async def test_one_that_gives_up_lets_those_behind_it_through() -> None:
    limiter = await known(said(50, most=100, kind="input"))
    huge = limiter.enter("a", Need(prompt=90, fresh=90))
    small = limiter.enter("b", NEED)
    assert gone([huge, small]) == [False, False]
    huge.leave()
    assert gone([huge, small]) == [False, True]


def test_no_timer_is_left_when_nothing_waits() -> None:
    async def work() -> tuple[int, int]:
        limiter = await known(said(0))
        tickets = [limiter.enter("a", NEED) for _ in range(10)]
        during = timers()
        for ticket in tickets:
            ticket.leave()
        return during, timers()

    assert asyncio.run(work()) == (1, 0)


def timers() -> int:
    """Return how many timers of the event loop are active."""
    scheduled: list[asyncio.TimerHandle] = vars(asyncio.get_running_loop())["_scheduled"]
    return sum(not one.cancelled() for one in scheduled)


async def test_keys_hosts_and_models_do_not_share() -> None:
    places = [("h", "k", "m"), ("h", "k", "n"), ("h", "l", "m"), ("g", "k", "m")]
    found = [limiter_for(*place) for place in places]
    assert len(set(map(id, found))) == len(places)
    assert found == [limiter_for(*place) for place in places]


async def test_unused_limiters_are_forgotten_and_used_ones_kept() -> None:
    kept = limiter_for("h", "k", "used")
    kept.enter("a", NEED)
    for n in range(2 * KEPT):
        limiter_for("h", "k", f"{n}")
    assert limiter_for("h", "k", "used") is kept


def test_event_loops_do_not_share() -> None:
    async def one() -> Limiter:
        return limiter_for("h", "k", "m")

    assert asyncio.run(one()) is not asyncio.run(one())
