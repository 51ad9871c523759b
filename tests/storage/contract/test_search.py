"""The contract of full-text search over the log."""

from __future__ import annotations

import pytest

from agent_runtime_storage import (
    CallDone,
    Commit,
    Conflict,
    Lease,
    NewNode,
    NodeText,
    NotFound,
    TextHit,
    UserStore,
)
from tests.storage.helpers import begin, exchange, message


def text_message(seq: int, text: str) -> NewNode:
    """Return a message below the previous one."""
    return NewNode(seq, seq - 1 or None, "message", "user", b"body", 1, 0, text=text)


async def write_texts(user: UserStore, *texts: str, run: str = "r1", thread: str = "t1") -> Lease:
    """Begin a run on a thread with these texts, one a message."""
    nodes = tuple(text_message(seq, text) for seq, text in enumerate(texts, 1))
    return await begin(user, run, thread, nodes=nodes)


async def find_nodes(user: UserStore, query: str, *, every_word: bool = False) -> list[int]:
    """Return the node ids of the hits in all threads, ascending."""
    hits = await user.search.find(query, limit=100, every_word=every_word)
    return sorted(hit.node_id for hit in hits)


async def test_any_word_matches_and_rarer_words_weigh_more(user: UserStore) -> None:
    await write_texts(user, "the cat sat", "the dog sat", "the zebra ran", "nothing of it")
    hits = await user.search.find("the zebra sat")
    assert [hit.node_id for hit in hits] == [3, 1, 2]
    assert hits[0].score > hits[1].score == hits[2].score > 0
    assert hits[0] == TextHit("t1", 3, None, hits[0].score)


async def test_hits_tell_which_words_of_the_query_they_have(user: UserStore) -> None:
    await write_texts(user, "a lemon tree", "lemon, zebra", "zebra", "zebra", "lemons", "none")
    hits = await user.search.find("lemon zebra")
    words = {hit.node_id: hit.words for hit in hits}
    assert words[1] & words[3] == 0
    assert words[1] | words[3] == words[2]
    assert words[3] == words[4] != 0
    # Other forms share the word's bit; the form that was asked for has one of its own.
    assert words[5] & words[1]
    assert words[1] & ~words[5]
    (shares,) = {hit.shares for hit in hits}
    assert sum(shares) == pytest.approx(1)
    every = await user.search.find("lemon zebra", every_word=True)
    assert [hit.words for hit in every] == [3]
    assert len(every[0].shares) == 2


async def test_every_word_must_match_on_request(user: UserStore) -> None:
    await write_texts(user, "alpha beta", "beta gamma", "gamma alpha beta", "alpha")
    assert await find_nodes(user, "beta alpha", every_word=True) == [1, 3]
    assert await find_nodes(user, "beta missing", every_word=True) == []
    assert await find_nodes(user, "beta missing") == [1, 2, 3]


async def test_repeated_words_and_shorter_texts_rank_higher(user: UserStore) -> None:
    filler = "one two three four five six"
    await write_texts(user, f"lemon {filler}", f"lemon lemon {filler}", "lemon", filler)
    assert [hit.node_id for hit in await user.search.find("lemon")] == [3, 2, 1]


async def test_identifiers_match_as_a_whole_and_by_their_parts(user: UserStore) -> None:
    await write_texts(
        user,
        "see src/app/user_store.py line 7",
        "call getUserName() then",
        "set foo_bar.baz",
        "version 2.14.1 of HTTPServer",
        "end-to-end at a@example.com",
    )
    for query, nodes in {
        "src/app/user_store.py": [1],
        "user_store.py": [1],
        "user_store": [1],
        "getusername": [2],
        "name": [2],
        "FOO_BAR": [3],
        "baz": [3],
        "2.14.1": [4],
        "server": [4],
        "HttpServer": [4],
        "example": [5],
        "end": [5],
        "user": [1, 2],
    }.items():
        assert await find_nodes(user, query, every_word=True) == nodes, query
    whole, _ = await user.search.find("getUserName user")
    assert whole.node_id == 2


async def test_case_accents_and_scripts_without_spaces(user: UserStore) -> None:
    await write_texts(
        user, "Das CAFÉ in der Straße", "東京タワーへ行った", "猫が好き", "हिन्दी भाषा"
    )
    for query, nodes in {
        "cafe": [1],
        "STRASSE": [1],
        "東京": [2],
        "タワー": [2],
        "京東": [],
        "猫": [3],
        "हिन्दी": [4],
    }.items():
        assert await find_nodes(user, query, every_word=True) == nodes, query


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "\"'`;--/*",
        "() {} [] * ^ : + - & | ! <->",
        "\0",
        "😀 🎉",
        "\ud800",
        "_ __",
    ],
)
async def test_a_query_without_words_finds_nothing(user: UserStore, query: str) -> None:
    await write_texts(user, f"a text with {query.encode('utf-8', 'replace').decode()} in it")
    assert await user.search.find(query) == []
    assert await user.search.find(query, every_word=True) == []


@pytest.mark.parametrize(
    "query",
    [
        'needle" OR "1"="1',
        "needle AND (NOT NEAR(",
        "needle* ^needle terms:needle {1}:needle",
        "needle'; DROP TABLE search_texts; --",
        "needle & | ! <-> :*",
        "nee\0dle needle",
        "needle 😀\ud800",
        "%needle_ \\needle\\ $1 :user_id ?",
    ],
)
async def test_any_text_is_a_safe_query(user: UserStore, query: str) -> None:
    await write_texts(user, "a needle in a haystack", "only hay")
    assert 1 in await find_nodes(user, query)


async def test_very_long_queries_and_texts(user: UserStore) -> None:
    lexicon = " ".join(f"word{number}" for number in range(120_000))
    assert len(lexicon) > 1_000_000
    await write_texts(user, lexicon, "word3 and " + "x" * 50_000)
    assert await find_nodes(user, lexicon) == [1, 2]
    assert await find_nodes(user, "word3") == [1, 2]
    # Only the first 100,000 characters are indexed.
    assert await find_nodes(user, "word5000") == [1]
    assert await find_nodes(user, "word119999") == []


async def test_results_and_exchanges_are_found_once_committed(user: UserStore) -> None:
    lease = await begin(user)
    opened = NewNode(
        2, 1, "exchange", "assistant", b"calls", 10, 0, "open", ("grep", "read"), "looking around"
    )
    await user.runs.commit(lease, Commit(nodes=(opened,)))
    results = tuple(
        CallDone(2, index, "ok", b"result", 1, text=text)
        for index, text in enumerate(["a pelican", "two herons"])
    )
    await user.runs.commit(lease, Commit(done=results, close=(2,), head=2))
    hits = await user.search.find("pelican herons looking")
    assert {(hit.node_id, hit.call) for hit in hits} == {(2, None), (2, 0), (2, 1)}
    # A refused commit is not indexed.
    with pytest.raises(Conflict):
        await user.runs.commit(lease, Commit(nodes=(text_message(9, "an ostrich"),)))
    assert await user.search.find("ostrich") == []


async def test_a_search_can_be_limited_and_orders_equal_hits(user: UserStore) -> None:
    await write_texts(user, "same words", "same words", run="r1", thread="b")
    await write_texts(user, "same words", run="r2", thread="a")
    hits = await user.search.find("same words")
    assert [(hit.thread_id, hit.node_id) for hit in hits] == [("a", 1), ("b", 1), ("b", 2)]
    assert len({hit.score for hit in hits}) == 1
    hits = await user.search.find("words", thread_id="b", limit=1)
    assert [(hit.thread_id, hit.node_id) for hit in hits] == [("b", 1)]
    assert await user.search.find("words", limit=0) == []
    with pytest.raises(NotFound):
        await user.search.find("words", thread_id="c")


async def test_a_thread_is_searched_whole_however_many_better_hits_others_have(
    user: UserStore,
) -> None:
    better = [f"heron {'stork ' * number}" for number in range(30)]
    await write_texts(user, *better, run="r1", thread="a")
    await write_texts(user, "heron " + "gull " * 99, "heron " + "gull " * 50, run="r2", thread="b")

    hits = await user.search.find("heron", thread_id="b", limit=2)

    assert [(hit.thread_id, hit.node_id) for hit in hits] == [("b", 2), ("b", 1)]
    assert await user.search.find("heron", thread_id="b", limit=1) == hits[:1]


async def test_other_owners_texts_are_not_found_and_have_no_weight(
    user: UserStore, stranger: UserStore
) -> None:
    await write_texts(user, "a lighthouse", "a harbour", "a lighthouse in a harbour")
    before = await user.search.find("lighthouse harbour")
    await write_texts(stranger, *["the lighthouse keeper"] * 50, run="r9", thread="t9")
    assert await user.search.find("lighthouse harbour") == before
    assert await stranger.search.find("harbour") == []
    assert {hit.thread_id for hit in await stranger.search.find("lighthouse")} == {"t9"}
    with pytest.raises(NotFound):
        await stranger.search.find("harbour", thread_id="t1")
    with pytest.raises(NotFound):
        await stranger.search.index("t1", [NodeText(1, None, "mine now")])


async def test_texts_of_the_log_are_indexed_once(user: UserStore) -> None:
    lease = await begin(user, nodes=(message(1, None),))
    await user.runs.commit(lease, Commit(nodes=(exchange(2, 1, "grep"),)))
    texts = [NodeText(1, None, "a heron"), NodeText(2, 0, "a pelican"), NodeText(2, None, "...")]
    await user.search.index("t1", texts)
    before = await user.search.find("heron pelican")
    assert {(hit.node_id, hit.call) for hit in before} == {(1, None), (2, 0)}
    await user.search.index("t1", [*texts, NodeText(1, None, "another text")])
    assert await user.search.find("heron pelican") == before
    assert await user.search.find("another") == []
    await user.search.index("t1", [])
    with pytest.raises(Conflict):
        await user.search.index("t1", [NodeText(3, None, "of no node")])
    with pytest.raises(NotFound):
        await user.search.index("t2", texts)


async def test_more_texts_than_one_batch_are_indexed(user: UserStore) -> None:
    nodes = tuple(message(seq, seq - 1 or None) for seq in range(1, 251))
    await begin(user, nodes=nodes)
    await user.search.index("t1", [NodeText(seq, None, f"number n{seq}") for seq in range(1, 251)])
    assert len(await user.search.find("number", limit=1000)) == 250
    assert await find_nodes(user, "n250") == [250]
