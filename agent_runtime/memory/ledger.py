"""The ledger: the identifiers that a stretch of the log held, listed under its observation.

A summary drops what it cannot know to matter: the path, the symbol, the hash that the agent needs
again a hundred steps later.  The ledger keeps them, without a model: each identifier once, what
the agent and the user wrote themselves first, within a budget of tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import regex

from agent_runtime.tokens import count_text

TOKENS_PER_THOUSAND = 25
"""How large a ledger may be, for each thousand tokens of what it stands for."""
LONGEST = 200
"""Characters of an identifier that is listed; what is longer is data."""

_SHAPES = (
    r"[a-z][a-z0-9+.-]*://[^\s\"'`<>{}|\\^]+",
    # Paths: with a slash in it, or a file's name with its extension.
    r"(?:[~.]{0,2}/)?(?:[\w.@%+~\[\]()$-]+/)+[\w.@%+~\[\]$-]*",
    r"/[\w.@%+~-]+",
    r"[\w-]+(?:\.[\w-]+)*\.(?:[A-Za-z]{1,4}[0-9]?|[a-z]{5,10})\b",
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    r"(?=[0-9a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}\b",
    r"[A-Z][A-Z0-9]+-[0-9]+",
    r"#[0-9]+\b",
    # Symbols: words that are joined by an underscore, a dot, a hump or a dash before a letter.
    r"_*[A-Za-z][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)+_*",
    r"__?[A-Za-z]\w+",
    r"[a-z]+[0-9]*(?:[A-Z][a-z0-9]*)+",
    r"(?:[A-Z]+[a-z0-9]+){2,}[A-Z]*",
    r"--?[a-z][a-z0-9]*(?:-[a-z0-9]+)+",
    r"[A-Za-z][a-z0-9]*(?:-[a-z0-9]+)*-[0-9][a-z0-9.]*",
    r"[0-9]{4,}\b",
)
_IDENTIFIER = regex.compile(r"(?<![\w/.@-])(?:" + "|".join(_SHAPES) + ")")
_TRAILING = ".,:;!?)]}'\""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of what is removed from the prompt.

    Attributes:
        own: whether the agent or its user wrote it; tool results are not theirs.
    """

    text: str
    own: bool


def identifiers(text: str) -> Iterator[str]:
    """Yield the identifiers of a text in their order, as they are written, with repetitions."""
    for match in _IDENTIFIER.finditer(text):
        found = match[0].rstrip(_TRAILING)
        if 3 <= len(found) <= LONGEST:
            yield found


def compile_ledger(
    passages: Sequence[Passage],
    budget: int,
    *,
    listed: str = "",
    count: Callable[[str], int] = count_text,
) -> tuple[str, ...]:
    """Return the identifiers to list, at most `budget` tokens of them, the most needed first.

    Args:
        listed: what the prompt holds already of ledgers; what occurs there is not listed again.
        count: returns the tokens of a text.
    """
    chosen: list[str] = []
    text = listed
    left = budget
    for name in _ranked(passages):
        if name in text:
            continue
        tokens = count(f" {name},")
        if tokens > left:
            continue
        left -= tokens
        chosen.append(name)
        text = f"{text}\n{name}"
        if left < 2:
            break
    return tuple(chosen)


def _ranked(passages: Sequence[Passage]) -> Iterable[str]:
    """Yield identifiers once each: own ones by their last use, then others by how often they occur.

    An identifier of a result that occurs in several of them is more likely to be needed than one
    of a long listing.
    """
    own: dict[str, int] = {}
    spread: Counter[str] = Counter()
    last: dict[str, int] = {}
    for place, passage in enumerate(passages):
        found = dict.fromkeys(identifiers(passage.text))
        for name in found:
            if passage.own:
                own[name] = place
            else:
                spread[name] += 1
                last[name] = place
    yield from sorted(own, key=lambda name: (-own[name], -len(name)))
    others = [name for name in spread if name not in own]
    yield from sorted(others, key=lambda name: (-spread[name], -last[name]))
