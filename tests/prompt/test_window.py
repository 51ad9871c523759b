"""The recent messages of a prompt: properties over any growth of a branch, then single rules."""

from __future__ import annotations

from dataclasses import asdict, replace

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_runtime.errors import PromptTooLarge
from agent_runtime.messages import Note, PromptMessage
from agent_runtime.prompt import build as context
from agent_runtime.prompt.render import render_entry
from agent_runtime.prompt.truncate import truncate_text
from agent_runtime.prompt.view import ActivationContent, Entry, Prompt, Truncation, handle_of
from agent_runtime.prompt.window import CUT_TOKENS, PromptLimits, overdue, truncation_of
from tests.prompt.growing import Begin, Growing, Move, Reply, Say, Tell, Work, mark


def room_of(window: int, last_messages: int) -> PromptLimits:
    return PromptLimits(window, window // 4, last_messages)


ROOMS = st.builds(room_of, st.integers(3_000, 12_000), st.integers(2, 12))
RESULTS = st.lists(st.integers(0, 60) | st.integers(500, 3_000), min_size=1, max_size=5).map(tuple)
NOTES = st.sampled_from([0, 0, 0, 1, 2])
WORDS = st.integers(1, 150)
MOVES: st.SearchStrategy[list[Move]] = st.lists(
    st.one_of(
        st.builds(Say, WORDS),
        st.builds(Reply, WORDS, NOTES),
        st.builds(Work, RESULTS, NOTES),
        st.builds(Work, RESULTS, NOTES),
        st.builds(Tell, st.integers(1, 2)),
        st.builds(Begin, st.sampled_from(["agent", "overflow", "messages"])),
    ),
    max_size=40,
)
many = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def dump(prompt: Prompt) -> list[bytes]:
    """Return each message of a prompt as bytes, as a provider's cache compares them."""
    return [orjson.dumps(asdict(message)) for message in prompt.messages]


def check_shown_once(grown: Growing, prompt: Prompt) -> None:
    """Check that each node is in the prompt once, or counted as left out."""
    text = "\n".join(message.text for message in prompt.messages)
    view = grown.view
    raw = {entry.seq for entry in view.entries} | ({view.task.seq} if view.task else set[int]())
    for entry in grown.log:
        if mark(entry.seq) in entry.message.text:
            assert text.count(mark(entry.seq)) == (entry.seq in raw)
    hidden = sum(entry.size for entry in grown.log if entry.seq not in raw)
    assert view.start.left_out == hidden
    assert (f"{hidden} earlier messages" in text) == (hidden > 0)
    assert grown.task is not None
    assert mark(grown.task.seq) in text


def is_in_a_result(grown: Growing, entry: Entry) -> bool:
    """Return whether the note arrived during an exchange, so that its result carries it."""
    before = reversed(grown.log[: entry.seq - 1])
    return bool(
        next(previous for previous in before if not isinstance(previous.message, Note)).results
    )


def check_number_of_messages(grown: Growing) -> None:
    first = grown.view.entries[0]
    assert not (isinstance(first.message, Note) and is_in_a_result(grown, first))
    last = grown.room.last_messages
    count, longest, unit = 0, 0, 0
    for entry in grown.view.entries:
        # A note in a result leaves only with its exchange.
        unit = entry.size + (0 if entry.prompt else unit)
        count, longest = count + entry.size, max(longest, unit)
    if grown.view.start.first is not None and not grown.view.start.shrunk:
        assert count >= last
    assert count <= max(2 * last, last + longest)


@many
@given(ROOMS, st.sampled_from([1.0, 1.3, 1.6]), MOVES)
def test_every_prompt_of_any_branch_has_the_guaranteed_messages(
    room: PromptLimits, ratio: float, moves: list[Move]
) -> None:
    grown = Growing(room, ratio)
    before: Prompt | None = None
    for move in [Say(20), *moves]:
        try:
            grown.move(move)
            prompt = grown.prepare()
        except PromptTooLarge:
            assert unavoidable(grown) > room.limit
            return
        check_shown_once(grown, prompt)
        check_number_of_messages(grown)
        if before is not None and before.activation_id == prompt.activation_id:
            assert dump(prompt)[: len(before.messages)] == dump(before)
        before = prompt


def unavoidable(grown: Growing) -> int:
    """Return the estimate of the front and of the newest node with its own message."""
    newest = next(entry for entry in reversed(grown.view.entries) if entry.prompt)
    task = 10 + 2 * len(grown.task.message.text) if grown.task else 0
    return grown.estimate(grown.view.front_tokens + task + newest.tokens)


def grow(moves: list[Move], room: PromptLimits) -> Growing:
    grown = Growing(room, 1.0)
    for move in moves:
        grown.move(move)
        grown.prepare()
    return grown


LARGE = PromptLimits(100_000, 10_000, 4)


def test_messages_leave_in_chunks_and_not_one_by_one() -> None:
    grown = Growing(LARGE, 1.0)
    sizes: list[int] = []
    for move in [Say(5), *[Work((5,))] * 12]:
        grown.move(move)
        grown.prepare()
        sizes.append(sum(entry.size for entry in grown.view.entries))
    assert sizes == [1, 3, 5, 7, 4, 6, 8, 4, 6, 8, 4, 6, 8]


def test_an_exchange_longer_than_the_window_is_never_split() -> None:
    grown = grow([Say(5), Work((1,) * 9), Work((1,) * 9)], LARGE)
    assert [entry.size for entry in grown.view.entries] == [10]


def test_a_note_leaves_only_with_its_exchange() -> None:
    # Six messages would begin at the second note of the exchange before the last.
    grown = grow([Say(5), *[Work((5,), notes=2)] * 8], replace(LARGE, last_messages=6))
    assert grown.view.start.left_out > 0
    assert grown.view.entries[0].results
    assert not grown.view.start.shrunk


def test_an_exchange_with_many_notes_does_not_cause_an_activation_at_every_step() -> None:
    grown = grow([Say(5), *[Work((5,))] * 3, Work((5,), notes=9)], LARGE)
    assert grown.view.start.first == 5
    activation = grown.view.activation_id
    grown.move(Work((5,)))
    grown.prepare()
    assert grown.view.activation_id == activation


def test_old_results_are_cut_before_the_guaranteed_messages_leave() -> None:
    room = PromptLimits(16_000, 4_000, 12)
    grown = grow([Say(5), *[Work((700,))] * 10], room)
    assert grown.view.start.cuts
    assert not grown.view.start.shrunk
    recent = [entry for entry in grown.view.entries if entry.results][-2:]
    assert not {handle_of(entry, 0) for entry in recent} & grown.view.start.cuts.keys()
    [*old, _, _] = [entry for entry in grown.view.entries if entry.results]
    cut = [entry for entry in old if handle_of(entry, 0) in grown.view.start.cuts]
    assert cut
    assert all(entry.tokens < CUT_TOKENS + 100 for entry in cut)


def test_a_cut_records_the_names_that_it_removes() -> None:
    lines = "".join(f"src/shop/part_{number}.py does its work\n" for number in range(2000))
    truncation = truncation_of(lines, "c00000001", None)
    assert truncation is not None
    names, shown = set(truncation.also.split()), truncate_text(lines, truncation.chars, "c00000001")
    assert names and names < {f"src/shop/part_{number}.py" for number in range(2000)}
    assert not any(name in shown for name in names)
    assert truncation_of(lines, "c00000001", truncation.chars) == Truncation(truncation.chars)
    assert truncation_of("short", "c00000001", None) is None


def test_the_guaranteed_messages_shrink_if_they_do_not_fit_even_when_cut() -> None:
    grown = grow([Say(5), *[Work((1000,) * 3)] * 6], PromptLimits(4_000, 1_000, 20))
    assert grown.view.start.shrunk
    assert grown.view.entries[-1].results


def test_shrinking_renders_each_message_only_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = 200
    grown = Growing(PromptLimits(30_000, 10_000, 2 * nodes), 1.0)
    grown.move(Say(5))
    for _ in range(nodes):
        grown.move(Work((40,)))
    assert grown.view.tokens > grown.room.limit
    rendered = 0

    def counted(
        entry: Entry, start: ActivationContent, *, keep_opaque: bool
    ) -> tuple[PromptMessage, ...]:
        nonlocal rendered
        rendered += 1
        return render_entry(entry, start, keep_opaque=keep_opaque)

    monkeypatch.setattr(context, "render_entry", counted)
    grown.activate("tokens")
    assert grown.view.start.shrunk
    assert len(grown.view.entries) < nodes * 0.8
    assert rendered <= 3 * nodes


def test_a_chat_after_the_last_exchange_shrinks_too() -> None:
    grown = grow([Say(5), Work((5,)), *[Reply(150), Say(150)] * 12], PromptLimits(4_000, 1_000, 30))
    assert grown.view.start.shrunk
    assert grown.estimate(grown.view.tokens) <= grown.room.limit


def test_the_last_exchange_stays_as_long_as_it_fits() -> None:
    # Above the goal of an activation, but below the limit.
    grown = Growing(PromptLimits(4_000, 1_000, 4), 1.0)
    for move in [Say(1500), Work((5,)), Reply(800), Say(700), Begin("overflow")]:
        grown.move(move)
    types = [entry.message.type for entry in grown.view.entries]
    assert types[-2:] == ["assistant", "user"]
    assert grown.view.tokens <= grown.room.limit


@pytest.mark.parametrize(
    ("move", "name"),
    [
        (Say(5_000), "a user message of node 2"),
        (Reply(5_000), "an answer of node 3"),
    ],
    ids=["user", "answer"],
)
def test_a_message_that_cannot_fit_is_named(move: Move, name: str) -> None:
    grown = grow([Say(5)], PromptLimits(4_000, 1_000, 4))
    with pytest.raises(PromptTooLarge, match=name):
        for step in [Reply(5), move] if isinstance(move, Reply) else [move]:
            grown.move(step)
            grown.prepare()


def test_a_prompt_at_its_limit_is_not_overdue_and_one_above_is() -> None:
    grown = grow([Say(5)], LARGE)
    assert overdue(grown.view, LARGE, LARGE.limit) is None
    assert overdue(grown.view, LARGE, LARGE.limit + 1) == "tokens"
