"""Retrieval over real stores by words, by vectors and by both, and what must not match.

The embedder here is a toy: it hashes the letter pairs of words, so words with similar spelling have
similar vectors.  It is used where only the path through the store is tested.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import AsyncIterator, Sequence

import pytest

from agent_runtime.errors import DimensionMismatch, NotFound
from agent_runtime.memory.recall.passages import passages
from agent_runtime.memory.recall.search import (
    CANDIDATES,
    FoundWords,
    HitPlace,
    SearchHit,
    SearchMode,
    rank_in_context,
    retrieve,
)
from agent_runtime.messages import (
    AssistantMessage,
    LoggedMessage,
    UserMessage,
    encode_message,
    searchable,
)
from agent_runtime.prompt.build import entry_of
from agent_runtime_storage import Commit, NewNode, NewRun, Store, UserStore, VectorItem, open_store
from agent_runtime_storage.contract.records.log import Outline
from tests.storage.helpers import OWNER

TOY = "toy"
TALK = (
    "We moved to Bergen in spring.",
    "How do you like the rain there?",
    "It rains a lot! We adopted two puppies.",
    "What are they called?",
    "Toby and Buddy.",
    "Good names. Shall I plan the week?",
    "Yes, the budget is 400 crowns.",
    "Noted.",
)


def toy(text: str) -> list[float]:
    """Return a vector by the letters of a text."""
    vector = [0.01] * 64
    for word in text.lower().split():
        for pair in itertools.pairwise(word):
            vector[zlib.crc32("".join(pair).encode()) % 64] += 1
    return vector


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """An open, empty store."""
    opened = await open_store(database_url)
    yield opened
    await opened.close()


async def write(user: UserStore, thread: str, texts: Sequence[str]) -> None:
    """Write alternating messages into a new thread, with their vectors."""
    await user.threads.ensure(thread)
    messages: list[LoggedMessage] = [
        UserMessage(text) if place % 2 == 0 else AssistantMessage(text)
        for place, text in enumerate(texts)
    ]
    nodes = [node(seq, seq - 1 or None, one) for seq, one in enumerate(messages, 1)]
    run = NewRun(f"run of {thread}", thread, "a", 1, {}, OWNER, 60.0, None, 0, (nodes[0],))
    lease, _ = await user.runs.begin(run)
    if nodes[1:]:
        await user.runs.commit(lease, Commit(nodes=tuple(nodes[1:]), head=len(nodes)))
    await embed(user, thread)


def node(seq: int, parent: int | None, message: LoggedMessage) -> NewNode:
    """Return a row of the log."""
    body, text = encode_message(message), searchable(message)
    return NewNode(seq, parent, "message", message.type, body, len(text) // 4, 0, text=text)


async def embed(user: UserStore, thread: str) -> None:
    """Embed the branch of a thread's head."""
    head = (await user.threads.get(thread)).head
    assert head is not None
    entries = [entry_of(one) for one in await user.log.branch(thread, head)]
    items = [
        VectorItem(thread, passage.source, passage.source_id, toy(passage.text), passage.part)
        for passage in passages(entries)
    ]
    await user.vectors.upsert(TOY, items)


async def ask(
    user: UserStore,
    query: str,
    mode: SearchMode = "hybrid",
    thread: str | None = "t1",
    limit: int = 10,
) -> list[SearchHit]:
    """Search with the toy's vector of the query."""
    return await retrieve(
        user, query, vector=toy(query), model=TOY, mode=mode, thread_id=thread, limit=limit
    )


async def test_text_matches_words_vectors_match_similarity_and_hybrid_both(store: Store) -> None:
    user = store.of("ann")
    await write(user, "t1", TALK)

    # Another form of the word, for which no vector is needed.
    assert [hit.node for hit in await ask(user, "adopting a puppy", "text")] == [3]
    # A misspelt word, which is in no text.
    assert (await ask(user, "bugdet crwns", "text")) == []
    assert (await ask(user, "bugdet crwns", "vectors"))[0].node == 7
    assert (await ask(user, "bugdet crwns"))[0].node == 7
    hits = await ask(user, "adopting a puppy")
    assert hits[0].node == 3
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(await ask(user, "adopting a puppy", limit=2)) == 2
    # Without a vector the search is by words.
    assert (await retrieve(user, "puppy", thread_id="t1"))[0].node == 3


async def test_a_short_answer_is_found_through_its_question(store: Store) -> None:
    user = store.of("ann")
    await write(user, "t1", TALK)
    nodes = [hit.node for hit in await ask(user, "What are the puppies called?")]
    # "Toby and Buddy." contains none of the words, and is not among the most similar texts.
    assert {3, 4, 5} == set(nodes[:3])
    assert 5 not in [hit.node for hit in await ask(user, "puppies called", "text")]


async def test_only_the_heads_branch_is_searched(store: Store) -> None:
    user = store.of("ann")
    await write(user, "t1", TALK)
    lease = await user.runs.take_lease("run of t1", OWNER, seconds=60, replaces=1)
    sibling = node(9, 2, UserMessage("We adopted a kitten."))
    await user.runs.commit(lease, Commit(nodes=(sibling,), head=9))
    await embed(user, "t1")
    for mode in ("text", "vectors", "hybrid"):
        nodes = {hit.node for hit in await ask(user, "adopted puppies kitten budget", mode)}
        assert 9 in nodes
        assert nodes <= {1, 2, 9}


async def test_a_search_covers_a_thread_or_all_of_the_owners_and_no_other_owner(
    store: Store,
) -> None:
    ann, bob = store.of("ann"), store.of("bob")
    await write(ann, "t1", TALK)
    await write(ann, "t2", ["The budget of the other house is 900 crowns."])
    await write(bob, "t1", ["My budget is a secret of 70 crowns."])
    for mode in ("text", "vectors", "hybrid"):
        query = "the secret budget of crowns"
        own = await ask(ann, query, mode)
        assert {hit.thread_id for hit in own} == {"t1"}
        assert 7 in [hit.node for hit in own]
        everywhere = await ask(ann, query, mode, thread=None)
        assert {("t1", 7), ("t2", 1)} <= {(hit.thread_id, hit.node) for hit in everywhere}
        assert [hit.node for hit in await ask(bob, query, mode, thread=None)] == [1]
        wanted = await retrieve(
            ann,
            query,
            vector=toy(query),
            model=TOY,
            mode=mode,
            wanted=lambda address: address != ("t2", 1),
        )
        assert "t2" not in {hit.thread_id for hit in wanted}
    with pytest.raises(NotFound):
        await ask(bob, "budget", thread="t2")


@pytest.mark.backends("file")
async def test_an_incomparable_query_is_an_error_and_an_empty_one_has_no_results(
    store: Store,
) -> None:
    user = store.of("ann")
    await write(user, "t1", TALK)
    with pytest.raises(DimensionMismatch):
        await retrieve(user, "budget", vector=[1.0, 2.0], model=TOY, thread_id="t1")
    assert await ask(user, "", "text") == []
    assert await ask(user, "budget", limit=0) == []
    await user.threads.ensure("empty")
    assert await ask(user, "budget", thread="empty") == []


@pytest.mark.backends("file")
async def test_a_long_thread_returns_no_more_than_the_limit(store: Store) -> None:
    user = store.of("ann")
    await write(user, "t1", [f"The budget of day {day} is {day} crowns." for day in range(300)])
    hits = await ask(user, "budget of day 123", limit=CANDIDATES)
    assert (hits[0].node, len(hits)) == (124, CANDIDATES)


# Scores other than the words'


def outline(seq: int, role: str = "user", tokens: int = 10, at: float = 1000.0) -> Outline:
    """Return a node that follows the one before."""
    return Outline("t", seq, seq - 1 or None, role, tokens, at)


def scored(query: str, *outlines: Outline) -> dict[int, float]:
    """Return the scores where only the second node matches, by its words, with 1."""
    scores = rank_in_context(query, {HitPlace("t", 2, None): 1.0}, outlines)
    return {number: score for (_, number, _), score in scores.items()}


def test_short_messages_near_a_hit_get_a_share_and_later_ones_a_larger_one() -> None:
    near = scored("x", *(outline(seq) for seq in (1, 2, 3, 4)))
    assert near[2] > near[3] > near[4] > 0
    assert near[3] > near[1] > 0


def test_a_long_message_gets_no_share() -> None:
    assert 3 not in scored("x", outline(2), outline(3, tokens=2000))


def with_words(words: dict[int, int], *outlines: Outline) -> dict[int, float]:
    """Return the scores where all nodes match alike, by these words of two that weigh the same."""
    found = FoundWords({("t", node): bits for node, bits in words.items()}, (0.5, 0.5))
    scores = {HitPlace("t", node, None): 1.0 for node in words}
    ranked = rank_in_context("x", scores, outlines, found)
    return {number: score for (_, number, _), score in ranked.items()}


def test_a_short_message_counts_more_with_the_words_that_its_neighbours_have() -> None:
    nodes = [outline(seq) for seq in (1, 2, 3, 4)]
    alike = with_words({2: 1, 3: 1}, *nodes)
    other = with_words({2: 1, 3: 2}, *nodes)
    assert other[3] / alike[3] > other[2] / alike[2] > 1
    # The node behind them has nothing of its own, and both words before it.
    assert other[4] > alike[4]
    # What both have counts once.
    both = with_words({2: 3, 3: 3}, *nodes)
    assert both[3] == with_words({2: 0, 3: 3}, *nodes)[3]


def test_a_long_message_and_another_conversation_gain_no_words() -> None:
    long = [outline(2), outline(3, tokens=2000)]
    assert with_words({2: 1, 3: 2}, *long)[3] == with_words({2: 1, 3: 1}, *long)[3]
    apart = [outline(2), outline(3, at=1000.0 + 7200)]
    assert with_words({2: 1, 3: 2}, *apart)[3] == with_words({2: 1, 3: 1}, *apart)[3]


def test_another_conversations_messages_are_not_near() -> None:
    assert 3 not in scored("x", outline(2), outline(3, at=1000.0 + 7200))


def test_a_message_without_neighbours_is_at_no_disadvantage() -> None:
    alone = scored("x", outline(2))[2]
    assert alone > scored("x", *(outline(seq) for seq in (1, 2, 3, 4)))[2]
    assert alone > scored("x", outline(2, tokens=2000))[2]


def test_the_runtimes_notes_get_no_share_of_their_neighbours() -> None:
    assert 3 not in scored("x", outline(2), outline(3, role="note"))


def test_a_question_about_oneself_prefers_the_users_messages() -> None:
    own_message = scored("What did I buy?", outline(2))[2]
    answered = scored("What did I buy?", outline(2, role="assistant"))[2]
    assert own_message > answered == scored("What was bought?", outline(2))[2]


def test_a_named_date_raises_messages_of_that_time() -> None:
    in_july = 1_657_000_000.0  # 5 July 2022
    assert scored("in July 2022", outline(2, at=in_july))[2] > scored("x", outline(2))[2]
    assert scored("in July 2021", outline(2, at=in_july)) == scored("x", outline(2))


def test_messages_of_other_branches_are_excluded() -> None:
    assert scored("x", outline(7)) == {}
