"""Ask the questions of runs in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agent_runtime.cli.terminal import is_terminal, say

if TYPE_CHECKING:
    from agent_runtime.human.questions import Answer, Question
    from agent_runtime.runtime import Runtime

MARK = "  | "
"""The beginning of each row that a model wrote."""
LATER = "later"
"""The answer that leaves a question open."""


def can_ask() -> bool:
    """Return whether stdin and stderr are a terminal."""
    return sys.stdin.isatty() and is_terminal()


async def ask_all(runtime: Runtime, questions: Sequence[Question]) -> bool:
    """Ask all questions of a run; return whether it can be resumed."""
    from agent_runtime.errors import InvalidAnswer, QuestionClosed

    for question in questions:
        show(question)
        while True:
            try:
                answer = await _read(question)
                if answer is None:
                    return False
                await runtime.answer(question.id, answer)
            except InvalidAnswer as error:
                say(f"{error.message} {error.cure}")
                continue
            # Answered elsewhere, or expired, while the person was typing: the next one follows.
            except QuestionClosed as error:
                say(error.message)
            break
    return True


def show(question: Question) -> None:
    """Show a question and its choices."""
    from agent_runtime.human.display import escape_invisible

    say("")
    who = f"The {asker(question)}"
    if question.why:
        say(f"{who} says:")
        _quote(question.why)
    if question.kind == "approval":
        say(f"{who} wants to call {question.tool}:")
        lines = call_lines(question)
        for line in lines:
            _say_within(line, "  ")
        # A person who scrolled past the beginning sees by this how much there was.
        count, size = len(lines), sum(map(len, lines))
        arguments = f"{count} argument{'s' * (count != 1)}, {size:,} characters"
        say(f"That is the whole call of {question.tool}: {arguments}.")
    else:
        _quote(question.text)
    for place, choice in enumerate(question.choices, 1):
        _say_within(f"{place}) {escape_invisible(choice)}", "  ")


def call_lines(question: Question) -> list[str]:
    """Return the arguments of the call to approve, each complete on one line."""
    from agent_runtime.human.display import escape_invisible, shown_value

    arguments = question.arguments.items()
    return [f"{escape_invisible(name)}: {shown_value(value)}" for name, value in arguments]


def patterns_text(patterns: Mapping[str, str]) -> str:
    """Return what an approval allows: by argument the pattern of its value."""
    from agent_runtime.human.display import escape_invisible

    return " ".join(
        f'{escape_invisible(name)}="{escape_invisible(one)}"' for name, one in patterns.items()
    )


def _quote(text: str) -> None:
    """Show a model's text; none of its lines can look like one of ours."""
    from agent_runtime.human.display import shown_lines

    for line in shown_lines(text):
        _say_within(line, "")


def _say_within(line: str, indent: str) -> None:
    """Write a line; on a terminal none of its rows can look like one of ours."""
    rows = [line]
    if is_terminal():
        import shutil

        from rich.cells import chop_cells

        # One column less: some terminals wrap a row that fills all of them.
        width = shutil.get_terminal_size().columns - len(MARK) - 1
        rows = chop_cells(line, max(20, width))
    first, *more = rows or [""]
    say(f"{indent}{first}")
    for row in more:
        say(f"{MARK}{row}")


def asker(question: Question) -> str:
    """Return who asks: the agent, or a sub-agent with its role and its task."""
    if not question.role:
        return "agent"
    from agent_runtime.human.display import escape_invisible

    return f"sub-agent {escape_invisible(question.role)} [{escape_invisible(question.task_key)}]"


def hint(question: Question) -> str:
    """Return the possible answers."""
    match question.kind:
        case "single":
            return f"1 to {len(question.choices)}, or {LATER}"
        case "multiple":
            return f"numbers from 1 to {len(question.choices)}, separated by commas, or {LATER}"
        case "approval":
            return f"y: yes, n: no, a: always on this thread ({_always(question)}), or {LATER}"
        case "continue":
            return f"y: yes, n: no, or {LATER}"
        case _:
            return f"a line of text, or {LATER}"


def _always(question: Question) -> str:
    patterns = patterns_text(question.pattern)
    return f"{question.tool} with {patterns}" if patterns else f"every call of {question.tool}"


def parse(question: Question, text: str) -> Answer:
    """Return the answer that a line gives.

    Raises:
        InvalidAnswer: it gives none.
    """
    from agent_runtime.errors import InvalidAnswer
    from agent_runtime.human.questions import Decision

    said = text.strip()
    if question.kind == "text":
        return said
    if question.choices:
        parts = [one.strip() for one in said.split(",")] if question.kind == "multiple" else [said]
        return [_choice(question, one) for one in parts]
    word, _, reason = said.partition(" ")
    decisions = {"y": True, "yes": True, "n": False, "no": False, "a": True, "always": True}
    if word.lower() not in decisions:
        raise InvalidAnswer("That is not an answer.", cure=f"Type {hint(question)}.")
    always = word.lower() in ("a", "always")
    return Decision(decisions[word.lower()], reason.strip(), remember=always)


def _choice(question: Question, text: str) -> str:
    """Return a choice by its number, or by its own text."""
    # A choice may itself be a number, which then means that choice.
    if text not in question.choices and text.isdecimal():
        place = int(text)
        if 1 <= place <= len(question.choices):
            return question.choices[place - 1]
    return text


async def _read(question: Question) -> Answer | None:
    """Read an answer; None to leave the question open.

    Cancellation ends the wait at once.
    """
    import anyio

    # To stderr, because stdout may be a pipe that takes the result.
    say(f"[{hint(question)}] > ", end="")
    # Not in a thread: a blocked read cannot be stopped, and the process would wait for it at exit.
    await anyio.wait_readable(sys.stdin)
    line = sys.stdin.readline()
    if not line or line.strip().lower() == LATER:
        return None
    return parse(question, line)
