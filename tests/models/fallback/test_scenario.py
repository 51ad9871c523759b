"""The run of thirty steps while its provider fails at step 10, for 8 steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from agent_runtime import Agent, Event, FallbackModel, ModelSettings, NativeModel, Runtime, Settings
from agent_runtime.testing.loopback import Answer, Json
from agent_runtime.testing.providers.anthropic import Anthropic
from agent_runtime.testing.providers.gemini import Gemini
from agent_runtime.testing.providers.openai import Quirky
from agent_runtime.testing.providers.server import StrictServer
from tests.models.fallback.pair import Clock
from tests.models.scenario import ANSWER, FIRST, SETTINGS, STEPS, Played, fail, look, script

DOWN = range(10, 18)
"""The steps at which the first provider fails; the run is resumed at one of them."""
THINK = ModelSettings(reasoning="high", temperature=0.5)


class FailingServer(StrictServer):
    """A provider that is overloaded at some steps."""

    failed = 0

    async def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Answer:
        """Fail, or answer."""
        if self.asked[False] not in DOWN:
            return await super().answer(path, headers, body)
        self.failed += 1
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        return 529, "application/json", [orjson.dumps(error)]


def model_of(one: Played, server: StrictServer) -> NativeModel:
    """Return the model of a provider."""
    url = server.url + one.path
    return NativeModel(one.model, base_url=url, api_key="sk-test-0123456789", retries=0)


def claude() -> Played:
    """Return a Claude that is asked to think."""
    return Played(Anthropic(thinking=True), "anthropic/claude-sonnet-4-5")


def bound() -> Played:
    """Return a Claude that checks what precedes its thinking."""
    return Played(Anthropic(thinking=True, bound=True), "anthropic/claude-opus-5-5")


def gemini() -> Played:
    """Return a Gemini that demands its signatures."""
    return Played(Gemini(), "gemini/gemini-3-pro-preview")


def deepseek() -> Played:
    """Return a model that demands its reasoning."""
    return Played(Quirky(), "deepseek/deepseek-chat", "/v1")


PAIRS = {
    "claude-deepseek": (claude, deepseek),
    "bound-claude": (bound, claude),
    "deepseek-claude": (deepseek, claude),
    "claude-gemini": (claude, gemini),
    "gemini-bound": (gemini, bound),
}


# The way back at each step takes the paths of the cool-down more often.
@pytest.mark.parametrize(
    "again",
    [
        pytest.param(False, id="cool-down", marks=pytest.mark.slow),
        pytest.param(True, id="each-step"),
    ],
)
@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS)
async def test_a_provider_fails_for_some_steps(
    tmp_path: Path, one: Callable[[], Played], other: Callable[[], Played], again: bool
) -> None:
    settings = Settings(database_url=f"file:{tmp_path / 'run.db'}", **SETTINGS)
    played = one(), other()
    for each in played:
        each.provider.foreign = True
    events: list[Event] = []
    clock = Clock()

    def hear(event: Event) -> None:
        events.append(event)
        if event.kind == "answer" and event.data["step"] == DOWN.stop:
            clock.now += 1e6

    async with (
        FailingServer(played[0].provider, script) as first,
        StrictServer(played[1].provider, script) as second,
    ):
        second.asked = first.asked

        def agent() -> Agent:
            models = [model_of(played[0], first), model_of(played[1], second)]
            model = FallbackModel(models, cool_down=0.0 if again else 60.0, clock=clock)
            agent = Agent(model, tools=[look, fail], delegation=True, last_messages=4)
            return replace(agent, max_steps=FIRST, model_settings=THINK)

        async with Runtime.open(settings) as runtime:
            result = await runtime.run(agent(), "Look at all parts.", on_event=hear)
        assert (result.stop_reason, result.steps) == ("max_steps", FIRST)
        async with Runtime.open(settings) as runtime:
            result = await runtime.resume(result.run_id, agent(), on_event=hear)
        assert first.violations == [] and second.violations == []
    assert (result.status, result.output, result.steps) == ("succeeded", ANSWER, STEPS)
    assert first.asked == {False: STEPS, True: 2}
    own = [event for event in events if event.run_id == result.run_id]
    by = [event.data["model"] for event in own if event.kind == "answer"]
    assert [n for n, name in enumerate(by) if name == played[1].model] == [*DOWN]
    fell = [event.data["why"] for event in own if event.kind == "model-fallback"]
    # The sub-agent of step 10 has the same model, so it may find the first one out as well.
    assert fell.count("unavailable") >= (len(DOWN) if again else 2)
    assert first.failed >= fell.count("unavailable")
    activations = [event for event in own if event.kind == "activation"]
    assert len(first.breaks()) + len(second.breaks()) <= len(activations)
