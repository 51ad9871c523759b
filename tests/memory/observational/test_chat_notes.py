"""Notes of long chats: what they repeat, what they keep of a rule, and what they name once."""

from __future__ import annotations

from agent_runtime.memory.observational.observer.select import without_dropped
from agent_runtime.memory.observational.observer.slots.checks import checks_of
from agent_runtime.memory.observational.observer.slots.verdicts import verdict_of
from agent_runtime.memory.observational.reflector.rules import condense_by_rule, only_rules
from agent_runtime.messages import ToolResult
from agent_runtime.prompt.observation import (
    Observation,
    ObservationLine,
    ObservationNotes,
    render_lines,
)
from agent_runtime.prompt.slots import Agreement, Slots, render_slots

AT = "2026-11-28 22:49"


def said(node: int, text: str, *, critical: bool = False) -> ObservationLine:
    """Return a line of the user's words."""
    priority = "critical" if critical else "important"
    return ObservationLine(AT, priority, f"User: {text}", node, by_user=True)


def observed(*lines: ObservationLine) -> Observation:
    """Return an observation with these lines."""
    nodes = [line.node for line in lines if line.node]
    return Observation(1, 0, None, min(nodes), max(nodes), ObservationNotes(lines))


def test_a_time_and_a_date_stand_once_for_the_lines_in_a_row_that_have_them() -> None:
    lines = [
        said(1, "[1:07 pm on 25 February] Joanna: I moved to Oslo."),
        said(3, "[1:07 pm on 25 February] Joanna: The flat has two rooms."),
        said(5, "[9:12 am on 3 March] Joanna: I have a cat now."),
    ]
    assert render_lines(lines).splitlines() == [
        "2026-11-28:",
        "22:49 ! (1) User: [1:07 pm on 25 February] Joanna: I moved to Oslo.",
        "! (3) User: Joanna: The flat has two rooms.",
        "! (5) User: [9:12 am on 3 March] Joanna: I have a cat now.",
    ]


def test_what_a_user_puts_in_brackets_without_a_date_stays() -> None:
    lines = [said(1, "[urgent] The build fails."), said(3, "[urgent] The site is down.")]
    assert render_lines(lines).count("[urgent]") == 2


def test_short_answers_of_one_date_show_it_once() -> None:
    agreed = [Agreement(node, "Shall I?", node + 1, f"[2:01 pm] Yes, {node}") for node in (1, 3)]
    shown = render_slots(Slots(agreements=tuple(agreed)))
    assert shown.count("[2:01 pm]") == 1
    assert "Yes, 1" in shown
    assert "Yes, 3" in shown


def test_a_condensed_rule_stays_in_its_words_without_what_was_said_around_it() -> None:
    rule = "You must never push to the main branch when the others are away."
    text = f"[1:07 pm] What a day that was! The weather was lovely. {rule}"
    line = only_rules(said(7, text, critical=True))
    assert line.text == f"User: [1:07 pm] [...] {rule}"
    # What "it" is stands before it.
    line = only_rules(
        said(7, "We had rain. The file is config.yaml. Never touch it.", critical=True)
    )
    assert line.text.endswith("The file is config.yaml. Never touch it.")
    german = "Es war schön. Die Datei ist config.yaml. Fasse sie niemals an."
    assert "config.yaml" in only_rules(said(7, german, critical=True)).text


def test_reflections_keep_each_rule_and_drop_small_talk_before_facts() -> None:
    when = ["soon", "later", "then", "tonight", "again", "around", "there", "outside", "tomorrow"]
    talk = [said(at, f"Haha, that is so nice, see you {one}!") for at, one in enumerate(when, 1)]
    fact = said(61, "My sister Ingrid moved to Oslo on 3 March and works at Equinor.")
    rule = "Never send anything to Ingrid's office address."
    rules = said(63, f"We had a long day. {rule} The weather was good.", critical=True)
    part = observed(fact, *talk, rules)
    notes = condense_by_rule([part], 115)
    texts = "\n".join(line.text for line in notes.lines)
    assert rule in texts
    assert "Equinor" in texts
    assert "The weather was good" not in texts


def test_the_nodes_of_what_had_no_room_are_named_once() -> None:
    texts = ("1, 3, 7", "21-24, 30", "41")
    dropped = [
        ObservationLine("", "critical", f"The user also wrote nodes {one}: recall opens them.")
        for one in texts
    ]
    kept = said(9, "I moved to Oslo.")
    others, joined = without_dropped([dropped[0], kept, *dropped[1:]])
    assert others == [kept]
    assert [line.text for line in joined] == [
        "The user also wrote nodes 1, ..., 41: recall opens them."
    ]
    # Joined lines are joined again.
    assert without_dropped(joined)[1] == joined


def test_a_check_that_was_killed_after_it_passed_some_tests_has_no_verdict() -> None:
    [check] = checks_of("go test ./...")
    killed = "Exit code 137\n[Request interrupted by user]\nok  \tx/y\t0.1s"
    assert verdict_of(check, ToolResult(killed, "error")) is None
    failed = verdict_of(check, ToolResult("Exit code 137\n--- FAIL: TestA (0.0s)", "error"))
    assert failed is not None
    assert not failed.passed
