"""An Observer and a Reflector that the program gives to `Runtime.open`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Agent, ConfigError, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.memory.observational.observer.base import ObserverInput, ObserverResult
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.prompt.observation import ObservationLine, ObservationNotes
from agent_runtime.testing import notes_for

STEPS = 24


@tool
def look(number: int) -> str:
    """Look at a page.

    Args:
        number: which.
    """
    return f"src/part_{number}.py: " + "what was seen there, in a few words " * 20


class OwnObserver:
    """An Observer of the program's own, without a model."""

    def __init__(self) -> None:
        self.seen: list[ObserverInput] = []

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        self.seen.append(interval)
        line = ObservationLine("", "info", f"Nodes up to {interval.entries[-1].seq} were seen.")
        return ObserverResult(ObservationNotes((line,)), model="own")

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        del interval
        return 0, 0


def script() -> ScriptedModel:
    return ScriptedModel([*(call("look", number=n) for n in range(STEPS)), say("Done.")])


def notes(request: ModelRequest) -> Scripted:
    messages = [{"role": one.role, "content": one.text} for one in request.messages]
    return notes_for({"messages": messages})


def settings(tmp_path: Path, **more: Any) -> Settings:
    small: dict[str, Any] = {"observer_message_tokens": 1500, "last_messages": 4}
    return Settings(database_url=f"file:{tmp_path / 'run.db'}", **(small | more))


async def run(runtime: Runtime) -> list[Event]:
    """Run the agent, then observe what is left, and return the observations."""
    events: list[Event] = []
    agent = Agent(script(), tools=[look])
    result = await runtime.run(agent, "Look at all pages.", thread="t", on_event=events.append)
    assert result.ok
    await runtime.memory.observe(agent, "t", on_event=events.append)
    return [event for event in events if event.kind == "observation"]


async def test_a_scripted_agent_uses_the_model_that_is_given_to_observe(tmp_path: Path) -> None:
    model = ScriptedModel(notes, name="watcher")
    async with Runtime.open(settings(tmp_path), observer=model) as runtime:
        observations = await run(runtime)
    assert observations and {event.data["origin"] for event in observations} == {"model"}
    # Its instructions are the same bytes in each call.
    assert len({request.messages[0].text for request in model.requests}) == 1


async def test_an_observer_of_ones_own_writes_the_observations(tmp_path: Path) -> None:
    own = OwnObserver()
    async with Runtime.open(settings(tmp_path), observer=own) as runtime:
        observations = await run(runtime)
    # The run's end cancels the one that it is at.
    assert observations and len(own.seen) >= len(observations)
    assert {event.data["origin"] for event in observations} == {"model"}


async def test_a_name_is_read_as_in_the_settings(tmp_path: Path) -> None:
    named = settings(tmp_path, observer_model="openai/gpt-5-mini")
    async with Runtime.open(named, observer="extractive", reflector="same") as runtime:
        assert runtime.settings.observer_model == "extractive"
        observations = await run(runtime)
    assert observations and {event.data["origin"] for event in observations} == {"rules"}
    assert named.observer_model == "openai/gpt-5-mini"


@pytest.mark.parametrize("given", ["", "https://example.org/v1", 7, ScriptedModel, OwnObserver])
@pytest.mark.parametrize("role", ["observer", "reflector"])
async def test_what_neither_observes_nor_answers_is_refused(
    role: str, given: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"{role}= ") as caught:
        async with Runtime.open(settings(tmp_path), **{role: given}):
            pass
    assert caught.value.cure
    assert not (tmp_path / "run.db").exists()


@pytest.mark.parametrize(
    ("role", "make"),
    [
        ("observer", lambda: ScriptedModel([], name="tiny", window=1_200)),
        ("reflector", lambda: ScriptedModel([], name="tiny", window=8_000)),
    ],
)
async def test_rules_replace_a_model_whose_window_is_too_small(
    role: str,
    make: Callable[[], ScriptedModel],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tiny = make()
    more = {"observer_message_tokens": 30_000, "reflector_observation_tokens": 40_000}
    given: dict[str, Any] = {role: tiny}
    caplog.set_level(logging.WARNING)
    async with Runtime.open(settings(tmp_path, **more), **given) as runtime:
        await run(runtime)
        agent = Agent(script(), tools=[look])
        await runtime.memory.reflect(agent, "t")
    assert tiny.requests == []
    said = caplog.text
    assert "The window of tiny" in said and "Rules" in said
    assert f"AGENT_RUNTIME_{role.upper()}_CONTEXT_WINDOW" in said


async def test_a_given_model_without_a_price_is_not_used_under_a_budget_in_dollars(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unpriced = ScriptedModel([], name="unpriced", price=None)
    limited = settings(tmp_path, budget_usd=1.0)
    caplog.set_level(logging.WARNING)
    async with Runtime.open(limited, observer=unpriced) as runtime:
        await runtime.run(Agent(script(), tools=[look]), "Look at all pages.")
    assert unpriced.requests == [] and "The price of unpriced is unknown" in caplog.text
