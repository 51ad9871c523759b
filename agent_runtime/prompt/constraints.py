"""The user's constraints: what prompts show of what the user requires, forbids or corrects.

They are the user's own words, kept apart from the observations: no Reflector condenses them, and
nothing archives them.  They leave only where the user supersedes them.  They have a budget: where
they do not fit, the newest and the most general stay as they were said, the others are named with
the node that `recall` opens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import identifiers
from agent_runtime.prompt.text import numbers, shorten

SHARE = 0.1
"""What share of R the constraints may take, unless the settings say otherwise."""
NAMED = 0.25
"""What share of that names what does not stand as it was said."""
GENERAL = 0.5
"""What share of the rest goes to the most general ones first, however old they are."""
NAME_CHARS = 48
"""How much of a constraint names it."""
NODES_CHARS = 48
"""How much names the nodes of those that have no name of their own."""
KEPT_CHARS = 64_000
"""How many characters of constraints are kept for prompts; older ones are only in the log."""
HEADER = (
    "What the user requires, forbids or corrected, in the user's own words; the later one holds:"
)
NAMES = "There is no room for these; `recall` opens their nodes:"

_LINE_TOKENS = 3
_LAST_TOKENS = 40
_SPACE = re.compile(r"[\s.!;,:。！；，]+")
_UNIVERSAL = re.compile(
    r"\b(?:always|never|every|each|all|any|no|none|nobody|nothing|everything|whenever|only|immer|"
    r"nie|niemals|alle|jede\w*|kein\w*|toujours|jamais|tou[st]|toutes?|siempre|sempre|nunca|tod[oa]s?|"
    r"всегда|никогда|все)\b|永远|永不|总是|絕不|绝不|所有|任何|常に|必ず|決して|すべて|항상|절대|모든",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Constraint:
    """Something that the user requires.

    Attributes:
        node: where the user said it.
        text: the user's words, without a line break.
        whole: whether prompts show it as it was said; else it is named at most.
        untold: whether its node does not show it, as the reason for an approval.
    """

    node: int
    text: str
    whole: bool = True
    untold: bool = False


@dataclass(frozen=True, slots=True)
class Constraints:
    """All that the user requires, as far as a branch was read.

    Attributes:
        items: in the order in which they were said.
        read: the node up to which the branch was read.
        dropped: how many older ones are in the log only.
        budget: how many tokens prompts show of them, in our count.
    """

    items: tuple[Constraint, ...] = ()
    read: int = 0
    dropped: int = 0
    budget: int = 0


def comparison_key(text: str) -> str:
    """Return what two texts have in common that say the same in the same words."""
    return _SPACE.sub(" ", text.casefold()).strip(" \"'`“”„")


def merge_constraints(known: Constraints, items: Iterable[Constraint], read: int) -> Constraints:
    """Return constraints with those in force, each once, where it was said last."""
    newest: dict[str, Constraint] = {}
    for one in items:
        key = comparison_key(one.text)
        newest.pop(key, None)
        newest[key] = one
    left, found = KEPT_CHARS, list(newest.values())
    first = len(found)
    while first and left >= len(found[first - 1].text):
        first -= 1
        left -= len(found[first].text)
    return Constraints(
        tuple(found[first:]), max(known.read, read), known.dropped + first, known.budget
    )


def constraints_left(
    known: Constraints, first: int | None, task: int | None
) -> tuple[Constraint, ...]:
    """Return the constraints whose own nodes prompts do not show any more.

    Args:
        first: the first raw node; None where the branch is raw from its root.
        task: the node of the task, which prompts show whole.
    """
    return tuple(
        one
        for one in known.items
        if one.untold or (first is not None and one.node < first and one.node != task)
    )


def fit_constraints(known: Constraints, *, first: int | None, task: int | None) -> Constraints:
    """Return the constraints with what prompts show whole decided, within their budget."""
    leaving = constraints_left(known, first, task)
    costs = {one.text: count_text(one.text) + _LINE_TOKENS for one in leaving}
    whole = set(costs)
    if known.dropped or sum(costs.values()) > known.budget:
        whole = _chosen(leaving, costs, int(known.budget * (1 - NAMED)))
    items = tuple(
        replace(one, whole=one.text in whole or one.text not in costs) for one in known.items
    )
    return replace(known, items=items)


def _chosen(leaving: Sequence[Constraint], costs: Mapping[str, int], room: int) -> set[str]:
    """Return the texts of the constraints that stand as they were said."""
    newest = list(reversed(leaving))
    whole: set[str] = set()
    left = int(room * GENERAL)
    for one in filter(_general, newest):
        if costs[one.text] <= left:
            left -= costs[one.text]
            whole.add(one.text)
    left += room - int(room * GENERAL)
    for one in newest:
        if one.text not in whole and costs[one.text] <= left:
            left -= costs[one.text]
            whole.add(one.text)
    return whole


def _general(one: Constraint) -> bool:
    """Return whether a constraint is about everything, not about one thing that it names."""
    universal = _UNIVERSAL.search(one.text) is not None
    return universal and not _NUMBER.search(one.text) and not any(identifiers(one.text))


def render_constraints(known: Constraints, *, first: int | None, task: int | None) -> str:
    """Return what prompts show of fitted constraints; empty where there is nothing to show."""
    standing = constraints_left(known, first, task)
    others = [one for one in standing if not one.whole]
    lines = [HEADER, *(f"- {one.text}" for one in standing if one.whole)] if standing else []
    names: list[str] = []
    left = int(known.budget * NAMED) - _LAST_TOKENS
    for one in reversed(others):
        name = f"- {shorten(one.text, NAME_CHARS, '...')} (node {one.node})"
        left -= count_text(name) + 1
        if left < 0:
            break
        names.insert(0, name)
    if names:
        lines += [NAMES, *names]
    nodes = sorted({one.node for one in others[: len(others) - len(names)]})
    if more := len(others) - len(names) + known.dropped:
        where = f": nodes {shorten(numbers(nodes), NODES_CHARS)}" if nodes else ""
        lines.append(f"{more} older ones are left out here{where}; `recall` opens and finds them.")
    return "\n".join(lines)


def stated(known: Constraints, *, first: int | None, task: int | None) -> tuple[str, ...]:
    """Return the constraints that prompts show whole, in the user's words."""
    return tuple(one.text for one in constraints_left(known, first, task) if one.whole)


def unstated(known: Constraints, *, first: int | None, task: int | None) -> int:
    """Return how many constraints prompts do not show whole, though their nodes have left."""
    return known.dropped + sum(not one.whole for one in constraints_left(known, first, task))
