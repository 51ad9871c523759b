"""The prompt as a function of the log: its form, reloaded views, and faults `check_prompt` finds.

Properties over any growth of a branch are in `test_window`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_runtime import ScriptedModel
from agent_runtime.errors import InvariantError
from agent_runtime.log.branch import load_view
from agent_runtime.log.exchange import Billing
from agent_runtime.log.run_log import RunLog
from agent_runtime.messages import (
    AssistantMessage,
    FileRef,
    LoggedMessage,
    Note,
    Opaque,
    PromptMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from agent_runtime.models.base import NO_SETTINGS
from agent_runtime.models.tokens import Calibration, count_message
from agent_runtime.prompt.build import (
    build_prompt,
    check_prompt,
    decode_activation,
    encode_prefix,
    encode_start,
    view_of,
)
from agent_runtime.prompt.constraints import constraints_left
from agent_runtime.prompt.render import render_entry
from agent_runtime.prompt.view import (
    ActivationContent,
    Entry,
    Prompt,
    PromptPrefix,
    Truncation,
    View,
    handle_of,
)
from agent_runtime.prompt.window import PromptLimits, overdue, plan_activation
from agent_runtime.run.resolve import RunSetup
from agent_runtime.run.start import RunRequest, begin_new_run, opening
from agent_runtime.tools.toolset import Toolset
from agent_runtime_storage import UserStore, open_store
from agent_runtime_storage.contract.records.log import Activation, Amount, Budget, NewEvent
from agent_runtime_storage.contract.records.usage import Usage
from tests.prompt.growing import Growing, Move, Reply, Say, Work, answer, note, seen, user, work

ROOM = PromptLimits(8_000, 2_000, 4)


def branch(*messages: LoggedMessage | tuple[LoggedMessage, ToolResult]) -> list[Entry]:
    entries: list[Entry] = []
    for seq, item in enumerate(messages, 1):
        message, *results = item if isinstance(item, tuple) else (item,)
        shown = (None,) * len(results)
        entries.append(Entry(seq, seq - 1 or None, message, tuple(results), shown))
    return entries


def view(entries: list[Entry], **start: Any) -> View:
    return view_of(
        1, None, ActivationContent(nonce="n", **start), PromptPrefix("Be careful."), None, entries
    )


LOOP = branch(user(1, 1), (work(2, [3]), seen(3)), note(3), note(4))


# The form of a prompt


def test_notes_after_an_exchange_are_part_of_its_last_result() -> None:
    prompt = build_prompt(view(LOOP))
    assert [message.role for message in prompt.messages] == ["system", "user", "assistant", "tool"]
    first, second = (f"<runtime-note n>\n{note(seq).text}\n</runtime-note n>" for seq in (3, 4))
    assert prompt.messages[-1].text == f"{seen(3).text}\n\n{first}\n\n{second}"
    assert "<runtime-note n>" in prompt.messages[0].text


def test_notes_after_a_text_are_separate_messages() -> None:
    prompt = build_prompt(view(branch(user(1, 1), answer(2, 1), note(3))))
    assert [message.role for message in prompt.messages] == ["system", "user", "assistant", "user"]
    assert prompt.messages[-1].text == f"<runtime-note n>\n{note(3).text}\n</runtime-note n>"


def test_a_prompt_counts_as_the_sum_of_its_messages() -> None:
    prompt = build_prompt(view(LOOP))
    assert prompt.counted == pytest.approx(sum(map(count_message, prompt.messages)), abs=2)


@pytest.mark.parametrize(
    ("limit", "marks"), [(0, ()), (1, (3,)), (2, (1, 3)), (3, (0, 1, 3)), (4, (0, 1, 3))]
)
def test_cache_marks_are_at_the_prefix_and_the_last_two_nodes(
    limit: int, marks: tuple[int, ...]
) -> None:
    assert build_prompt(view(LOOP), cache_marks=limit).marks == marks


def test_the_task_and_its_files_move_to_the_front_once_its_node_has_left() -> None:
    file = FileRef("image", "file:///a.png")
    task = Entry(1, None, UserMessage("Do it.", (file,)))
    start = ActivationContent(first=2, task=1, left_out=3, nonce="n")
    prompt = build_prompt(view_of(2, 2, start, PromptPrefix("Be careful."), task, LOOP[1:]))
    front = prompt.messages[1]
    assert (front.role, front.files) == ("user", (file,))
    assert front.text.startswith("Do it.\n\n<runtime-note n>\n3 earlier messages")


def test_the_system_prompt_is_repeated_where_a_model_ignores_it() -> None:
    repeated = build_prompt(view(LOOP, repeat_system=True)).messages[1]
    assert repeated.role == "user"
    assert "Be careful." in repeated.text


@pytest.mark.parametrize(
    ("model", "stays"),
    [
        ("m", True),
        ("deepseek/deepseek-chat", True),
        ("anthropic/claude-sonnet-4-5-20250929", True),
        ("anthropic/claude-opus-4-20250514", True),
        ("anthropic/claude-opus-5", True),
        ("anthropic/claude-fable-5-1", False),
        ("bedrock/us.anthropic.claude-opus-5-5-v1:0", False),
    ],
)
def test_opaque_parts_go_only_to_their_model_and_not_where_it_checks_the_prefix(
    model: str, stays: bool
) -> None:
    opaque = Opaque(model, {"signature": "s"})
    nodes = [
        Entry(1, None, UserMessage("Do it.")),
        Entry(2, 1, AssistantMessage("Yes.", opaque=opaque)),
        Entry(3, 2, AssistantMessage("Done.", opaque=opaque)),
    ]

    def parts(name: str) -> list[Opaque | None]:
        shown = view_of(
            1, 2, ActivationContent(model=name), PromptPrefix("Be careful."), None, nodes
        )
        prompt = build_prompt(shown)
        check_prompt(shown, prompt, None, estimate=1, limit=2)
        return [message.opaque for message in prompt.messages[2:]]

    assert parts(model) == [opaque if stays else None, opaque]
    assert parts("other") == [None, None]


@pytest.mark.parametrize("lost", [True, False])
def test_a_missing_or_foreign_opaque_part_is_refused(lost: bool) -> None:
    opaque = Opaque("m", {"signature": "s"})
    entry = Entry(2, 1, AssistantMessage("Yes.", opaque=opaque))
    other = "other" if lost else "m"
    drawn = replace(
        entry, prompt=render_entry(entry, ActivationContent(model=other), keep_opaque=True)
    )
    start = ActivationContent(model="m" if lost else "other")
    root = replace(drawn, parent_id=None)
    shown = view_of(1, None, start, PromptPrefix(""), None, [root], rendered=True)
    with pytest.raises(InvariantError, match="missing from" if lost else "must not be in"):
        check_prompt(shown, build_prompt(shown), None, estimate=1, limit=2)


def test_the_smaller_of_two_cuts_applies() -> None:
    long = ToolResult("line\n" * 1000)
    entry = Entry(2, 1, work(2, [1]), (long,), (2_000,))
    handle = handle_of(entry, 0)
    capped = render_entry(entry, ActivationContent(), keep_opaque=True)[1].text
    assert len(long.text) > len(capped) > 1_500
    assert handle in capped
    assert (
        len(
            render_entry(
                entry, ActivationContent(cuts={handle: Truncation(400)}), keep_opaque=True
            )[1].text
        )
        < 800
    )
    assert (
        render_entry(entry, ActivationContent(cuts={handle: Truncation(4_000)}), keep_opaque=True)[
            1
        ].text
        == capped
    )


def test_a_decoded_activation_equals_the_encoded_one() -> None:
    start = ActivationContent(
        3,
        1,
        2,
        {"c00000001": Truncation(400, "a.py b.py")},
        "m",
        "n",
        shrunk=True,
        repeat_system=True,
    )
    prefix = PromptPrefix("Be careful.", (ToolSpec("look", "Looks.", {"type": "object"}),))
    row = Activation(2, 4, None, "tokens", encode_start(start), encode_prefix(prefix), 0.0)
    assert decode_activation(row) == (start, prefix)


def test_constraints_of_older_databases_keep_their_flags() -> None:
    body = (
        b'{"first":9,"constraints":{"items":[{"node":3,"text":"The user allowed a payment.",'
        b'"whole":true,"untold":true}],"read":9}}'  # plain: ok
    )
    row = Activation(2, 4, None, "tokens", body, encode_prefix(PromptPrefix("s")), 0.0)
    start, _ = decode_activation(row)
    # The task's own node is always shown, but not the reason for an approval of one of its calls.
    assert constraints_left(start.constraints, first=9, task=3) == start.constraints.items
    assert b'"untold":true' in encode_start(start)  # plain: ok


# Reloaded views


async def begin_log(store: UserStore, room: PromptLimits) -> tuple[RunLog, Entry]:
    model = ScriptedModel([])
    resolved = RunSetup(
        model=model,
        info=await model.info(),
        room=room,
        prefix=PromptPrefix("Be careful."),
        tools=Toolset(()),
        calibration=Calibration(1.0),
        max_steps=1,
        max_output=100,
        output_limit="model",
        output=None,
        repeat_system=False,
        model_settings=NO_SETTINGS,
    )
    order = RunRequest("run", "thread", "agent", user(1, 5), Budget(), lambda event: None)
    return await begin_new_run(store, resolved, order)


async def write(log: RunLog, task: Entry, room: PromptLimits, move: Move) -> None:
    """Write a move as the orchestrator does."""
    usage = Usage("run", "run", None, "step", "m", 1, 0, 0, 1, 1, 0)
    seq = log.next_seq
    event = NewEvent("answer", seq)
    match move:
        case Work(results, notes):
            await log.open(work(seq, results), Billing(usage, Amount(), Amount(), event))
            await log.start(range(1, len(results)), {0: seen(results[0])})
            for index in range(2, len(results)):
                await log.finish_call(index, seen(results[index]))
            done = {1: seen(results[1])} if len(results) > 1 else {}
            shown = [300 if size > 100 else None for size in results]
            await log.close(done, shown, notes=[note(seq + 1 + i) for i in range(notes)])
        case Reply(words, notes):
            appended = [answer(seq, words), *(note(seq + 1 + i) for i in range(notes))]
            await log.append(appended, billing=Billing(usage, Amount(), Amount(), event))
        case Say(words):
            await log.append(opening(log.view, user(seq, words)))
        case _:
            pass
    cause = overdue(log.view, room, log.view.tokens)
    if cause is not None:
        nonce = f"n{log.last_activation}"
        new = plan_activation(
            log.view, room, cause=cause, estimate=lambda n: n, nonce=nonce, task=task
        )
        await log.activate(new, cause)


SIZES = st.lists(st.sampled_from([1, 50, 600]), min_size=1, max_size=4).map(tuple)
WRITES: st.SearchStrategy[list[Move]] = st.lists(
    st.one_of(
        st.builds(Work, SIZES, st.integers(0, 2)),
        st.builds(Reply, st.integers(1, 100), st.integers(0, 2)),
        st.builds(Say, st.integers(1, 100)),
    ),
    min_size=1,
    max_size=15,
)


async def check_reload(log: RunLog) -> None:
    reloaded = await load_view(log.store, "thread", log.head)
    assert bare(reloaded) == bare(log.view)
    assert build_prompt(reloaded, cache_marks=4) == build_prompt(log.view, cache_marks=4)


def bare(view: View) -> View:
    """Return the view without its task's rendering as a raw node, which no prompt shows."""
    task = view.task and replace(view.task, prompt=(), tokens=0)
    return replace(view, task=task)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(WRITES)
def test_a_reloaded_view_equals_its_writers(moves: list[Move]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = await open_store(f"file:{folder}/reload.db", synchronous="normal")
            try:
                log, task = await begin_log(store.of("somebody"), ROOM)
                await check_reload(log)
                for move in moves:
                    await write(log, task, ROOM, move)
                    await check_reload(log)
            finally:
                await store.close()

    anyio.run(main)


# Faults that `check_prompt` finds


def grown_branch() -> tuple[View, Prompt, Prompt]:
    """Return a view after an activation, its prompt, and the previous prompt."""
    branch = Growing(ROOM, 1.0)
    before = branch.prepare()
    for move in [Say(5), *[Work((5,))] * 4]:
        branch.move(move)
        before = branch.prepare()
    branch.move(Work((5, 5)))
    prompt = branch.prepare()
    assert branch.view.start.left_out > 0
    return branch.view, prompt, before


def check(view: View, prompt: Prompt, before: Prompt | None = None, estimate: int = 10) -> None:
    check_prompt(view, prompt, before, estimate=estimate, limit=100)


def test_a_good_prompt_passes() -> None:
    check(*grown_branch(), estimate=100)


def test_a_prompt_above_its_limit_is_refused() -> None:
    with pytest.raises(InvariantError, match="101 tokens, the limit is 100"):
        check(*grown_branch(), estimate=101)


def started(view: View, **changes: Any) -> View:
    return replace(view, start=replace(view.start, **changes))


def orphaned(view: View) -> View:
    first, *rest = view.entries
    return replace(view, entries=(first, *rest[1:]))


def cut_again(view: View) -> View:
    return started(view, cuts={handle_of(view.entries[-2], 0): Truncation(400)})


VIEWS: list[tuple[str, Callable[[View], View]]] = [
    ("the raw nodes begin at", lambda view: replace(view, entries=view.entries[1:])),
    ("is no root", lambda view: started(view, first=None)),
    ("but its parent is", orphaned),
    ("is shown twice", lambda view: replace(view, task=view.entries[-1])),
    ("only 2 recent messages", lambda view: replace(view, entries=view.entries[:1])),
    ("was cut again", cut_again),
]


@pytest.mark.parametrize(("fault", "change"), VIEWS)
def test_a_view_that_hides_or_repeats_nodes_is_refused(
    fault: str, change: Callable[[View], View]
) -> None:
    view, prompt, before = grown_branch()
    with pytest.raises(InvariantError, match=fault):
        check(change(view), prompt, before)


def test_a_shrunk_view_may_be_short_and_cut() -> None:
    view, prompt, before = grown_branch()
    check(started(cut_again(view), shrunk=True), prompt, before)
    check(started(replace(view, entries=view.entries[:1]), shrunk=True), prompt, before)


Messages = tuple[PromptMessage, ...]


def swapped(messages: Messages) -> Messages:
    return (*messages[:-2], messages[-1], messages[-2])


def same_ids(messages: Messages) -> Messages:
    return (*messages, *messages[-3:])


# The prompt ends in a call of two tools and their results.
PROMPTS: list[tuple[str, Callable[[Messages], Messages]]] = [
    ("has no result", lambda messages: messages[:-1]),
    ("has no result", lambda messages: (*messages[:-1], PromptMessage("user", "And?"))),
    ("has no call", lambda messages: (*messages[:-3], *messages[-2:])),
    ("has no call", swapped),
    ("the same id", same_ids),
]


@pytest.mark.parametrize(("fault", "change"), PROMPTS)
def test_calls_without_results_and_results_without_calls_are_refused(
    fault: str, change: Callable[[Messages], Messages]
) -> None:
    view, prompt, _ = grown_branch()
    with pytest.raises(InvariantError, match=fault):
        check(view, replace(prompt, messages=change(prompt.messages)))


def test_a_prompt_that_rewrites_the_previous_one_is_refused() -> None:
    view, prompt, before = grown_branch()
    first, *rest = before.messages
    changed = replace(before, messages=(replace(first, text="Be quick."), *rest))
    with pytest.raises(InvariantError, match="message 0 changed"):
        check(view, prompt, changed)
    with pytest.raises(InvariantError, match="became shorter"):
        check(view, before, prompt)
    with pytest.raises(InvariantError, match="tool schemas changed"):
        check(view, prompt, replace(before, tools=(ToolSpec("look", "Looks."),)))
    check(view, prompt, replace(changed, activation_id=before.activation_id - 1))


def test_a_note_is_never_rendered_alone() -> None:
    with pytest.raises(InvariantError, match="is a note"):
        render_entry(Entry(1, None, Note("Hm.")), ActivationContent(), keep_opaque=True)


def test_names_that_a_cut_removes_follow_the_cut_result() -> None:
    entry = Entry(2, 1, work(2, [1]), (ToolResult("line\n" * 1000),), (None,))
    start = ActivationContent(cuts={handle_of(entry, 0): Truncation(400, "a.py b.py")})
    text = render_entry(entry, start, keep_opaque=True)[1].text
    assert text.endswith("\n[... also named there: a.py b.py ...]")
    plain = ActivationContent(cuts={handle_of(entry, 0): Truncation(400)})
    assert "also named" not in render_entry(entry, plain, keep_opaque=True)[1].text


def test_a_result_that_was_never_whole_names_nothing() -> None:
    entry = Entry(2, 1, work(2, [1]), (ToolResult("line\n" * 1000),), (400,))
    start = ActivationContent(cuts={handle_of(entry, 0): Truncation(500, "a.py")})
    assert "also named" not in render_entry(entry, start, keep_opaque=True)[1].text
