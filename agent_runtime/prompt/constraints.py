"""The user's constraints: what the user requires, forbids or corrects, as prompts show it.

They are the user's own words, apart from the observations: no Reflector condenses them, and nothing
archives them.  They leave only when the user supersedes them.  Over their token budget, the newest
and the most general are shown whole, and the others are named with the node that `recall` opens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.ledger import identifiers
from agent_runtime.prompt.text import numbers, shorten

SHARE = 0.1
"""Default share of R that the constraints may take."""
NAMED = 0.25
"""Share of that for naming the constraints that are not shown whole."""
GENERAL = 0.5
"""Share of the rest for the most general ones, whatever their age."""
NAME_CHARS = 48
"""Characters that name a constraint."""
NODES_CHARS = 48
"""Characters that list the nodes of constraints which are not named."""
KEPT_CHARS = 64_000
"""Characters of constraints that are stored for prompts; older ones are only in the log."""
HEADER = (
    "What the user requires, forbids or corrected, in the user's own words; the later one holds:"
)
HISTORY_NOTES = (
    "[Notes of the conversation before the messages below, made by the runtime's memory.]"
)
"""Begins a message of a workflow's history that is in place of observed messages."""
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
        whole: whether prompts show it whole; else they name it at most.
        untold: whether its node does not show it, like an approval's reason.  # plain: ok
    """

    node: int
    text: str
    whole: bool = True
    untold: bool = False  # The name is in databases.  plain: ok


@dataclass(frozen=True, slots=True)
class Constraints:
    """Everything that the user requires on a branch, as far as it was read.

    Attributes:
        items: in the order in which they were said.
        read: the node up to which the branch was read.
        dropped: how many older ones are only in the log.
        budget: tokens that they may take of a prompt, in our count.
    """

    items: tuple[Constraint, ...] = ()
    read: int = 0
    dropped: int = 0
    budget: int = 0


def own_words(text: str) -> str:
    """Return what the user said in a user message: in the notes of a history, only what they quote.

    Notes tell what tools returned, too, which requires nothing of anyone.
    """
    if not text.startswith(HISTORY_NOTES):
        return text
    # Each note is on one line, so no text in it can pass for the header.
    return text.rpartition(f"\n\n{HEADER}\n")[2] if f"\n\n{HEADER}\n" in text else ""


def comparison_key(text: str) -> str:
    """Return a text without case, spacing and outer punctuation, for comparison."""
    return _SPACE.sub(" ", text.casefold()).strip(" \"'`“”„")


def merge_constraints(known: Constraints, items: Iterable[Constraint], read: int) -> Constraints:
    """Return the constraints in force, each once, at the node where it was said last."""
    newest: dict[str, Constraint] = {}
    for one in items:
        key = comparison_key(one.text)
        # Removed first, because a dict keeps the place of a key that is only overwritten.
        newest.pop(key, None)
        newest[key] = one
    left, merged = KEPT_CHARS, list(newest.values())
    first = len(merged)
    # From the newest backwards.
    while first and left >= len(merged[first - 1].text):
        first -= 1
        left -= len(merged[first].text)
    return Constraints(
        tuple(merged[first:]), max(known.read, read), known.dropped + first, known.budget
    )


def constraints_left(
    known: Constraints, first: int | None, task: int | None
) -> tuple[Constraint, ...]:
    """Return the constraints whose own nodes are no longer in prompts.

    Args:
        first: the first raw node; None if the branch is raw from its root.
        task: the node of the task, which prompts always show whole.
    """
    return tuple(
        one
        for one in known.items
        if one.untold  # plain: ok
        or (first is not None and one.node < first and one.node != task)
    )


def fit_constraints(known: Constraints, *, first: int | None, task: int | None) -> Constraints:
    """Decide which constraints prompts show whole, within their budget."""
    # Those whose nodes are still raw cost nothing: the prompt shows them anyway.
    leaving = constraints_left(known, first, task)
    costs = {one.text: count_text(one.text) + _LINE_TOKENS for one in leaving}
    whole = set(costs)
    # With some dropped there are names to list, which need their share of the budget.
    if known.dropped or sum(costs.values()) > known.budget:
        whole = _chosen(leaving, costs, int(known.budget * (1 - NAMED)))
    items = tuple(
        replace(one, whole=one.text in whole or one.text not in costs) for one in known.items
    )
    return replace(known, items=items)


def _chosen(leaving: Sequence[Constraint], costs: Mapping[str, int], room: int) -> set[str]:
    """Return the texts of the constraints that are shown whole."""
    newest = list(reversed(leaving))
    whole: set[str] = set()
    # General rules first: "never push" still holds when the newest ones are all about one file.
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
    """Return whether a constraint is general: about everything, naming nothing in particular."""
    universal = _UNIVERSAL.search(one.text) is not None
    return universal and not _NUMBER.search(one.text) and not any(identifiers(one.text))


def render_constraints(known: Constraints, *, first: int | None, task: int | None) -> str:
    """Return the text of fitted constraints in prompts; empty if there is none."""
    standing = constraints_left(known, first, task)
    others = [one for one in standing if not one.whole]
    lines = [HEADER, *(f"- {one.text}" for one in standing if one.whole)] if standing else []
    names: list[str] = []
    # The last line says how many are left out, whatever else there is room for.
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
    """Return how many constraints are shown neither whole nor by their nodes."""
    return known.dropped + sum(not one.whole for one in constraints_left(known, first, task))
