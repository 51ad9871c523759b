"""Slots: facts of an interval that prompts keep next to its notes, as rules read them.

They are the newest verdict of each check, what changed in each target, and what the user agreed to
with a short answer.  An observation stores the slots of its own interval, so they are a function of
the log and the branch like its ledger; the state note shows the verdicts of all observations in a
prompt, the newest of each check only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from agent_runtime.messages import Change, Verdict
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.text import date_of, one_line, shorten

T = TypeVar("T")

TOKENS_PER_THOUSAND = 100
"""Tokens of slots for each thousand tokens that leave the prompt; on average they need a fourth."""
LEAST_TOKENS = 650
"""Tokens that the slots of a short interval may have all the same."""
STATE_TOKENS = 300
"""Tokens of verdicts in the state note."""
SEPARATOR = " / "
"""Stands between the lines of a change."""

_CHECKS_SHARE = 0.5
_AGREED_SHARE = 0.7
_FAILING_CHARS = 400
_DETAIL_CHARS = 160
_PROPOSAL_CHARS = 500
_BRIEF_CHARS = 90
# The line's end, and what joined lines may have more than each by itself.
_LINE_TOKENS = 4
# What narrows a check: a path, a name inside of one, an option or its value.
_NARROWS = re.compile(r"[/.:]|^-")
# In a name that a tool printed: what could pass for the next fact of a line, or for a speaker.
_UNLIKE_NAME = re.compile(r"[\";]|!!|: ")


@dataclass(frozen=True, slots=True)
class NotedVerdict:
    """A verdict and the node whose call gave it."""

    node: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class NotedChange:
    """A change, the node whose call made it last, and how often it was made."""

    node: int
    change: Change
    times: int = 1


@dataclass(frozen=True, slots=True)
class Agreement:
    """What the agent proposed last before a short answer of the user.

    Attributes:
        node: of the proposal.
        answered: the node of the answer; 0 if the interval ends before it.
        answer: the user's words.
    """

    node: int
    proposal: str
    answered: int = 0
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of an interval, each kind in the order of the log.

    Attributes:
        left_out: how many older changes there was no room for.
    """

    verdicts: tuple[NotedVerdict, ...] = ()
    changes: tuple[NotedChange, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    left_out: int = 0

    def __bool__(self) -> bool:
        return bool(self.verdicts or self.changes or self.agreements or self.left_out)


NO_SLOTS = Slots()

# What holds now


def newest_verdicts(noted: Iterable[NotedVerdict]) -> tuple[NotedVerdict, ...]:
    """Return the newest verdict of each check, in the order of the log."""
    newest: dict[str, NotedVerdict] = {}
    for one in sorted(noted, key=lambda one: one.node):
        newest.pop(one.verdict.check, None)
        newest[one.verdict.check] = one
    return tuple(newest.values())


def current_verdicts(noted: Iterable[NotedVerdict]) -> tuple[NotedVerdict, ...]:
    """Return the verdicts that hold now: a pass ends the failures of narrower checks, too."""
    newest = newest_verdicts(noted)
    passed = [(place, one.verdict.check) for place, one in enumerate(newest) if one.verdict.passed]
    return tuple(
        one
        for place, one in enumerate(newest)
        if one.verdict.passed
        or not any(later > place and is_broader(name, one.verdict.check) for later, name in passed)
    )


def is_broader(check: str, other: str) -> bool:
    """Return whether a check includes another: the same command with less to narrow it."""
    # Comparing takes the square of the number of words.
    if len(other) > 1_000:
        return False
    own, words = check.split(), other.split()
    if not own or own == words or own[0] != words[0]:
        return False
    only = [word for word in own if word not in words]
    rest = [word for word in words if word not in own]
    # A folder, or a file, includes what is in it.
    inside = {word for word in rest for one in only if word.startswith((f"{one}/", f"{one}::"))}
    if not all(any(word.startswith((f"{one}/", f"{one}::")) for word in rest) for one in only):
        return False
    previous = dict(zip(words[1:], words, strict=False))
    return all(
        word in inside or _NARROWS.search(word) or previous[word].startswith("-") for word in rest
    )


def merge_slots(parts: Sequence[Slots], budget: int) -> Slots:
    """Merge the slots of consecutive intervals, oldest first, into at most `budget` tokens."""
    merged = Slots(
        tuple(one for part in parts for one in part.verdicts),
        tuple(one for part in parts for one in part.changes),
        tuple(one for part in parts for one in part.agreements),
        sum(part.left_out for part in parts),
    )
    return fit_slots(merged, budget)


# What there is room for


def fit_slots(slots: Slots, budget: int) -> Slots:
    """Return the slots that fit into a budget: the newest of each kind, shortened before dropped.

    What failed comes before what passed.
    """
    verdicts = newest_verdicts(slots.verdicts)
    failed = [one for one in verdicts if not one.verdict.passed]
    passed = [one for one in verdicts if one.verdict.passed]
    kept, used = _newest([*passed, *failed], int(budget * _CHECKS_SHARE), _verdict_tokens)
    left = budget - used
    brief = [
        replace(one, proposal=shorten(one.proposal, _PROPOSAL_CHARS)) for one in slots.agreements
    ]
    room = int(left * _AGREED_SHARE) if slots.changes else left
    agreements, used = _longer(slots.agreements, brief, room, _agreement_tokens)
    left -= used
    changes = _counted(slots.changes)
    short = [replace(one, change=_brief(one.change)) for one in changes]
    shown, used = _longer(changes, short, left, _change_tokens)
    order = {id(one): place for place, one in enumerate(verdicts)}
    return Slots(
        tuple(sorted(kept, key=lambda one: order[id(one)])),
        tuple(shown),
        tuple(agreements),
        slots.left_out + len(changes) - len(shown),
    )


def _counted(changes: Iterable[NotedChange]) -> list[NotedChange]:
    """Return equal changes as one, at the node of the last."""
    counted: dict[Change, NotedChange] = {}
    for one in changes:
        before = counted.pop(one.change, None)
        counted[one.change] = replace(one, times=one.times + (before.times if before else 0))
    return list(counted.values())


def _newest(items: Sequence[T], budget: int, tokens: Callable[[T], int]) -> tuple[list[T], int]:
    """Return the last items that fit, in order, and their tokens."""
    kept: list[T] = []
    used = 0
    for one in reversed(items):
        cost = tokens(one)
        if used + cost <= budget:
            # An older, shorter one may still fit, so the loop goes on.
            kept.insert(0, one)
            used += cost
    return kept, used


def _longer(
    whole: Sequence[T], brief: Sequence[T], budget: int, tokens: Callable[[T], int]
) -> tuple[list[T], int]:
    """Return the last items that fit in their brief form, the newest of them whole, and tokens."""
    costs = [tokens(one) for one in brief]
    chosen: dict[int, T] = {}
    used = 0
    for place in reversed(range(len(brief))):
        if used + costs[place] <= budget:
            chosen[place] = brief[place]
            used += costs[place]
    for place in list(chosen):
        more = tokens(whole[place]) - costs[place]
        if used + more <= budget:
            chosen[place] = whole[place]
            used += more
    return [chosen[place] for place in sorted(chosen)], used


def _brief(change: Change) -> Change:
    what = change.what.split(SEPARATOR, 1)[0].split("; - ", 1)[0]
    return replace(change, what=shorten(what, _BRIEF_CHARS))


def _verdict_tokens(one: NotedVerdict) -> int:
    return count_text(render_verdict(one)) + _LINE_TOKENS


def _change_tokens(one: NotedChange) -> int:
    return count_text(_change_line(one)) + _LINE_TOKENS


def _agreement_tokens(one: Agreement) -> int:
    return count_text(_agreement_line(one)) + _LINE_TOKENS


# As prompts show them


def render_slots(slots: Slots) -> str:
    """Render the slots of an observation; empty if there is none."""
    lines: list[str] = []
    if slots.agreements:
        lines.append("Agreed:")
        stamp = ""
        for one in slots.agreements:
            lines.append(_agreement_line(one, known=stamp))
            stamp = date_of(one.answer)
    if slots.changes or slots.left_out:
        lines.append("Changed:")
        if slots.left_out:
            lines.append(f"* {slots.left_out} older changes are left out")
        target = ""
        for one in slots.changes:
            same = one.change.target == target
            lines.append(_change_line(one, named=not same))
            target = one.change.target
    if slots.verdicts:
        lines += ["Checked:", *map(render_verdict, slots.verdicts)]
    return "\n".join(lines)


def render_verdict(one: NotedVerdict) -> str:
    """Render a verdict on one line: `* failed (63): pytest tests; failing: test_a; "1 failed"`."""
    verdict = one.verdict
    text = f"* {'passed' if verdict.passed else 'failed'} ({one.node}): {one_line(verdict.check)}"
    if verdict.failing:
        text = f"{text}; failing: {_names(verdict.failing)}"
    if verdict.detail:
        # Quoted, because it is the text of a tool.
        detail = shorten(one_line(verdict.detail), _DETAIL_CHARS).replace('"', "'")
        text = f'{text}; "{detail}"'
    return text


def _names(names: Sequence[str]) -> str:
    shown: list[str] = []
    left = _FAILING_CHARS
    for name in map(one_line, names):
        left -= len(name) + 2
        if left < 0 and shown:
            break
        name = shorten(name, _FAILING_CHARS)
        shown.append(f'"{_quotable(name)}"' if _UNLIKE_NAME.search(name) else name)
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{', '.join(shown)}{more}"


def _change_line(one: NotedChange, *, named: bool = True) -> str:
    target = f" {one_line(one.change.target)}" if named else ""
    times = f", {one.times} times" if one.times > 1 else ""
    return f"*{target} ({one.node}{times}): {one_line(one.change.what)}"


def _agreement_line(one: Agreement, known: str = "") -> str:
    answer = one.answer.removeprefix(known) if known else one.answer
    texts: list[str] = []
    if one.proposal:
        texts.append(f'the agent ({one.node}): "{_quotable(one.proposal)}"')
    if one.answered:
        texts.append(f'the user ({one.answered}): "{_quotable(answer)}"')
    return f"* {'; '.join(texts)}"


def _quotable(text: str) -> str:
    return one_line(text).replace('"', "'")


def render_state(standing: Iterable[Slots], budget: int = STATE_TOKENS) -> str:
    """Render the newest verdict of each check of all slots, those that failed first."""
    verdicts = current_verdicts(one for part in standing for one in part.verdicts)
    # Divided, because `fit_slots` gives verdicts only that share of a budget.
    fitted = fit_slots(Slots(verdicts), int(budget / _CHECKS_SHARE))
    if not fitted.verdicts:
        return ""
    ordered = sorted(fitted.verdicts, key=lambda one: (one.verdict.passed, -one.node))
    lines = map(render_verdict, ordered)
    return "\n".join(["Checks of what is left out, the newest verdict of each:", *lines])
