"""How `recall` searches: full text over the whole thread, of which the run's branch counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from agent_runtime.messages import Note, call_id, decode_message, decode_result, searchable
from agent_runtime_storage.records import Node, TextHit

from .recall_open import Opened, Piece, Whereabouts, marked, moment

HITS = 10
"""How many places a search shows."""
ASKED = 60
"""How many it looks at: some lie on other branches, or repeat what `recall` has shown before."""
EXCERPT = 400
"""How many characters of a place are shown."""
_LOOKED_AT = 100_000
_MATCHES = 2_000
_WORD = re.compile(r"\w+")


async def search(where: Whereabouts, query: str) -> Opened:
    """Return excerpts of what holds words of the query on the run's branch, the best first."""
    words = words_of(query)
    shown = repr(query if len(query) <= 80 else f"{query[:79]}…")
    found = await where.store.search_text(query, thread_id=where.thread_id, limit=ASKED)
    branch = set(await where.lineage(min((hit.node_id for hit in found), default=0)))
    pieces: list[Piece] = []
    left_out = 0
    for hit in found:
        if hit.node_id not in branch:
            continue
        node = await where.store.node(where.thread_id, hit.node_id)
        if _by_recall(node, hit):
            continue
        if len(pieces) == HITS:
            left_out = 1
            break
        pieces.append(_piece(where, node, hit, words))
    if not pieces:
        hint = "Try other words: names, paths, numbers or error texts as they were written."
        return Opened(f"Nothing on this branch holds words of {shown}", "", hint)
    hint, text = marked(pieces)
    more = " More places have such words; rarer words find fewer." if left_out else ""
    places = f"{len(pieces)} place{'s' if len(pieces) > 1 else ''}"
    hint = f"{hint} What each line names first is the handle that opens the place.{more}"
    return Opened(f"{places} with words of {shown}, the best first", text, hint)


def _by_recall(node: Node, hit: TextHit) -> bool:
    """Return whether the place only repeats others: it is `recall` at work."""
    calls = node.calls if hit.call is None else node.calls[hit.call : hit.call + 1]
    return bool(calls) and all(call.tool == "recall" for call in calls)


def _piece(where: Whereabouts, node: Node, hit: TextHit, words: Sequence[str]) -> Piece:
    if hit.call is None:
        message = decode_message(node.body)
        speaker = {"user": "user", "assistant": "agent", "note": "runtime"}[message.type]
        if isinstance(message, Note):
            speaker = "user, to the agent at work" if message.source == "steer" else "runtime note"
        handle, text = str(node.seq), searchable(message)
        place = speaker
    else:
        call = node.calls[hit.call]
        handle, text = call_id(node.seq, hit.call), decode_result(call.body).text
        place = f"node {node.seq} | tool {call.tool} ({call.outcome})"
    start, shown = excerpt(text, words)
    parts = [handle, place, f"{moment(node)}", where.of_node(node.seq)]
    if start and hit.call is not None:
        parts.append(f"from offset {start}")
    return Piece(" | ".join(parts), shown)


def words_of(query: str) -> list[str]:
    """Return the words of a query, by which excerpts are chosen."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(query)))[:64]


def excerpt(text: str, words: Sequence[str], size: int = EXCERPT) -> tuple[int, str]:
    """Return where in a text most of the words stand close together, and what stands there."""
    if len(text) <= size:
        return 0, text
    start = _densest(text[:_LOOKED_AT], words, size)
    # A little of what stands before, from a line's or a word's beginning.
    start = max(0, min(start - size // 4, len(text) - size))
    if start:
        near = max(text.find(end, start, start + size // 8) for end in ("\n", " "))
        start = near + 1 if near >= 0 else start
    shown = text[start : start + size].rstrip()
    before, after = "… " if start else "", " …" if start + size < len(text) else ""
    return start, f"{before}{shown}{after}"


def _densest(text: str, words: Sequence[str], size: int) -> int:
    """Return where the stretch of an excerpt's length begins that has most of the words."""
    if not words:
        return 0
    pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    places = [(match.start(), match[0].lower()) for match in pattern.finditer(text)][:_MATCHES]
    within: Counter[str] = Counter()
    best, most, first = 0, 0, 0
    for start, word in places:
        within[word] += 1
        while start - places[first][0] > size // 2:
            within[places[first][1]] -= 1
            first += 1
        if (distinct := len(+within)) > most:
            best, most = places[first][0], distinct
    return best
