"""Observational memory turned off for a while: nothing is lost, and prompts name their gaps."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_runtime import Agent, Event, Runtime, ScriptedModel, Settings
from agent_runtime.errors import InvariantError
from agent_runtime.log.branch import load_view
from agent_runtime.log.branches import fork
from agent_runtime.memory.observational import memory as observational
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.prompt import build as context
from agent_runtime.prompt.view import Entry, Gap, View

WORDS = "what was said there, in a few words and then in a few words more; " * 24
FACT = "The cellar key hangs behind billing.py."
"""Not worded as a rule of the user: rules stay in prompts even if they are observed."""
SMALL: dict[str, Any] = {"observer_message_tokens": 1500, "reflector_observation_tokens": 4000}
_OBSERVED = re.compile(r"<observed \w+ nodes (\d+) to (\d+)>\n")


def look(number: int) -> str:
    """Look.

    Args:
        number: at what.
    """
    return f"src/part_{number}.py: {WORDS}"


@dataclass
class Talk:
    """A conversation in short runs, each with observational memory or without."""

    url: str
    last_messages: int = 2
    said: int = 0
    sent: list[ModelRequest] = field(default_factory=list[ModelRequest])
    events: list[Event] = field(default_factory=list[Event])
    changed: anyio.Event = field(default_factory=anyio.Event)

    @asynccontextmanager
    async def runtime(self, *, on: bool = True, **settings: Any) -> AsyncGenerator[Runtime]:
        """Open a runtime."""
        configured: dict[str, Any] = {
            "observational_memory": on,
            "max_steps": 500,
            **SMALL,
            **settings,
        }
        async with Runtime.open(Settings(database_url=self.url, **configured)) as opened:
            yield opened

    def agent(self, script: Any = None) -> Agent:
        """The agent, which answers at once unless a script is passed."""

        def answer(request: ModelRequest) -> Scripted:
            self.sent.append(request)
            return say(f"Answer {len(self.sent)}. {WORDS}")

        model = ScriptedModel(script or answer, name="talk")
        return Agent(model, tools=[look], last_messages=self.last_messages)

    async def say(self, times: int = 1, *, on: bool = True, first: str = "") -> None:
        """Send messages in `times` runs."""
        async with self.runtime(on=on) as runtime:
            for number in range(times):
                self.said += 1
                text = f"{'' if number else first} Question {self.said}. {WORDS}"
                result = await runtime.run(self.agent(), text, thread="t", on_event=self.hear)
                assert result.ok

    async def observe(self) -> None:
        """Observe everything that may leave."""
        async with self.runtime() as runtime:
            await runtime.memory.observe(self.agent(), "t")

    def hear(self, event: Event) -> None:
        """Record an event."""
        self.events.append(event)
        self.changed.set()
        self.changed = anyio.Event()

    @property
    def text(self) -> str:
        """The newest prompt."""
        return text_of(self.sent[-1])

    async def gaps(self) -> tuple[Gap, ...]:
        """Return the gaps of the newest prompt, after checking that it names them.

        Each node of the branch before the raw ones is in exactly one observation or gap.
        """
        async with self.runtime() as runtime:
            store = runtime.store.of("local")
            head = (await store.threads.get("t")).head
            view = await load_view(store, "t", head)
            assert head is not None
            branch = await store.log.lineage("t", head)
        raw = view.entries[0].seq
        seen = [(int(a), int(b)) for a, b in _OBSERVED.findall(self.text)]
        covered = sorted([*seen, *((gap.first, gap.last) for gap in view.start.gaps)])
        parts = [[node for node in branch if a <= node <= b] for a, b in covered]
        assert [one for part in parts for one in part] == [node for node in branch if node < raw]
        for gap in view.start.gaps:
            assert f'"{gap.first}-{gap.last}"' in self.text
        return view.start.gaps


def text_of(request: ModelRequest) -> str:
    """Return the whole text of a prompt."""
    return "\n".join(message.text for message in request.messages)


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    """An empty conversation."""
    return Talk(f"file:{tmp_path / 'run.db'}")


async def _begun(talk: Talk) -> None:
    """Send a rule and more messages, and observe them all."""
    await talk.say(3, first=FACT)
    await talk.observe()
    await talk.say()
    assert FACT in talk.text and _OBSERVED.search(talk.text)


async def test_a_thread_remembers_again_after_a_run_without_memory(talk: Talk) -> None:
    await _begun(talk)
    await talk.say(3, on=False)
    assert not _OBSERVED.search(talk.text)

    for _ in range(3):
        await talk.say()
        assert FACT in talk.text
        await talk.gaps()


async def test_messages_that_left_without_memory_are_named_until_observed(talk: Talk) -> None:
    await _begun(talk)
    await talk.say(3, on=False)
    await talk.say()

    (gap,) = await talk.gaps()
    assert f"stand for all but {gap.size} of them" in talk.text

    await talk.observe()
    await talk.say()
    assert await talk.gaps() == ()
    assert "stand for all but" not in talk.text and FACT in talk.text


async def test_a_run_observes_while_it_works_messages_that_left_before_it(talk: Talk) -> None:
    await talk.say(8, on=False, first=FACT)
    steps = last = 0

    async def script(request: ModelRequest) -> Scripted:
        nonlocal steps, last
        talk.sent.append(request)
        steps += 1
        if steps == 1:
            # No observation covers them, and the prompt does not claim otherwise.
            (gap,) = await talk.gaps()
            assert f"nothing stands for {gap.size} of them yet" in talk.text
            assert "observations above" not in talk.text
            last = gap.last
        with anyio.fail_after(60):
            while not any(
                event.kind == "observation" and event.data["last"] == last for event in talk.events
            ):
                await talk.changed.wait()
        if steps < 10 and re.search("nothing stands for|all but", talk.text):
            return call("look", number=steps)
        return say("Done.")

    async with talk.runtime() as runtime:
        agent = talk.agent(script)
        assert (await runtime.run(agent, "Go on.", thread="t", on_event=talk.hear)).ok
    assert FACT in talk.text
    assert steps < 10


async def test_a_large_gap_is_observed_in_chunks(talk: Talk) -> None:
    await talk.say(30, on=False, first=FACT)
    await talk.observe()

    async with talk.runtime() as runtime:
        rows = await runtime.store.of("local").log.observations("t", ending_from=0)
    assert len(rows) > 10
    assert all(before.last == after.parent_id for before, after in pairwise(rows))
    await talk.say()
    assert await talk.gaps() == ()
    assert FACT in talk.text


async def test_memory_can_be_switched_any_number_of_times(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _begun(talk)

    async def nothing(memory: observational.ObservationalMemory, view: View) -> tuple[Entry, ...]:
        return ()

    with monkeypatch.context() as patch:
        # Otherwise the background might observe some of the gaps before they are counted.
        patch.setattr(observational.ObservationalMemory, "next_of_past", nothing)
        for _ in range(3):
            await talk.say(3, on=False)
            await talk.say(2)
            assert FACT in talk.text
        assert len(await talk.gaps()) == 3

    await talk.observe()
    await talk.say()
    assert await talk.gaps() == ()
    # Observations are not written twice.
    async with talk.runtime() as runtime:
        rows = await runtime.store.of("local").log.observations("t", ending_from=0)
    base = sorted((row.first, row.last) for row in rows if not row.level)
    assert all(before[1] < after[0] for before, after in pairwise(base))


async def test_a_reflection_never_spans_a_gap(talk: Talk) -> None:
    await _begun(talk)
    await talk.say(3, on=False)
    await talk.say(3)
    assert await talk.gaps()
    async with talk.runtime(reflector_observation_tokens=500) as runtime:
        for _ in range(3):
            await runtime.memory.reflect(talk.agent(), "t")
        rows = await runtime.store.of("local").log.observations("t", ending_from=0)
    by_id = {row.id: row for row in rows}
    for row in rows:
        parts = [by_id[part] for part in row.parts]
        assert all(before.last == after.parent_id for before, after in pairwise(parts))
    await talk.say()
    await talk.gaps()


async def test_a_branch_shows_only_its_own_observations(talk: Talk) -> None:
    await talk.say(6, first=FACT)
    await talk.observe()
    await talk.say(4, on=False)
    async with talk.runtime() as runtime:
        store = runtime.store.of("local")
        branch = await store.log.lineage("t", (await store.threads.get("t")).head or 0)
        await fork(store, "t", branch[-8])
    await talk.say(4, on=False, first="Elsewhere.")
    await talk.say()

    assert FACT in talk.text
    await talk.gaps()
    await talk.observe()
    await talk.say()
    assert await talk.gaps() == ()


async def test_an_interrupted_run_keeps_its_observations(talk: Talk) -> None:
    await talk.say(20, on=False, first=FACT)

    async def script(request: ModelRequest) -> Scripted:
        talk.sent.append(request)
        with anyio.fail_after(60):
            while not any(event.kind == "observation" for event in talk.events):
                await talk.changed.wait()
        raise RuntimeError("The process dies here.")

    async with talk.runtime() as runtime:
        with pytest.raises(RuntimeError):
            await runtime.run(talk.agent(script), "Go on.", thread="t", on_event=talk.hear)
    await talk.observe()
    await talk.say()
    assert FACT in talk.text
    assert await talk.gaps() == ()


def _always(view: View) -> bool:
    return True


async def test_a_prompt_that_claims_more_than_is_observed_is_rebuilt(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Activations from before prompts named their gaps look like this."""
    await _begun(talk)
    await talk.say(3, on=False)
    with monkeypatch.context() as patch:
        patch.setattr(observational, "observed_throughout", _always)
        patch.setattr(context, "_check_coverage", _always)
        await talk.say()
    assert FACT not in talk.text

    await talk.say()
    assert FACT in talk.text
    assert len(await talk.gaps()) == 1


async def test_a_prompt_that_hides_a_gap_is_never_sent(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _begun(talk)
    await talk.say(3, on=False)
    monkeypatch.setattr(observational, "observed_throughout", _always)
    sent = len(talk.sent)
    with pytest.raises(InvariantError, match="begin after node"):
        await talk.say()
    assert len(talk.sent) == sent
