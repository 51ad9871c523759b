"""Retrieval over real stores: by words, by vectors and by both; what it must not find.

The embedder here is a toy: the hashed pairs of a word's letters, so that words of like spelling
have like vectors.  It stands for a real one where only the way through the store is tried.
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
    """Write messages by turns into a new thread, with their vectors."""
    await user.threads.ensure(thread)
    said: list[LoggedMessage] = [
        UserMessage(text) if place % 2 == 0 else AssistantMessage(text)
        for place, text in enumerate(texts)
    ]
    nodes = [node(seq, seq - 1 or None, one) for seq, one in enumerate(said, 1)]
    run = NewRun(f"run of {thread}", thread, "a", 1, {}, OWNER, 60.0, None, 0, (nodes[0],))
    lease, _ = await user.runs.begin(run)
    if nodes[1:]:
        await user.runs.commit(lease, Commit(nodes=tuple(nodes[1:]), head=len(nodes)))
    await embed(user, thread)


def node(seq: int, parent: int | None, said: LoggedMessage) -> NewNode:
    """Return a row of the log."""
    body, text = encode_message(said), searchable(said)
    return NewNode(seq, parent, "message", said.type, body, len(text) // 4, 0, text=text)


async def embed(user: UserStore, thread: str) -> None:
    """Embed the branch of a thread's head."""
    head = (await user.threads.get(thread)).head
    assert head is not None
    entries = [entry_of(one) for one in await user.log.branch(thread, head)]
    items = [
        VectorItem(thread, one.source, one.source_id, toy(one.text), one.part)
        for one in passages(entries)
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


async def test_text_finds_words_vectors_likeness_and_both_together_either(store: Store) -> None:
    user = store.of("ann")
    await write(user, "t1", TALK)

    # A word in another form, which no vector is asked for.
    assert [one.node for one in await ask(user, "adopting a puppy", "text")] == [3]
    # A misspelt word, which no text has.
    assert (await ask(user, "bugdet crwns", "text")) == []
    assert (await ask(user, "bugdet crwns", "vectors"))[0].node == 7
    assert (await ask(user, "bugdet crwns"))[0].node == 7
    found = await ask(user, "adopting a puppy")
    assert found[0].node == 3
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert len(await ask(user, "adopting a puppy", limit=2)) == 2
    # Without a vector it is by words.
    assert (await retrieve(user, "puppy", thread_id="t1"))[0].node == 3


async def test_a_short_answer_is_found_by_its_question(store: Store) -> None:
    user = store.of("ann")
    await write(user, "t1", TALK)
    found = [one.node for one in await ask(user, "What are the puppies called?")]
    # "Toby and Buddy." has none of the words, and is none of the likest texts.
    assert {3, 4, 5} == set(found[:3])
    assert 5 not in [one.node for one in await ask(user, "puppies called", "text")]


async def test_only_the_branch_of_the_head_is_found(store: Store) -> None:
    user = store.of("ann")
    await write(user, "t1", TALK)
    lease = await user.runs.take_lease("run of t1", OWNER, seconds=60, replaces=1)
    sibling = node(9, 2, UserMessage("We adopted a kitten."))
    await user.runs.commit(lease, Commit(nodes=(sibling,), head=9))
    await embed(user, "t1")
    for mode in ("text", "vectors", "hybrid"):
        found = {one.node for one in await ask(user, "adopted puppies kitten budget", mode)}
        assert 9 in found
        assert found <= {1, 2, 9}


async def test_a_thread_is_searched_or_all_of_the_owner_and_never_another_owner_s(
    store: Store,
) -> None:
    ann, bob = store.of("ann"), store.of("bob")
    await write(ann, "t1", TALK)
    await write(ann, "t2", ["The budget of the other house is 900 crowns."])
    await write(bob, "t1", ["My budget is a secret of 70 crowns."])
    for mode in ("text", "vectors", "hybrid"):
        query = "the secret budget of crowns"
        own = await ask(ann, query, mode)
        assert {one.thread_id for one in own} == {"t1"}
        assert 7 in [one.node for one in own]
        everywhere = await ask(ann, query, mode, thread=None)
        assert {("t1", 7), ("t2", 1)} <= {(one.thread_id, one.node) for one in everywhere}
        assert [one.node for one in await ask(bob, query, mode, thread=None)] == [1]
        wanted = await retrieve(
            ann,
            query,
            vector=toy(query),
            model=TOY,
            mode=mode,
            wanted=lambda address: address != ("t2", 1),
        )
        assert "t2" not in {one.thread_id for one in wanted}
    with pytest.raises(NotFound):
        await ask(bob, "budget", thread="t2")


@pytest.mark.backends("file")
async def test_what_cannot_be_compared_is_an_error_and_nothing_is_none(store: Store) -> None:
    user = store.of("ann")
    await write(user, "t1", TALK)
    with pytest.raises(DimensionMismatch):
        await retrieve(user, "budget", vector=[1.0, 2.0], model=TOY, thread_id="t1")
    assert await ask(user, "", "text") == []
    assert await ask(user, "budget", limit=0) == []
    await user.threads.ensure("empty")
    assert await ask(user, "budget", thread="empty") == []


@pytest.mark.backends("file")
async def test_a_thread_of_many_messages_gives_no_more_than_it_is_asked_for(store: Store) -> None:
    user = store.of("ann")
    await write(user, "t1", [f"The budget of day {day} is {day} crowns." for day in range(300)])
    found = await ask(user, "budget of day 123", limit=CANDIDATES)
    assert (found[0].node, len(found)) == (124, CANDIDATES)


# What counts in addition to the words


def outline(seq: int, role: str = "user", tokens: int = 10, at: float = 1000.0) -> Outline:
    """Return a node that follows the one before."""
    return Outline("t", seq, seq - 1 or None, role, tokens, at)


def scored(query: str, *outlines: Outline) -> dict[int, float]:
    """Return what nodes get where only the second one was found, by its words, with 1."""
    found = rank_in_context(query, {HitPlace("t", 2, None): 1.0}, outlines)
    return {number: score for (_, number, _), score in found.items()}


def test_short_messages_near_a_hit_get_a_share_and_those_after_it_the_larger() -> None:
    near = scored("x", *(outline(seq) for seq in (1, 2, 3, 4)))
    assert near[2] > near[3] > near[4] > 0
    assert near[3] > near[1] > 0


def test_a_long_message_stands_by_itself() -> None:
    assert 3 not in scored("x", outline(2), outline(3, tokens=2000))


def test_what_was_said_in_another_conversation_is_not_near() -> None:
    assert 3 not in scored("x", outline(2), outline(3, at=1000.0 + 7200))


def test_a_message_without_neighbours_is_not_behind_one_that_has_them() -> None:
    alone = scored("x", outline(2))[2]
    assert alone > scored("x", *(outline(seq) for seq in (1, 2, 3, 4)))[2]
    assert alone > scored("x", outline(2, tokens=2000))[2]


def test_what_the_runtime_said_is_not_found_by_its_neighbours() -> None:
    assert 3 not in scored("x", outline(2), outline(3, role="note"))


def test_who_asks_about_themselves_finds_what_they_said() -> None:
    said = scored("What did I buy?", outline(2))[2]
    answered = scored("What did I buy?", outline(2, role="assistant"))[2]
    assert said > answered == scored("What was bought?", outline(2))[2]


def test_a_named_date_raises_what_was_said_then() -> None:
    in_july = 1_657_000_000.0  # 5 July 2022
    assert scored("in July 2022", outline(2, at=in_july))[2] > scored("x", outline(2))[2]
    assert scored("in July 2021", outline(2, at=in_july)) == scored("x", outline(2))


def test_what_is_not_on_the_branch_is_left_out() -> None:
    assert scored("x", outline(7)) == {}
