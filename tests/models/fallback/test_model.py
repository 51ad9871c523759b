"""A `FallbackModel` called without a run: what falls back, for how long, and what is reported."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from agent_runtime import FallbackModel, NativeModel, ScriptedModel, Settings, model_from_name
from agent_runtime.errors import (
    ConfigError,
    ModelAuthError,
    ModelError,
    ModelNotFound,
    ModelOverflow,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    RealModelForbidden,
)
from agent_runtime.messages import Opaque, PromptMessage
from agent_runtime.models.base import (
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    Price,
    Retrying,
    TextDelta,
)
from agent_runtime.testing.model_server import (
    Reply,
    failure,
    overflow,
    rate_limited,
    server_error,
    unauthorized,
    unknown_model,
)
from tests.models.conftest import request
from tests.models.fallback.pair import CHEAP, DEAR, FIRST, SECOND, two_providers
from tests.support.worlds import KEY

OK = Reply(text="It is 42.")
MENDED = {
    "rate limit": (rate_limited(), ModelUnavailable),
    "overload": (server_error(529), ModelUnavailable),
    "broken stream": (Reply(text="It is so", cut_after=2), ModelProtocolError),
    "empty answer": (Reply(), ModelProtocolError),
    "wrong key": (unauthorized(KEY), ModelAuthError),
    "no credit": (failure(429, "No credit", code="insufficient_quota"), ModelAuthError),
    "unknown model": (unknown_model("first"), ModelNotFound),
}
REFUSED = {
    "too long": (overflow(), ModelOverflow),
    "bad request": (failure(400, "Bad schema"), ModelRejected),
    "content": (failure(400, "No.", code="content_filter"), ModelRejected),
}


async def call(model: FallbackModel, asked: ModelRequest | None = None) -> list[ModelEvent]:
    """Return all events of one call."""
    async with model.stream(asked or request()) as events:
        return [event async for event in events]


async def answer(model: FallbackModel, asked: ModelRequest | None = None) -> ModelAnswer:
    """Return the answer of one call."""
    last = (await call(model, asked))[-1]
    assert isinstance(last, ModelAnswer)
    return last


@pytest.mark.parametrize("fault", [one for one, _ in MENDED.values()], ids=MENDED)
async def test_another_model_answers_where_one_fails(fault: Reply) -> None:
    async with two_providers([fault], [OK]) as pair:
        *before, last = await call(pair.model)
        again = await answer(pair.model)
    assert isinstance(last, ModelAnswer) and (last.text, last.model) == ("It is 42.", SECOND)
    retry = next(one for one in before if isinstance(one, Retrying))
    assert FIRST in retry.reason and f"{SECOND} is asked" in retry.reason
    assert KEY not in retry.reason
    # What was paid for in vain is in the answer, by whichever model.
    broken = fault.status == 200
    assert (retry.lost, last.lost) == (broken, broken)
    # The first is not asked again while its cool-down lasts.
    assert (again.model, len(pair.first.requests)) == (SECOND, 1)


@pytest.mark.parametrize(("fault", "error"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_request_goes_to_no_other_model(
    fault: Reply, error: type[ModelError]
) -> None:
    async with two_providers([fault], [OK]) as pair:
        with pytest.raises(error) as raised:
            await call(pair.model)
        assert type(raised.value) is error and not pair.second.requests


@pytest.mark.parametrize(("fault", "error"), MENDED.values(), ids=MENDED)
async def test_if_all_fail_the_error_is_the_last_and_names_all(
    fault: Reply, error: type[ModelError]
) -> None:
    async with two_providers([server_error()], [fault]) as pair:
        with pytest.raises(error, match="All 2 models failed") as raised:
            await call(pair.model)
    assert type(raised.value) is error and raised.value.cure
    assert FIRST in raised.value.message and SECOND in raised.value.message
    assert KEY not in str(raised.value)


async def test_deltas_of_a_broken_stream_come_before_the_report_of_its_failure() -> None:
    async with two_providers([Reply(text="Not this at all", cut_after=3)], [OK]) as pair:
        events = await call(pair.model)
    at = next(n for n, event in enumerate(events) if isinstance(event, Retrying))
    said = [event.text for event in events[at:] if isinstance(event, TextDelta)]
    assert any(isinstance(event, TextDelta) for event in events[:at])
    assert "".join(said) == "It is 42."


async def test_a_cool_down_doubles_and_ends_with_an_answer() -> None:
    down, asked = [True], 0

    def first(_: object, n: int) -> Reply:
        nonlocal asked
        asked = n + 1
        return server_error() if down[0] else OK

    async with two_providers(first, [OK], cool_down=60.0) as pair:
        assert (await answer(pair.model)).model == SECOND
        for wait, tries in ((59.0, 1), (1.0, 2), (119.0, 2), (1.0, 3), (239.0, 3)):
            pair.clock.now += wait
            assert (await answer(pair.model)).model == SECOND
            assert asked == tries
        down[0] = False
        pair.clock.now += 1.0
        assert (await answer(pair.model)).model == FIRST
        down[0] = True
        assert (await answer(pair.model)).model == SECOND
        pair.clock.now += 60.0
        await answer(pair.model)
        assert asked == 6


async def test_models_in_their_cool_down_are_better_than_none() -> None:
    async with two_providers([server_error(), OK], [server_error()]) as pair:
        with pytest.raises(ModelUnavailable):
            await call(pair.model)
        assert (await answer(pair.model)).model == FIRST


async def test_what_a_person_has_to_mend_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with two_providers([unauthorized(KEY)], [OK], cool_down=0.0) as pair:
        for _ in range(3):
            assert (await answer(pair.model)).model == SECOND
        assert len(pair.first.requests) == 3
    warned = [one for one in caplog.messages if "Check the provider's key" in one]
    assert len(warned) == 1 and KEY not in caplog.text


async def test_no_model_gets_the_reasoning_of_another() -> None:
    seen: list[ModelRequest] = []

    def script(asked: ModelRequest) -> str:
        seen.append(asked)
        return "Done."

    failing = ScriptedModel([ModelUnavailable("Down.")], name="one")
    model = FallbackModel([failing, ScriptedModel(script, name="two")])
    of_one = PromptMessage("assistant", "A", opaque=Opaque("one", {"signature": "x"}))
    of_two = PromptMessage("assistant", "B", opaque=Opaque("two", {"signature": "y"}))
    asked = request(of_one, of_two, marks=(0, 1))
    assert (await answer(model, asked)).model == "two"
    assert [one.opaque for one in failing.requests[0].messages] == [of_one.opaque, None]
    assert [one.opaque for one in seen[0].messages] == [None, of_two.opaque]
    assert seen[0].marks == ()


async def test_its_facts_hold_for_each_of_its_models() -> None:
    one = NativeModel("anthropic/claude-sonnet-4-5", window=50_000, api_key=KEY, price=DEAR)
    other = NativeModel("openai/gpt-4o", max_output=900, api_key=KEY, price=Price(5000, 1, 400, 2))
    info = await FallbackModel([one, FallbackModel([other, ScriptedModel([])])]).info()
    assert (info.window, info.max_output, info.takes) == (50_000, 900, frozenset())
    assert info.price is not None
    rates = info.price.input, info.price.output, info.price.cache_read, info.price.cache_write
    assert rates == (5000, 15_000, 400, 3000)
    assert info.name == "anthropic/claude-sonnet-4-5,openai/gpt-4o,scripted"
    unknown = NativeModel("openai/none-such", base_url="http://127.0.0.1:1/v1")
    assert (await FallbackModel([one, unknown]).info()).price is None
    assert CHEAP.input < DEAR.input


# Made from names


async def test_names_with_commas_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    settings = Settings(
        model="openai/first, groq/second",
        model_base_url="http://127.0.0.1:9/v1",
        context_window=20_000,
        price_input=1.0,
        price_output=2.0,
    )
    model = model_from_name(settings.model, settings, retries=7)
    assert isinstance(model, FallbackModel)
    infos = [await one.info() for one in model.models]
    assert [one.name for one in infos] == ["openai/first", "groq/second"]
    # The settings of the main model are for the first.
    assert [one.window for one in infos] == [20_000, 128_000]
    assert infos[0].price == Price(1000, 2000, 1000, 1000) and infos[1].price is None
    await model.check()
    with pytest.raises(RealModelForbidden, match=r"All 2 models failed\. groq/second"):
        await FallbackModel([model.models[1], "xai/grok-4"]).check()


async def test_runs_share_what_is_known_of_models_made_from_names() -> None:
    async with two_providers([server_error()], [OK]) as pair:
        urls: dict[str, Any] = {"base_url": pair.first.base_url, "api_key": KEY, "retries": 0}
        second = pair.model.models[1]
        assert (await answer(FallbackModel([FIRST, second], **urls))).model == SECOND
        assert (await answer(FallbackModel([FIRST, second], **urls))).model == SECOND
        assert len(pair.first.requests) == 1
        other: dict[str, Any] = urls | {"api_key": f"{KEY}-of-another"}
        assert (await answer(FallbackModel([FIRST, second], **other))).model == SECOND
        assert len(pair.first.requests) == 2


@pytest.mark.parametrize(
    ("models", "options", "text"),
    [
        (["openai/one"], {}, "two models or more"),
        ("openai/one", {}, "two models or more"),
        (["openai/one", " "], {}, "two models or more"),
        (["openai/one", "openai/one"], {}, "twice"),
        (["same", "openai/one"], {}, "'same'"),
        (["openai/one", "scripted"], {}, "names no language model"),
        ([ScriptedModel([]), ScriptedModel([])], {"retries": 3}, "retries is for models"),
        (["openai/one", "openai/two"], {"cool_down": float("nan")}, "no number of seconds"),
        (["openai/one", "openai/two"], {"cool_down": -1.0}, "no number of seconds"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_cure(
    models: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text) as raised:
        FallbackModel(models, **options)
    assert raised.value.cure
