"""Semantic recall: before a turn, what was said earlier on it comes into the log as a note.

The note stays where it is, so the cached prefix of prompts does; it says of what lies outside of
the prompt who said it and when, and by which handle the tool `recall` opens it.  It follows the
seed's fourth tier (n8n): the best matches, each with messages before and after it.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio
import anyio.to_thread

from agent_runtime.errors import (
    BudgetExceeded,
    ModelError,
    ModelOverflow,
    ModelRejected,
    StoreError,
    StoreUnavailable,
)
from agent_runtime.log.run_log import RunLog
from agent_runtime.memory.recall.excerpts import excerpt, words_of
from agent_runtime.memory.recall.indexer import VectorIndexer
from agent_runtime.memory.recall.open import OpenedPart, marked
from agent_runtime.memory.recall.passages import split
from agent_runtime.memory.recall.search import SearchHit, SearchMode, retrieve
from agent_runtime.memory.transcript import characters, said
from agent_runtime.messages import Note, UserMessage, call_id, encodable, repeats
from agent_runtime.models.embedding import Vector
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.fences import masked
from agent_runtime.prompt.view import Entry, View
from agent_runtime_storage.contract.records import NewEvent, Outline

QUERY = 2000
"""How many characters of what the user says are searched by."""
HIT, NEIGHBOUR = 1000, 300
"""How many characters are shown of a match, and of a message before or after one."""
RESULT_TOKENS = 150
"""How much is read of a result that is no match."""
EVERY = 8
"""So many nodes are embedded together while a run goes on."""
OFF_LOOP = 200_000

_INTRO = "Earlier messages that may bear on what the user says now, found by search."
_MARK = re.compile(r"Only lines that begin with \[(\w+) say")
_log = logging.getLogger(__name__)

RecallPlace = tuple[str, int]
"""A thread, and a node of it."""


@dataclass(frozen=True, slots=True)
class RecallPolicy:
    """What is recalled, and how.

    Attributes:
        before, after: how many nodes come along before and after a match.
        scope: the run's own thread, or all threads of its user.
        tokens: the most that a note has of recalled text.
        timeout: seconds that a turn waits for the embedder, and as many for the search.
    """

    top_k: int = 5
    before: int = 2
    after: int = 1
    scope: Literal["thread", "user"] = "thread"
    mode: SearchMode = "hybrid"
    tokens: int = 2000
    timeout: float = 3.0


@dataclass(frozen=True, slots=True)
class _Match:
    """A match, and the nodes that come along with it."""

    found: SearchHit
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class Retriever:
    """The recall of one run.

    Attributes:
        embedding: makes vectors of what is said; None where recall is by full text alone.
        automatic: whether what is recalled comes by itself; a sub-agent has only its briefing.
    """

    log: RunLog
    policy: RecallPolicy
    embedding: VectorIndexer | None = None
    automatic: bool = True
    _done: int = 0
    """The message that was recalled for last."""
    _woken: int = 0
    """The head when embedding was last begun."""
    _why: list[str] = field(default_factory=list[str])

    # Beside the loop

    def wake(self) -> None:
        """Have the thread's new nodes embedded, where there are enough of them."""
        head = self.log.head or 0
        if self.embedding is not None and head - self._woken >= EVERY:
            self._woken = head
            self.embedding.wake(self.log)

    # Before a turn

    async def recall(self, *, most: int) -> bool:
        """Append what was said earlier on what the user has just said; return whether it did.

        Whatever fails is told as an event; the turn goes on without.

        Args:
            most: the most tokens that there is room for.

        Raises:
            LeaseLost, StoreUnavailable: as every write of the run.
        """
        asked = _asked(self.log.view) if self.automatic else None
        if asked is None or asked[0] <= self._done:
            return False
        self._done, query = asked[0], asked[1][:QUERY]
        self._why.clear()
        matches: list[_Match] = []
        try:
            matches = await self._matches(query)
        except StoreUnavailable:
            raise
        except Exception as error:
            # Recall never fails a turn.
            _log.warning("Semantic recall failed: %s", type(error).__name__)
            self._why.append(f"Recall failed: {type(error).__name__}.")
        chosen, text = await self._shown(matches, query, min(self.policy.tokens, most))
        why = " ".join(self._why)
        data = {"query": asked[0], "mode": self.policy.mode, "why": why}
        if not chosen:
            if why:
                await self.log.tell_of(NewEvent("recall", data={**data, "found": []}))
            return False
        note = Note(text, source="recall")
        found = [{"thread": one.thread_id, "node": one.node, "call": one.call} for one in chosen]
        data |= {"found": found, "tokens": count_text(note.text)}
        event = NewEvent("recall", self.log.next_seq, data)
        await self.log.append([note], events=[event])
        return True

    async def _shown(
        self, matches: Sequence[_Match], query: str, tokens: int
    ) -> tuple[list[SearchHit], str]:
        """Return the matches that there is room for, and the text that shows them."""
        make = functools.partial(
            _page,
            matches,
            query,
            tokens=tokens,
            own=self.log.lease.thread_id,
            nonce=self.log.view.start.nonce,
        )
        if sum(characters(match.entries) for match in matches) > OFF_LOOP:
            return await anyio.to_thread.run_sync(make)
        return make()

    async def _matches(self, query: str) -> list[_Match]:
        view, own = self.log.view, self.log.lease.thread_id
        shown = {(own, entry.seq) for entry in view.entries} | set(shown_by(view, own))
        if view.task is not None:
            shown.add((own, view.task.seq))
        # Several results of one exchange are one match.
        limit, seconds = 3 * self.policy.top_k, self.policy.timeout
        places = await self.find(query, limit=limit, hidden=shown, seconds=seconds)
        nodes = list(dict.fromkeys((one.thread_id, one.node) for one in places))
        best = set(nodes[: self.policy.top_k])
        found = [one for one in places if (one.thread_id, one.node) in best]
        with anyio.move_on_after(seconds):
            return await self._with_range(found, shown)
        self._why.append("The messages around what was found were not read in time.")
        return []

    async def find(
        self,
        query: str,
        *,
        limit: int,
        hidden: Collection[RecallPlace] = (),
        seconds: float | None = None,
    ) -> list[SearchHit]:
        """Return what the thread, or the user's threads, hold on a query, the best first.

        Where the embedder fails it is by full text, and with the mode `vectors` nothing.

        Args:
            hidden: nodes that are not looked for.
            seconds: how long the embedder, and then the search, may take.
        """
        policy, store = self.policy, self.log.store
        vector = await self._vector(query, seconds)
        if policy.mode == "vectors" and vector is None:
            return []
        with anyio.move_on_after(seconds):
            for given in (vector, None) if vector is not None else (None,):
                try:
                    return await retrieve(
                        store,
                        query,
                        vector=given,
                        model=self.embedding.model if self.embedding else None,
                        mode=policy.mode if given is not None else "text",
                        thread_id=self.log.lease.thread_id if policy.scope == "thread" else None,
                        limit=limit,
                        wanted=lambda thread, node: (thread, node) not in hidden,
                    )
                except StoreUnavailable:
                    raise
                except StoreError as error:
                    # Vectors of another length, mostly: the words are still there.
                    self._trouble(error)
                    if self.embedding is not None:
                        self.embedding.asking.rest(error)
                    if policy.mode == "vectors":
                        return []
            return []
        self._why.append("The search took too long.")
        return []

    async def _vector(self, query: str, seconds: float | None) -> Vector | None:
        if self.embedding is None or self.policy.mode == "text":
            return None
        asking = self.embedding.asking
        if asking.slow:
            return None
        try:
            # As long as a passage: so it is the same text, and the embedder reads all of it.
            [text, *_] = split(query) or [query]
            return await asking.ask_for(self.log, text, seconds=seconds)
        except BudgetExceeded:
            self._why.append("The budget allows no embedding.")
        except (ModelRejected, ModelOverflow) as error:
            # That is no fault of the embedder's, which goes on.
            self._why.append(error.message)
        except StoreUnavailable:
            raise
        except (ModelError, StoreError) as error:
            self._trouble(error)
        return None

    def _trouble(self, error: ModelError | StoreError) -> None:
        """Note why it is not as it was asked for; log it once."""
        self._why.append(error.message)
        if self.embedding is None or self.embedding.asking.untold():
            _log.warning("Semantic recall: %s %s", error.message, error.cure)

    async def _with_range(
        self, found: Sequence[SearchHit], shown: Collection[RecallPlace]
    ) -> list[_Match]:
        """Return matches with the nodes around them that the prompt does not show."""
        store, policy = self.log.store, self.policy
        # What was recalled before stands among them, and is passed over.
        before, after = 2 * policy.before, 2 * policy.after
        places = {(one.thread_id, one.node) for one in found}
        near = _Chain(await store.outlines(places, before=before, after=after))
        ranges: dict[RecallPlace, tuple[Entry, ...]] = {}
        for thread_id, node in places:
            chain = near.around(thread_id, node, before, after)
            nodes = await store.branch(thread_id, chain[-1], limit=len(chain))
            entries = [entry for entry in map(entry_of, nodes) if not repeats(entry.message)]
            place = sum(1 for entry in entries if entry.seq < node)
            around = entries[max(0, place - policy.before) : place + policy.after + 1]
            ranges[thread_id, node] = tuple(
                entry for entry in around if (thread_id, entry.seq) not in shown
            )
        return [_Match(one, ranges[one.thread_id, one.node]) for one in found]


class _Chain:
    """What stands before and after nodes on their branches."""

    def __init__(self, outlines: Sequence[Outline]) -> None:
        self._before = {(one.thread_id, one.seq): one.parent_id for one in outlines}
        self._after = {(one.thread_id, one.parent_id): one.seq for one in outlines}

    def around(self, thread_id: str, node: int, before: int, after: int) -> list[int]:
        """Return a node with so many before and after it, as far as they are known."""
        chain = [node]
        while len(chain) <= before and (one := self._before.get((thread_id, chain[0]))):
            chain.insert(0, one)
        for _ in range(after):
            if one := self._after.get((thread_id, chain[-1])):
                chain.append(one)
        return chain


def _asked(view: View) -> tuple[int, str] | None:
    """Return what the user has just said, if nothing has come after it, with its node."""
    for entry in reversed(view.entries):
        message = entry.message
        if isinstance(message, UserMessage):
            return (entry.seq, message.text) if message.text.strip() else None
        if not isinstance(message, Note) or message.source == "recall":
            return None
        if message.source == "steer":
            return entry.seq, message.text.partition(": ")[2]
    return None


def shown_by(view: View, own: str) -> Iterator[RecallPlace]:
    """Yield the nodes that recall notes in the prompt show."""
    for entry in view.entries:
        message = entry.message
        if not isinstance(message, Note) or message.source != "recall":
            continue
        if mark := _MARK.search(message.text):
            header = rf"^\[{mark[1]} \| node (\d+)(?:@(.*?))? \|"
            for found in re.finditer(header, message.text, re.MULTILINE):
                yield found[2] or own, int(found[1])


@dataclass(slots=True)
class _Page:
    """What is shown of matches, within a number of tokens.

    Attributes:
        hits: of each match's node what was found there: calls, or None for its own words.
        own: the run's thread.
        nonce: the mark of the runtime's own words, which must not stand in what others said.
    """

    words: Sequence[str]
    hits: dict[RecallPlace, set[int | None]]
    own: str
    nonce: str
    left: int
    chosen: list[SearchHit] = field(default_factory=list[SearchHit])
    shown: dict[RecallPlace, tuple[OpenedPart, ...]] = field(
        default_factory=dict[RecallPlace, tuple[OpenedPart, ...]]
    )

    def add(self, match: _Match) -> None:
        """Show a match with what is around it, or alone, if there is room."""
        found = match.found
        alone = tuple(entry for entry in match.entries if entry.seq == found.node)
        for entries in (match.entries, alone):
            places = [(found.thread_id, entry.seq) for entry in entries]
            new = {
                place: self._pieces(place, entry)
                for place, entry in zip(places, entries, strict=True)
                if place not in self.shown
            }
            size = sum(_tokens(piece) for pieces in new.values() for piece in pieces)
            if size <= self.left:
                self.left -= size
                self.shown |= new
                self.chosen.append(found)
                return

    def pieces(self) -> list[OpenedPart]:
        """Return what is shown, thread by thread in the order of the best, each in its order."""
        threads = dict.fromkeys(found.thread_id for found in self.chosen)
        return [
            piece
            for thread in threads
            for place in sorted(self.shown)
            if place[0] == thread
            for piece in self.shown[place]
        ]

    def _pieces(self, place: RecallPlace, entry: Entry) -> tuple[OpenedPart, ...]:
        thread_id, node = place
        name = f"{node}" if thread_id == self.own else f"{node}@{thread_id}"
        hits = self.hits.get(place, set())
        pieces: list[OpenedPart] = []
        results = itertools.count()
        for one in said([entry], result_limit=RESULT_TOKENS):
            parts = [f"node {name}", f"{one.at} UTC", one.speaker]
            text, hit = one.text, None in hits
            if one.speaker.startswith("tool "):
                index = next(results)
                parts.append(f"handle {call_id(node, index)}")
                if hit := index in hits:
                    text = encodable(entry.results[index].text)
            elif one.speaker == "agent, thinking":
                continue
            size = min(HIT if hit else NEIGHBOUR, max(self.left, NEIGHBOUR))
            shown = excerpt(text, self.words if hit else (), size)[1]
            pieces.append(OpenedPart(" | ".join(parts), masked(shown, self.nonce)))
        return tuple(pieces)


def _page(
    matches: Sequence[_Match], query: str, *, tokens: int, own: str, nonce: str
) -> tuple[list[SearchHit], str]:
    """Return the matches that are shown, and the text of the note that shows them."""
    hits: dict[RecallPlace, set[int | None]] = defaultdict(set)
    for match in matches:
        hits[match.found.thread_id, match.found.node].add(match.found.call)
    page = _Page(words_of(query), dict(hits), own, nonce, tokens)
    for match in matches:
        page.add(match)
    if not page.chosen:
        return [], ""
    hint, text = marked(page.pieces())
    return page.chosen, f"{_INTRO} {hint}\n\n{text}"


def _tokens(piece: OpenedPart) -> int:
    return count_text(f"[0123456789ab | {piece.source}]\n{piece.text}\n\n")
