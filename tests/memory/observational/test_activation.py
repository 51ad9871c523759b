"""When observations replace their messages: by price, after a pause, or through another run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings, ToolContext
from agent_runtime.models.base import ModelRequest, Price
from agent_runtime.models.scripted import Scripted, call, say

SONNET = Price(input=3000, output=15_000, cache_read=300, cache_write=3750)


async def look(number: int, context: ToolContext) -> str:
    """Look.

    Args:
        number: at what.
    """
    script: Looking = context.deps
    if number == script.pause_after:
        with anyio.fail_after(30):
            await script.observed.wait()
        await anyio.sleep(script.seconds)
    return f"src/part_{number}.py:\n" + "what was seen there, in a few words\n" * 20


class Looking:
    """Looks `steps` times; one look waits for an observation and then for some seconds."""

    def __init__(self, steps: int, *, pause_after: int = 0, seconds: float = 0.0) -> None:
        self.steps, self.pause_after, self.seconds = steps, pause_after, seconds
        self.done = 0
        self.events: list[Event] = []
        self.observed = anyio.Event()

    def heard(self, event: Event) -> None:
        """Record an event."""
        self.events.append(event)
        if event.kind == "observation":
            self.observed.set()

    def __call__(self, request: ModelRequest) -> Scripted:
        """Answer by script."""
        self.done += 1
        return call("look", number=self.done) if self.done <= self.steps else say("Done.")

    def causes(self) -> list[str]:
        """Return the activations' causes."""
        return [event.data["cause"] for event in self.events if event.kind == "activation"]


async def _run(settings: Settings, script: Looking, **options: Any) -> None:
    model = ScriptedModel(script, **options)
    async with Runtime.open(settings, model=model) as runtime:
        agent = Agent(tools=[look], last_messages=6)
        result = await runtime.run(agent, "Look around.", on_event=script.heard, deps=script)
    assert result.ok


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """The database of a test."""
    yield f"file:{tmp_path / 'run.db'}"


def _settings(url: str, **more: Any) -> Settings:
    return Settings(
        database_url=url, observational_memory=True, observer_message_tokens=4000, **more
    )


async def test_a_pause_activates_prepared_observations_below_the_threshold(url: str) -> None:
    settings = _settings(url, activate_after_idle=0.2)
    script = Looking(17, pause_after=15, seconds=0.4)
    await _run(settings, script)
    # A busy machine may pause at another step, too.
    assert script.causes()[0] == "start" and set(script.causes()[1:]) == {"idle"}


async def test_without_a_pause_activation_waits_for_the_threshold(url: str) -> None:
    script = Looking(17, pause_after=15)
    await _run(_settings(url), script)
    assert script.causes() == ["start"]


async def test_activation_by_pause_can_be_disabled(url: str) -> None:
    script = Looking(17, pause_after=15, seconds=0.3)
    await _run(_settings(url, activate_after_idle=0), script)
    assert script.causes() == ["start"]


async def test_by_price_messages_leave_before_the_threshold(url: str) -> None:
    settings = _settings(url, activation="price").model_copy(
        update={"observer_message_tokens": 20_000}
    )
    by_price, by_threshold = Looking(80), Looking(80)
    await _run(settings, by_price, price=SONNET)
    await _run(settings.model_copy(update={"activation": "threshold"}), by_threshold, price=SONNET)
    assert "price" in by_price.causes()
    assert "price" not in by_threshold.causes()


async def test_without_a_known_price_the_threshold_decides_and_the_run_says_so(url: str) -> None:
    script = Looking(40)
    await _run(_settings(url, activation="price"), script, price=None)
    assert "price" not in script.causes() and "observed" in script.causes()
    assert "is unknown" in script.events[0].data["warnings"][0]


@pytest.mark.parametrize("named", [True, False])
async def test_a_threshold_that_the_window_does_not_allow_is_a_warning(
    url: str, named: bool
) -> None:
    settings = Settings(database_url=url)
    if named:
        settings = Settings(database_url=url, reflector_observation_tokens=40_000)
    events: list[Event] = []
    async with Runtime.open(settings) as runtime:
        await runtime.run(Agent(ScriptedModel([say("Yes.")])), "Go.", on_event=events.append)
    start = next(event.data for event in events if event.kind == "run-start")
    assert start["reflect_at"] == 29_952
    named_limit = (
        "AGENT_RUNTIME_REFLECTOR_OBSERVATION_TOKENS is 40,000, and the window of 128,000 tokens"
    )
    # A default that does not fit is nobody's wish.
    assert [named_limit in one and "29,952" in one for one in start.get("warnings", [])] == [
        True
    ] * named


@pytest.mark.parametrize("forbidden", ["1", "0"])
async def test_without_a_callable_observer_rules_observe_and_the_run_says_so(
    url: str, forbidden: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AGENT_RUNTIME_FORBID_REAL_MODELS", forbidden)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    script = Looking(40)
    await _run(_settings(url, observer_model="openai/gpt-5-mini"), script)

    (warning,) = script.events[0].data["warnings"]
    assert "Rules observe instead." in warning
    assert ("OPENAI_API_KEY" in warning) == (forbidden == "0")
    assert warning in caplog.text
    seen = [event.data for event in script.events if event.kind == "observation"]
    assert seen and all(one["origin"] == "rules" for one in seen)
    # Rules were chosen at the start: no step waits for a model that cannot answer.
    assert not any(one["provisional"] for one in seen)
