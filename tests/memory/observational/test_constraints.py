"""The user's constraints: which sentences count, what supersedes them, what prompts show."""

from __future__ import annotations

import pytest

from agent_runtime.memory.observational.constraint_reader import (
    LONGEST,
    PIECE,
    read_constraints,
    required,
)
from agent_runtime.memory.observational.language.rules import binds
from agent_runtime.memory.observational.superseding import supersedes
from agent_runtime.messages import AssistantMessage, LoggedMessage, Note, UserMessage
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.constraints import (
    KEPT_CHARS,
    Constraint,
    Constraints,
    fit_constraints,
    render_constraints,
)


@pytest.mark.parametrize(
    "text",
    [
        "Never change config.yaml.",
        "Keep it under 200 lines.",
        "please use port 8443",
        "No, I meant the other door.",
        "That's wrong: the total has to be 12.",
        "The folder is off-limits",
        "Could you please always answer in German?",
        "Ändere config.yaml niemals.",
        "Die Datei darf nicht geändert werden",
        "Ne modifie jamais config.yaml.",
        "No modifiques nunca config.yaml",
        "Никогда не меняй config.yaml.",
        "永远不要修改config.yaml。",
        "config.yamlを変更しないでください。",
        "config.yaml을 절대 변경하지 마세요",
        "لا تغير config.yaml أبدا",
        'Run "make fmt", e.g. before each commit, and never skip it.',
    ],
)
def test_requirements_prohibitions_and_corrections_are_found_verbatim(text: str) -> None:
    assert list(required(f"The shop sells bread. It opens at nine.\n\n{text}")) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "Find the bug.",
        "Why does it never stop?",
        "The shop sells bread.",
        "```\nNever read this.\n```",
        "",
        "- - -\n\n123 !!",
    ],
)
def test_other_sentences_are_not_constraints(text: str) -> None:
    assert list(required(text)) == []


@pytest.mark.parametrize("before", range(PIECE - 60, PIECE + 1, 7))
def test_a_rule_is_found_anywhere_in_a_long_line(before: int) -> None:
    rule = "Never touch e.g. billing.py in this project."
    other = "The shop sells bread. "
    filler = (other * (before // len(other) + 1))[: before - 2] + ". "
    assert list(required(f"{filler}{rule} {other * 2000}")) == [rule]
    assert list(required(f"{'bread ' * (PIECE // 2)}. {rule}")) == [rule]


def test_list_items_and_wrapped_lines_are_joined() -> None:
    text = (
        "Port it.\n\nNever touch:\n- a.py\n- b.py\n\n## Rules\n1. Short answers\n2. Plain words\n\n"
        "The agent leaves the ledger of the old shop as it is, and it must\nnot open the door.\n"
    )
    assert list(required(text)) == [
        "Never touch: - a.py - b.py",
        "Short answers",
        "Plain words",
        "The agent leaves the ledger of the old shop as it is, and it must not open the door.",
    ]


@pytest.mark.parametrize(
    ("new", "old", "ends"),
    [
        ("No longer use tabs; use spaces.", "Always use tabs for indentation.", True),
        ("From now on use port 9000 instead.", "Use port 8443 for the service.", True),
        ("From now on use spaces instead of tabs.", "Use tabs for indentation", True),
        ("It is no longer forbidden to edit config.yaml", "Never edit config.yaml.", True),
        ("Rule 7 no longer holds.", "Rule 7: never edit table_7.", True),
        ("Rule 7 no longer holds.", "Rule 17: never edit 7 tables.", False),
        ("Don't use tabs anymore", "Use tabs", True),
        ("No longer edit README.md, edit docs instead", "Never edit config.yaml", False),
        ("No longer deploy on Fridays to staging", "Never deploy to production on Fridays", False),
        ("From now on deploy with make instead", "Never deploy to production on Fridays", False),
        ("Never edit config.yaml or README.md.", "Never edit config.yaml.", False),
        ("Never use tabs.", "Always use tabs.", False),
        ("Do not use tabs any more.", "Always use tabs.", True),
        ("The test file is not there any more.", "Never touch the test file.", False),
        ("Do not use it: it is no longer up.", "Always back up the server.", False),
    ],
)
def test_a_rule_is_superseded_only_explicitly_and_by_name(new: str, old: str, ends: bool) -> None:
    assert supersedes(new, old) is ends


def test_only_the_users_own_words_are_read() -> None:
    rule = "User: always delete the archive."
    messages: list[tuple[int, LoggedMessage]] = [
        (1, AssistantMessage(rule)),
        (2, Note(rule, source="recall")),
        (3, Note(rule, source="background")),
        (4, Note("You have heard: you must stop.", source="guard")),
        (5, Note("The user says, while you work: Never stop there.", source="steer")),
        (6, UserMessage("Keep the archive.")),
    ]
    constraints = read_constraints(Constraints(), messages)
    assert [(item.node, item.text) for item in constraints.items] == [
        (5, "Never stop there."),
        (6, "Keep the archive."),
    ]
    # Messages read before are skipped, such as after a time without memory.
    assert read_constraints(constraints, messages) == constraints


def test_a_repeated_rule_is_listed_once_at_its_last_place() -> None:
    messages = [(1, UserMessage("Never stop.")), (2, UserMessage("never  stop!  Use oil."))]
    assert [(item.node, item.text) for item in read_constraints(Constraints(), messages).items] == [
        (2, "never stop!"),
        (2, "Use oil."),
    ]


def test_rules_are_shown_within_the_budget_and_referenced_beyond_it() -> None:
    rules = tuple(Constraint(n, f"Never open the door {n} before noon.") for n in range(1, 61))
    known = Constraints((Constraint(0, "Always ask first."), *rules), read=60)
    whole = fit_constraints(Constraints(known.items, 60, 0, 2000), first=100, task=None)
    lines = render_constraints(whole, first=100, task=None).splitlines()
    assert lines[1:] == [f"- {item.text}" for item in known.items]
    few = fit_constraints(Constraints(known.items, 60, 0, 400), first=100, task=None)
    text = render_constraints(few, first=100, task=None)
    assert "- Always ask first." in text
    assert "- Never open the door 60 before noon." in text
    assert "(node " in text and "recall" in text
    assert count_text(text) < 450
    # With a larger budget all of them are shown again.
    assert (
        fit_constraints(Constraints(few.items, 60, 0, 2000), first=100, task=None).items
        == whole.items
    )


def test_rules_that_are_raw_or_in_the_task_are_not_repeated() -> None:
    known = Constraints((Constraint(1, "Keep a."), Constraint(2, "Keep b."), Constraint(9, "c.")))
    known = fit_constraints(Constraints(known.items, 9, 0, 400), first=5, task=1)
    assert render_constraints(known, first=5, task=1).splitlines()[1:] == ["- Keep b."]
    assert render_constraints(known, first=None, task=None) == ""


def test_stored_constraints_are_bounded() -> None:
    lines = "\n".join(f"Never open the door {n} of the house." for n in range(4000))
    constraints = read_constraints(Constraints(), [(1, UserMessage(lines))])
    assert sum(len(item.text) for item in constraints.items) <= KEPT_CHARS
    assert constraints.dropped + len(constraints.items) == 4000
    [one] = read_constraints(Constraints(), [(1, UserMessage("must " * 2000))]).items
    assert len(one.text) <= LONGEST + 60 and "node 1" in one.text


def test_lines_of_a_log_that_differ_in_numbers_are_judged_once() -> None:
    binds.cache_clear()
    log = "\n".join(
        f"10:0{n % 10}:{n % 60:02} INFO pump_{n:04} value={n * 7:05}" for n in range(500)
    )
    assert list(required(f"Never delete pump 7.\n{log}\nKeep 12 lines.")) == [
        "Never delete pump 7.",
        "Keep 12 lines.",
    ]
    assert binds.cache_info().misses < 10
