"""Questions about recorded runs: their answers, and a reader that knows only what it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_runtime.messages import (
    AssistantMessage,
    LoggedMessage,
    PromptMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    call_id,
)
from agent_runtime.prompt.view import Entry
from benchmarks.memory.trace_qa import (
    _answers,  # pyright: ignore[reportPrivateUsage]
    _turn,  # pyright: ignore[reportPrivateUsage]
)
from benchmarks.memory.trace_questions import TraceQuestion, questions_of
from benchmarks.memory.trace_reader import Known, answer, is_right, read_prompt
from benchmarks.replay.recordings import RecordedCall, Step, Trace, Turn

TASK = "Mend the cart of the shop, so that its total counts each discount only once, please."
OLD, NEW = "total = price", "total = price - discount  # once"


def bash(command: str, result: str, said: str = "") -> tuple[str, str, dict[str, Any], str]:
    return said, "bash", {"command": command}, result


def edit(said: str) -> tuple[str, str, dict[str, Any], str]:
    return said, "edit", {"file_path": "src/cart.py", "old_string": OLD, "new_string": NEW}, "ok"


WORK = [
    bash("pytest tests/cart.py", "FAILED tests/cart.py::test_total - E\n1 failed in 0.1s"),
    edit("The cause is that the discount is missing because nobody subtracts it."),
    bash("pytest tests/cart.py", "3 passed in 0.1s"),
]


def history() -> list[Entry]:
    messages: list[tuple[LoggedMessage, tuple[ToolResult, ...]]] = [(UserMessage(TASK), ())]
    for seq, (said, tool, arguments, result) in enumerate(WORK, 2):
        call = ToolCall(call_id(seq, 0), tool, arguments)
        messages.append((AssistantMessage(said, (call,)), (ToolResult(result),)))
    return [
        Entry(seq, seq - 1 or None, message, results, (None,) * len(results))
        for seq, (message, results) in enumerate(messages, 1)
    ]


def test_the_whole_history_answers_every_question() -> None:
    entries = history()
    whole = Known(entries=entries, text=TASK)
    questions = questions_of(entries)
    assert {one.kind for one in questions} == {"recall", "cause", "state", "abstraction"}
    assert all(is_right(one, answer(one, whole)) for one in questions)


def test_a_reader_that_is_shown_nothing_answers_nothing() -> None:
    counting = ("edits", "failing")
    for one in questions_of(history()):
        given = answer(one, Known())
        assert not is_right(one, given) or one.form in counting


@pytest.mark.parametrize(
    ("form", "about", "right", "wrong"),
    [
        ("verdict", ("pytest tests/cart.py",), "passed", "failed"),
        ("content", ("src/cart.py",), "total = price - discount # once", "total = price"),
        ("edits", ("src/cart.py",), "1", "2"),
        ("failure", ("src/cart.py", "total = price - discount # once"), "pytest tests/cart.py", ""),
    ],
)
def test_notes_answer_by_what_they_say(
    form: Any, about: tuple[str, ...], right: str, wrong: str
) -> None:
    text = (
        "<observed 1a2b nodes 1 to 4>\n"
        "! (1) bash pytest tests/cart.py failed: 1 failed\n"
        "! (2) edit src/cart.py failed: nothing matched\n"
        "Changed:\n* $/cart.py (3): + total = price - discount # once; - total = price\n"
        "Checked:\n* passed (4): pytest tests/cart.py\n"
        "Seen: $=src $/cart.py\n</observed 1a2b>"
    )
    known = read_prompt([PromptMessage("user", text)], [])
    given = answer(TraceQuestion(form, about, frozenset()), known)
    assert is_right(TraceQuestion(form, about, frozenset([right])), given)
    assert not wrong or not is_right(TraceQuestion(form, about, frozenset([wrong])), given)


def test_an_edit_that_only_removes_lines_is_an_edit_and_a_move_by_a_shell_is_none() -> None:
    arguments = {"file_path": "src/cart.py", "old_string": OLD, "new_string": ""}
    message = AssistantMessage("", (ToolCall(call_id(5, 0), "edit", arguments),))
    entries = [*history(), Entry(5, 4, message, (ToolResult("ok"),), (None,))]
    asked = {one.about: one.answers for one in questions_of(entries) if one.form == "edits"}
    assert asked == {("src/cart.py",): frozenset(["2"]), (): frozenset(["1"])}
    text = (
        "<observed 1a2b nodes 1 to 6>\n"
        "Changed:\n* src/cart.py (3): + total = price - discount # once\n* (5): - total = price\n"
        "* src/cart.py (6): moved to src/shop.py\n* src/old.py (6): deleted\n</observed 1a2b>"
    )
    known = read_prompt([PromptMessage("user", text)], [])
    assert all(
        answer(TraceQuestion("edits", about, wanted), known) in wanted
        for about, wanted in asked.items()
    )


def test_a_command_is_not_taken_for_one_that_begins_alike() -> None:
    calls = [
        ("pytest tests/cart.py --verbose | tail -5", "the end of a long output"),
        ("pytest tests/cart.py --verbose", "1 passed in 0.1 seconds"),
    ]
    entries = [
        Entry(
            seq,
            seq - 1 or None,
            AssistantMessage("", (ToolCall(call_id(seq, 0), "bash", {"command": command}),)),
            (ToolResult(result),),
            (None,),
        )
        for seq, (command, result) in enumerate(calls, 1)
    ]
    asked = [one for one in questions_of(entries) if one.form == "output"]
    assert len(asked) == 2
    assert all(is_right(one, answer(one, Known(entries=entries))) for one in asked)


def test_a_run_is_replayed_and_asked_about_and_its_answers_are_kept(tmp_path: Path) -> None:
    steps = [
        Step(said, "", (RecordedCall(tool, _json(arguments), result),), (), None)
        for said, tool, arguments, result in WORK
    ]
    turn = Turn(TASK, (), (*steps, Step("Done.", "", (), (), None)))
    trace, keep = Trace("one", "made", "", (turn,), 0.25, 0), tmp_path / "kept"
    scores = _answers(trace, "made", 3, keep)
    for score in scores.values():
        assert score.right == dict.fromkeys(score.right, score.asked)
    assert sum(score.asked for score in scores.values()) >= 8
    # Another trace would answer otherwise: what is kept is not asked again.
    nothing = Trace("none", "made", "", (), 0.25, 0)
    assert _answers(nothing, "made", 3, keep) == scores
    assert len(keep.read_bytes().splitlines()) == 1


def test_the_first_traces_are_spread_over_all() -> None:
    first = sorted(range(120), key=_turn)[:8]
    assert all(any(low <= one < low + 20 for one in first) for low in range(0, 120, 20))


def _json(arguments: dict[str, Any]) -> str:
    import orjson

    return orjson.dumps(arguments).decode()
