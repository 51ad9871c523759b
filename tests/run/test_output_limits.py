"""The output limit of an answer: by the model, the setting, the window and the budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from agent_runtime import Agent, Runtime, Settings, tool
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import ScriptedModel, call, calls, raw_call, say
from agent_runtime.testing.model_server import Reply, failure, overflow
from agent_runtime.tools.context import ToolContext
from tests.run.test_endings import CLAUDE, GEMINI, GPT, Provide
from tests.run.test_endings import provide as provide
from tests.support.providers.scripted_server import ProviderServer, anthropic, gemini, openai_chat
from tests.support.worlds import Play, Serve, double

AGENT = Agent(tools=[double])
LONG = Agent(tools=[double], instructions="word " * 12_000)
ANSWERS = {CLAUDE: anthropic("Done."), GPT: openai_chat("Done."), GEMINI: gemini("Done.")}


def limit(request: dict[str, Any]) -> int:
    """Return the output limit of a request in either provider's form."""
    if "generationConfig" in request:
        return request["generationConfig"]["max_output_tokens"]
    return request["max_tokens"]


@pytest.mark.parametrize(("name", "most"), [(CLAUDE, 64_000), (GPT, 32_768), (GEMINI, 65_536)])
async def test_the_default_limit_is_the_models_own(provide: Provide, name: str, most: int) -> None:
    async with provide(name, [ANSWERS[name]]) as world:
        assert (await world.run(AGENT)).ok
        assert limit(world.server.requests[0]) == most


@pytest.mark.parametrize(("setting", "expected"), [(500, 500), (1_000_000, 64_000)])
async def test_the_setting_lowers_the_limit_and_never_raises_it(
    provide: Provide, setting: int, expected: int
) -> None:
    settings = {"max_output_tokens": setting}
    async with provide(CLAUDE, [ANSWERS[CLAUDE]], settings=settings) as world:
        assert (await world.run(AGENT)).ok
        assert limit(world.server.requests[0]) == expected


@pytest.mark.parametrize(
    ("setting", "expected", "says"),
    [
        (300, 300, "300 output tokens (AGENT_RUNTIME_MAX_OUTPUT_TOKENS)"),
        (1_000_000, 64_000, "64,000 output tokens (the model's limit)"),
    ],
)
async def test_the_setting_also_limits_a_model_that_the_settings_name(
    tmp_path: Path, setting: int, expected: int, says: str
) -> None:
    def answer(request: dict[str, Any], n: int) -> list[bytes]:
        if n:
            return ANSWERS[CLAUDE]
        return anthropic("", ("double", '{"num'), end="max_tokens", output=request["max_tokens"])

    async with ProviderServer(answer) as server:
        settings = Settings(
            database_url=f"file:{tmp_path / 'runs.db'}",
            model=CLAUDE,
            model_base_url=server.url,
            max_output_tokens=setting,
        )
        async with Runtime.open(settings) as runtime:
            assert (await runtime.run(AGENT, "Double.")).ok
        assert limit(server.requests[0]) == expected
    assert says in orjson.dumps(server.requests[1]).decode()


async def test_a_sub_agents_answer_has_the_limit_of_its_own_model(tmp_path: Path) -> None:
    def answer(request: dict[str, Any], n: int) -> list[bytes]:
        if request["model"] == "own":
            return openai_chat("So.", end="length", output=request["max_tokens"])
        if n:
            return openai_chat("Done.")
        arguments: dict[str, Any] = {"role": "teller", "instructions": "Tell.", "tools": []}
        return openai_chat("", ("delegate", orjson.dumps(arguments).decode()), end="tool_calls")

    async with ProviderServer(answer) as server:
        settings = Settings(
            database_url=f"file:{tmp_path / 'runs.db'}",
            model="openai/main",
            model_base_url=f"{server.url}/v1",
            max_output_tokens=300,
            sub_agent_model="openai/own",
            sub_agent_max_output_tokens=20_000,
        )
        async with Runtime.open(settings) as runtime:
            assert (await runtime.run(Agent(delegation=True, tools=[double]), "Ask.")).ok
    limits = [(request["model"], limit(request)) for request in server.requests]
    assert limits == [("main", 300), *[("own", 20_000)] * 4, ("main", 300)]
    last_request = orjson.dumps(server.requests[-1]).decode()
    assert "Raise AGENT_RUNTIME_SUB_AGENT_MAX_OUTPUT_TOKENS" in last_request


async def test_prompt_and_answer_fit_into_the_window_together(provide: Provide) -> None:
    settings = {"context_window": 40_000}
    async with provide(CLAUDE, [ANSWERS[CLAUDE]] * 2, settings=settings) as world:
        assert (await world.run(AGENT)).ok
        assert (await world.run(LONG)).ok
        short, long = map(limit, world.server.requests)
    assert 8_192 < short < 40_000
    # The prompt may fill the window up to the reserve, so the limit is never below it.
    assert 8_192 <= long < 30_000


async def test_a_small_budget_is_still_usable_with_a_large_limit(provide: Provide) -> None:
    answers = [anthropic("", ("double", '{"number": 1}'), end="tool_use")] * 6
    answers.append(anthropic("Done."))
    settings = {"budget_tokens": 12_000}
    async with provide(CLAUDE, answers, settings=settings) as world:
        result = await world.run(AGENT)
        limits = list(map(limit, world.server.requests))
    assert (result.ok, result.steps) == (True, 7)
    assert max(limits) < 12_000


async def test_a_large_output_limit_does_not_block_parallel_children(play: Play) -> None:
    at_once = anyio.Event()
    waiting = 0

    async def together(request: ModelRequest) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 4:
            at_once.set()
        with anyio.fail_after(60):
            await at_once.wait()
        return "Said."

    child = Agent(ScriptedModel(together, max_output=100_000), name="child")

    @tool
    async def ask(context: ToolContext, number: int) -> str:
        """Ask the child."""
        return str((await context.run_agent(child, str(number))).output)

    script = [calls(*(raw_call("ask", number=n) for n in range(4))), say("Done.")]
    settings = {"budget_tokens": 300_000}
    async with play(script, settings=settings, max_output=100_000) as world:
        result = await world.run(Agent(tools=[ask]))
        assert await world.results(result.thread_id) == [("ok", "Said.")] * 4
    assert result.ok


async def test_an_unused_output_limit_does_not_trigger_the_wrap_up(play: Play) -> None:
    script = [call("double", number=n) for n in range(4)] + [say("Done.")]
    settings = {"budget_tokens": 120_000}
    async with play(script, settings=settings, max_output=100_000) as world:
        assert (await world.run(AGENT)).ok
        assert isinstance(world.model, ScriptedModel)
        last = world.model.requests[-1]
    assert not any("nearly used up" in message.text for message in last.messages)


@pytest.mark.parametrize(
    "refusal", [overflow(), failure(400, "max_tokens is too large")], ids=["window", "limit"]
)
async def test_a_refused_output_limit_is_replaced_by_a_usual_one(
    serve: Serve, refusal: Reply
) -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        if request["max_tokens"] > 8_192:
            return refusal
        return Reply(text="Done.") if n > 2 else Reply(calls=(("double", {"number": n}),))

    async with serve(script, name=GPT) as world:
        result = await world.run(AGENT)
        first, again, *later = world.server.requests
        assert first.json["messages"] == again.json["messages"]
        assert [sent.json["max_tokens"] for sent in (again, *later)] == [8_192] * 3
        causes = [event.data["cause"] for event in world.events if event.kind == "activation"]
    assert result.ok
    assert "overflow" not in causes


@pytest.mark.parametrize(
    ("settings", "options", "says"),
    [
        ({}, {"max_output": 9_000}, "9,000 output tokens (the model's limit)"),
        (
            {"max_output_tokens": 300},
            {},
            "300 output tokens (AGENT_RUNTIME_MAX_OUTPUT_TOKENS)",
        ),
        ({"context_window": 20_000}, {}, "(the room in the context window)"),
        ({"budget_tokens": 12_000}, {}, "(what is left of the budget)"),
    ],
    ids=["model", "setting", "window", "budget"],
)
async def test_a_cut_call_names_its_limit(
    provide: Provide, settings: dict[str, Any], options: dict[str, Any], says: str
) -> None:
    def answer(request: dict[str, Any], n: int) -> list[bytes]:
        if n:
            return anthropic("Done.")
        cut = ("double", '{"number": 1')
        return anthropic("", cut, end="max_tokens", output=request["max_tokens"])

    async with provide(CLAUDE, answer, settings=settings, **options) as world:
        result = await world.run(AGENT)
        ((outcome, text),) = await world.results(result.thread_id)
        last_request = orjson.dumps(world.server.requests[-1]).decode()
    assert (outcome, says in text, says in last_request) == (
        "error",
        True,
        len(world.server.requests) > 1,
    )


async def test_a_cut_before_the_requested_limit_is_reported_as_the_models(provide: Provide) -> None:
    answers = [anthropic("", ("double", '{"num'), end="max_tokens", output=4_000), ANSWERS[CLAUDE]]
    async with provide(CLAUDE, answers) as world:
        result = await world.run(AGENT)
        ((_, text),) = await world.results(result.thread_id)
    assert "4,000 output tokens (the model's limit)" in text


async def test_a_cut_just_before_the_limit_is_reported_as_that_limit(provide: Provide) -> None:
    answers = [anthropic("", ("double", '{"num'), end="max_tokens", output=297), ANSWERS[CLAUDE]]
    async with provide(CLAUDE, answers, settings={"max_output_tokens": 300}) as world:
        result = await world.run(AGENT)
        ((_, text),) = await world.results(result.thread_id)
    assert "300 output tokens (AGENT_RUNTIME_MAX_OUTPUT_TOKENS)" in text


@pytest.mark.parametrize(
    ("name", "budget", "needed"),
    [
        # Of 200,000 tokens an answer gets an eighth; a quarter is enough.
        (CLAUDE, {"budget_tokens": 200_000}, 40_000),
        # A model that no table knows is assumed to have 8,192.
        ("openai/unknown", {}, 20_000),
    ],
    ids=["budget", "unknown"],
)
async def test_reasoning_that_uses_up_the_limit_gets_a_higher_one(
    provide: Provide, name: str, budget: dict[str, Any], needed: int
) -> None:
    def think(request: dict[str, Any], n: int) -> list[bytes]:
        most = limit(request)
        if name == CLAUDE:
            if most < needed:
                return anthropic(end="max_tokens", thinking="Hm.", output=most)
            return anthropic("Done.", thinking="Hm.", output=needed)
        if most < needed:
            return openai_chat(end="length", output=most)
        return openai_chat("Done.")

    async with provide(name, think, settings=budget) as world:
        result = await world.run(AGENT)
        sent = world.server.requests
    limits = [limit(request) for request in sent]
    assert (result.ok, result.output) == (True, "Done.")
    assert limits[0] < needed <= limits[-1]
    assert limits == sorted(set(limits))
    assert len(limits) <= 4
    # The same prompt, which the provider has in its cache.
    assert all(request["messages"] == sent[0]["messages"] for request in sent)
    assert result.usage.calls == len(limits)


@pytest.mark.parametrize(
    ("settings", "options", "calls_made"),
    [
        # The model's own limit, and the user's, stay: the model is asked to think less.
        ({}, {}, 4),
        ({"max_output_tokens": 3_000}, {}, 4),
        # What a budget has left is given once, not again and again.
        ({"budget_tokens": 60_000}, {}, 4),
    ],
    ids=["model", "setting", "budget"],
)
async def test_endless_reasoning_ends_the_run_within_its_limits(
    provide: Provide, settings: dict[str, Any], options: dict[str, Any], calls_made: int
) -> None:
    def think(request: dict[str, Any], n: int) -> list[bytes]:
        return anthropic(end="max_tokens", thinking="Hm.", output=limit(request))

    async with provide(CLAUDE, think, settings=settings, **options) as world:
        result = await world.run(AGENT)
        limits = [limit(request) for request in world.server.requests]
    assert (result.status, result.stop_reason) in (("failed", "length"), ("failed", "budget"))
    assert len(limits) <= calls_made + 3
    assert max(limits) <= settings.get("max_output_tokens", 64_000)
    if "budget_tokens" in settings:
        assert result.usage.prompt_tokens + result.usage.completion_tokens <= 60_000
    else:
        assert len(set(limits)) == 1


async def test_after_an_answer_other_runs_get_their_part_of_the_budget_again(
    provide: Provide,
) -> None:
    def think(request: dict[str, Any], n: int) -> list[bytes]:
        if n == 0:
            return anthropic(end="max_tokens", thinking="Hm.", output=limit(request))
        if n == 1:
            return anthropic("", ("double", '{"number": 1}'), end="tool_use")
        return anthropic("Done.")

    async with provide(CLAUDE, think, settings={"budget_tokens": 200_000}) as world:
        assert (await world.run(AGENT)).ok
        first, raised, after = (limit(request) for request in world.server.requests)
    assert after <= first < raised
