"""Questions about a recorded run, made by rules, with their exact answers.

Four kinds, as AMA-Bench (arXiv 2602.22769) has them: recall (what was done and seen), cause (what
led to what), state (what holds now), abstraction (how much of what).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_runtime.messages import AssistantMessage, Note, UserMessage
from agent_runtime.prompt.view import Entry
from benchmarks.replay.survival_facts import edited, outcome_of, test_runs, written

Kind = Literal["recall", "cause", "state", "abstraction"]
Form = Literal["said", "output", "failure", "reason", "verdict", "content", "edits", "failing"]

KINDS: dict[Form, Kind] = {
    "said": "recall",
    "output": "recall",
    "failure": "cause",
    "reason": "cause",
    "verdict": "state",
    "content": "state",
    "edits": "abstraction",
    "failing": "abstraction",
}
MOST = 6
"""Questions of each form about one run."""
BACK = 8
"""Steps before an edit in which its cause is looked for."""
START = 40
"""Characters by which a text is named."""

_REASON = re.compile(
    r"\b(?:because|since|the (?:issue|problem|cause|bug) is|root cause|caused by|so that|"
    r"which means|this means|turns out)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")


@dataclass(frozen=True, slots=True)
class TraceQuestion:
    """A question.

    Attributes:
        about: what it names, in the order of the form.
        answers: any of them is right.
    """

    form: Form
    about: tuple[str, ...]
    answers: frozenset[str]

    @property
    def kind(self) -> Kind:
        """The kind of the question."""
        return KINDS[self.form]


def flat(text: str) -> str:
    """Return a text on one line, with one kind of quotes."""
    return " ".join(text.replace('"', "'").split())


def reasons(text: str) -> list[str]:
    """Return the sentences of a text that give a reason."""
    found = (flat(one).lstrip("#*->0123456789. ") for one in _SENTENCE.split(text))
    return [one for one in found if _REASON.search(one) and 20 <= len(one) <= 300]


def questions_of(entries: Sequence[Entry]) -> list[TraceQuestion]:
    """Return the questions about a run, at most `MOST` of each form, spread over it."""
    makers = (_said, _output, _causes, _reasons, _verdicts, _contents, _edits, _failing)
    chosen: list[TraceQuestion] = []
    for make in makers:
        # By what they name, since two answers to one question could not both be right.
        made = list({one.about: one for one in make(entries)}.values())
        count = min(MOST, len(made))
        chosen += [made[place * len(made) // count] for place in range(count)]
    return chosen


def _steps(entries: Sequence[Entry]) -> Iterator[tuple[int, str, str, str, bool]]:
    """Yield each call: its node, its command, its file, its result, and whether it failed."""
    for entry in entries:
        if isinstance(entry.message, AssistantMessage):
            for call, result in zip(entry.message.calls, entry.results, strict=True):
                command = call.arguments.get("command")
                path = call.arguments.get("file_path")
                shell = command if isinstance(command, str) else ""
                failed = result.outcome != "ok" or (
                    bool(shell) and outcome_of(shell, result) is False
                )
                yield entry.seq, shell, path if isinstance(path, str) else "", result.text, failed


def _said(entries: Sequence[Entry]) -> Iterator[TraceQuestion]:
    texts = [
        flat(entry.message.text)
        for entry in entries
        if isinstance(entry.message, UserMessage)
        or (isinstance(entry.message, Note) and entry.message.source == "steer")
    ]
    for text in texts:
        if len(text) >= 2 * START and sum(text[:START] in one for one in texts) == 1:
            answer = text[START : 2 * START].strip()
            yield TraceQuestion("said", (text[:START],), frozenset([answer]))


def _output(entries: Sequence[Entry]) -> Iterator[TraceQuestion]:
    steps = list(_steps(entries))
    for _, command, _, result, _ in steps:
        lines = [flat(line) for line in result.splitlines() if len(flat(line)) > 10]
        name = flat(command)[: 2 * START]
        once = sum(flat(one[1])[: 2 * START] == name for one in steps) == 1
        if len(name) > START // 2 and once and lines and len(result) < 6_000:
            yield TraceQuestion("output", (name,), frozenset([lines[-1][:START]]))


def _edited(entries: Sequence[Entry]) -> Iterator[tuple[int, int, str, list[str]]]:
    """Yield each edit: its place among the entries, its node, its file and its new lines."""
    lines_before: set[str] = set()
    for place, entry in enumerate(entries):
        for path, lines in written([entry]):
            new = [line for line in lines if line not in lines_before]
            lines_before.update(lines)
            if new:
                yield place, entry.seq, path, new


def _causes(entries: Sequence[Entry]) -> Iterator[TraceQuestion]:
    for place, _, path, lines in _edited(entries):
        before = list(_steps(entries[max(0, place - BACK) : place]))
        failed = [command for _, command, _, _, wrong in before if wrong and command]
        if failed:
            yield TraceQuestion("failure", (path, lines[0]), frozenset([flat(failed[-1])]))


def _reasons(entries: Sequence[Entry]) -> Iterator[TraceQuestion]:
    for place, _, path, lines in _edited(entries):
        given = [
            reason
            for entry in entries[max(0, place - BACK) : place + 1]
            if isinstance(entry.message, AssistantMessage)
            for reason in reasons(entry.message.text)
        ]
        if given:
            answers = frozenset(one[: 2 * START] for one in given)
            yield TraceQuestion("reason", (path, lines[0]), answers)


def _verdicts(entries: Sequence[Entry]) -> Iterator[TraceQuestion]:
    for name, runs in test_runs(entries).items():
        answer = "passed" if runs[-1].passed else "failed"
        yield TraceQuestion("verdict", (name,), frozenset([answer]))


def _contents(entries: Sequence[Entry]) -> Iterator[TraceQuestion]:
    last: dict[str, list[str]] = {}
    for entry in entries:
        for path, lines in written([entry]):
            last[path] = lines
    for path, lines in last.items():
        yield TraceQuestion("content", (path,), frozenset(line[:START] for line in lines))


def _edits(entries: Sequence[Entry]) -> Iterator[TraceQuestion]:
    times: dict[str, int] = {}
    for path in edited(entries):
        times[path] = times.get(path, 0) + 1
    for path, count in times.items():
        yield TraceQuestion("edits", (path,), frozenset([str(count)]))
    if times:
        yield TraceQuestion("edits", (), frozenset([str(len(times))]))


def _failing(entries: Sequence[Entry]) -> Iterator[TraceQuestion]:
    runs = test_runs(entries)
    if runs:
        count = sum(not one[-1].passed for one in runs.values())
        names = tuple(sorted(runs))
        yield TraceQuestion("failing", names, frozenset([str(count)]))
