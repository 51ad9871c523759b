"""Large results: none floods a prompt at any window, and they leave the prompt soon."""

from __future__ import annotations

import anyio
import pytest

from agent_runtime import Agent, Event, ScriptedModel, tool
from agent_runtime.errors import ConfigError
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.models.tokens import count_text
from tests.support.worlds import Play, World

LINES = 40_000
PLACE = 500_000


@tool
def noisy(line: str = "line") -> str:
    """Return many lines."""
    return "\n".join(f"{line} {number}: all is well here" for number in range(LINES))


@tool(max_result_tokens=2_000)
def modest() -> str:
    """Return many lines; few are shown."""
    return noisy()


@tool(max_result_tokens=20_000)
def generous() -> str:
    """Return many lines; many are shown."""
    return noisy()


TOOLS = [noisy, modest, generous]


def _requests(world: World) -> list[ModelRequest]:
    assert isinstance(world.model, ScriptedModel)
    return world.model.requests


def _shown(request: ModelRequest) -> list[int]:
    return [count_text(message.text) for message in request.messages if message.role == "tool"]


@pytest.mark.parametrize("window", [128_000, 200_000, 1_000_000])
@pytest.mark.backends("file")
async def test_a_result_has_a_cap_at_any_window(play: Play, window: int) -> None:
    script = [calls(raw_call("noisy"), raw_call("modest"), raw_call("generous")), say("Done.")]
    async with play(script, window=window) as world:
        assert (await world.run(Agent(tools=TOOLS))).ok
        usual, small, large = _shown(_requests(world)[-1])
    assert 7_000 < usual <= 8_000
    assert 1_500 < small <= 2_000
    # At the smallest window, the share of an exchange is below the tool's own limit.
    assert (12_000 if window == 128_000 else 18_000) < large <= 20_000


@pytest.mark.backends("file")
async def test_the_cap_is_a_setting_and_recall_opens_the_rest(play: Play) -> None:
    settings = {"max_result_tokens": 1_000}

    def answer(request: ModelRequest) -> Scripted:
        results = [message for message in request.messages if message.role == "tool"]
        if not results:
            return call("noisy")
        if len(results) == 1:
            handle = results[0].text.split('recall(handle="')[1].split('"')[0]
            return call("recall", handle=handle, offset=PLACE)
        return say("Done.")

    async with play(answer, window=1_000_000, settings=settings) as world:
        assert (await world.run(Agent(tools=[noisy]))).ok
        first, opened = [
            message.text for message in _requests(world)[-1].messages if message.role == "tool"
        ]
    assert 800 < count_text(first) <= 1_000
    assert noisy()[PLACE : PLACE + 500] in opened
    assert count_text(opened) <= 1_000


@pytest.mark.parametrize("bad", [0, -1])
def test_a_cap_below_one_token_is_refused(bad: int) -> None:
    with pytest.raises(ConfigError, match="max_result_tokens"):
        tool(noisy.function, max_result_tokens=bad)


@pytest.mark.backends("file")
async def test_an_exchange_above_half_of_the_threshold_leaves_the_prompt_soon(play: Play) -> None:
    """It leaves as soon as enough newer messages follow it."""
    settings = {
        "observational_memory": True,
        "observer_message_tokens": 20_000,
        "last_messages": 4,
    }
    steps = 16

    async def answer(request: ModelRequest) -> Scripted:
        done = sum(message.role == "assistant" for message in request.messages)
        if steps_made() == 8:
            with anyio.fail_after(60):
                await observed.wait()
        if steps_made() == 0:
            return calls(*(raw_call("noisy", line=name) for name in ("one", "two", "three")))
        return say("Done.") if steps_made() >= steps else call("small", number=done)

    observed = anyio.Event()

    def listen(event: Event) -> None:
        if event.kind == "observation":
            observed.set()

    def steps_made() -> int:
        return len(_requests(world)) - 1

    @tool
    def small(number: int) -> str:
        """Return a short text."""
        return f"A small result: {number}."

    async with play(answer, window=400_000, settings=settings) as world:
        agent = Agent(tools=[noisy, small])
        assert (await world.runtime.run(agent, "Work.", on_event=listen)).ok
        carried = [max(_shown(request), default=0) > 5_000 for request in _requests(world)]
    # It is observed in the background; the eighth step waits for that.
    assert carried[1]
    assert not any(carried[10:])
