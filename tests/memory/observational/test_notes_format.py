"""The format of notes: a weak model's variants are parsed, and prose is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.memory.observational.observer.notes_format import (
    LONGEST_LINE,
    NOTHING,
    format_notes,
    parse_notes,
)
from agent_runtime.prompt.observation import (
    ObservationLine,
    ObservationNotes,
    Priority,
    render_notes,
)

AT = "2026-11-21 14:05"
PRIORITIES: list[Priority] = ["critical", "important", "info", "done"]


def lines(text: str) -> tuple[ObservationLine, ...]:
    return parse_notes(text).notes.lines


@pytest.mark.parametrize(
    "text",
    [
        f"{AT} | critical | Keep `a|b`.",
        f"  {AT}  |  CRITICAL  |  Keep `a|b`.  ",
        f"- {AT} | high | Keep `a|b`.",
        f"* **{AT}** | **critical** | Keep `a|b`.",
        f"1. [{AT}] [critical] Keep `a|b`.",
        f"| {AT} | critical | Keep `a|b`. |",
        f"critical | {AT} | Keep `a|b`.",
        f"({AT} UTC) critical: Keep `a|b`.",
        f"{AT} - 🔴 Keep `a|b`.",
        f"{AT} 🔴 High: Keep `a|b`.",
        "2026-11-21T14:05:33Z | urgent | Keep `a|b`.",
        "2026/11/21, 14:05 (high) Keep `a|b`.",
        "2026-11-21 2:05 PM | must | Keep `a|b`.",
        "## 2026-11-21\n14:05 | critical | Keep `a|b`.",
        "2026-11-21:\n14:05 !! Keep `a|b`.",
        "**Date: Nov 21, 2026**\n\n* 🔴 (14:05) Keep `a|b`.",
        f"```text\n{AT} | critical | Keep `a|b`.\n```",
        f"<notes>\n{AT} | critical | Keep `a|b`.\n</notes>",
        f"| Time | Priority | Text |\n|---|---|---|\n| {AT} | critical | Keep `a|b`. |",
        f"<think>\n2020-01-01 | info | no\n</think>\n{AT} | critical | Keep `a|b`.",
        f"{AT} | critical | Keep\n  `a|b`.",
        '{"time": "2026-11-21T14:05Z", "priority": "critical", "text": "Keep `a|b`."}',
        '```json\n[{"date": "2026-11-21", "at": "14:05", "level": "high", "x": "Keep `a|b`."}]'
        "\n```",
        f'{{\n "observations": [\n  {{"prio": "kritisch", "wann": "{AT}",\n "was": "Keep `a|b`."}}'
        "]\n}",
        f'Here:\n["{AT} | critical | Keep\\n`a|b`."]\nThat is all.',
    ],
)
def test_decorated_lines_are_parsed(text: str) -> None:
    (line,) = lines(text)
    assert (line.at, line.text) == (AT, "Keep `a|b`.")
    assert line.priority == "critical"


@pytest.mark.parametrize(
    ("word", "priority"),
    [
        ("critical", "critical"),
        ("High", "critical"),
        ("medium", "important"),
        ("IMPORTANT", "important"),
        ("low", "info"),
        ("information", "info"),
        ("completed", "done"),
        ("✅", "done"),
        ("P1", "important"),
    ],
)
def test_synonyms_of_priorities_are_parsed(word: str, priority: Priority) -> None:
    assert lines(f"{AT} | {word} | x") == (ObservationLine(AT, priority, "x"),)


def test_objects_a_line_are_parsed_with_task_and_next_step() -> None:
    text = (
        f'{{"when": "{AT}", "priority": "info", "note": "done"}},\n'
        '{"fact": "Port 8443"}\nnot JSON {\n{"task": "port it", "next_step": "run\\ntests"}'
    )
    parsed = parse_notes(text)
    assert parsed.notes == ObservationNotes(
        (ObservationLine(AT, "info", "done"), ObservationLine("", "info", "Port 8443 not JSON {")),
        "port it",
        "run tests",
    )


@pytest.mark.parametrize("text", ["[]", "{}", "[1, 2]", "[" * 500_000, '{"a": ' * 100_000, "null"])
def test_json_without_notes_is_no_note(text: str) -> None:
    assert parse_notes(text).notes.lines == ()


@pytest.mark.parametrize("quoted", ['{"port": 8443}', '{"port": "8443"}', '["a", "b"]'])
def test_json_that_a_note_quotes_stays_in_it(quoted: str) -> None:
    assert lines(f"{AT} | info | It is\n{quoted}") == (
        ObservationLine(AT, "info", f"It is {quoted}"),
    )


def test_missing_fields_stay_empty() -> None:
    assert lines("unknown | info | x") == (ObservationLine("", "info", "x"),)
    assert lines("info: x") == (ObservationLine("", "info", "x"),)
    assert lines(f"{AT} x") == (ObservationLine(AT, "info", "x"),)
    assert lines("2026-11-21 | info | x") == (ObservationLine("2026-11-21", "info", "x"),)
    assert lines("14:05 | info | x") == (ObservationLine("", "info", "x"),)
    assert lines("2026-13-45 25:99 | info | x") == (ObservationLine("", "info", "x"),)


def test_a_word_that_resembles_a_priority_belongs_to_the_text() -> None:
    assert lines(f"{AT} Done with the parser.") == (
        ObservationLine(AT, "info", "Done with the parser."),
    )
    assert lines(f"{AT} | info | done: x") == (ObservationLine(AT, "info", "done: x"),)
    assert lines(f"{AT} | info | 15:00 is the call") == (
        ObservationLine(AT, "info", "15:00 is the call"),
    )


def test_text_is_preserved() -> None:
    text = 'app/[slug]/page.tsx -> **kwargs `x | y` _private_ [link](a) - 50 % -- "q"'
    assert lines(f"{AT} | info | {text}") == (ObservationLine(AT, "info", text),)
    assert lines(f"{AT} !! _private") == (ObservationLine(AT, "critical", "_private"),)


def test_the_task_and_the_next_step_are_separate_fields() -> None:
    for text in (
        f"{AT} | info | x\nTASK: port it\nNEXT: run tests",
        f"{AT} | info | x\n\n**Current Task:** port it\n**Next step:** run tests",
        f"{AT} | info | x\n## Task:\n\nport it\n## Next steps:\n- run tests",
        f"{AT} | info | x\n- task: port\nit\n- Suggested next response: run\n  tests",
    ):
        parsed = parse_notes(text)
        assert parsed.notes == ObservationNotes(
            (ObservationLine(AT, "info", "x"),), "port it", "run tests"
        )
        assert parsed.stray == 0
    for none in ("none", "None.", "-", "N/A", "", "unknown"):
        assert parse_notes(f"TASK: x\nNEXT: {none}").notes.next_step == ""


@pytest.mark.parametrize(
    "text", [NOTHING, f"{NOTHING}.", f"**{NOTHING.title()}**", f"```\n{NOTHING}\n```", "Nothing."]
)
def test_the_verdict_is_a_line_of_its_own(text: str) -> None:
    assert parse_notes(text).nothing


def test_a_quoted_verdict_is_not_the_verdict() -> None:
    assert not parse_notes(f"{AT} | info | The tool printed `{NOTHING}`.").nothing
    assert not parse_notes(f"A page says {NOTHING} and so on.").nothing


def test_prose_is_not_notes() -> None:
    parsed = parse_notes("Here is what happened. The user asked.\n\nThen the agent worked.")
    assert parsed.notes == ObservationNotes(())
    assert parsed.stray == 2


def test_a_too_long_line_is_split_at_a_sentence_or_a_word() -> None:
    text = "It said that it was so. " * 200
    split = lines(f"{AT} | done | {text}")
    assert len(split) > 4
    assert all(line.text.endswith("so.") and len(line.text) <= LONGEST_LINE for line in split)
    assert all((line.at, line.priority) == (AT, "done") for line in split)
    assert " ".join(line.text for line in split) == text.strip()
    assert "".join(line.text for line in lines(f"{AT} | done | {'x' * 5000}")) == "x" * 5000


TEXTS = st.text("abz09 _-|/.:;!?()[]{}*`'\"#+=äß漢😀", min_size=1, max_size=60).map(
    lambda text: f"x{text}x"
)
NOTES = st.builds(
    ObservationNotes,
    st.lists(
        st.builds(
            ObservationLine,
            st.datetimes(timezones=st.none()).map(
                lambda at: f"{at.year:04}-{at.month:02}-{at.day:02} {at.hour:02}:{at.minute:02}"
            ),
            st.sampled_from(PRIORITIES),
            TEXTS,
        ),
        max_size=8,
    ).map(tuple),
    st.sampled_from(["", "port the parser", "Task: x"]),
    st.sampled_from(["", "run the tests"]),
)


@given(NOTES)
def test_formatted_notes_parse_to_themselves(notes: ObservationNotes) -> None:
    parsed = parse_notes(format_notes(notes))
    assert parsed.notes == notes
    assert parsed.proper == len(notes.lines)
    assert parsed.stray == parsed.loose == parsed.joined == 0


def test_notes_in_the_format_of_prompts_are_parsed() -> None:
    notes = ObservationNotes(
        tuple(
            ObservationLine(f"2026-11-2{day} 09:0{day}", PRIORITIES[day], f"x {day}")
            for day in range(4)
        ),
        "port it",
        "test it",
    )
    assert parse_notes(render_notes(notes)).notes == notes


ODD = ["\n", "|", "-", "*", "[", "(", "!!", " ", "```", "<", ":", AT, "critical", "TASK:", "\ud800"]


@given(st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=5)), max_size=60).map("".join))
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    parsed = parse_notes(text)
    for line in parsed.notes.lines:
        assert line.text == line.text.strip() != ""
        assert len(line.text.splitlines()) == 1
        assert len(line.text) <= LONGEST_LINE
        line.text.encode()


@pytest.mark.parametrize("part", ["[", " ", "- ", "*", "|", "a", "`", "1. ", "TASK ", "\t-", "`\n"])
def test_a_megabyte_of_any_text_is_parsed_in_linear_time(part: str) -> None:
    # Quadratic parsing would exceed the test's timeout.
    parse_notes(part * (1_000_000 // len(part)) + "x")
