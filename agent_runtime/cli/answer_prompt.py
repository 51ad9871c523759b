"""Ask the questions of runs in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_runtime.cli.terminal import break_line, flush_typed, is_terminal, say, terminal_columns
from agent_runtime_config.counted import counted

if TYPE_CHECKING:
    from agent_runtime.human.interruptions import Resolution
    from agent_runtime.human.questions import Answer, Question
    from agent_runtime.runtime import Runtime

MARK = "  | "
"""The beginning of each row that a model wrote."""
LATER = "later"
"""The answer that leaves a question open."""


def can_ask() -> bool:
    """Return whether stdin and stderr are a terminal."""
    return sys.stdin.isatty() and is_terminal()


async def ask_all(
    runtime: Runtime,
    questions: Sequence[Question],
    showed: Callable[[str], bool] = lambda text: False,
) -> bool:
    """Ask all questions of a run; return whether it can be resumed.

    Args:
        showed: returns whether a text of the agent stands on the screen already.
    """
    from agent_runtime.errors import InvalidAnswer, QuestionClosed

    for place, question in enumerate(questions):
        said = not question.role and showed(question.why)
        # After what the agent said there is a blank row.
        show(question, said=said, blank=place > 0 or not said)
        while True:
            try:
                answer = await _read(question)
                if answer is None:
                    return False
                await runtime.answer(question.id, answer)
            except InvalidAnswer as error:
                # The hint follows in the next prompt.
                cure = "" if hint(question) in error.cure else error.cure
                say(f"{error.message} {cure}".rstrip())
                continue
            # Answered elsewhere, or expired, while the person was typing: the next one follows.
            except QuestionClosed as error:
                say(error.message)
            break
    return True


def show(question: Question, *, said: bool = False, blank: bool = True) -> None:
    """Show a question and its choices.

    Args:
        said: whether what the agent said with the call is on the screen already.
        blank: whether a blank row comes first.
    """
    from agent_runtime.human.display import escape_invisible

    if blank:
        say("")
    who = f"The {asker(question)}"
    if question.why and not said:
        _say_within(f"{who} says:", "")
        _quote(question.why)
    if question.kind == "approval":
        _say_within(f"{who} wants to call {question.tool}:", "")
        _show_call(question)
        if note := question.text.removeprefix(f"May the agent call {question.tool}?").strip():
            # What the tool has to say about it, such as that its server has changed it.
            _say_within(escape_invisible(note), "")
        _say_coverage(question)
    elif question.kind == "interrupted":
        _say_within(f"{who} was interrupted in a call of {question.tool}:", "")
        _show_call(question)
        say("Nobody saw its end, so its effect is unverified. Check what it did.")
    else:
        _quote(question.text)
    for place, choice in enumerate(question.choices, 1):
        _say_within(f"{place}) {escape_invisible(choice)}", "  ")


def _say_coverage(question: Question) -> None:
    text = f"Always would allow {coverage(question)}."
    # A model may have written the patterns, and the names of a sub-agent.
    if question.pattern or question.role:
        _say_within(text, "")
    else:
        say(text)


def _show_call(question: Question) -> None:
    lines = call_lines(question)
    for line in lines:
        _say_within(line, "  ")
    # A person who scrolled past the beginning sees by this how much there was.
    count, size = len(lines), sum(map(len, lines))
    arguments = f"{counted(count, 'argument')}, {counted(size, 'character')}"
    say(f"That is the whole call of {question.tool}: {arguments}.")


def coverage(question: Question) -> str:
    """Return in words what `always` covers: the calls, the agent, and until when."""
    from agent_runtime.human.display import escape_invisible

    calls = f"every later call of {question.tool}, whatever its arguments,"
    if question.pattern:
        parts = [
            f'{escape_invisible(name)} matches "{escape_invisible(one)}"'
            for name, one in question.pattern.items()
        ]
        calls = f"every later call of {question.tool} whose {' and '.join(parts)},"
    whole = "as long as the tool stays the same"
    return f"{calls} by the {asker(question)} on this thread, {whole}"


def call_lines(question: Question) -> list[str]:
    """Return the arguments of the call in question, each complete on one line."""
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
        # One column less: some terminals wrap a row that fills all of them.
        rows = break_line(line, max(2, terminal_columns() - len(MARK) - 1))
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
            return f"1 to {len(question.choices)}"
        case "multiple":
            return f"numbers from 1 to {len(question.choices)}, separated by commas"
        case "approval":
            return (
                f"y: yes, n: no, n REASON: no, and the agent reads why, "
                f"a: always on this thread ({_always(question)})"
            )
        case "continue":
            return "y: yes, n: no, n REASON: no, and the agent reads why"
        case "interrupted":
            return "rerun, accept RESULT, fail REASON"
        case _:
            return "a line of text"


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
    # As in `no, use the other one`.
    word = word.rstrip(",;:.")
    if question.kind == "interrupted":
        return _resolution(question, word.lower(), reason.strip())
    decisions = {"y": True, "yes": True, "n": False, "no": False, "a": True, "always": True}
    if word.lower() not in decisions:
        raise InvalidAnswer("That is not an answer.", cure=f"Type {hint(question)}.")
    always = word.lower() in ("a", "always")
    return Decision(decisions[word.lower()], reason.strip(), remember=always)


def _resolution(question: Question, word: str, rest: str) -> Resolution:
    from agent_runtime.errors import InvalidAnswer
    from agent_runtime.human.interruptions import Accept, Fail, Rerun

    if word == "accept" and rest:
        return Accept(parse_value(rest))
    if word == "fail":
        return Fail(rest)
    if word == "rerun" and not rest:
        return Rerun()
    raise InvalidAnswer("That is not an answer.", cure=f"Type {hint(question)}.")


def parse_value(text: str) -> Any:
    """Return the value that a person typed: JSON, or any other text unchanged."""
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _choice(question: Question, text: str) -> str:
    """Return a choice by its number, or by its own text."""
    # A choice may itself be a number, which then means that choice.
    if text not in question.choices and text.isdecimal():
        place = int(text)
        if 1 <= place <= len(question.choices):
            return question.choices[place - 1]
    return text


async def read_line() -> str:
    """Return the next line from stdin; cancellation ends the wait at once."""
    import anyio

    # Not in a thread: a blocked read cannot be stopped, and the process would wait for it at exit.
    await anyio.wait_readable(sys.stdin)
    return sys.stdin.readline()


async def _read(question: Question) -> Answer | None:
    """Read an answer; None to leave the question open.

    Cancellation ends the wait at once.
    """
    # What was typed before the question was seen does not answer it.
    flush_typed()
    # To stderr, because stdout may be a pipe that takes the result.
    say(f"[{hint(question)}, or {LATER}] > ", end="")
    line = await read_line()
    if not line:
        # Ctrl-D leaves the cursor behind the prompt.
        say("")
    if not line or line.strip().lower() == LATER:
        return None
    return parse(question, line)
