"""The model Observer: how its answers and failures are handled."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from agent_runtime.errors import (
    ModelAuthError,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelStalled,
    ModelUnavailable,
)
from agent_runtime.memory.observational.ledgers import ledger_sources
from agent_runtime.memory.observational.observer.base import ObserverFailed, ObserverInput
from agent_runtime.memory.observational.observer.model import (
    INSTRUCTIONS,
    ModelObserver,
)
from agent_runtime.memory.observational.observer.notes_format import NOTHING
from agent_runtime.messages import (
    Note,
)
from agent_runtime.models.base import (
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    Retrying,
    TextDelta,
)
from agent_runtime.models.scripted import Scripted, ScriptedModel, say
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.view import Entry
from agent_runtime.testing.model_server import Reply, overflow, server_error
from tests.memory.observational.model_observers import (
    ASKED,
    AT,
    GOOD,
    INTERVAL,
    NOTES,
    PRICE,
    QUIET,
    WHEN,
    fails,
    observer,
    sent_to,
    user,
)
from tests.models.conftest import Play
from tests.models.conftest import play as play
from tests.models.conftest import transport as transport


async def test_recalled_messages_are_not_observed_again() -> None:
    watcher, model = await observer([GOOD])
    recalled = Entry(3, 2, Note("src/old_secret.py was deleted long ago.", source="recall"), at=AT)

    await watcher.observe(ObserverInput((*INTERVAL.entries, recalled)))

    assert "old_secret" not in sent_to(model.requests[0]) and ASKED in sent_to(model.requests[0])
    assert not [source for source in ledger_sources([recalled]) if source.text]


async def test_it_reads_a_fenced_transcript_and_returns_notes_and_costs() -> None:
    watcher, model = await observer([GOOD])
    seen = await watcher.observe(INTERVAL)
    (request,) = model.requests
    assert (seen.notes, seen.origin, seen.model) == (NOTES, "model", "scripted")
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.messages[0].text == INSTRUCTIONS
    assert request.settings.temperature == 0.3
    match = re.match(r"The code is (\w+)\.", sent_to(request))
    assert match
    assert f"<transcript {match[1]}>\n[{match[1]} | node 1 | {WHEN} | user]\n{ASKED}" in sent_to(
        request
    )
    (made,) = seen.calls
    assert made.answer.usage is not None
    assert 0 <= made.counted - made.answer.usage.prompt < 40
    most = watcher.bound(INTERVAL)
    assert made.answer.cost is not None
    assert 0 < made.counted + made.answer.usage.completion <= most[0]
    assert 0 < made.answer.cost <= most[1]


async def test_the_verdict_is_not_a_note() -> None:
    watcher, _ = await observer([NOTHING])
    assert (await watcher.observe(QUIET)).notes is None


async def test_an_unusable_answer_is_requested_again_with_the_reason() -> None:
    watcher, model = await observer([NOTHING, GOOD])
    seen = await watcher.observe(INTERVAL)
    assert seen.notes == NOTES
    assert len(seen.calls) == 2
    first, second = (request.messages for request in model.requests)
    # The same conversation goes on, so that the provider's cache holds all of the first prompt.
    assert second[: len(first)] == first
    assert (second[2].role, second[2].text) == ("assistant", NOTHING)
    assert second[-1].text.startswith("Your answer was rejected. It says that there is nothing")
    assert seen.calls[1].counted > seen.calls[0].counted


PROSE = "Here is what I think of it.\nIt was long.\nIt was hard.\nI read it all.\nSee below:\n"
THRICE = f"{WHEN} | critical | User wants port 8443.\n{WHEN} | done | It is set.\n" * 3


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(f"{GOOD}\n{NOTHING}", id="notes and the verdict"),
        pytest.param(f"[{{code}} | node 1 | {WHEN} | user]\n{GOOD}", id="a mark"),
        pytest.param(f"{GOOD}\n{WHEN} | info | {INSTRUCTIONS.splitlines()[0]}", id="instructions"),
        pytest.param(PROSE + THRICE, id="prose and repetition"),
    ],
)
async def test_the_good_lines_of_a_rejected_answer_are_taken_without_a_call(answer: str) -> None:
    def respond(request: ModelRequest) -> Scripted:
        return answer.replace("{code}", sent_to(request)[12:18])

    watcher, model = await observer(respond)
    seen = await watcher.observe(INTERVAL)
    assert len(model.requests) == 1 and seen.notes is not None
    assert NOTES.lines[0] in seen.notes.lines
    assert all(
        "node 1" not in line.text and "You keep" not in line.text for line in seen.notes.lines
    )
    assert len({line.text for line in seen.notes.lines}) == len(seen.notes.lines)


async def test_slightly_long_notes_lose_their_oldest_information_only() -> None:
    lines = [f"{WHEN} | info | The service listens on port {n} there" for n in range(8080, 8093)]
    extra = f"{WHEN} | critical | User forbids port 8080."
    watcher, model = await observer(["\n".join([*lines, extra])])
    seen = await watcher.observe(INTERVAL)
    assert len(model.requests) == 1 and seen.notes is not None
    texts = [line.text for line in seen.notes.lines]
    assert texts[-2:] == ["The service listens on port 8092 there", "User forbids port 8080."]
    assert 0 < len(texts) - 1 < len(lines)


async def test_reasoning_that_uses_up_the_limit_is_given_more_room_and_less_effort() -> None:
    eaten = ModelAnswer("", (), "length", model="scripted", reasoning="Let me think. " * 9)
    watcher, model = await observer([eaten, GOOD, GOOD], most_output=500)
    most = watcher.bound(INTERVAL)
    seen = await watcher.observe(INTERVAL)
    assert seen.notes == NOTES
    first, second = model.requests
    assert (first.max_output, second.max_output) == (500, 1000)
    assert (first.settings.reasoning, second.settings.reasoning) == (None, "low")
    assert second.messages == first.messages
    used = [made.answer.usage for made in seen.calls]
    assert sum(usage.prompt + usage.completion for usage in used if usage) <= most[0]
    # The next interval begins with the limit that was enough.
    assert (await watcher.observe(INTERVAL)).notes == NOTES
    assert model.requests[-1].max_output == 1000


async def test_a_rejected_answer_shows_no_code_and_is_shortened() -> None:
    def respond(request: ModelRequest) -> Scripted:
        if len(request.messages) > 2:
            return GOOD
        return f"</transcript {sent_to(request)[12:18]}> " + "Well, I read it. " * 3000

    watcher, model = await observer(respond)
    assert (await watcher.observe(INTERVAL)).notes == NOTES
    code, shown = sent_to(model.requests[0])[12:18], model.requests[1].messages[2]
    assert shown.role == "assistant" and code not in shown.text and "[code]" in shown.text
    assert count_text(shown.text) <= watcher.rejected_tokens + 10


async def test_an_interval_of_too_many_calls_is_refused_before_the_first() -> None:
    watcher, model = await observer([], limit=300)
    long = ObserverInput((user(1, " ".join(f"word{n}" for n in range(4000))),))
    with pytest.raises(ObserverFailed, match="16 are allowed"):
        await watcher.observe(long)
    assert model.requests == [] and watcher.bound(long) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (say(""), "empty"),
        (say(NOTHING), "nothing to observe"),
        (say("I did what you asked."), "no line of notes"),
        (say(f"{WHEN} | info | again\n" * 60), "over and over"),
        (replace(say(GOOD), finish="length"), "length limit"),
    ],
)
async def test_it_gives_up_after_two_unusable_answers(answer: ModelAnswer, why: str) -> None:
    error = await fails([answer, answer, GOOD])
    assert why in error.message
    assert len(error.calls) == 2


@pytest.mark.parametrize(
    "fault",
    [
        ModelUnavailable("The model is down."),
        ModelStalled("It fell silent."),
        ModelProtocolError("It broke off."),
    ],
)
async def test_a_temporary_failure_is_retried_once(fault: ModelError) -> None:
    watcher, _ = await observer([fault, GOOD])
    assert (await watcher.observe(INTERVAL)).notes == NOTES
    error = await fails([fault, fault, GOOD])
    assert error.message == fault.message


@pytest.mark.parametrize(
    "fault", [ModelAuthError("No key."), ModelRejected("Refused."), ModelError("Something.")]
)
async def test_a_permanent_failure_is_not_retried(fault: ModelError) -> None:
    error = await fails([fault, fault, GOOD], temperature=None)
    assert error.message == fault.message
    watcher, model = await observer([fault, GOOD], temperature=None)
    with pytest.raises(ObserverFailed):
        await watcher.observe(INTERVAL)
    assert len(model.requests) == 1


async def test_a_model_that_rejects_temperature_is_called_without() -> None:
    def respond(request: ModelRequest) -> Scripted:
        given = request.settings.temperature is not None
        return ModelRejected("No temperature.") if given else GOOD

    watcher, model = await observer(respond, name="without-temperature")
    seen = await watcher.observe(INTERVAL)
    assert seen.notes == NOTES
    assert len(seen.calls) == 1 and len(model.requests) == 2
    # No Observer of this process sends it again.
    watcher, model = await observer(respond, name="without-temperature")
    assert (await watcher.observe(INTERVAL)).notes == NOTES
    assert len(model.requests) == 1


async def test_it_ends_at_its_deadline_and_reports_what_may_be_billed() -> None:
    error = await fails([GOOD], timeout=0.05, delay=3600)
    assert "longer than 0.05 seconds" in error.message
    (made,) = error.calls
    assert made.answer.usage is None
    assert made.counted > 0


async def test_it_does_not_start_a_wait_that_exceeds_the_deadline() -> None:
    down = ModelUnavailable("The model is down.")
    error = await fails([down, GOOD], timeout=100, wait=3600)
    assert error.message == down.message


async def test_lost_attempts_of_stalled_calls_are_reported() -> None:
    error = await fails([ModelStalled("Silent.", lost=3), ModelStalled("Silent.", lost=1)])
    assert [(made.answer.usage, made.answer.lost) for made in error.calls] == [(None, 2), (None, 0)]


class Broken(ScriptedModel):
    """A model that violates its protocol."""

    def __init__(self, events: list[ModelEvent | Exception]) -> None:
        super().__init__([])
        self._broken = events

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        yield self._broken_stream()

    async def _broken_stream(self) -> AsyncIterator[ModelEvent]:
        for event in self._broken:
            if isinstance(event, Exception):
                raise event
            yield event


@pytest.mark.parametrize(
    ("events", "lost"),
    [
        ([], [0, 0]),
        ([TextDelta("x"), Retrying("Down.", 1, 0.0, lost=2)], [2, 2]),
        ([KeyError("sk-secret")], [0]),
    ],
)
async def test_a_protocol_violation_raises_only_observer_errors(
    events: list[ModelEvent | Exception], lost: list[int]
) -> None:
    model = Broken(events)
    watcher = ModelObserver(model, await model.info(), 600.0, wait=0.0)
    with pytest.raises(ObserverFailed) as caught:
        await watcher.observe(INTERVAL)
    assert [made.answer.lost for made in caught.value.calls] == lost
    assert "sk-secret" not in caught.value.message


# At the price of batches


EARLY = replace(INTERVAL, early=True)
FLEX = replace(PRICE, services=(("flex", PRICE.times(0.5)),))


def _tiers(model: ScriptedModel) -> list[str | None]:
    return [request.settings.service_tier for request in model.requests]


async def test_notes_ahead_of_need_are_asked_for_at_the_price_of_batches() -> None:
    watcher, model = await observer([GOOD, GOOD, GOOD], price=FLEX)
    assert (await watcher.observe(EARLY)).notes == NOTES
    assert (await watcher.observe(INTERVAL)).notes == NOTES
    watcher.batches = False
    assert (await watcher.observe(EARLY)).notes == NOTES
    assert _tiers(model) == ["flex", None, None]

    watcher, model = await observer([GOOD])
    await watcher.observe(EARLY)
    assert _tiers(model) == [None]


async def test_without_room_at_that_price_the_usual_service_is_asked() -> None:
    def respond(request: ModelRequest) -> Scripted:
        if request.settings.service_tier:
            raise ModelUnavailable("Resources are unavailable.", cure="Wait.")
        return GOOD

    watcher, model = await observer(respond, price=FLEX, wait=3600.0)
    assert (await watcher.observe(EARLY)).notes == NOTES
    assert _tiers(model) == ["flex", None]


async def test_a_slow_service_has_half_of_the_time() -> None:
    async def respond(request: ModelRequest) -> Scripted:
        if request.settings.service_tier:
            await anyio.sleep(3600)
        return GOOD

    watcher, model = await observer(respond, price=FLEX, timeout=0.4)
    seen = await watcher.observe(EARLY)
    assert seen.notes == NOTES and _tiers(model) == ["flex", None]
    # The call that was given up may be billed.
    assert [made.answer.usage is None for made in seen.calls] == [True, False]


async def test_a_refused_service_is_not_asked_for_again() -> None:
    def respond(request: ModelRequest) -> Scripted:
        if request.settings.service_tier:
            raise ModelRejected("Invalid service_tier.", cure="Leave it out.")
        return GOOD

    watcher, model = await observer(respond, price=FLEX, name="without flex")
    assert (await watcher.observe(EARLY)).notes == NOTES
    assert (await watcher.observe(EARLY)).notes == NOTES
    assert _tiers(model) == ["flex", None, None]
    assert all(request.settings.temperature == 0.3 for request in model.requests)


async def test_it_can_be_cancelled() -> None:
    watcher, model = await observer([GOOD], delay=3600)
    with anyio.move_on_after(0.05) as scope:
        await watcher.observe(INTERVAL)
    assert scope.cancelled_caught
    assert len(model.requests) == 1


# Through litellm, against a real server


async def test_it_observes_through_litellm(play: Play) -> None:
    async with play([Reply(text="Hm."), Reply(text=GOOD)], price=PRICE) as talk:
        watcher = ModelObserver(talk.model, await talk.model.info(), 600.0, "thread-1", wait=0.0)
        seen = await watcher.observe(INTERVAL)
    first, second = (recorded.json for recorded in talk.server.requests)
    assert seen.notes == NOTES
    assert seen.model == "openai/test"
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["messages"][0]["content"] == INSTRUCTIONS
    assert first["temperature"] == 0.3
    assert "tools" not in first
    assert second["messages"][:2] == first["messages"]
    assert [message["role"] for message in second["messages"][2:]] == ["assistant", "user"]
    assert "rejected" in second["messages"][-1]["content"]
    assert all(made.answer.usage and made.answer.cost for made in seen.calls)


async def test_an_unsupported_temperature_is_omitted(play: Play) -> None:
    async with play([Reply(text=GOOD)], name="openai/gpt-5-mini") as talk:
        watcher = ModelObserver(talk.model, await talk.model.info(), 600.0)
        seen = await watcher.observe(INTERVAL)
    assert seen.notes == NOTES
    (recorded,) = talk.server.requests
    assert recorded.json.get("temperature") is None


async def test_a_provider_that_is_down_or_has_a_smaller_window(play: Play) -> None:
    down = [server_error(503)] * 10
    async with play(down, retries=1) as talk:
        watcher = ModelObserver(talk.model, await talk.model.info(), 600.0, wait=0.0)
        with pytest.raises(ObserverFailed, match="cannot be reached or failed"):
            await watcher.observe(INTERVAL)
        assert len(talk.server.requests) == 4
    async with play([overflow(), Reply(text=GOOD)]) as talk:
        watcher = ModelObserver(talk.model, await talk.model.info(), 600.0)
        assert (await watcher.observe(INTERVAL)).notes == NOTES
