"""LiteLLMModel through litellm's whole path, against a real server on loopback."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Any

import anyio
import pytest

from agent_runtime.errors import (
    ConfigError,
    ModelAuthError,
    ModelError,
    ModelNotFound,
    ModelOverflow,
    ModelProtocolError,
    ModelRejected,
    ModelStalled,
    ModelUnavailable,
    RealModelForbidden,
)
from agent_runtime.messages import Opaque, PromptMessage, ToolCall
from agent_runtime.models.base import (
    ModelAnswer,
    ModelSettings,
    Price,
    RawCall,
    ReasoningDelta,
    Retrying,
    TextDelta,
)
from agent_runtime.models.litellm import LiteLLMModel, forbid_real_models, load_litellm
from agent_runtime.models.native import NativeModel
from agent_runtime.models.rate_limits import limiter
from agent_runtime.testing.model_server import (
    Reply,
    failure,
    overflow,
    rate_limited,
    server_error,
    unauthorized,
    unknown_model,
)
from tests.models.conftest import KEY, READ, Play, Talk, request

OK = Reply(text="Fine.")
SILENT = Reply(stall_after=0)
BROKEN = Reply(text="A long answer.", cut_after=2)


async def test_text_is_streamed_then_given_whole_with_usage_and_cost(play: Play) -> None:
    price = Price(input=3000, output=15000, cache_read=300, cache_write=3750)
    async with play([Reply(text="Hello there.")], price=price) as talk:
        *deltas, answer = await talk.events()
    assert len(deltas) > 1
    assert all(isinstance(delta, TextDelta) for delta in deltas)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello there."
    assert isinstance(answer, ModelAnswer)
    assert (answer.text, answer.calls, answer.finish) == ("Hello there.", (), "stop")
    assert answer.model == talk.model.name == "openai/test"
    assert answer.usage is not None
    assert answer.usage.prompt > 0
    assert answer.cost == answer.usage.prompt * 3000 + answer.usage.completion * 15000
    assert answer.lost == 0


async def test_parallel_calls_are_put_together_from_fragments(play: Play) -> None:
    reply = Reply(text="Reading.", calls=(("read", {"path": "a"}), ("read", {"path": "b"})))
    async with play([reply]) as talk:
        answer = await talk.answer(request(tools=(READ,)))
    assert answer.text == "Reading."
    assert answer.calls == (RawCall("read", '{"path":"a"}'), RawCall("read", '{"path":"b"}'))
    assert answer.finish == "tool_calls"


@pytest.mark.parametrize(
    "raw",
    [RawCall("read", '{"path": '), RawCall("read", "null"), RawCall("no_such_tool", "{}")],
    ids=["invalid JSON", "no object", "unknown tool"],
)
async def test_a_call_that_makes_no_sense_is_passed_on_as_written(play: Play, raw: RawCall) -> None:
    async with play([Reply(calls=((raw.name, raw.arguments),))]) as talk:
        answer = await talk.answer(request(tools=(READ,)))
    assert answer.calls == (raw,)


async def test_reasoning_is_streamed_apart_from_the_text(play: Play) -> None:
    async with play([Reply(text="4", reasoning="2 + 2")]) as talk:
        *deltas, answer = await talk.events()
    assert ReasoningDelta("2 +") in deltas or ReasoningDelta("2 ") in deltas
    assert isinstance(answer, ModelAnswer)
    assert (answer.text, answer.reasoning) == ("4", "2 + 2")


async def test_the_output_limit_is_sent_and_reported(play: Play) -> None:
    async with play([Reply(text="Cut", finish="length")], max_output=50) as talk:
        answer = await talk.answer(request(max_output=100))
    assert answer.finish == "length"
    assert talk.server.requests[0].json["max_tokens"] == 50


async def test_the_request_is_in_openais_form_and_the_same_whatever_its_size(play: Play) -> None:
    call = ToolCall("c00000001", "read", {"path": "a"})
    asked = request(
        PromptMessage("system", "Be brief."),
        PromptMessage("user", "Read a."),
        PromptMessage("assistant", "", calls=(call,)),
        PromptMessage("tool", "text", call_id=call.id, name="read"),
        tools=(READ,),
        marks=(0, 3),
        settings=ModelSettings(temperature=0.5),
        session="t1",
    )
    async with play([OK]) as talk:
        await talk.answer(asked)
    sent = talk.server.requests[0]
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.json == {
        "model": "test",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Read a."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c00000001",
                        "type": "function",
                        "function": {"name": "read", "arguments": '{"path":"a"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c00000001", "content": "text"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Reads a file.",
                    "parameters": READ.parameters,
                },
            }
        ],
        "max_tokens": 4096,
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_a_grown_prompt_reports_its_cached_part(play: Play) -> None:
    price = Price(input=1000, output=0, cache_read=100, cache_write=0)
    long = PromptMessage("user", "word " * 2000)
    async with play([OK, OK], price=price, factor=1.38) as talk:
        first = await talk.answer(request(long))
        second = await talk.answer(request(long, PromptMessage("user", "More.")))
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.cached == 0
    assert 0.9 * first.usage.prompt < second.usage.cached <= first.usage.prompt
    fresh = second.usage.prompt - second.usage.cached
    assert second.cost == fresh * 1000 + second.usage.cached * 100


async def test_usage_that_nobody_reported_is_not_made_up(play: Play) -> None:
    async with play([Reply(text="Hi", usage=False)], price=Price(1, 1, 1, 1)) as talk:
        answer = await talk.answer()
    assert (answer.text, answer.usage, answer.cost) == ("Hi", None, None)


async def test_an_unknown_price_is_not_zero(play: Play) -> None:
    async with play([OK]) as talk:
        answer = await talk.answer()
    assert answer.usage is not None
    assert answer.cost is None


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (unauthorized(KEY), ModelAuthError, "Incorrect API key"),
        (failure(403, "Your project may not use it"), ModelAuthError, "may not use it"),
        (unknown_model("test"), ModelNotFound, "does not exist"),
        (overflow(), ModelOverflow, "maximum context length"),
        (failure(400, "Bad schema for function 'read'"), ModelRejected, "Bad schema"),
        (
            failure(429, "You exceeded your current quota", code="insufficient_quota"),
            ModelAuthError,
            "quota",
        ),
    ],
    ids=["401", "403", "404", "overflow", "400", "no credit"],
)
async def test_what_cannot_pass_is_raised_at_once(
    play: Play, reply: Reply, error: type[ModelError], says: str
) -> None:
    async with play([reply]) as talk:
        with pytest.raises(error) as raised:
            await talk.answer()
    assert says in raised.value.message
    assert raised.value.cure
    assert raised.value.lost == 0
    assert len(talk.server.requests) == 1


async def test_no_key_is_in_an_error_or_its_traceback(play: Play) -> None:
    async with play([unauthorized("***"), unauthorized(KEY)]) as talk:
        for _ in range(2):
            with pytest.raises(ModelAuthError) as raised:
                await talk.answer()
            seen: BaseException | None = raised.value
            while seen is not None:
                assert KEY not in str(seen)
                seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


@pytest.mark.parametrize(
    ("reply", "lost"),
    [
        (rate_limited(), 0),
        (rate_limited("0"), 0),
        (server_error(500), 0),
        (server_error(503), 0),
        (BROKEN, 1),
        (Reply(text="Cut before any text.", cut_after=0), 0),
        (Reply(), 1),
        (Reply(text="  \n"), 1),
        (Reply(text="x", raw_chunk=b"{no json"), 1),
    ],
    ids=[
        "429",
        "429 with a wait",
        "500",
        "503",
        "broken stream",
        "broken before the first chunk",
        "empty",
        "blank",
        "garbage in the stream",
    ],
)
async def test_what_may_pass_is_tried_again(play: Play, reply: Reply, lost: int) -> None:
    async with play([reply, OK]) as talk:
        events = await talk.events()
    retries = [event for event in events if isinstance(event, Retrying)]
    assert [retry.attempt for retry in retries] == [1]
    assert retries[0].reason
    assert isinstance(events[-1], ModelAnswer)
    assert events[-1].text == "Fine."
    # litellm does not say whether the answer's headers had arrived, which may mean a charge.
    answered = reply.cut_after == 0 and isinstance(talk.model, NativeModel)
    assert events[-1].lost == lost + answered


async def test_nothing_of_a_failed_attempt_is_in_the_answer(play: Play) -> None:
    async with play([Reply(text="Wrong half", cut_after=3), Reply(text="Right.")]) as talk:
        events = await talk.events()
    retry = next(i for i, event in enumerate(events) if isinstance(event, Retrying))
    assert any(isinstance(event, TextDelta) for event in events[:retry])
    assert isinstance(events[-1], ModelAnswer)
    assert events[-1].text == "Right."


@pytest.mark.parametrize(
    ("reply", "error", "lost"),
    [
        (rate_limited("0"), ModelUnavailable, 0),
        (server_error(), ModelUnavailable, 0),
        (BROKEN, ModelProtocolError, 3),
        (Reply(), ModelProtocolError, 3),
    ],
    ids=["429", "500", "broken stream", "empty"],
)
async def test_the_last_failure_is_raised_when_the_retries_are_used_up(
    play: Play, reply: Reply, error: type[ModelError], lost: int
) -> None:
    async with play([reply] * 3, retries=2) as talk:
        with pytest.raises(error) as raised:
            await talk.answer()
    assert len(talk.server.requests) == 3
    assert raised.value.lost == lost
    assert raised.value.cure


async def test_an_answer_that_used_up_its_output_is_not_asked_for_again(play: Play) -> None:
    async with play([Reply(finish="length")]) as talk:
        answer = await talk.answer()
    assert (answer.text, answer.finish) == ("", "length")


@pytest.mark.parametrize(("asked", "expected"), [("0.25", 0.25), ("3600", 60.0), ("soon", 0.0)])
async def test_retry_after_is_honoured_up_to_a_minute(
    play: Play, monkeypatch: pytest.MonkeyPatch, asked: str, expected: float
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    # The retry's own wait is what counts here; the others' is in the tests of rate limits.
    monkeypatch.setattr(limiter, "LONGEST_HOLD", 0.0)
    async with play([rate_limited(asked), OK]) as talk:
        await load_litellm()
        monkeypatch.setattr("agent_runtime.models.litellm.anyio.sleep", sleep)
        retry, *_ = await talk.events()
    assert isinstance(retry, Retrying)
    assert retry.wait == expected
    assert slept == [expected]


async def test_silence_before_the_first_byte_is_a_stall_and_tried_again(play: Play) -> None:
    async with play([SILENT, OK], first_byte_timeout=1.0) as talk:
        retry, *_, answer = await talk.events()
    assert isinstance(retry, Retrying)
    assert "sent nothing" in retry.reason
    assert isinstance(answer, ModelAnswer)
    assert answer.lost == 1


async def test_silence_in_the_middle_is_a_stall(play: Play) -> None:
    silent = Reply(text="So far, ", stall_after=3)
    async with play([silent], idle_timeout=0.3, retries=0) as talk:
        with pytest.raises(ModelStalled, match="fell silent") as raised:
            await talk.answer()
        await talk.server.wait_for_connections(0)
    assert raised.value.lost == 1


async def test_a_refused_connection_is_unavailable(play: Play) -> None:
    async with play([]) as talk:
        url = talk.server.base_url
    model = LiteLLMModel("openai/test", base_url=url, api_key=KEY, retries=1)
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        await Talk(model, talk.server).answer()


async def test_leaving_the_stream_closes_the_connection(play: Play) -> None:
    async with play([Reply(text="So far", stall_after=3)]) as talk:
        async with talk.model.stream(request()) as events:
            assert await anext(events) == TextDelta("So")
            assert talk.server.open_connections == 1
        await talk.server.wait_for_connections(0)


@pytest.mark.parametrize("reply", [SILENT, Reply(text="So far", stall_after=3)])
async def test_a_cancelled_call_leaves_no_connection_and_no_task(play: Play, reply: Reply) -> None:
    async with play([OK, reply]) as talk:
        await talk.answer()
        await talk.server.wait_for_connections(1)
        before = _own_tasks()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.answer)
            await talk.server.wait_for_requests(2)
            await talk.server.wait_for_connections(1)
            tasks.cancel_scope.cancel()
        await talk.server.wait_for_connections(0)
        assert _own_tasks() <= before


def _own_tasks() -> set[str]:
    # litellm keeps a worker of its own for its log callbacks; it is not tied to a call.
    names = {task.name or "" for task in anyio.get_running_tasks()}
    return {name for name in names if "LoggingWorker" not in name}


async def test_many_calls_at_once_keep_apart(play: Play) -> None:
    answers: dict[int, str] = {}

    def echo(asked: dict[str, Any], n: int) -> Reply:
        return Reply(text=asked["messages"][-1]["content"])

    async with play([]) as talk:
        talk.server.script = echo

        async def ask(number: int) -> None:
            answer = await talk.answer(request(PromptMessage("user", f"number {number}")))
            answers[number] = answer.text

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ask, number)
    assert answers == {number: f"number {number}" for number in range(20)}


async def test_real_models_can_be_forbidden(monkeypatch: pytest.MonkeyPatch, play: Play) -> None:
    monkeypatch.delenv("AGENT_RUNTIME_FORBID_REAL_MODELS", raising=False)
    abroad = LiteLLMModel("openai/gpt-5", api_key=KEY)
    proxied = LiteLLMModel("openai/gpt-5", api_key=KEY, base_url="http://models.example/v1")
    local = LiteLLMModel("openai/gpt-5", api_key=KEY, local_only=True)
    async with play([OK]) as talk:
        with forbid_real_models():
            for model in (abroad, proxied, local):
                with pytest.raises(RealModelForbidden):
                    await Talk(model, talk.server).answer()
            assert (await talk.answer()).text == "Fine."
    assert "AGENT_RUNTIME_FORBID_REAL_MODELS" not in os.environ


async def test_a_missing_key_is_told_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    monkeypatch.delenv("AGENT_RUNTIME_FORBID_REAL_MODELS", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    model = LiteLLMModel("anthropic:claude-sonnet-4-5")
    async with play([]) as talk:
        with pytest.raises(ModelAuthError, match="ANTHROPIC_API_KEY") as raised:
            await Talk(model, talk.server).answer()
    assert raised.value.cure == "Set ANTHROPIC_API_KEY."


async def test_a_server_of_ones_own_needs_no_key(
    monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with play([OK], api_key=None, name="my-model") as talk:
        await talk.answer()
    assert talk.model.name == "openai/my-model"
    # litellm cannot do without one.
    assert talk.server.requests[0].headers.get("authorization") in (None, "Bearer none")


async def test_openai_itself_is_told_the_session_that_its_cache_routes_by(
    monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    monkeypatch.delenv("AGENT_RUNTIME_FORBID_REAL_MODELS", raising=False)
    async with play([OK], name="openai/gpt-4.1", base_url=None) as talk:
        # So litellm takes the server for OpenAI's own.
        monkeypatch.setenv("OPENAI_BASE_URL", talk.server.base_url)
        answer = await talk.answer(request(session="thread-1"))
    sent = talk.server.requests[0].json
    assert sent["prompt_cache_key"] == hashlib.sha256(b"thread-1").hexdigest()[:32]
    assert [message["content"] for message in sent["messages"]] == ["Be brief.", "Hello."]
    assert answer.cost is not None
    assert answer.cost > 0


async def test_a_key_from_the_environment_does_not_get_out(
    monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "plain-looking-word")
    async with play([unauthorized("plain-looking-word")], api_key=None) as talk:
        with pytest.raises(ModelAuthError) as raised:
            await talk.answer()
    assert talk.server.requests[0].headers["authorization"] == "Bearer plain-looking-word"
    assert "plain-looking-word" not in str(raised.value)


async def test_opaque_data_is_of_the_model_that_made_it(play: Play) -> None:
    reply = Reply(reasoning="Hm.", calls=(("read", {"path": "a"}),))
    async with play([reply]) as talk:
        answer = await talk.answer(request(tools=(READ,)))
    assert answer.opaque == Opaque("openai/test", {"reasoning_content": "Hm."})


def test_a_model_needs_a_name() -> None:
    with pytest.raises(ConfigError):
        LiteLLMModel(" ")


def test_nothing_but_a_call_imports_litellm() -> None:
    code = (
        "import sys, anyio\n"
        "import agent_runtime.models.litellm, agent_runtime.models.scripted\n"
        "import agent_runtime.models as m, agent_runtime.models.tokens as t\n"
        "model = m.model_from_name('anthropic/claude-sonnet-4-5')\n"
        "assert anyio.run(model.info).window == 200_000\n"
        "assert t.count_text('hello world') == 2\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('litellm', 'openai', 'httpx')])\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
async def test_loading_litellm_respects_the_environment_and_reads_no_dotenv() -> None:
    code = (
        "import os, anyio\n"
        "from agent_runtime.models.litellm import load_litellm\n"
        "module = anyio.run(load_litellm)\n"
        "print(os.environ['LITELLM_LOG'], os.environ.get('FROM_DOTENV'))\n"
        "print(module.suppress_debug_info)\n"
    )
    async with anyio.TemporaryDirectory() as folder:
        await (anyio.Path(folder) / ".env").write_text("FROM_DOTENV=1\n")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "LITELLM_LOG": "CRITICAL",
        }
        environment.pop("LITELLM_MODE", None)
        done = await anyio.run_process([sys.executable, "-c", code], cwd=folder, env=environment)
    assert done.stdout.decode().split() == ["CRITICAL", "None", "True"]
