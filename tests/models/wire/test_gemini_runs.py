"""Gemini's wire in whole runs, and in answers that several requests make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_runtime import Agent, NativeModel
from agent_runtime.models.base import ModelAnswer, ModelEvent, TextDelta, TokenUsage
from tests.models.conftest import request
from tests.models.scenario import FIRST, Played, fail, look, play
from tests.models.wire.gemini_talk import MODEL, NAME, chunk, text_of
from tests.support.providers.gemini import Gemini
from tests.support.providers.loopback import Answer, Json, LoopbackServer
from tests.support.providers.openai import Quirky
from tests.support.providers.server import StrictServer

KEY = "sk-test-0123456789"


class Native(Played):
    """A provider, and a native model that calls it."""

    def agent(self, server: StrictServer) -> Agent:
        """Return the agent of the scenario, with the model of this provider."""
        model = NativeModel(self.model, base_url=server.url + self.path, api_key=KEY, retries=0)
        return Agent(model, tools=[look, fail], delegation=True, last_messages=4, max_steps=FIRST)


class Exact(Gemini):
    """A Gemini whose own signatures have to come back, also after a change of transport."""

    @property
    def foreign(self) -> bool:
        """Never: no placeholder may be sent for its signatures."""
        return False

    @foreign.setter
    def foreign(self, foreign: bool) -> None: ...


@pytest.mark.parametrize("model", [MODEL, "gemini-2.5-flash", "gemini-4-argon"])
async def test_a_run(tmp_path: Path, model: str) -> None:
    await play(Native(Gemini(model), f"gemini/{model}"), tmp_path)


async def test_a_run_that_another_model_began(tmp_path: Path) -> None:
    await play(Native(Quirky(), "openai/test", "/v1"), tmp_path, Native(Gemini(), NAME))


@pytest.mark.parametrize("first", [Played, Native])
async def test_a_run_whose_transport_changes(tmp_path: Path, first: type[Played]) -> None:
    provider = Exact()
    then = Native if first is Played else Played
    await play(first(provider, NAME), tmp_path, then(provider, NAME))


# Answers in several requests


class Hops(LoopbackServer):
    """A server that answers each request with the next stream."""

    def __init__(self, *streams: list[bytes]) -> None:
        super().__init__()
        self.tokens: list[str | None] = []
        self._streams = streams

    async def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Answer:
        """Return the next stream."""
        self.tokens.append(body.get("continuationToken"))
        return 200, "text/event-stream", self._streams[len(self.tokens) - 1]


async def events(server: Hops, retries: int = 0) -> list[ModelEvent]:
    """Return the events of one call."""
    model = NativeModel(NAME, base_url=server.url, api_key=KEY, retries=retries)
    async with model.stream(request()) as stream:
        return [event async for event in stream]


async def test_an_answer_goes_on_in_the_next_request() -> None:
    used = {"promptTokenCount": 9, "candidatesTokenCount": 2}
    first = chunk(
        {"text": "One, "},
        word="CONTINUATION",
        candidate={"continuationToken": "t1"},
        usageMetadata=used,
    )
    saved = chunk({"text": "two, "}, candidate={"continuationToken": "t2"})
    last = chunk({"text": "three."}, word="STOP", usageMetadata=used)
    async with Hops([first], [saved], [last]) as server:
        deltas = await events(server)
    assert server.tokens == [None, "t1", "t2"]
    assert text_of(deltas, TextDelta) == "One, two, three."
    answer = deltas[-1]
    assert isinstance(answer, ModelAnswer)
    assert (answer.text, answer.finish) == ("One, two, three.", "stop")
    assert answer.usage == TokenUsage(prompt=18, completion=4)


async def test_an_answer_that_broke_off_without_a_token_begins_again() -> None:
    async with Hops([chunk({"text": "One"})], [chunk({"text": "All."}, word="STOP")]) as server:
        deltas = await events(server, retries=1)
    assert server.tokens == [None, None]
    answer = deltas[-1]
    assert isinstance(answer, ModelAnswer)
    assert answer.text == "All."
