"""Semantic recall: before a turn, earlier messages about what the user says are logged as a note.

The note stays in the log, so the cached prefix of prompts stays valid.  It shows only what is
outside of the prompt, with speaker and time, and the handle by which the tool `recall` opens it.
After n8n's semantic recall: the best matches, each with some messages before and after it.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
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
from agent_runtime.memory.observational.constraint_reader import user_words
from agent_runtime.memory.recall.excerpts import excerpt, words_of
from agent_runtime.memory.recall.indexer import VectorIndexer, least_fitting
from agent_runtime.memory.recall.open import OpenedPart, with_headers
from agent_runtime.memory.recall.passages import split
from agent_runtime.memory.recall.reranker_client import RERANKED, RerankerClient
from agent_runtime.memory.recall.search import NodeAddress, SearchHit, SearchMode, retrieve
from agent_runtime.memory.recall.small_talk import is_small_talk
from agent_runtime.memory.transcript import characters, transcript_messages
from agent_runtime.messages import Note, UserMessage, call_id, encodable, repeats
from agent_runtime.models.retrieval.embedding import Vector
from agent_runtime.models.telemetry.recall import retrieval
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.build import entry_of
from agent_runtime.prompt.calendar import named_time
from agent_runtime.prompt.fences import masked
from agent_runtime.prompt.view import Entry, View
from agent_runtime_storage.contract.records.log import NewEvent, Outline

QUERY = 2000
"""Characters of the user's message that are searched for."""
HIT, NEIGHBOUR = 1000, 300
"""Characters shown of a match, and of a message around it."""
RESULT_TOKENS = 150
"""Tokens read of a tool result that is no match."""
EVERY = 8
"""Nodes that a run adds before they are embedded together."""
OFF_LOOP = 200_000
"""Characters above which the note is made in a worker thread."""

NOTHING_FITS = "Nothing fits."
"""Why nothing is recalled where the search worked."""

_INTRO = "Earlier messages that may bear on what the user says now, found by search."
# Reads what `with_headers` writes, in notes of earlier versions too.
_MARK = re.compile(r"Only lines that begin with \[(\w+) say")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecallPolicy:
    """What is recalled, and how.

    Attributes:
        before, after: how many nodes are shown before and after a match.
        scope: whether to search the run's thread or all threads of its user.
        tokens: the most tokens of recalled text in a note.
        timeout: seconds that a turn waits for the embedder, and again for the search and for the
            reranker.
        zone: of the user, in which dates of queries are meant.
    """

    top_k: int = 5
    before: int = 2
    after: int = 1
    scope: Literal["thread", "user"] = "thread"
    mode: SearchMode = "hybrid"
    tokens: int = 2000
    timeout: float = 3.0
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True)
class _Match:
    """A hit, and the nodes to show with it."""

    hit: SearchHit
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class Retriever:
    """The recall of one run.

    Attributes:
        indexer: embeds the thread; None where recall uses full text alone.
        automatic: whether `recall` does anything; a sub-agent gets only its briefing.
        reranker: orders what a search found; None for none.
    """

    log: RunLog
    policy: RecallPolicy
    indexer: VectorIndexer | None = None
    automatic: bool = True
    reranker: RerankerClient | None = None
    _recalled_for: int = 0
    """The node of the last user message that was searched for."""
    _woken: int = 0
    """The head when embedding was last started."""
    _problems: list[str] = field(default_factory=list[str])

    def wake(self) -> None:
        """Embed the thread's new nodes in the background once there are `EVERY` of them."""
        head = self.log.head or 0
        if self.indexer is not None and head - self._woken >= EVERY:
            self._woken = head
            self.indexer.wake(self.log)

    async def recall(self, *, most: int) -> bool:
        """Log a note of earlier messages about the user's newest one; return whether it did.

        A failure is logged as an event, and the turn continues without a note.

        Args:
            most: the most tokens that there is room for.

        Raises:
            LeaseLost, StoreUnavailable: as every write of the run.
        """
        newest = newest_user_message(self.log.view) if self.automatic else None
        if newest is None or newest[0] <= self._recalled_for:
            return False
        # Set before the search, so that a failing one is not repeated at each step.
        self._recalled_for, query = newest[0], newest[1][:QUERY]
        self._problems.clear()
        matches: list[_Match] = []
        try:
            # Every earlier "thanks!" resembles this one, and none of them helps.
            with retrieval(query):
                matches = [] if is_small_talk(query) else await self._matches(query)
        except StoreUnavailable:
            raise
        except Exception as error:
            # Recall never fails a turn.
            _log.warning("Semantic recall failed: %s", type(error).__name__)
            self._problems.append(f"Recall failed: {type(error).__name__}.")
        shown, text = await self._text(matches, query, min(self.policy.tokens, most))
        if not shown and not self._problems and self._has_past():
            self._problems.append(NOTHING_FITS)
        why = " ".join(self._problems)
        data = {"query": newest[0], "mode": self.policy.mode, "why": why}
        if not shown:
            if why:
                await self.log.tell_of(NewEvent("recall", data={**data, "found": []}))
            return False
        note = Note(text, source="recall")
        hits = [{"thread": hit.thread_id, "node": hit.node, "call": hit.call} for hit in shown]
        data |= {"found": hits, "tokens": count_text(note.text)}
        event = NewEvent("recall", self.log.next_seq, data)
        await self.log.append([note], events=[event])
        return True

    def _has_past(self) -> bool:
        """Return whether there may be messages outside of the prompt."""
        entries = self.log.view.entries
        return self.policy.scope == "user" or (bool(entries) and entries[0].parent_id is not None)

    async def find(
        self,
        query: str,
        *,
        limit: int,
        hidden: Collection[NodeAddress] = (),
        seconds: float | None = None,
        mode: SearchMode | None = None,
        fitting: bool = False,
    ) -> list[SearchHit]:
        """Search the thread, or the user's threads; return the best hits first.

        If the embedder fails, only full text is searched, or nothing in the mode `vectors`.  A
        reranker, where there is one, orders the hits; if it fails, the search's order stays.

        Args:
            hidden: nodes to leave out.
            seconds: timeout of the embedder, and again of the search and of the reranker.
            mode: None for the policy's.
            fitting: whether to find nothing rather than what hardly fits.
        """
        wanted = max(limit, RERANKED) if self.reranker else limit
        hits = await self._search(query, wanted, hidden, seconds, mode, fitting=fitting)
        if self.reranker is not None:
            hits, problem = await self.reranker.order_if_possible(self.log, query, hits, seconds)
            self._problems += [problem] if problem else []
        return hits[:limit]

    async def _search(
        self,
        query: str,
        limit: int,
        hidden: Collection[NodeAddress],
        seconds: float | None,
        mode: SearchMode | None,
        *,
        fitting: bool,
    ) -> list[SearchHit]:
        """See `find`."""
        policy, store = self.policy, self.log.store
        mode = mode or policy.mode
        vector = None if mode == "text" else await self._vector(query, seconds)
        if mode == "vectors" and vector is None:
            return []
        with anyio.move_on_after(seconds):
            for tried in (vector, None) if vector is not None else (None,):
                try:
                    return await retrieve(
                        store,
                        query,
                        vector=tried,
                        model=self.indexer.model if self.indexer else None,
                        mode=mode if tried is not None else "text",
                        thread_id=self.log.lease.thread_id if policy.scope == "thread" else None,
                        limit=limit,
                        wanted=lambda address: address not in hidden,
                        own=self.log.lease.thread_id,
                        zone=policy.zone,
                        fitting=await least_fitting(self.log, self.indexer, tried)
                        if fitting
                        else None,
                    )
                except StoreUnavailable:
                    raise
                except StoreError as error:
                    # Mostly vectors of another length; full text still works.
                    self._report(error)
                    if self.indexer is not None:
                        self.indexer.client.back_off(error)
                    if mode == "vectors":
                        return []
            return []
        self._problems.append("The search took too long.")
        return []

    async def _vector(self, query: str, seconds: float | None) -> Vector | None:
        if self.indexer is None or self.indexer.client.slow:
            return None
        try:
            # The first passage: the embedder reads all of it, and it may have a vector already.
            [text, *_] = split(query) or [query]
            return await self.indexer.client.embed_query(self.log, text, seconds=seconds)
        except BudgetExceeded:
            self._problems.append("The budget allows no embedding.")
        except (ModelRejected, ModelOverflow) as error:
            # The query's fault, so the embedder stays in use.
            self._problems.append(error.message)
        except StoreUnavailable:
            raise
        except (ModelError, StoreError) as error:
            self._report(error)
        return None

    def _report(self, error: ModelError | StoreError) -> None:
        """Note a failure for the event, and log it if it is the first."""
        self._problems.append(error.message)
        if self.indexer is None or self.indexer.client.first_report():
            _log.warning("Semantic recall: %s %s", error.message, error.cure)

    async def _matches(self, query: str) -> list[_Match]:
        """Return the best matches outside of the prompt, with the nodes around them."""
        view, own = self.log.view, self.log.lease.thread_id
        hidden = {NodeAddress(own, entry.seq) for entry in view.entries}
        # Notes of earlier turns still show these.
        hidden.update(_recalled(view, own))
        if view.task is not None:
            hidden.add(NodeAddress(own, view.task.seq))
        hidden.update(NodeAddress(own, one.seq) for one in view.context)
        # Three times as many, because several results of one exchange count as one match.
        limit, seconds = 3 * self.policy.top_k, self.policy.timeout
        find = functools.partial(
            self.find, query, limit=limit, hidden=hidden, seconds=seconds, fitting=True
        )
        hits = await find()
        if not hits and await self._has_no_vectors(hidden):
            # Recall was just switched on for an old thread, whose nodes are embedded only now.
            hits = await find(mode="text")
        best = list(dict.fromkeys(hit.address for hit in hits))[: self.policy.top_k]
        with anyio.move_on_after(seconds):
            around = await self._around(best, hidden)
            return [_Match(hit, around[hit.address]) for hit in hits if hit.address in around]
        self._problems.append("The messages around the matches were not read in time.")
        return []

    async def _has_no_vectors(self, hidden: Collection[NodeAddress]) -> bool:
        """Return whether nodes outside of the prompt wait for vectors without which none is found.

        If so, the event says it.
        """
        if self.policy.mode != "vectors" or self.policy.scope != "thread" or self.indexer is None:
            return False
        own = self.log.lease.thread_id
        waiting = await self.indexer.unembedded(self.log.store, own)
        number = sum(NodeAddress(own, seq) not in hidden for seq in waiting)
        if number:
            self._problems.append(
                f"{number} earlier messages have no vectors yet; full text was searched instead."
            )
        return bool(number)

    async def _around(
        self, addresses: Sequence[NodeAddress], hidden: Collection[NodeAddress]
    ) -> dict[NodeAddress, tuple[Entry, ...]]:
        """Return nodes with those before and after them that are not hidden."""
        store, policy = self.log.store, self.policy
        # Twice as many are read, because earlier recall notes among them are skipped.
        before, after = 2 * policy.before, 2 * policy.after
        near = _Neighbourhood(await store.log.outlines(set(addresses), before=before, after=after))
        around: dict[NodeAddress, tuple[Entry, ...]] = {}
        for thread_id, node in addresses:
            chain = near.around(thread_id, node, before, after)
            nodes = await store.log.branch(thread_id, chain[-1], limit=len(chain))
            entries = [entry for entry in map(entry_of, nodes) if not repeats(entry.message)]
            place = sum(entry.seq < node for entry in entries)
            around[NodeAddress(thread_id, node)] = tuple(
                entry
                for entry in entries[max(0, place - policy.before) : place + policy.after + 1]
                # After the choice of neighbours: what the prompt shows is left out, not replaced by
                # others.
                if (thread_id, entry.seq) not in hidden
            )
        return around

    async def _text(
        self, matches: Sequence[_Match], query: str, tokens: int
    ) -> tuple[list[SearchHit], str]:
        """Return the hits that there is room for, and the note's text."""
        page = _Page(
            words_of(query),
            self.log.lease.thread_id,
            self.log.view.start.nonce,
            str(self.policy.zone),
            tokens,
        )
        make = functools.partial(_note, matches, page)
        if sum(characters(match.entries) for match in matches) > OFF_LOOP:
            return await anyio.to_thread.run_sync(make)
        return make()


class _Neighbourhood:
    """Parents and children of nodes on their branches."""

    def __init__(self, outlines: Sequence[Outline]) -> None:
        self._parents = {(one.thread_id, one.seq): one.parent_id for one in outlines}
        self._children = {(one.thread_id, one.parent_id): one.seq for one in outlines}

    def around(self, thread_id: str, node: int, before: int, after: int) -> list[int]:
        """Return a node with up to `before` nodes before it and `after` nodes after it."""
        chain = [node]
        while len(chain) <= before and (parent := self._parents.get((thread_id, chain[0]))):
            chain.insert(0, parent)
        for _ in range(after):
            if child := self._children.get((thread_id, chain[-1])):
                chain.append(child)
        return chain


def newest_user_message(view: View) -> tuple[int, str] | None:
    """Return the node and text of the user's newest message.

    None if the agent has answered since, or a recall note for it is logged already.
    """
    for entry in reversed(view.entries):
        message = entry.message
        if isinstance(message, UserMessage):
            return (entry.seq, message.text) if message.text.strip() else None
        if not isinstance(message, Note) or message.source == "recall":
            return None
        if message.source == "steer":
            # Empty if the user only let a stopped run continue.
            words = user_words(message)
            return (entry.seq, words) if words.strip() else None
    return None


def _recalled(view: View, own: str) -> Iterator[NodeAddress]:
    """Yield the nodes that recall notes in the prompt show."""
    for entry in view.entries:
        message = entry.message
        if not isinstance(message, Note) or message.source != "recall":
            continue
        if mark := _MARK.search(message.text):
            header = rf"^\[{mark[1]} \| node (\d+)(?:@(.*?))? \|"
            for shown in re.finditer(header, message.text, re.MULTILINE):
                yield NodeAddress(shown[2] or own, int(shown[1]))


def _note(matches: Sequence[_Match], page: _Page) -> tuple[list[SearchHit], str]:
    """Return the hits that fit an empty page, and the text of the note that shows them."""
    for match in matches:
        page.calls[match.hit.address].add(match.hit.call)
    for match in matches:
        page.add(match)
    if not page.hits:
        return [], ""
    hint, text = with_headers(page.parts())
    return page.hits, f"{_INTRO} {hint}\n\n{text}"


@dataclass(slots=True)
class _Page:
    """What a note shows of matches, within a number of tokens.

    Attributes:
        calls: for each matching node the calls whose results match; None for its own words.
        own: the run's thread.
        nonce: the mark of the runtime's own words; masked in what others said.
        zone: the name of the zone of the times that it shows.
        left: tokens that are still free.
    """

    words: Sequence[str]
    own: str
    nonce: str
    zone: str
    left: int
    calls: defaultdict[NodeAddress, set[int | None]] = field(
        default_factory=lambda: defaultdict[NodeAddress, set[int | None]](set)
    )
    hits: list[SearchHit] = field(default_factory=list[SearchHit])
    shown: dict[NodeAddress, tuple[OpenedPart, ...]] = field(
        default_factory=dict[NodeAddress, tuple[OpenedPart, ...]]
    )

    def add(self, match: _Match) -> None:
        """Show a match with the nodes around it, or alone, or not at all, as there is room."""
        hit = match.hit
        # Too large with its neighbours: alone it may fit, and a smaller match after it may too.
        alone = tuple(entry for entry in match.entries if entry.seq == hit.node)
        for entries in (match.entries, alone):
            new = {
                address: self._parts(address, entry)
                for entry in entries
                if (address := NodeAddress(hit.thread_id, entry.seq)) not in self.shown
            }
            size = sum(_tokens(part) for parts in new.values() for part in parts)
            if size <= self.left:
                self.left -= size
                self.shown |= new
                self.hits.append(hit)
                return

    def parts(self) -> list[OpenedPart]:
        """Return what is shown: threads by their best hit, nodes in their order."""
        threads = dict.fromkeys(hit.thread_id for hit in self.hits)
        return [
            part
            for thread_id in threads
            for address in sorted(self.shown)
            if address.thread_id == thread_id
            for part in self.shown[address]
        ]

    def _parts(self, address: NodeAddress, entry: Entry) -> tuple[OpenedPart, ...]:
        thread_id, node = address
        name = f"{node}" if thread_id == self.own else f"{node}@{thread_id}"
        calls = self.calls.get(address, set())
        parts: list[OpenedPart] = []
        results = itertools.count()
        for one in transcript_messages([entry], result_limit=RESULT_TOKENS):
            header = [f"node {name}", named_time(one.at, self.zone), one.speaker]
            text, matches = one.text, None in calls
            if one.speaker.startswith("tool "):
                index = next(results)
                header.append(f"handle {call_id(node, index)}")
                if matches := index in calls:
                    text = encodable(entry.results[index].text)
            # Reasoning is not searchable, so it never matches, and would only take room.
            elif one.speaker == "agent, thinking":
                continue
            size = min(HIT if matches else NEIGHBOUR, max(self.left, NEIGHBOUR))
            shown = excerpt(text, self.words if matches else (), size)[1]
            parts.append(OpenedPart(" | ".join(header), masked(shown, self.nonce)))
        return tuple(parts)


def _tokens(part: OpenedPart) -> int:
    return count_text(f"[0123456789ab | {part.source}]\n{part.text}\n\n")
