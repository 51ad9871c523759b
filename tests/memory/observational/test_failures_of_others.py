"""Known failures of other observational memories do not happen in this one.

Each known failure, and the tests that would detect it here; those without a file are in this one.

- tool-heavy threads never observed, a turn starts without history:
  `test_a_thread_of_tool_calls_is_observed_and_the_next_turn_has_its_history`
- a huge tool result counted as a small one, the context overflows:
  `test_a_huge_result_is_counted_as_sent`
- no forced compaction when the provider says "context too long":
  `test_a_prompt_that_the_provider_finds_too_long_is_compacted_once`
- one oversized message never observed: `test_one_oversized_message_is_observed_in_pieces`;
  test_transcript: `test_a_message_longer_than_the_limit_is_split`
- an Observer outage blocks for minutes, then aborts the turn; the Observer blocks turn after turn
  past the threshold: test_bad_observers (all of it; `test_a_run_never_waits_…`)
- an empty output wipes memory or advances the cursor: test_bad_observers (`empty`, `blank`),
  test_validate: `test_nothing_to_observe_is_accepted_only_without_noteworthy_content`
- infinite reflection just above the limit:
  `test_a_reflector_without_progress_is_not_called_forever`
- an oversized last attempt is committed although an earlier one was better: test_reflector:
  `test_the_smallest_usable_answer_wins_and_attempts_end_without_progress`
- a just-finished tool result is dropped: `test_every_result_is_whole_in_the_next_prompt`
- two processes: flags cleared, deadlocks, last write wins, chunks stranded:
  test_memory_interleavings (all of it; `test_two_runtimes_never_observe_the_same_…`)
- the Observer's instructions saved as the user's; memory observes itself:
  `test_the_observers_transcript_contains_neither_instructions_nor_observations`
- relative dates rewritten, the cache lost; the whole text rewritten by the Reflector:
  `test_observations_are_immutable_and_prompts_only_grow_between_activations`
- every call carries all old observations: `test_the_observers_prompts_do_not_grow`
- brackets, arrows and indentation stripped: `test_notes_are_shown_verbatim`
- fidelity never checked: test_validate: `test_invented_names_are_rejected`; test_ledger; the
  benchmark `survival`
- `lastMessages` not honoured: `test_the_last_messages_are_always_raw`; test_thresholds:
  `test_recent_messages_never_leave`
- no cache breakpoints: test_build: `test_cache_marks_…`
- notes outlive a deleted thread: `test_deleting_a_thread_deletes_its_observations`
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.errors import ThreadBusy
from agent_runtime.memory.observational.observer.model import INSTRUCTIONS
from agent_runtime.models.tokens import count_text
from agent_runtime.testing.model_server import Reply, overflow
from agent_runtime.testing.observer import is_for_memory, notes_for
from tests.memory.observational.served import STEPS, Served, reflects, seen, serve, text_of, well
from tests.support.prompt_judge import MAIN

LINE = "what was seen there, in a few words\n"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database of this test."""
    return f"file:{tmp_path / 'run.db'}"


async def _remembered(served: Served, observations: int = 3) -> None:
    """Run to the end, with a late step that waits until enough observations were written."""

    async def look(number: int) -> str:
        if number == STEPS - 8:
            await served.until(lambda: len(served.observations()) >= observations)
        return seen(number)

    served.look = look
    result = await served.run()
    assert result.ok
    assert await served.wrong() == []


def _texts(request: dict[str, Any]) -> list[str]:
    return [text_of(message) for message in request["messages"]]


async def test_a_thread_of_tool_calls_is_observed_and_the_next_turn_has_its_history(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(url, patch=monkeypatch) as served:
        await _remembered(served)
        served.provider.asked.clear()
        served.provider.steps = 0
        result = await served.run("What did you find?")

    assert result.ok
    # One turn of tool calls was observed while it ran, and the next turn starts with its
    # observations.
    [request] = served.provider.asked
    texts = _texts(request)
    assert any(text.startswith("<observed ") for text in texts)
    assert any("src/part_40.py" in text for text in texts)
    assert texts[-1] == "What did you find?"


async def test_a_huge_result_is_counted_as_sent(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider counts 1.5 times our tokens, and one result is larger than its window."""

    def look(number: int) -> str:
        return f"page {number}\n" + LINE * (20_000 if number == 12 else 20)

    window = 12_000
    async with serve(
        url, look=look, patch=monkeypatch, factor=1.5, context_window=window
    ) as served:
        result = await served.run()

    assert result.ok
    assert max(billed["prompt_tokens"] for billed in served.server.billed) < window
    [huge] = [text for text in _texts(served.provider.asked[12]) if "page 12\n" in text]
    assert 1_000 < len(huge) < 40_000
    assert "recall" in huge


async def test_a_prompt_that_the_provider_finds_too_long_is_compacted_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []

    async with serve(url, patch=monkeypatch, observer_message_tokens=30_000) as served:
        provider = served.provider

        def refuse(request: dict[str, Any], n: int) -> Reply:
            size = sum(map(count_text, _texts(request)))
            if not is_for_memory(request) and size > 4_000 and not refused:
                refused.append(size)
                return overflow(4_000)
            return provider(request, n)

        served.server.script = refuse
        result = await served.run()
        assert await served.wrong() == []

    assert result.ok
    assert len(refused) == 1
    assert [
        activation
        for activation in served.of("activation")
        if activation.data["cause"] == "overflow"
    ]
    # The messages that had to leave were observed at once.
    assert served.observations()


async def test_one_oversized_message_is_observed_in_pieces(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = "Rule: keep port 8443.\n" + "".join(f"Rule {n}: see page {n}.\n" for n in range(4_200))

    async with serve(url, patch=monkeypatch, observer_message_tokens=60_000) as served:

        async def look(number: int) -> str:
            if number == 35:
                await served.until(lambda: bool(served.observations()))
            return f"page {number}\n" + LINE * 80

        served.look = look
        result = await served.run(task)
        assert await served.wrong() == []

    assert result.ok
    first = served.observations()[0]
    assert first.data["first"] == 1
    assert first.data["origin"] == "model"
    read = [text_of(request["messages"][-1]) for request in served.provider.memory]
    assert sum("Rule: keep port 8443." in text for text in read) >= 1
    assert any("Rule 4199:" in text for text in read)
    assert all(count_text(text) < 40_000 for text in read)


async def test_a_reflector_without_progress_is_not_called_forever(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remember(request: dict[str, Any]) -> Reply:
        if not reflects(request):
            return well(request)
        text = text_of(request["messages"][1])
        # It returns its input, so nothing is gained.
        lines = [line for line in text.splitlines() if re.match(r"\d{4}-\d\d-\d\d", line)]
        return Reply(text="\n".join([*lines, "TASK: go on"]))

    async with serve(
        url, remember, steps=60, patch=monkeypatch, reflector_observation_tokens=500
    ) as served:

        async def look(number: int) -> str:
            if number == 50:
                await served.until(lambda: bool(served.observations(level=1)))
            return seen(number)

        served.look = look
        result = await served.run()
        assert await served.wrong() == []

    assert result.ok
    attempts: defaultdict[str, int] = defaultdict(int)
    for request in served.provider.memory:
        if reflects(request):
            # Both the code and the reason of a rejection differ from attempt to attempt.
            text = text_of(request["messages"][1])
            attempts["\n".join(re.findall(r"^\d{4}-\d\d-\d\d.*$", text, re.MULTILINE))] += 1
    assert attempts
    assert max(attempts.values()) <= 8


async def test_every_result_is_whole_in_the_next_prompt(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(url, patch=monkeypatch) as served:
        await _remembered(served)

    for number, request in enumerate(served.provider.asked[1:], 1):
        shown = text_of(request["messages"][-1])
        if number % 17:
            assert shown == seen(number)
        else:
            assert f"cannot open src/part_{number}.py" in shown


async def test_the_observers_transcript_contains_neither_instructions_nor_observations(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(url, patch=monkeypatch) as served:
        await _remembered(served)
        nodes = await served.runtime.store.of(served.runtime.settings.user).log.branch(
            MAIN,
            (await served.runtime.store.of(served.runtime.settings.user).threads.get(MAIN)).head
            or 0,
        )

    assert served.provider.memory
    for request in served.provider.memory:
        system, message = request["messages"]
        if reflects(request):
            continue
        assert (system["role"], text_of(system)) == ("system", INSTRUCTIONS)
        transcript = text_of(message).partition("<transcript ")[2]
        assert transcript
        assert "<observed " not in transcript
        assert "The agent read page after page." not in transcript
        assert INSTRUCTIONS[:60] not in transcript
    # None of it is in the thread's own log.
    bodies = b"".join(node.body for node in nodes)
    assert b"The agent read page after page." not in bodies
    assert INSTRUCTIONS[:60].encode() not in bodies


async def test_observations_are_immutable_and_prompts_only_grow_between_activations(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(url, steps=80, patch=monkeypatch, reflector_observation_tokens=500) as served:

        async def look(number: int) -> str:
            if number == 70:
                await served.until(lambda: bool(served.observations(level=1)))
            return seen(number)

        served.look = look
        result = await served.run()

    assert result.ok
    shown: defaultdict[str, set[str]] = defaultdict(set)
    for nodes, text in served.provider.observed():
        shown[nodes].add(text)
    assert len(shown) > 5
    # Several observations may be condensed together; a single one is never rewritten.
    assert all(len(texts) == 1 for texts in shown.values())
    asked = [one["messages"] for one in served.provider.asked]
    rewrites = sum(after[: len(before)] != before for before, after in itertools.pairwise(asked))
    assert rewrites <= len(served.of("activation")) - 1
    assert len({text_of(messages[0]) for messages in asked}) == 1


async def test_the_observers_prompts_do_not_grow(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def remember(request: dict[str, Any]) -> Reply:
        when = notes_for(request).partition(" |")[0]
        lines = [f"{when} | info | {word} page was read by the agent" for word in _WORDS]
        return Reply(text="\n".join([*lines, "TASK: read", "NEXT: none"]))

    async with serve(
        url, remember, steps=120, patch=monkeypatch, reflector_observation_tokens=20_000
    ) as served:

        async def look(number: int) -> str:
            if number % 20 == 0:
                await served.until(lambda: len(served.observations()) >= number // 20)
            return seen(number)

        served.look = look
        result = await served.run()

    assert result.ok
    sizes = [
        sum(map(count_text, _texts(request)))
        - count_text(text_of(request["messages"][-1]).partition("<transcript ")[2])
        for request in served.provider.memory
        if not reflects(request)
    ]
    assert len(sizes) >= 6
    assert max(sizes) < count_text(INSTRUCTIONS) + 2_800


_WORDS = ("one", "another", "a third", "some", "every")


async def test_notes_are_shown_verbatim(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "app/[slug]/page.tsx -> {x: List<int>}   <b>&amp;</b> $HOME \\n C:\\temp [[wiki]] => ok"

    def remember(request: dict[str, Any]) -> Reply:
        when = notes_for(request).partition(" |")[0]
        return Reply(text=f"{when} | important | The agent opened {said}\nTASK: read\nNEXT: none")

    async with serve(url, remember, patch=monkeypatch) as served:
        await _remembered(served)

    observed = [text for _, text in served.provider.observed()]
    assert observed
    assert all(f"The agent opened {said}" in text for text in observed if "opened" in text)
    assert any(said in text for text in observed)


async def test_the_last_messages_are_always_raw(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = 10
    async with serve(url, patch=monkeypatch, last_messages=wanted) as served:
        served.last_messages = wanted
        await _remembered(served)

    assert any("<observed " in text for text in _texts(served.provider.asked[-1]))
    for number, request in enumerate(served.provider.asked):
        raw = [
            message for message in request["messages"] if message["role"] in ("assistant", "tool")
        ]
        assert len(raw) >= min(2 * number, wanted)


async def test_deleting_a_thread_deletes_its_observations(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(url, patch=monkeypatch) as served:
        user = served.runtime.store.of(served.runtime.settings.user)
        busy: list[str] = []

        async def look(number: int) -> str:
            if number == 30:
                await served.until(lambda: len(served.observations()) >= 2)
                # A thread cannot be deleted while memory is working for its run.
                with pytest.raises(ThreadBusy):
                    await user.upkeep.delete_thread(MAIN)
                busy.append("refused")
            return seen(number)

        served.look = look
        assert (await served.run()).ok
        assert busy
        assert await user.log.observations(MAIN, ending_from=0)
        await user.upkeep.delete_thread(MAIN)
        await user.threads.ensure(MAIN)
        assert await user.log.observations(MAIN, ending_from=0) == []
        assert await user.jobs.claim("observe", seconds=1, thread_id=MAIN) is None
