"""Whole runs against servers that enforce rate limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, NativeModel, RunResult, Runtime, Settings, tool
from agent_runtime.messages import PromptMessage
from agent_runtime.models import attempts
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.rate_limits import limiter as limiters
from agent_runtime.testing.loopback import Json
from tests.support.providers.limited import Bucket, Form, LimitedServer, Said, task_of

RUNS = 30
CALLS = 2
"""Tool calls of a run before its answer."""
NAMES: dict[Form, str] = {"openai": "openai/test", "anthropic": "anthropic/claude-sonnet-4-5"}
FORMS: list[Form] = ["openai", "anthropic"]
KEY = "sk-test-0123456789"


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    # On a slow machine the bounds of waits must not decide a test.
    monkeypatch.setattr(limiters, "NEXT_RESPONSE", 600.0)
    monkeypatch.setattr(limiters, "LONGEST_WAIT", 600.0)
    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)


def steps(body: Json) -> Said:
    """Answer after some tool calls."""
    text = str(body["messages"])
    done = text.count("tool_call_id") + text.count("'tool_result'")
    if done >= CALLS:
        return "Done.", ()
    return "", (("double", f'{{"number": {done}}}'),)


def model(server: LimitedServer, form: Form, *, key: str = KEY, **options: Any) -> NativeModel:
    """Return the model of a server."""
    given: dict[str, Any] = {"retries": 0, "max_output": 100, **options}
    return NativeModel(NAMES[form], base_url=server.url, api_key=key, **given)


async def learn(one: NativeModel) -> None:
    """Make one call, whose response says what the limits are."""
    request = ModelRequest((PromptMessage("user", "Learn."),), max_output=1)
    async with one.stream(request) as events:
        assert [event async for event in events]


def settings(folder: Path, **options: Any) -> Settings:
    return Settings(database_url=f"file:{folder / 'run.db'}", loop_limit=0, **options)


async def many(
    runtime: Runtime, agents: list[Agent], events: list[Event] | None = None
) -> list[RunResult]:
    """Run many agents at once."""
    results: list[RunResult] = []
    seen = [] if events is None else events

    async def one(agent: Agent, n: int) -> None:
        results.append(await runtime.run(agent, f"Do run-{n}.", on_event=seen.append))

    async with anyio.create_task_group() as group:
        for n, agent in enumerate(agents):
            group.start_soon(one, agent, n)
    return results


@pytest.mark.parametrize(
    ("form", "bucket"),
    [
        ("openai", Bucket(requests=5)),
        ("openai", Bucket(tokens=1200)),
        ("anthropic", Bucket(requests=5)),
        ("anthropic", Bucket(tokens=1200)),
        ("anthropic", Bucket(output=40)),
    ],
    ids=["requests", "tokens", "their-requests", "their-tokens", "their-output"],
)
async def test_thirty_runs_at_once_are_never_refused(
    tmp_path: Path, form: Form, bucket: Bucket
) -> None:
    events: list[Event] = []
    server = LimitedServer(form, bucket, steps)
    async with server, Runtime.open(settings(tmp_path)) as runtime:
        agent = Agent(known := model(server, form), tools=[double])
        await learn(known)
        results = await many(runtime, [agent] * RUNS, events)
    assert server.refusals == 0
    assert {one.output for one in results} == {"Done."} and len(results) == RUNS
    assert Counter(server.tasks()[1:]) == {f"run-{n}": CALLS + 1 for n in range(RUNS)}
    waits = [event for event in events if event.kind == "model-wait"]
    assert waits and all(wait.id == 0 and wait.data["reason"] for wait in waits)


async def test_runs_that_start_at_once_before_the_limits_are_known_all_succeed(
    tmp_path: Path,
) -> None:
    server = LimitedServer("openai", Bucket(requests=5), steps)
    async with server, Runtime.open(settings(tmp_path)) as runtime:
        agent = Agent(model(server, "openai", retries=4), tools=[double])
        results = await many(runtime, [agent] * 12)
    assert {one.output for one in results} == {"Done."} and len(results) == 12
    # At most the first call of each, since none waits for the response to another.
    assert server.refusals <= 12


async def test_a_run_with_many_sub_agents_does_not_starve_the_others(tmp_path: Path) -> None:
    order: list[tuple[str, str]] = []
    tasks: dict[str, str] = {}

    def script(body: Json) -> Said:
        text = str(body["messages"])
        order.append(("sent", task_of(text)))
        if "Do run-0." in text and "delegate" not in str(body["messages"][2:]):
            given = '{{"role": "helper", "instructions": "Help.", "briefing": "A part of run-0.", '
            given += '"task_key": "k{0}"}}'
            return "", tuple(("delegate", given.format(n)) for n in range(8))
        return steps(body)

    async def one(runtime: Runtime, agent: Agent, n: int) -> None:
        def listen(event: Event) -> None:
            if event.kind == "model-wait" and n:
                order.append(("waits", f"run-{n}"))

        result = await runtime.run(agent, f"Do run-{n}.", on_event=listen)
        tasks[f"run-{n}"] = result.status

    server = LimitedServer("openai", Bucket(requests=2, seconds=0.02), script)
    async with server, Runtime.open(settings(tmp_path)) as runtime:
        agent = Agent(known := model(server, "openai"), tools=[double], delegation=True)
        await learn(known)
        order.clear()
        async with anyio.create_task_group() as group:
            for n in range(6):
                group.start_soon(one, runtime, agent, n)
    assert server.refusals == 0
    assert set(tasks.values()) == {"succeeded"} and len(tasks) == 6
    assert order.count(("sent", "run-0")) == 8 * (CALLS + 1) + 2
    # While another run waits, this one has a turn; and two requests may be on their way before it,
    # and two overtake the other's after it.
    assert max(sent_meanwhile(order, "run-0")) <= 1 + 2 + 2


def sent_meanwhile(order: list[tuple[str, str]], greedy: str) -> Iterator[int]:
    """Yield for each wait how many requests of a run were sent until that one ended."""
    for begin, (what, run) in enumerate(order):
        if what == "waits":
            rest = order[begin:]
            yield rest[: rest.index(("sent", run))].count(("sent", greedy))


async def test_a_cancelled_run_leaves_the_queue_to_the_others(tmp_path: Path) -> None:
    asked, go, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def script(body: Json) -> Said:
        asked.set()
        await go.wait()
        return "Done.", ()

    statuses: list[str] = []
    server = LimitedServer("openai", Bucket(requests=1), script)
    async with server, Runtime.open(settings(tmp_path)) as runtime:
        agent = Agent(model(server, "openai"))
        # After a refusal the next request goes alone, so that the others wait for it.
        limiter = limiters.limiter_for(server.url[7:], KEY, NAMES["openai"])
        refused = limiter.enter("", limiters.Need())
        refused.answered({}, limited=True, wait=None)
        refused.leave()
        waits: set[str] = set()
        waiting = anyio.Event()

        def listen(event: Event) -> None:
            if event.kind == "model-wait":
                waits.add(event.run_id)
                if len(waits) == 3:
                    waiting.set()

        async def one(n: int) -> None:
            result = await runtime.run(agent, f"Do run-{n}.", on_event=listen)
            statuses.append(result.status)
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(one, 0)
            await asked.wait()
            for n in (1, 2, 3):
                group.start_soon(one, n)
            await waiting.wait()
            await runtime.cancel(sorted(waits)[0])
            await ended.wait()
            assert statuses == ["cancelled"]
            go.set()
        assert limiter.idle and set(limiter.held.values()) == {0}
    assert sorted(statuses) == ["cancelled", "succeeded", "succeeded", "succeeded"]
    assert (server.refusals, len(server.served)) == (0, 3)


async def test_two_keys_do_not_share(tmp_path: Path) -> None:
    hold = anyio.Event()

    async def script(body: Json) -> Said:
        if "run-0" in str(body):
            await hold.wait()
        return "Done.", ()

    server = LimitedServer("openai", Bucket(requests=1), script)
    async with server, Runtime.open(settings(tmp_path)) as runtime:
        keys = [KEY, f"{KEY}-other"]
        agents = [Agent(model(server, "openai", key=key)) for key in keys]
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, agents[0], "Do run-0.")
            # It ends, though the other key's only request is still on its way.
            await runtime.run(agents[1], "Do run-1.")
            assert server.tasks().count("run-1") == 1
            hold.set()
    assert (server.refusals, len(server.served)) == (0, 2)


@pytest.mark.parametrize("form", FORMS)
async def test_limits_may_shrink_in_mid_run(tmp_path: Path, form: Form) -> None:
    server = LimitedServer(form, Bucket(requests=20), lambda body: shrinking(body))

    def shrinking(body: Json) -> Said:
        if len(server.served) == 40:
            server.bucket = Bucket(requests=2)
        return steps(body)

    async with server, Runtime.open(settings(tmp_path)) as runtime:
        # What the client knew lasts until the reset, at which the new limit is not known yet.
        agent = Agent(model(server, form, retries=20), tools=[double])
        results = await many(runtime, [agent] * RUNS)
    assert {one.output for one in results} == {"Done."}
    refused = [index for index, one in enumerate(server.served) if one.refused]
    assert len(refused) <= 20 and all(index >= 40 for index in refused)


async def test_refusals_without_limits_in_headers_hold_back_all(tmp_path: Path) -> None:
    async with LimitedServer("openai", Bucket(requests=4), steps) as server:
        server.silent = True
        async with Runtime.open(settings(tmp_path)) as runtime:
            agent = Agent(model(server, "openai", retries=50), tools=[double])
            results = await many(runtime, [agent] * RUNS)
    assert {one.output for one in results} == {"Done."}


async def test_off_sends_at_once(tmp_path: Path) -> None:
    arrived, go = anyio.Event(), anyio.Event()

    async def script(body: Json) -> Said:
        if len(server.served) == 4:
            arrived.set()
        await go.wait()
        return "Done.", ()

    events: list[Event] = []
    server = LimitedServer("openai", Bucket(), script)
    async with server, Runtime.open(settings(tmp_path)) as runtime:
        agent = Agent(model(server, "openai", rate_limits="off"))
        async with anyio.create_task_group() as group:
            group.start_soon(many, runtime, [agent] * 4, events)
            await arrived.wait()
            go.set()
    assert "model-wait" not in {event.kind for event in events}


async def test_the_setting_reaches_the_model(tmp_path: Path) -> None:
    arrived, go = anyio.Event(), anyio.Event()

    async def script(body: Json) -> Said:
        if len(server.served) == 2:
            arrived.set()
        await go.wait()
        return "Done.", ()

    server = LimitedServer("openai", Bucket(), script)
    async with server:
        chosen = settings(
            tmp_path,
            model=NAMES["openai"],
            model_base_url=server.url,
            model_api_key=KEY,
            model_rate_limits="off",
        )
        async with Runtime.open(chosen) as runtime, anyio.create_task_group() as group:
            group.start_soon(many, runtime, [Agent()] * 2)
            await arrived.wait()
            go.set()
