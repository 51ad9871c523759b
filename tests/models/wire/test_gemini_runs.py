"""Gemini's wire in whole runs, and in answers that several requests make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_runtime import LiteLLMModel, NativeModel
from agent_runtime.models.base import ModelAnswer, ModelEvent, TextDelta, TokenUsage
from agent_runtime.testing.loopback import Answer, Json, LoopbackServer
from agent_runtime.testing.providers.gemini import Gemini
from tests.models.conftest import request
from tests.models.scenario import Played, play
from tests.models.wire.gemini_talk import NAME, chunk, text_of

KEY = "sk-test-0123456789"


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-4-argon"])
async def test_runs_of_other_generations(tmp_path: Path, model: str) -> None:
    await play(Played(Gemini(model), f"gemini/{model}"), tmp_path, (NativeModel, NativeModel))


async def test_a_run_that_litellm_resumes(tmp_path: Path) -> None:
    await play(Played(Gemini(), NAME), tmp_path, (NativeModel, LiteLLMModel))


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
