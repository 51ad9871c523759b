"""How runs end by their answers' stop reasons, with servers that stream as providers do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pytest

from agent_runtime import Agent, LiteLLMModel, Runtime, Settings
from agent_runtime.cli.exit_codes import MODEL, code_of_result
from agent_runtime.log.exchange import Exchange
from agent_runtime.messages import AssistantMessage, decode_message, encode_message
from agent_runtime.models import attempts
from agent_runtime.models.base import ModelAnswer, RawCall
from agent_runtime.prompt.normalise import normalise_answer
from agent_runtime.run.tool_calls import partition_calls
from agent_runtime.testing.providers.anthropic import Anthropic
from agent_runtime.testing.providers.server import Call, Say, Think
from agent_runtime.tools.toolset import Toolset
from tests.support.providers.scripted_server import (
    Answers,
    ProviderServer,
    anthropic,
    gemini,
    openai_chat,
)
from tests.support.worlds import KEY, REPEATING, World, double

CLAUDE = "anthropic/claude-sonnet-4-5"
GEMINI = "gemini/gemini-2.5-flash"
GPT = "openai/gpt-4.1"
BASES = {GEMINI: "/v1beta", GPT: "/v1"}
AGENT = Agent(tools=[double])


@dataclass
class Provided(World):
    """A world whose model is a server that streams as its provider does."""

    server: ProviderServer = field(default_factory=lambda: ProviderServer([]))


Provide: TypeAlias = Callable[..., AbstractAsyncContextManager[Provided]]


@pytest.fixture
def provide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Provide:
    """Return a function that opens a runtime whose model answers as its provider streams."""
    path = tmp_path / "runs.db"
    url_of_database = f"file:{path}"
    monkeypatch.setattr(attempts, "FIRST_WAIT", 0.0)
    monkeypatch.setenv("AGENT_RUNTIME_FORBID_REAL_MODELS", "1")

    @asynccontextmanager
    async def open_provided(
        name: str, answers: Answers, *, settings: dict[str, Any] | None = None, **options: Any
    ) -> AsyncGenerator[Provided]:
        async with ProviderServer(answers) as server:
            url = server.url + BASES.get(name, "")
            options = {"base_url": url, "api_key": KEY, "retries": 2} | options
            model = LiteLLMModel(name, **options)
            opened_with = Settings(database_url=url_of_database, **(REPEATING | (settings or {})))
            async with Runtime.open(opened_with, model=model) as runtime:
                yield Provided(runtime, model, url_of_database, path.read_bytes, server=server)

    return open_provided


async def test_gemini_works_through_a_run(provide: Provide) -> None:
    answers = [
        gemini("Doubling.", ("double", '{"number": 21}')),
        gemini("It is", end=None),
        gemini("It is 42.", late_usage=True),
    ]
    async with provide(GEMINI, answers) as world:
        result = await world.run(AGENT)
        assert (result.ok, result.output, result.steps) == (True, "It is 42.", 2)
        assert await world.results(result.thread_id) == [("ok", "42")]
        assert len(world.server.requests) == 3


REFUSED = {
    "anthropic refusal": (CLAUDE, anthropic("I will", end="refusal"), "refusal"),
    "anthropic refusal of a call": (
        CLAUDE,
        anthropic("I will", ("double", '{"number": 1}'), end="refusal"),
        "refusal",
    ),
    "openai refusal": (GPT, openai_chat(refusal="I will not."), "refusal"),
    "openai filter": (GPT, openai_chat("I will", end="content_filter"), "content_filter"),
    "openai filter of a call": (
        GPT,
        openai_chat("I will", ("double", '{"number": 1}'), end="content_filter"),
        "content_filter",
    ),
    "gemini safety": (GEMINI, gemini("I will", end="SAFETY"), "content_filter"),
    "gemini, prohibited": (GEMINI, gemini("I will", end="PROHIBITED_CONTENT"), "content_filter"),
    "gemini, of a new reason": (GEMINI, gemini("I will", end="BORED"), "error"),
    "anthropic, of a new reason": (CLAUDE, anthropic("I will", end="bored"), "error"),
    "openai, of a new reason": (GPT, openai_chat("I will", end="bored"), "error"),
}


@pytest.mark.parametrize(("name", "pieces", "reason"), REFUSED.values(), ids=REFUSED)
async def test_a_refusal_fails_the_run_and_its_text_stays_in_the_log(
    provide: Provide, name: str, pieces: list[bytes], reason: str
) -> None:
    async with provide(name, [pieces]) as world:
        result = await world.run(AGENT)
        assert (result.status, result.stop_reason, result.output) == ("failed", reason, None)
        assert name in result.detail
        assert "another model" in result.detail or "Rephrase" in result.detail
        assert await world.results(result.thread_id) == []
        assert (await answered(world, result.thread_id))[-1].startswith("I will")
        assert result.usage.completion_tokens == 7
    assert code_of_result(result) == MODEL


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        (GEMINI, gemini(blocked="PROHIBITED_CONTENT")),
        (GEMINI, gemini(end="SAFETY")),
        (GPT, openai_chat(end="content_filter")),
    ],
)
async def test_a_wholly_withheld_answer_ends_the_run_and_is_paid(
    provide: Provide, name: str, pieces: list[bytes]
) -> None:
    async with provide(name, always(pieces)) as world:
        result = await world.run(AGENT)
        assert (result.status, result.stop_reason, result.steps) == ("failed", "content_filter", 1)
        assert (result.usage.calls, result.usage.prompt_tokens) == (1, 9)
        assert len(world.server.requests) == 1
        again = await world.resume(AGENT)
    assert (again.stop_reason, again.steps) == ("content_filter", 2)


@pytest.mark.parametrize("end", ["refusal", "bored"])
async def test_a_thread_continues_after_refused_calls_between_thinking(
    provide: Provide, end: str
) -> None:
    call = Call("double", {"number": 1})
    turn = (Think("Hm."), Say("I "), Think("So."), Say("will"), call, Think("And."), call)
    pieces = Anthropic(thinking=True).stream(turn, 0)
    pieces[-2] = pieces[-2].replace(
        b'"stop_reason":"tool_use"', b'"stop_reason":"%b"' % end.encode()
    )
    async with provide(CLAUDE, [pieces, anthropic("Done.")]) as world:
        first = await world.run(AGENT)
        assert first.status == "failed"
        second = await world.runtime.run(
            replace(AGENT, model=world.model), "Then?", thread=first.thread_id
        )
        _, answer, _ = world.server.requests[1]["messages"]
    assert second.ok
    assert [(part["type"], part["text"]) for part in answer["content"]] == [("text", "I will")]


def always(pieces: list[bytes]) -> Answers:
    """Return answers that repeat the same stream."""
    return lambda request, n: pieces


def numbered(make: Callable[[int], list[bytes]]) -> Answers:
    """Return answers that are made from their number."""
    return lambda request, n: make(n)


def ending(name: str, text: str, *calls: tuple[str, str], cut: bool = True) -> list[bytes]:
    """Return an answer, cut at its output limit or not."""
    if name == CLAUDE:
        end = "max_tokens" if cut else "tool_use" if calls else "end_turn"
        return anthropic(text, *calls, end=end)
    if name == GEMINI:
        return gemini(text, *calls, end="MAX_TOKENS" if cut else "STOP")
    end = "length" if cut else "tool_calls" if calls else "stop"
    return openai_chat(text, *calls, end=end)


EACH = pytest.mark.parametrize("name", [CLAUDE, GPT, GEMINI])


@EACH
async def test_a_cut_text_is_continued_and_joined(provide: Provide, name: str) -> None:
    answers = [
        ending(name, "One, "),
        ending(name, "two, "),
        ending(name, "thr"),
        ending(name, "ee.", cut=False),
    ]
    async with provide(name, answers, settings={"max_output_tokens": 7}) as world:
        result = await world.run(AGENT)
        assert (result.ok, result.output, result.steps) == (True, "One, two, three.", 4)
        assert await answered(world, result.thread_id) == ["One, ", "two, ", "thr", "ee."]
        sent = orjson.dumps(world.server.requests[1]).decode()
    assert "7 output tokens (AGENT_RUNTIME_MAX_OUTPUT_TOKENS)" in sent


@EACH
async def test_an_endless_text_ends_the_run(provide: Provide, name: str) -> None:
    async with provide(name, numbered(lambda n: ending(name, f"{n}, "))) as world:
        result = await world.run(AGENT)
        assert (result.status, result.stop_reason, result.steps) == ("failed", "length", 4)
        assert "cut 4 times" in result.detail
        assert await answered(world, result.thread_id) == ["0, ", "1, ", "2, ", "3, "]
    assert code_of_result(result) == MODEL


async def test_a_full_window_with_a_short_prompt_ends_the_run(provide: Provide) -> None:
    pieces = anthropic("More, ", end="model_context_window_exceeded")
    async with provide(CLAUDE, always(pieces)) as world:
        result = await world.run(AGENT)
    assert (result.stop_reason, result.steps) == ("length", 4)
    assert "context window" in result.detail


async def test_a_paused_answer_is_continued_and_joined(provide: Provide) -> None:
    answers = [anthropic(f"{n}, ", end="pause_turn") for n in range(5)] + [anthropic("done.")]
    async with provide(CLAUDE, answers) as world:
        result = await world.run(AGENT)
    assert (result.ok, result.output) == (True, "0, 1, 2, 3, 4, done.")


async def test_endless_pauses_end_the_run(provide: Provide) -> None:
    async with provide(CLAUDE, always(anthropic("Hm, ", end="pause_turn"))) as world:
        result = await world.run(AGENT)
    assert (result.status, result.stop_reason) == ("failed", "error")
    assert "pause_turn" in result.detail
    assert result.steps < 20


@EACH
async def test_steering_does_not_split_a_continued_answer(provide: Provide, name: str) -> None:
    async with provide(name, []) as world:

        async def answer(request: dict[str, Any], n: int) -> list[bytes]:
            if n == 0:
                await world.runtime.steer(world.run_id, "And be brief.")
            return ending(name, ["Four", "teen."][n], cut=n == 0)

        world.server.answers = answer
        result = await world.run(AGENT)
    assert result.output == "Fourteen."


@EACH
async def test_reasoning_that_fills_the_limit_is_continued(provide: Provide, name: str) -> None:
    answers = [ending(name, ""), ending(name, "Done.", cut=False)]
    async with provide(name, answers) as world:
        result = await world.run(AGENT)
        assert (result.ok, result.output) == (True, "Done.")
        assert await answered(world, result.thread_id) == ["Done."]
        assert result.usage.calls == 2
    async with provide(name, always(ending(name, ""))) as world:
        result = await world.run(AGENT)
    assert (result.status, result.stop_reason, result.steps) == ("failed", "length", 4)


async def test_unsigned_thinking_is_not_sent_back(
    provide: Provide,
) -> None:
    turn = (Think("Hm."), Call("double", {"number": 1}), Think("And now"))
    pieces = Anthropic(thinking=True).stream(turn, 0)
    pieces[-2] = pieces[-2].replace(b"tool_use", b"max_tokens")
    *_, signed = (n for n, piece in enumerate(pieces) if b"signature_delta" in piece)
    del pieces[signed]
    async with provide(CLAUDE, [pieces, anthropic("Done.")]) as world:
        assert (await world.run(AGENT)).ok
        _, answer, _ = world.server.requests[1]["messages"]
    assert [part["type"] for part in answer["content"]] == ["thinking", "tool_use"]
    assert answer["content"][0]["signature"]


CUT_CALL = '{"number": 2'


@pytest.mark.parametrize("rest", [CUT_CALL, ""], ids=["in the middle", "before its arguments"])
@pytest.mark.parametrize("name", [CLAUDE, GPT])
async def test_a_cut_call_does_not_run_and_complete_ones_do(
    provide: Provide, name: str, rest: str
) -> None:
    answers = [
        ending(name, "Both.", ("double", '{"number": 1}'), ("double", rest)),
        ending(name, "Done.", cut=False),
    ]
    async with provide(name, answers, settings={"max_output_tokens": 7}) as world:
        result = await world.run(AGENT)
        whole, cut = await world.results(result.thread_id)
        assert result.ok
    assert whole == ("ok", "2")
    assert cut[0] == "error"
    assert "cut at 7 output tokens (AGENT_RUNTIME_MAX_OUTPUT_TOKENS)" in cut[1]
    assert "parts" in cut[1]


async def test_a_cut_call_does_not_run_after_a_crash_either(provide: Provide) -> None:
    call = decode_message(
        encode_message(
            normalise_answer(
                ModelAnswer("", (RawCall("clear", ""),), "length", "m"), 1, cut="It was cut."
            )
        )
    )
    assert isinstance(call, AssistantMessage)
    ready, done = partition_calls(Exchange(1, call, 0.0), Toolset([double]))
    assert (ready, done[0].outcome) == ([], "error")


async def test_malformed_calls_are_asked_for_again_a_few_times(provide: Provide) -> None:
    bad = gemini("Let me ", end="MALFORMED_FUNCTION_CALL")
    empty = gemini(end="MALFORMED_FUNCTION_CALL")
    answers = [
        bad,
        empty,
        gemini("", ("double", '{"number": 21}')),
        bad,
        gemini("It is 42."),
    ]
    async with provide(GEMINI, answers) as world:
        result = await world.run(AGENT)
        assert (result.ok, result.output, result.steps) == (True, "It is 42.", 5)
        assert await world.results(result.thread_id) == [("ok", "42")]
        assert "MALFORMED_FUNCTION_CALL" in orjson.dumps(world.server.requests[1]).decode()
    async with provide(GEMINI, numbered(lambda n: empty if n % 2 else bad)) as world:
        result = await world.run(AGENT)
    assert (result.status, result.stop_reason, result.steps) == ("failed", "error", 4)
    assert "MALFORMED_FUNCTION_CALL" in result.detail


@EACH
async def test_a_structured_output_in_two_parts_is_joined(provide: Provide, name: str) -> None:
    agent = Agent(output_type=list[int])
    answers = [ending(name, "[1, 2, "), ending(name, "3]", cut=False)]
    async with provide(name, answers) as world:
        result = await world.run(agent)
    assert (result.ok, result.output) == (True, [1, 2, 3])


@EACH
async def test_an_endless_structured_output_is_an_error(provide: Provide, name: str) -> None:
    agent = Agent(output_type=list[int])
    async with provide(name, always(ending(name, "[1, "))) as world:
        result = await world.run(agent)
    assert (result.status, result.stop_reason, result.output) == ("failed", "length", None)


async def test_a_cut_call_of_the_output_is_an_error_that_says_so(provide: Provide) -> None:
    agent = Agent(output_type=list[int])
    pieces = anthropic("", ("final_result", '{"value": [1, '), end="max_tokens")
    async with provide(CLAUDE, always(pieces)) as world:
        result = await world.run(agent)
    assert (result.status, result.stop_reason) == ("failed", "length")
    assert "cut at" in result.detail


async def test_a_resume_continues_an_answer_that_was_cut_too_often(provide: Provide) -> None:
    answers = [anthropic(f"{n}, ", end="max_tokens") for n in range(4)] + [anthropic("four.")]
    async with provide(CLAUDE, answers) as world:
        assert (await world.run(AGENT)).stop_reason == "length"
        result = await world.resume(AGENT)
    assert (result.ok, result.output) == (True, "0, 1, 2, 3, four.")


@pytest.mark.parametrize(
    ("end", "reason"),
    [("refusal", "refusal"), ("max_tokens", "length"), ("bored", "error")],
)
async def test_a_parent_receives_the_failure_of_its_sub_agent(
    provide: Provide, end: str, reason: str
) -> None:
    def answer(request: dict[str, Any], n: int) -> list[bytes]:
        if "You are a sub-agent" in orjson.dumps(request["system"]).decode():
            return anthropic("One, ", end=end)
        if n == 0:
            arguments: dict[str, Any] = {"role": "counter", "instructions": "Count.", "tools": []}
            return anthropic("", ("delegate", orjson.dumps(arguments).decode()), end="tool_use")
        return anthropic("It failed.")

    async with provide(CLAUDE, answer) as world:
        result = await world.run(Agent(instructions="Ask others.", tools=[double], delegation=True))
        ((outcome, text),) = await world.results(result.thread_id)
    assert outcome == "error"
    outcome_of_child = orjson.loads(text)
    assert (outcome_of_child["status"], outcome_of_child["stop_reason"]) == ("failed", reason)
    assert outcome_of_child["blockers"]
    assert outcome_of_child["result"] == "One, "


async def answered(world: World, thread_id: str) -> list[str]:
    """Return the texts of the answers on a thread's branch."""
    thread = await world.store.threads.get(thread_id)
    assert thread.head is not None
    nodes = await world.store.log.branch(thread_id, thread.head)
    messages = [decode_message(node.body) for node in nodes]
    return [
        message.text
        for message in messages
        if isinstance(message, AssistantMessage) and message.text
    ]
