"""Runs whose model fails while another takes over: the real loop, store and HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, FallbackModel, NativeModel, RunResult, Runtime, Settings
from agent_runtime.cli.display.tally import RunTally
from agent_runtime.errors import (
    ConfigError,
    ModelError,
    ModelOverflow,
    ModelProtocolError,
    ModelUnavailable,
)
from agent_runtime.messages import Opaque
from agent_runtime.models import attempts
from agent_runtime.models.base import ModelAnswer, Price, RawCall
from agent_runtime.models.scripted import ScriptedModel, call, say
from agent_runtime.testing.model_server import (
    OpenAIServer,
    Reply,
    overflow,
    server_error,
    unauthorized,
)
from agent_runtime_storage.contract.records.log import Amount, Run
from tests.models.fallback.pair import CHEAP, DEAR, FIRST, FOR_EVER, SECOND, two_providers
from tests.models.fallback.test_model import MENDED
from tests.support.worlds import KEY, REPEATING, double, in_turn

CALL = Reply(calls=(("double", {"number": 21}),))
OK = Reply(text="It is 42.")
BROKEN = Reply(text="It is so", cut_after=2)
AGENT = Agent(tools=[double], instructions="Be exact.")


class Session:
    """Runs on one database, with all their events."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = Settings(
            database_url=f"file:{folder / 'run.db'}", **{**REPEATING, **settings}
        )
        self.events: list[Event] = []

    async def run(self, model: Any, agent: Agent = AGENT, **options: Any) -> RunResult:
        """Run a task."""
        async with Runtime.open(self.settings, model=model) as runtime:
            return await runtime.run(
                agent, "Work.", thread="t", on_event=self.events.append, **options
            )

    async def resume(self, model: Any, agent: Agent = AGENT) -> RunResult:
        """Resume the run that began last."""
        async with Runtime.open(self.settings, model=model) as runtime:
            return await runtime.resume(self.run_id, agent, on_event=self.events.append)

    @property
    def run_id(self) -> str:
        """The run that began last."""
        return [one for one in self.events if one.kind == "run-start"][-1].run_id

    async def row(self) -> Run:
        """Return what the store says of it."""
        async with Runtime.open(self.settings) as runtime:
            return await runtime.store_of().runs.get(self.run_id)

    async def usage(self, model: str) -> list[tuple[int, int | None]]:
        """Return the tokens and costs of the usage rows of a model."""
        async with Runtime.open(self.settings) as runtime:
            rows = await runtime.store_of().spending.recent_usage(model)
            return [(one.prompt_tokens + one.completion_tokens, one.cost) for one in rows]

    def of(self, kind: str) -> list[Event]:
        """Return the events of a kind."""
        return [one for one in self.events if one.kind == kind]

    def lines(self) -> str:
        """Return what the command line shows of all events."""
        tally = RunTally()
        return "\n".join(line.plain() for event in self.events for line in tally.update(event))


def bill(server: OpenAIServer, price: Price) -> Amount:
    """Return what a provider charges for all that it answered."""
    tokens = cost = 0
    for one in server.billed:
        cached = one["prompt_tokens_details"]["cached_tokens"]
        tokens += one["total_tokens"]
        cost += (one["prompt_tokens"] - cached) * price.input + cached * price.cache_read
        cost += one["completion_tokens"] * price.output
    return Amount(tokens, cost)


@pytest.mark.parametrize("fault", [one for one, _ in MENDED.values()], ids=MENDED)
async def test_a_run_goes_on_with_another_model(tmp_path: Path, fault: Reply) -> None:
    session = Session(tmp_path)
    async with two_providers([CALL, fault], [CALL, OK], cool_down=FOR_EVER) as pair:
        result = await session.run(pair.model)
        assert len(pair.first.requests) == 2 and len(pair.second.requests) == 2
        of_first, of_second = bill(pair.first, CHEAP), bill(pair.second, DEAR)
    assert (result.output, result.steps) == ("It is 42.", 3)
    [event] = session.of("model-fallback")
    assert (event.data["from"], event.data["to"]) == (FIRST, SECOND)
    assert event.data["why"] in ("unavailable", "protocol", "key", "unknown")
    assert event.id and KEY not in repr(session.events)
    assert f"model {SECOND} replaces {FIRST}: " in session.lines()
    assert ("warning" in event.data) == (event.data["why"] in ("key", "unknown"))
    assert [one.data["cause"] for one in session.of("activation")] == ["start", "model"]
    assert [one.data["model"] for one in session.of("answer")] == [FIRST, SECOND, SECOND]
    # Each model has its own rows, with its own price.
    own, other = await session.usage(FIRST), await session.usage(SECOND)
    assert (len(own), len(other)) == (1, 2)
    assert sum(cost or 0 for _, cost in other) == of_second.cost
    run = await session.row()
    billed = Amount(of_first.tokens + of_second.tokens, of_first.cost + of_second.cost)
    assert run.settled.tokens <= billed.tokens <= run.settled.tokens + run.unsettled.tokens
    assert run.settled.cost <= billed.cost <= run.settled.cost + run.unsettled.cost
    # What was lost counts at the dearest price, or not at all if nothing was billed.
    assert (run.unsettled.cost > 0) == (fault.status == 200)
    async with Runtime.open(session.settings) as runtime:
        kept = await runtime.store_of().events.list("t")
    assert [one.data for one in kept if one.kind == "model-fallback"] == [event.data]


async def test_the_first_model_is_tried_again_and_each_prompt_extends_its_activation(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path)
    first = [CALL, server_error(), CALL, OK]
    async with two_providers(first, [CALL, CALL], cool_down=60.0) as pair:
        clock = pair.clock

        def wait(event: Event) -> None:
            session.events.append(event)
            if event.kind == "answer" and event.data["step"] == 3:
                clock.now += 60.0

        async with Runtime.open(session.settings, model=pair.model) as runtime:
            result = await runtime.run(AGENT, "Work.", on_event=wait)
        prompts = [[one.json["messages"] for one in s.requests] for s in (pair.first, pair.second)]
    assert (result.output, result.steps) == ("It is 42.", 5)
    changes = [(one.data["from"], one.data["why"]) for one in session.of("model-fallback")]
    assert changes == [(FIRST, "unavailable"), (SECOND, "cool-down")]
    assert [one.data["cause"] for one in session.of("activation")] == ["start", "model", "model"]
    for of_one in prompts:
        extends = [new[: len(old)] == old for old, new in itertools.pairwise(of_one)]
        assert extends == ([True, False, True] if len(of_one) == 4 else [True])
    assert f"{FIRST} is tried again" in session.lines()


async def test_a_silent_provider_and_one_that_is_gone_are_replaced(tmp_path: Path) -> None:
    session = Session(tmp_path)
    async with OpenAIServer(in_turn([OK])) as closed:
        gone = NativeModel("openai/gone", base_url=closed.base_url, api_key=KEY, retries=0)
    async with two_providers([Reply(stall_after=0)], [OK], cool_down=FOR_EVER) as pair:
        # A time that no live answer takes here.
        silent = NativeModel(
            FIRST, base_url=pair.first.base_url, api_key=KEY, retries=0, first_byte_timeout=2.0
        )
        result = await session.run(FallbackModel([gone, silent, pair.model.models[1]]))
    assert result.output == "It is 42."
    reasons = [event.data["why"] for event in session.of("model-fallback")]
    assert reasons == ["unavailable", "stalled"]


async def test_a_model_is_tried_again_by_itself_before_another_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)
    session = Session(tmp_path, budget_usd=1.0)
    async with two_providers([CALL, BROKEN], [OK], retries=2, prices=(DEAR, CHEAP)) as pair:
        assert (await session.run(pair.model)).output == "It is 42."
        assert len(pair.first.requests) == 4
        of_first, of_second = bill(pair.first, DEAR), bill(pair.second, CHEAP)
    assert [one.data["attempt"] for one in session.of("model-retry")] == [1, 2]
    run, billed = await session.row(), of_first.cost + of_second.cost
    # Three broken streams count at the bound of the dear model, not of the one that answered.
    assert run.settled.cost < billed <= run.settled.cost + run.unsettled.cost


async def test_what_a_failed_answer_said_is_void(tmp_path: Path) -> None:
    session = Session(tmp_path)
    wrong = Reply(text="It is surely wrong", cut_after=4)
    async with two_providers([wrong], [OK]) as pair:
        result = await session.run(pair.model)
    assert result.output == "It is 42."
    at = session.events.index(session.of("model-fallback")[0])
    said = [one.data["text"] for one in session.events[at:] if one.kind == "text-delta"]
    assert "".join(said) == "It is 42."
    assert "surely" in "".join(
        one.data["text"] for one in session.events[:at] if one.kind == "text-delta"
    )


async def test_all_models_fail_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    session = Session(tmp_path)
    async with two_providers([CALL, server_error()], [BROKEN]) as pair:
        with pytest.raises(ModelProtocolError, match="All 2 models failed") as raised:
            await session.run(pair.model)
        run = await session.row()
        assert (run.status, run.detail) == ("failed", str(raised.value))
        assert FIRST in run.detail and SECOND in run.detail
        assert run.unsettled.tokens > 0
        pair.second.script = in_turn([OK])
        result = await session.resume(pair.model)
    assert (result.output, result.steps) == ("It is 42.", 2)


async def test_a_refusal_of_the_request_does_not_fall_back(tmp_path: Path) -> None:
    session = Session(tmp_path)
    async with two_providers([overflow(10)], [OK]) as pair:
        with pytest.raises(ModelOverflow):
            await session.run(pair.model)
        assert not pair.second.requests
    assert not session.of("model-fallback")


# Budgets


@pytest.mark.parametrize("order", [(CHEAP, DEAR), (DEAR, CHEAP)], ids=["cheap", "dear"])
@pytest.mark.parametrize("factors", [(1.0, 1.4), (1.4, 1.0)], ids=["grows", "shrinks"])
async def test_a_budget_is_kept_by_all_models_together(
    tmp_path: Path, order: tuple[Price, Price], factors: tuple[float, float]
) -> None:
    limit = 0.25
    session = Session(tmp_path, budget_usd=limit)

    def failing(every: int) -> Callable[[object, int], Reply]:
        return lambda _, n: BROKEN if n % every == every - 1 else CALL

    async with two_providers(
        failing(4), failing(3), cool_down=0.0, prices=order, factors=factors
    ) as pair:
        result = await session.run(pair.model, Agent(tools=[double], max_steps=300))
        billed = bill(pair.first, order[0]).cost + bill(pair.second, order[1]).cost
        assert len(pair.first.requests) > 4 and pair.second.requests
    run = await session.row()
    assert result.stop_reason == "budget"
    assert run.settled.cost <= billed <= run.settled.cost + run.unsettled.cost <= limit * 1e9


async def test_a_budget_in_dollars_needs_the_price_of_each_model(tmp_path: Path) -> None:
    session = Session(tmp_path, budget_usd=1.0)
    model = FallbackModel([ScriptedModel([]), ScriptedModel([], name="other", price=None)])
    with pytest.raises(ConfigError, match="price of 'other' is unknown"):
        await session.run(model)


async def test_a_model_of_known_price_keeps_to_the_budget_beside_one_of_unknown_price(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path, budget_usd=0.02, unknown_price="tokens")
    async with two_providers([CALL], [OK], prices=(DEAR, DEAR)) as pair:
        models = [ScriptedModel([ModelUnavailable("Down.")] * 9, price=None), pair.model]
        result = await session.run(FallbackModel(models, cool_down=FOR_EVER))
        billed = bill(pair.first, DEAR).cost
    run = await session.row()
    assert (result.stop_reason, run.settled.cost) == ("budget", billed)
    assert 0 < billed + run.unsettled.cost <= 0.02 * 1e9


# Interruptions


async def test_a_cancel_in_mid_fallback_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    session = Session(tmp_path)
    async with two_providers([CALL, BROKEN], [Reply(stall_after=1)], cool_down=FOR_EVER) as pair:
        async with anyio.create_task_group() as group:

            async def work() -> None:
                await session.run(pair.model)

            group.start_soon(work)
            await pair.second.wait_for_requests(1)
            group.cancel_scope.cancel()
        run = await session.row()
        assert run.status in ("cancelled", "suspended", "failed")
        # Both the broken stream of the first and the one that was left may be billed.
        billed = bill(pair.first, CHEAP).tokens + bill(pair.second, DEAR).tokens
        assert run.settled.tokens < billed <= run.settled.tokens + run.unsettled.tokens
        pair.second.script = in_turn([OK])
        result = await session.resume(pair.model)
    assert (result.output, result.steps) == ("It is 42.", 2)


def thinking(name: str, number: int) -> ModelAnswer:
    """Return a call whose answer has something that only this model may get back."""
    return ModelAnswer(
        "",
        (RawCall("double", f'{{"number": {number}}}'),),
        "tool_calls",
        name,
        opaque=Opaque(name, {"signature": f"{name} {number}"}),
    )


def scripted(name: str, *answers: ModelAnswer | ModelError) -> ScriptedModel:
    """Return a model of this name."""
    return ScriptedModel(answers, name=name)


def opaque_of(model: ScriptedModel) -> list[list[str]]:
    """Return whose opaque parts each request of a model had."""
    return [[one.opaque.model for one in asked.messages if one.opaque] for asked in model.requests]


async def test_what_a_model_keeps_goes_to_no_other_and_back_to_itself(tmp_path: Path) -> None:
    session = Session(tmp_path)
    down = ModelUnavailable("Down.")
    one = scripted("one", thinking("one", 1), down, thinking("one", 3), say("Done."))
    two = scripted("two", thinking("two", 2))
    result = await session.run(FallbackModel([one, two], cool_down=0.0))
    assert result.output == "Done."
    assert opaque_of(one) == [[], ["one"], ["one"], ["one", "one"]]
    assert opaque_of(two) == [[]]


async def test_a_process_that_died_in_a_fallback_is_followed_by_one_that_knows_nothing_of_it(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path)
    one = scripted("one", thinking("one", 1), ModelUnavailable("Down."))
    two = scripted("two", thinking("two", 2))
    limited = Agent(tools=[double], max_steps=2)
    first = await session.run(FallbackModel([one, two], cool_down=FOR_EVER), limited)
    assert first.stop_reason == "max_steps"
    # A new process tries the first model first; its prompts have what it kept, and nothing else.
    again = scripted("one", thinking("one", 3), say("Done."))
    result = await session.resume(FallbackModel([again, scripted("two")]), limited)
    assert result.output == "Done."
    assert opaque_of(again) == [["one"], ["one", "one"]]
    causes = [event.data["cause"] for event in session.of("activation")]
    assert causes == ["start", "model", "model"]


@pytest.mark.parametrize("name", ["one", "two", "three"])
async def test_a_thread_continues_with_a_single_model(tmp_path: Path, name: str) -> None:
    session = Session(tmp_path)
    one = scripted("one", thinking("one", 1), ModelUnavailable("Down."))
    two = scripted("two", thinking("two", 2), say("Done."))
    assert (await session.run(FallbackModel([one, two]))).ok
    single = scripted(name, call("double", number=4), say("Again."))
    assert (await session.run(single)).output == "Again."
    assert opaque_of(single) == [[name] if name != "three" else []] * 2
    causes = [event.data["cause"] for event in session.of("activation")]
    # Under the model in use at the end nothing has to be written again.
    assert causes == ["start", "model", *([] if name == "two" else ["agent"])]


async def test_the_environments_names_fall_back_in_the_run_and_in_its_sub_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def script(request: dict[str, Any], n: int) -> Reply:
        if request["model"] == "one":
            return unauthorized(KEY)
        text = str(request["messages"])
        if "You are a sub-agent" in text:
            return Reply(text="The part is fine.")
        if n < 2:
            order = {"role": "r", "instructions": "Read.", "briefing": "P.", "task_key": "k"}
            return Reply(calls=(("delegate", order),))
        return OK

    async with OpenAIServer(script) as server:
        names = "openai/one, openai/two"
        session = Session(tmp_path, model=names, model_base_url=server.base_url, model_retries=0)
        session.settings = session.settings.model_copy(update={"sub_agent_model": names})
        async with Runtime.open(session.settings) as runtime:
            agent = Agent(tools=[double], delegation=True)
            result = await runtime.run(agent, "Work.", on_event=session.events.append)
        asked = [one.json["model"] for one in server.requests]
    assert result.output == "It is 42."
    # What the run found out holds for its sub-agent, too.
    assert asked.count("one") == 1 and asked.count("two") == 3
    assert len(session.of("model-fallback")) == 1
    [event] = session.of("model-fallback")
    assert event.data["why"] == "key" and KEY not in repr(session.events)


async def test_memory_falls_back_too(tmp_path: Path) -> None:
    """The Observer and the Reflector use the run's models, and what was lost of them counts."""
    settings = {
        "observational_memory": True,
        "observer_message_tokens": 1000,
        "last_messages": 2,
        "budget_usd": 10.0,
    }
    session = Session(tmp_path, **settings)
    notes = "2026-01-02 10:00 | info | Numbers were doubled.\nTASK: Work.\nNEXT: none"
    long = Reply(text="words " * 300, calls=(("double", {"number": 21}),))

    def second(request: dict[str, Any], n: int) -> Reply:
        if "You keep the memory" in str(request["messages"][0]):
            return Reply(text=notes)
        return long if n < 8 else OK

    async with two_providers([server_error()], second, cool_down=FOR_EVER) as pair:
        result = await session.run(pair.model, Agent(tools=[double], max_steps=30))
        observed = [one for one in pair.second.requests if "You keep the memory" in str(one.json)]
    assert result.output == "It is 42."
    assert observed and len(pair.first.requests) == 1
