"""The contract of vectors: writing, similarity search and deletion; models are never mixed."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Sequence

import anyio
import pytest

from agent_runtime_storage import (
    DimensionMismatch,
    EmbedderRow,
    InvalidVector,
    NotFound,
    StoreError,
    UserStore,
    VectorHit,
    VectorItem,
    VectorKey,
)

MODEL = "embedder/small"


def item(
    source_id: int,
    values: Sequence[float],
    *,
    thread: str = "t1",
    source: str = "message",
    part: int = 0,
) -> VectorItem:
    return VectorItem(thread, source, source_id, values, part)


def ids(hits: Sequence[VectorHit]) -> list[int]:
    return [hit.source_id for hit in hits]


@pytest.fixture
async def user(user: UserStore) -> UserStore:
    """An owner with two threads."""
    await user.threads.ensure("t1")
    await user.threads.ensure("t2")
    return user


async def test_hits_are_ordered_by_cosine_similarity(user: UserStore) -> None:
    await user.vectors.upsert(
        MODEL, [item(1, [1, 0, 0]), item(2, [-2, 0, 0]), item(3, [3, 3, 0]), item(4, [0, 0, 5])]
    )

    hits = await user.vectors.nearest(MODEL, [1, 0, 0])

    assert ids(hits) == [1, 3, 4, 2]
    assert [hit.similarity for hit in hits] == pytest.approx([1, math.sqrt(0.5), 0, -1], abs=1e-6)
    assert all(-1 <= hit.similarity <= 1 for hit in hits)
    assert hits[0] == VectorHit("t1", "message", 1, 0, hits[0].similarity)


async def test_random_vectors_are_ranked_by_cosine(user: UserStore) -> None:
    draw = random.Random(7)
    vectors = [[draw.gauss(0, 1) for _ in range(40)] for _ in range(300)]
    await user.vectors.upsert(MODEL, [item(number, v) for number, v in enumerate(vectors)])
    query = [draw.gauss(0, 1) for _ in range(40)]

    def cosine(vector: Sequence[float]) -> float:
        dot = sum(a * b for a, b in zip(vector, query, strict=True))
        return dot / math.hypot(*vector) / math.hypot(*query)

    hits = await user.vectors.nearest(MODEL, query, limit=25)

    expected = sorted(range(300), key=lambda number: -cosine(vectors[number]))[:25]
    assert ids(hits) == expected
    assert [hit.similarity for hit in hits] == pytest.approx(
        [cosine(vectors[number]) for number in expected], abs=1e-5
    )


async def test_equal_hits_are_ordered_by_their_keys(user: UserStore) -> None:
    same = [0.5, 0.5]
    await user.vectors.upsert(
        MODEL,
        [
            item(2, same),
            item(1, same, thread="t2"),
            item(1, same, part=1),
            item(1, same),
            item(10, same, source="Z"),
        ],
    )

    hits = await user.vectors.nearest(MODEL, same)

    assert [(hit.thread_id, hit.source, hit.source_id, hit.part) for hit in hits] == [
        ("t1", "Z", 10, 0),
        ("t1", "message", 1, 0),
        ("t1", "message", 1, 1),
        ("t1", "message", 2, 0),
        ("t2", "message", 1, 0),
    ]


async def test_a_search_can_be_limited_by_number_thread_and_sources(user: UserStore) -> None:
    await user.vectors.upsert(
        MODEL,
        [
            item(1, [1, 0]),
            item(2, [1, 0.1], source="observation"),
            item(3, [1, 0.2], thread="t2"),
            item(4, [1, 0.3], thread="t2", source="it's"),
        ],
    )

    assert ids(await user.vectors.nearest(MODEL, [1, 0], limit=3)) == [1, 2, 3]
    assert await user.vectors.nearest(MODEL, [1, 0], limit=0) == []
    assert ids(await user.vectors.nearest(MODEL, [1, 0], thread_id="t2")) == [3, 4]
    assert ids(await user.vectors.nearest(MODEL, [1, 0], sources=["it's", "observation"])) == [2, 4]
    assert ids(await user.vectors.nearest(MODEL, [1, 0], thread_id="t2", sources=["it's"])) == [4]
    assert await user.vectors.nearest(MODEL, [1, 0], sources=[]) == []
    with pytest.raises(NotFound, match="t9"):
        await user.vectors.nearest(MODEL, [1, 0], thread_id="t9")


async def test_a_vector_replaces_the_one_with_its_key(user: UserStore) -> None:
    await user.vectors.upsert(MODEL, [item(1, [1, 0]), item(1, [0, 1], part=1)])

    await user.vectors.upsert(MODEL, [item(1, [5, 5]), item(1, [-1, 0])])

    hits = await user.vectors.nearest(MODEL, [1, 0])
    assert [(hit.part, round(hit.similarity, 6)) for hit in hits] == [(1, 0), (0, -1)]
    assert await user.vectors.models() == [EmbedderRow(MODEL, 2, 2)]


async def test_models_are_separate(user: UserStore) -> None:
    await user.vectors.upsert("a", [item(1, [1, 0]), item(2, [0, 1])])
    await user.vectors.upsert("b", [item(1, [0, 0, 1])])

    assert ids(await user.vectors.nearest("a", [0, 1])) == [2, 1]
    assert ids(await user.vectors.nearest("b", [0, 0, 1])) == [1]
    assert await user.vectors.models() == [EmbedderRow("a", 2, 2), EmbedderRow("b", 3, 1)]


async def test_a_model_without_vectors_has_no_hits(user: UserStore) -> None:
    assert await user.vectors.nearest("unheard of", [1, 2, 3]) == []
    assert await user.vectors.models() == []


async def test_another_dimension_is_refused_without_a_write(user: UserStore) -> None:
    await user.vectors.upsert(MODEL, [item(1, [1, 0])])

    with pytest.raises(DimensionMismatch) as raised:
        await user.vectors.upsert(MODEL, [item(2, [1, 0, 0])])
    assert (raised.value.known, raised.value.given) == (2, 3)
    assert MODEL in str(raised.value)
    assert f"{MODEL}@3" in raised.value.cure
    with pytest.raises(DimensionMismatch, match="the query"):
        await user.vectors.nearest(MODEL, [1, 0, 0])
    with pytest.raises(DimensionMismatch, match="message 4"):
        await user.vectors.upsert(MODEL, [item(3, [1, 0]), item(4, [1, 0, 0])])

    assert ids(await user.vectors.nearest(MODEL, [1, 0])) == [1]


async def test_the_first_of_concurrent_writers_fixes_the_dimension(user: UserStore) -> None:
    written: list[int] = []

    async def write(number: int) -> None:
        size = 2 + number % 2
        with contextlib.suppress(DimensionMismatch):
            await user.vectors.upsert(
                MODEL, [item(number, [1.0] * size, thread=f"t{1 + size % 2}")]
            )
            written.append(size)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(write, number)

    [size] = set(written)
    assert await user.vectors.models() == [EmbedderRow(MODEL, size, len(written))]
    assert len(await user.vectors.nearest(MODEL, [1.0] * size)) == len(written)


async def test_a_model_without_vectors_can_change_its_dimension(user: UserStore) -> None:
    await user.vectors.upsert(MODEL, [item(1, [1, 0]), item(1, [1, 0], thread="t2")])
    await user.vectors.delete("t1")
    with pytest.raises(DimensionMismatch):
        await user.vectors.upsert(MODEL, [item(1, [1, 0, 0])])
    await user.vectors.delete("t2")

    await user.vectors.upsert(MODEL, [item(1, [1, 0, 0])])

    assert await user.vectors.models() == [EmbedderRow(MODEL, 3, 1)]
    assert ids(await user.vectors.nearest(MODEL, [1, 0, 0])) == [1]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.0, 0.0],
        [1e-60, 0.0],
        [1e-30, 0.0],
        [1e30, 0.0],
        [1e300, 0.0],
        [math.nan, 1.0],
        [math.inf, 1.0],
        [1.0] * 16_001,
        ["one"],
    ],
    ids=lambda values: f"{len(values)}-{values[0] if values else 'none'}",
)
async def test_invalid_vectors_are_refused(user: UserStore, values: list[float]) -> None:
    with pytest.raises(InvalidVector, match="message 2") as raised:
        await user.vectors.upsert(MODEL, [item(1, [1.0, 0.0]), item(2, values)])
    assert raised.value.cure
    with pytest.raises(InvalidVector, match="the query"):
        await user.vectors.nearest(MODEL, values)

    assert await user.vectors.models() == []


@pytest.mark.parametrize("name", ["", "nul\0", "half \ud83d", "x" * 513], ids=repr)
async def test_an_invalid_name_is_refused(user: UserStore, name: str) -> None:
    with pytest.raises(StoreError, match="embedder"):
        await user.vectors.upsert(name, [item(1, [1.0])])
    with pytest.raises(StoreError, match="embedder"):
        await user.vectors.nearest(name, [1.0])
    with pytest.raises(StoreError, match="source"):
        await user.vectors.upsert(MODEL, [item(1, [1.0], source=name)])

    assert await user.vectors.models() == []


async def test_vectors_of_any_supported_length_are_stored(user: UserStore) -> None:
    draw = random.Random(3)
    for size in (1, 2000, 2001, 4000, 4001, 16_000):
        near = [draw.gauss(0, 1) for _ in range(size)]
        model = f"m@{size}"
        await user.vectors.upsert(model, [item(1, near), item(2, [-x for x in near])])

        [hit, far] = await user.vectors.nearest(model, near)

        assert (hit.source_id, far.source_id) == (1, 2)
        assert (hit.similarity, far.similarity) == pytest.approx((1, -1), abs=1e-5)


async def test_no_vector_is_written_for_an_unknown_thread(user: UserStore) -> None:
    with pytest.raises(NotFound, match="t9"):
        await user.vectors.upsert(MODEL, [item(1, [1, 0]), item(1, [1, 0], thread="t9")])

    assert await user.vectors.models() == []
    await user.vectors.upsert(MODEL, [])
    assert await user.vectors.models() == []


async def test_a_deletion_removes_and_counts_matching_vectors(user: UserStore) -> None:
    for model in ("a", "b"):
        await user.vectors.upsert(
            model,
            [
                item(1, [1, 0]),
                item(1, [1, 0], part=1),
                item(2, [1, 0]),
                item(1, [1, 0], source="observation"),
                item(1, [1, 0], thread="t2"),
            ],
        )

    assert await user.vectors.delete("t1", model="a", source="message", source_ids=[1, 7]) == 2
    assert await user.vectors.delete("t1", source_ids=[]) == 0
    assert await user.vectors.delete("t1", source="observation") == 2
    assert await user.vectors.models() == [EmbedderRow("a", 2, 2), EmbedderRow("b", 2, 4)]
    assert await user.vectors.delete("t1") == 4
    assert await user.vectors.delete("t1") == 0
    assert await user.vectors.models() == [EmbedderRow("a", 2, 1), EmbedderRow("b", 2, 1)]
    with pytest.raises(NotFound, match="t9"):
        await user.vectors.delete("t9")


async def test_sources_without_a_models_vectors_are_listed(user: UserStore) -> None:
    await user.vectors.upsert("old", [item(2, [1, 0]), item(1, [1, 0]), item(1, [0, 1], part=1)])
    await user.vectors.upsert("older", [item(1, [1]), item(5, [1], thread="t2")])
    await user.vectors.upsert("new", [item(1, [1, 0, 0])])

    missing = await user.vectors.missing("new")

    assert missing == [
        VectorKey("t1", "message", 1, 1),
        VectorKey("t1", "message", 2, 0),
        VectorKey("t2", "message", 5, 0),
    ]
    assert await user.vectors.missing("new", limit=2) == missing[:2]
    await user.vectors.upsert(
        "new", [VectorItem(k.thread_id, k.source, k.source_id, [1, 1, 1], k.part) for k in missing]
    )
    assert await user.vectors.missing("new") == []


async def test_a_threads_vectors_are_paged_and_exact(user: UserStore) -> None:
    draw = random.Random(5)
    items = [
        item(number // 2, [draw.gauss(0, 1) for _ in range(8)], part=number % 2)
        for number in range(6)
    ]
    await user.vectors.upsert("a", items)
    await user.vectors.upsert("b", items[:1])
    await user.vectors.upsert("b", [item(1, [1.0] * 8, thread="t2")])

    pages: list[tuple[str, VectorItem]] = []
    while page := await user.vectors.of_thread("t1", after=pages[-1] if pages else None, limit=3):
        pages += page

    assert [(model, vector.source_id, vector.part) for model, vector in pages] == [
        *(("a", number // 2, number % 2) for number in range(6)),
        ("b", 0, 0),
    ]
    for model, vector in pages:
        await user.vectors.upsert(f"copy of {model}", [vector])
    copied = await user.vectors.of_thread("t1")
    by_model = [vector for model, vector in copied if model == "copy of a"]
    assert by_model == [vector for model, vector in pages if model == "a"]
    assert pages[0][1].values == pytest.approx(items[0].values, rel=1e-7)


async def test_a_vector_is_found_by_the_digest_of_its_text(user: UserStore) -> None:
    vectors = [VectorItem("t1", "message", 1, [1, 0.1], digest="a" * 32)]
    vectors += [VectorItem("t2", "message", 1, [0, 1], digest="b" * 32), item(2, [1, 1])]
    await user.vectors.upsert(MODEL, vectors)
    await user.vectors.upsert("another", [VectorItem("t1", "message", 1, [1], digest="c" * 32)])

    by_digest = await user.vectors.by_digest(MODEL, ["a" * 32, "b" * 32, "c" * 32, ""])

    assert by_digest == {"a" * 32: pytest.approx([1, 0.1]), "b" * 32: (0, 1)}
    # A vector of a changed text has a new digest.
    await user.vectors.upsert(MODEL, [VectorItem("t1", "message", 1, [1, 1], digest="d" * 32)])
    assert list(await user.vectors.by_digest(MODEL, ["a" * 32, "d" * 32])) == ["d" * 32]
    assert not await user.vectors.by_digest(MODEL, [])


async def test_embedded_ids_are_the_sources_with_vectors(user: UserStore) -> None:
    await user.vectors.upsert(MODEL, [item(1, [1, 0]), item(3, [1, 0])])
    await user.vectors.upsert(MODEL, [VectorItem("t1", "message", 5, [1, 0], part=1)])
    await user.vectors.upsert(MODEL, [item(2, [1, 0], source="result")])
    await user.vectors.upsert("another", [item(6, [1])])

    assert await user.vectors.embedded_ids("t1", MODEL, "message", [6, 5, 3, 2, 1]) == [1, 3]
    assert await user.vectors.embedded_ids("t2", MODEL, "message", [1, 3]) == []


async def test_another_owners_vectors_are_neither_found_nor_changed(
    user: UserStore, stranger: UserStore
) -> None:
    await stranger.threads.ensure("t1")
    await user.vectors.upsert(MODEL, [item(1, [1, 0])])
    await stranger.vectors.upsert(MODEL, [item(9, [1, 0, 0])])

    assert ids(await user.vectors.nearest(MODEL, [1, 0])) == [1]
    assert ids(await stranger.vectors.nearest(MODEL, [1, 0, 0], thread_id="t1")) == [9]
    assert await stranger.vectors.models() == [EmbedderRow(MODEL, 3, 1)]
    assert await stranger.vectors.missing("another") == [VectorKey("t1", "message", 9, 0)]
    with pytest.raises(NotFound):
        await stranger.vectors.nearest(MODEL, [1, 0, 0], thread_id="t2")
    with pytest.raises(NotFound):
        await stranger.vectors.upsert(MODEL, [item(1, [1, 0, 0], thread="t2")])
    assert await stranger.vectors.of_thread("t2") == []
    assert await stranger.vectors.delete("t1") == 1

    assert ids(await user.vectors.nearest(MODEL, [1, 0])) == [1]
