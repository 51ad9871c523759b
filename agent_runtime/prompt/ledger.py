"""The ledger: the identifiers in a stretch of the log, listed under its observation.

A summary drops what it cannot know to matter: the path, the symbol or the hash that the agent needs
again a hundred steps later.  The ledger lists them without a model, each once, within a budget, in
the order of how likely they are needed for their tokens.

A folder of several paths is stated once, as a variable: `$=/home/ann/shop $/src/cart.py
$/tests/test_cart.py`.  Each ledger states its own.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_runtime.models.tokens import count_text

TOKENS_PER_THOUSAND = 25
"""Tokens of a ledger for each thousand tokens that leave the prompt."""
LEAST_TOKENS = 8
"""Least budget of a truncated result's identifiers; less is hardly one identifier."""
LONGEST = 200
"""Characters of an identifier; anything longer is data."""
MOST_READ = 200_000
"""Characters of a passage that are read: of a longer one the beginning and the end."""
ROOT = "$="
"""Precedes the folder of the paths that begin with `$/`."""

Count = Callable[[str], int]
IdentifierKind = Literal["path", "file", "url", "symbol", "hash", "other"]

# Finding: split at spaces and quotes, then search each run for identifiers.  A search covers at
# most `LONGEST` characters, so the time is linear in any text.
_RUN = re.compile(r"[^\s\"'`<>{}|\\^,;!*\u2018-\u201f\u2026\u2500-\u259f]{3,}")
# A script without spaces ends a name; elsewhere "naïve_größe" is one.
_DENSE = re.compile(
    "[\u0e00-\u0e7f\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]+"
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_PATH = re.compile(r"[\w.@%+~$\[\]()-]*(?:/[\w.@%+~$\[\]()-]*)+")
_EXTENSIONS = (
    "bat|c|cc|cfg|cjs|conf|cpp|cs|css|csv|cu|db|diff|env|example|gif|go|gradle|gz|h|hpp|html|ini|"
    "ipynb|java|jpe?g|js|json|jsonl|jsx|kt|lock|log|mdx?|mjs|mod|parquet|patch|pdf|php|png|proto|"
    "pyi?|pyx|rb|rs|rst|scss|service|sh|sql|sqlite|sum|svg|swift|tar|tf|tmpl|toml|tsv|tsx?|txt|"
    "vue|xlsx?|xml|ya?ml|zip"
)
_NAME = re.compile(
    r"(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
    rf"|(?P<file>(?<![\w.])[\w-]+(?:\.[\w-]+)*\.(?:{_EXTENSIONS})\b(?!\())"
    r"|(?P<option>(?<![\w-])--?[A-Za-z]\w*(?:-\w+)*(?![\w-]))"
    r"|(?P<ticket>(?<![\w-])[A-Z][A-Z0-9]+-[0-9]+\b|(?<![\w&])\#[0-9]+\b)"
    # Words joined by dashes are prose, unless they have a digit or are at least three.
    r"|(?P<dashed>(?<![\w.-])[A-Za-z][A-Za-z0-9]*"
    r"(?:(?:-[A-Za-z0-9]+){2,}|-(?=[A-Za-z]*[0-9])[A-Za-z0-9.]+)(?![\w-]))"
    r"|(?P<word>\w+)"
)
# A closing tag, and what says at which line something stands; a number elsewhere may be an id.
_POSITION = re.compile(
    rf"(?P<file>\.(?:{_EXTENSIONS}))(?::[0-9]+(?::[0-9]+)?|\([0-9]+(?:,[0-9]+)?\))(?!\w)"
    r"|</[A-Za-z][\w:.-]*\s*>"
    r"|\b[Ll]ines? [0-9]+(?:(?: ?[-–] ?| to )[0-9]+)?\b"
    r"|^@@ [-+0-9, ]+ @@"
    r"|^[ \t]*[0-9]+:(?=[^\s\d])",
    re.MULTILINE,
)
_LINE_NUMBER = re.compile(r"^[ \t]*(?P<number>[0-9]{1,9})(?=[\t:|→-]|  )", re.MULTILINE)
# A round bracket may begin a segment of a path; after a word it is a call or a Markdown link.
_CALL = re.compile(r"(?<=[\w\])])\(")
# The number that grep writes after a file's name in the lines around a match.
_CONTEXT_LINE = re.compile(rf"(\.(?:{_EXTENSIONS}))-[0-9]+(?:-.*)?$")
_WORD = re.compile(r"(?P<word>\w+)")
_SYMBOL = re.compile(
    r"_*[^\W\d_][^\W_]*_\w*|_+[^\W\d_]\w*"
    r"|[a-z][a-z0-9]*[A-Z]\w*|[A-Z]+[a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]{2,}\w*"
)
_HASH = re.compile(r"(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}")
_TRAILING = ".,:;!?)]}-'\""
_LEAST, _MOST_DIGITS = 3, 24
_BRACKETS = ("()", "[]")

# Ranking: how often, in recorded coding runs, an identifier of this kind was needed again without
# being shown in between; first if the agent or its user wrote it, then if only results had it.
_WORTH: dict[IdentifierKind, tuple[float, float]] = {
    "path": (0.3, 0.08),
    "file": (0.06, 0.025),
    "url": (0.08, 0.02),
    "symbol": (0.09, 0.033),
    "hash": (0.08, 0.018),
    "other": (0.01, 0.001),
}
_SHALLOW = 0.25
_CHARS_PER_TOKEN = 3.5
_FEWEST_UNDER_ROOT = 2
_LEAST_ROOT = 2


@dataclass(frozen=True, slots=True)
class LedgerSource:
    """A text that leaves the prompt.

    Attributes:
        own: whether the agent or its user wrote it, unlike a tool result.
    """

    text: str
    own: bool


def identifiers(text: str) -> Iterator[str]:
    """Yield the identifiers of a text in order, as they are written, with repetitions."""
    for run in _runs(text):
        if not _is_prose(run):
            for _, name in _split(run):
                yield name


def compile_ledger(
    passages: Sequence[LedgerSource],
    budget: int,
    *,
    listed: str = "",
    roots: bool = True,
    count: Count = count_text,
) -> tuple[str, ...]:
    """Return at most `budget` tokens of identifiers, the likeliest to be needed first.

    The same passages give the same ledger, in time linear in their length.

    Args:
        listed: ledgers already in the prompt; what occurs there is not listed again.
        roots: whether a folder of several paths may be stated once.
        count: returns the tokens of a text.
    """
    known = _spelled_out(listed)
    # Whatever occurs has its first word there: a search for each of thousands would be slow.
    words = frozenset[str](_WORD.findall(known))
    worth = {name: fact.worth() for name, fact in _facts(passages).items()}
    # A name's length estimates its tokens.
    rank = {
        name: (-each / (1 + len(name) / _CHARS_PER_TOKEN), name) for name, each in worth.items()
    }
    likely = sorted(rank, key=rank.__getitem__)
    unlisted = (name for name in likely if not (_begins(name, words) and _occurs(name, known)))
    # Each costs at least a token, and some are dropped because others contain them.
    names = list(itertools.islice(unlisted, 2 * max(0, budget)))

    def density(root: str) -> Callable[[str], tuple[float, str]]:
        return lambda name: (-worth[name] / count(f" {_short(name, root)}"), name)

    return _fit(names, density, budget, count, roots=roots)


def left_out(text: str, shown: str, *, count: Count = count_text) -> tuple[str, ...]:
    """Return identifiers of a truncated result that its shown part lacks, with whole paths.

    They have at most `TOKENS_PER_THOUSAND` for each thousand tokens left out.
    """
    budget = (count(text) - count(shown)) * TOKENS_PER_THOUSAND // 1000
    if budget < LEAST_TOKENS:
        return ()
    return compile_ledger(
        [LedgerSource(text, False)], budget, listed=shown, roots=False, count=count
    )


def merge_ledgers(
    ledgers: Sequence[Sequence[str]],
    budget: int,
    prefer: Callable[[str], bool] | None = None,
    *,
    count: Count = count_text,
) -> tuple[str, ...]:
    """Merge ledgers, oldest first, into one of at most `budget` tokens.

    Preferred identifiers come first, then by rank in their ledger, then those of newer ledgers.

    Args:
        prefer: returns whether an identifier, with its path spelled out, is preferred.
    """
    place: dict[str, tuple[bool, int, int]] = {}
    for age, ledger in enumerate(reversed(ledgers)):
        for rank, name in enumerate(spelled_out(ledger)):
            wanted = prefer is not None and prefer(name)
            place[name] = min(place.get(name, (True, rank, age)), (not wanted, rank, age))
    return _fit(list(place), lambda _: lambda name: (place[name], name), budget, count)


def spelled_out(ledger: Iterable[str]) -> Iterator[str]:
    """Yield the entries of a ledger, with whole paths."""
    root = ""
    for name in ledger:
        if name.startswith(ROOT):
            root = name.removeprefix(ROOT)
        elif name.startswith("$/") and root:
            yield root + name[1:]
        else:
            yield name


# Finding


def _runs(text: str) -> list[str]:
    text = _POSITION.sub(lambda found: f"{found['file'] or ''} ", _without_line_numbers(text))
    return _RUN.findall(text if text.isascii() else _DENSE.sub(" ", text))


def _without_line_numbers(text: str) -> str:
    """Return a text without numbers that count its lines; others may be ids, as in a table."""
    found = list(_LINE_NUMBER.finditer(text))
    numbers = [int(one["number"]) for one in found]
    parts: list[str] = []
    end = 0
    for place, one in enumerate(found):
        near = {numbers[place] - 1, numbers[place] + 1}
        if near.isdisjoint((*numbers[max(0, place - 1) : place], *numbers[place + 1 : place + 2])):
            continue
        parts.append(text[end : one.start()])
        end = one.end()
    return "".join((*parts, text[end:]))


def _is_prose(run: str) -> bool:
    """Return whether a run is a plain word, which is no identifier."""
    # Decided before the cache, which the words of a few long texts would fill.
    if not (run.isalpha() and run.isascii()):
        return False
    return run.islower() or run[1:].islower() or run.isupper()


def _split(run: str) -> tuple[tuple[IdentifierKind, str], ...]:
    # The parts of a long run may be long themselves, so they are not cached.
    return _split_short(run) if len(run) <= LONGEST else tuple(_names(_WORD, run))


@functools.lru_cache(maxsize=4_096)
def _split_short(run: str) -> tuple[tuple[IdentifierKind, str], ...]:
    if "://" in run and (url := _URL.search(run)):
        whole = _closed(url[0]).rstrip(_TRAILING)
        return (("url", whole),) if len(whole) >= _LEAST else ()
    if "/" not in run:
        return tuple(_names(_NAME, run))
    names: list[tuple[IdentifierKind, str]] = []
    end = 0
    for match in _PATH.finditer(run):
        path = _path(match[0])
        if path:
            names += _names(_NAME, run[end : match.start()])
            names.append(("path", path))
            end = match.end()
    names += _names(_NAME, run[end:])
    return tuple(names)


def _path(text: str) -> str:
    """Return the path in a text without spaces; empty if it has none."""
    path = _closed(_CALL.split(text)[-1])
    path = _CONTEXT_LINE.sub(r"\1", path).rstrip(".,:;!?-").lstrip("-")
    if path.startswith("$/"):
        path = path[1:]
    is_path = len(path) >= _LEAST and not path.startswith("//") and re.search(r"[^\W\d_]", path)
    return path if is_path else ""


def _closed(text: str) -> str:
    """Cut a text at a bracket that has no counterpart in it."""
    for opening, closing in _BRACKETS:
        opened, closed = text.count(opening), text.count(closing)
        # `(src/a.py` begins inside a bracket, and `src/a.py)` ends one.
        if opened > closed:
            text = text.rpartition(opening)[2]
        elif opened < closed:
            text = text.partition(closing)[0]
    return text


def _names(pattern: re.Pattern[str], run: str) -> Iterator[tuple[IdentifierKind, str]]:
    for match in pattern.finditer(run):
        name = match[0]
        if _LEAST <= len(name) <= LONGEST and (kind := _kind(name, match.lastgroup or "")):
            yield kind, name


def _kind(name: str, group: str) -> IdentifierKind | None:
    if group != "word":
        return "hash" if group == "uuid" else "file" if group == "file" else "other"
    if _SYMBOL.fullmatch(name):
        return "symbol"
    if _HASH.fullmatch(name):
        return "hash"
    is_number = name.isdecimal() and _LEAST < len(name) <= _MOST_DIGITS
    return "other" if is_number else None


# Ranking


@dataclass(slots=True)
class _Fact:
    """Statistics of an identifier.

    Attributes:
        own: how many passages of the agent and the user contain it.
        others: how many results contain it.
        times: its occurrences in all passages.
        last: its last position, from 0 for the beginning to 1.
    """

    kind: IdentifierKind
    deep: bool
    own: int = 0
    others: int = 0
    times: int = 0
    last: float = 0.0

    def worth(self) -> float:
        own, others = _WORTH[self.kind]
        worth = own if self.own else others
        if self.kind == "path" and not self.deep:
            worth *= _SHALLOW
        worth *= 1 + 0.1 * min(self.own + self.others - 1, 5) + 0.06 * min(self.times - 1, 8)
        return worth * (0.7 + 0.4 * self.last + (0.4 if self.last > 0.9 else 0))


def _facts(passages: Sequence[LedgerSource]) -> dict[str, _Fact]:
    facts: dict[str, _Fact] = {}
    texts = [_read(passage.text) for passage in passages]
    total = sum(map(len, texts)) or 1
    reached = 0
    for passage, text in zip(passages, texts, strict=True):
        reached += len(text)
        times: dict[str, int] = {}
        # Each distinct run once: logs repeat themselves.
        for run, often in Counter[str](_runs(text)).items():
            if _is_prose(run):
                continue
            for kind, name in _split(run):
                if name not in facts:
                    facts[name] = _Fact(kind, name.count("/") > 1)
                times[name] = times.get(name, 0) + often
        for name, often in times.items():
            fact = facts[name]
            fact.times += often
            fact.last = reached / total
            if passage.own:
                fact.own += 1
            else:
                fact.others += 1
    return facts


def _read(text: str) -> str:
    if len(text) <= MOST_READ:
        return text
    half = MOST_READ // 2
    return f"{text[:half]}\n{text[-half:]}"


# Listing


def _fit(
    names: Sequence[str],
    order: Callable[[str], Callable[[str], tuple[object, str]]],
    budget: int,
    count: Count,
    *,
    roots: bool = True,
) -> tuple[str, ...]:
    """Return the names that fit, in the order that a root gives them."""
    # The order depends on the root, because names below it cost fewer tokens.
    root = _root(names, count) if roots else ""
    ledger = _listing(sorted(names, key=order(root)), root, budget, count)
    # Too few of the names below it fitted for the root to pay.
    if root and sum(name.startswith("$/") for name in ledger) < _FEWEST_UNDER_ROOT:
        ledger = _listing(sorted(names, key=order("")), "", budget, count)
    # Joined, they may have more tokens than one by one.
    while ledger and count(" ".join(ledger)) > budget:
        ledger.pop()
    return tuple(ledger)


def _listing(names: Sequence[str], root: str, budget: int, count: Count) -> list[str]:
    left = budget - (count(f" {ROOT}{root}") if root else 0)
    costs: dict[str, int] = {}
    text = f"\n{root}\n"
    for name in names:
        # Hardly any identifier has one token only.
        if left < 2:
            break
        if _occurs(name, text):
            continue
        cost = count(f" {_short(name, root)}")
        # What this name contains need not be listed as well.
        inside = [one for one in costs if len(one) < len(name) and _occurs(one, name)]
        freed = sum(costs[one] for one in inside)
        if cost - freed > left:
            continue
        left += freed - cost
        for one in inside:
            del costs[one]
        costs[name] = cost
        text += f"{name}\n"
    return ([ROOT + root] if root else []) + [_short(name, root) for name in costs]


def _root(names: Sequence[str], count: Count) -> str:
    """Return the folder whose statement saves most tokens; empty if none saves any."""
    inside: Counter[str] = Counter()
    for name in names:
        # Only whole paths: a relative one has no folder that all would share.
        if name.startswith("/"):
            parts = name.split("/")
            inside.update("/".join(parts[:end]) for end in range(_LEAST_ROOT + 1, len(parts)))

    def saved(folder: str) -> tuple[int, str]:
        tokens = count(f" {folder}")
        return (inside[folder] * (tokens - 1) - tokens - 2, folder)

    often = [folder for folder, times in inside.items() if times >= _FEWEST_UNDER_ROOT]
    gain, root = max(map(saved, often), default=(0, ""))
    return root if gain > 0 else ""


def _short(name: str, root: str) -> str:
    return f"${name[len(root) :]}" if root and name.startswith(f"{root}/") else name


def _spelled_out(text: str) -> str:
    return "\n".join(spelled_out(text.replace(ROOT, f"\n{ROOT}").split()))


def _occurs(name: str, text: str) -> bool:
    """Return whether a name occurs in a text, other than as a part of a longer word."""
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        before, after = text[start - 1 : start], text[end : end + 1]
        joined = (_wordlike(before) and _wordlike(name[0])) or _wordlike(after)
        if not joined and not (after in (".", "-") and _wordlike(text[end + 1 : end + 2])):
            return True
        start = text.find(name, start + 1)
    return False


def _begins(name: str, words: Collection[str]) -> bool:
    """Return whether the first word of a name is one of these; True if it has no word."""
    # Most names are one word.
    if name in words:
        return True
    first = _WORD.search(name)
    return first is None or first[0] in words


def _wordlike(char: str) -> bool:
    return char == "_" or char.isalnum()
