"""Full text search: the share of evidence found, the search times, and the cost per commit.

`--data DIR` names the recorded conversations (`locomo`, `beam`) with questions and the turns that
answer them.  Each conversation belongs to its own owner.  R@10 is the mean share of a question's
evidence among the ten best hits, for the store on each backend, for FTS5's own `bm25` and for
Postgres' own `ts_rank`; all of them match any of the question's words.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, cast

import anyio
import apsw
import orjson
import psycopg
import zstandard

from agent_runtime_storage import Commit, LeaseOwner, NewNode, NewRun, UserStore, open_store
from agent_runtime_storage.drivers.sqlite.connection import SqliteConnection
from agent_runtime_storage.urls import Backend
from benchmarks.backends import empty_databases, parse_backends
from benchmarks.frame import Report, Target, at_least, data_folder

LIMIT = 10
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?\n])\s+")
_OWNER = LeaseOwner(host="here", boot="b", pid=1, started="s")
_BATCH = 200
_OF_A_THREAD = 2_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--backends", type=parse_backends, default=("file", "postgres"))
    parser.add_argument("--texts", type=int, default=200_000, help="of the owner who is timed")
    parser.add_argument("--queries", type=int, default=100, help="that are timed")
    parser.add_argument("--commits", type=int, default=300, help="that are timed")


def run(args: argparse.Namespace) -> Report:
    """Measure results, times and the cost of a commit.  Blocks until it is done."""
    sets = {name: list(read(data_folder(args))) for name, read in _SETS.items()}
    rows: list[dict[str, Any]] = []
    for backend in args.backends:
        with empty_databases() as make:
            print(f"{backend}: finding", file=sys.stderr)
            for name, conversations in sets.items():
                recall = anyio.run(_find, make(backend), conversations)
                rows.append({"what": "R@10", "backend": backend, "set": name, "store": recall})
            if args.texts:
                print(f"{backend}: {args.texts} texts", file=sys.stderr)
                world = World(sets["beam-100k"], args.texts, args.queries)
                rows.append(anyio.run(_time, backend, make(backend), world))
            if backend == "file":
                print(f"{backend}: commits", file=sys.stderr)
                texts = World(sets["beam-100k"], args.commits, 0).texts
                rows += anyio.run(_commits, make(backend), make(backend), list(texts))
    for name, conversations in sets.items():
        own = {"FTS5 bm25": _plain_fts5(conversations)}
        if "postgres" in args.backends:
            with empty_databases() as make:
                own["ts_rank"] = _plain_ts_rank(make("postgres"), conversations)
        for row in rows:
            if row.get("set") == name:
                row.update(own)
    return Report("search", rows, _targets(rows))


def _targets(rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    return [
        at_least(f"R@10 of {row['set']} on {row['backend']}", row["store"], row["FTS5 bm25"])
        for row in rows
        if row["what"] == "R@10"
    ]


# Recorded conversations


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the numbers (from 1) of the turns that answer it."""

    text: str
    evidence: frozenset[int]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of a conversation, and the questions about it."""

    turns: tuple[str, ...]
    questions: tuple[Question, ...]


def _lines(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        for line in io.BufferedReader(
            cast("Any", zstandard.ZstdDecompressor().stream_reader(file))
        ):
            yield orjson.loads(line)


def _conversation(
    turns: Mapping[object, str], asked: Sequence[tuple[str, Sequence[object]]]
) -> Conversation:
    numbers = {key: number for number, key in enumerate(turns, 1)}
    questions = [
        Question(text, frozenset(numbers[turn] for turn in evidence if turn in numbers))
        for text, evidence in asked
    ]
    return Conversation(
        tuple(turns.values()), tuple(question for question in questions if question.evidence)
    )


def _read_locomo(folder: Path) -> Iterator[Conversation]:
    for raw in _lines(folder / "locomo" / "locomo.jsonl.zst"):
        turns: dict[object, str] = {
            turn["dia_id"]: f"{turn['speaker']}: {turn['text']}"
            for session in raw["conversation"].values()
            if isinstance(session, list)
            for turn in cast("list[dict[str, str]]", session)
        }
        yield _conversation(turns, [(one["question"], one["evidence"]) for one in raw["qa"]])


def _read_beam(folder: Path) -> Iterator[Conversation]:
    for raw in _lines(folder / "beam" / "beam_100k.jsonl.zst"):
        turns: dict[object, str] = {
            message["id"]: message["content"] for message in raw["messages"]
        }
        questions = [
            (question["question"], question["source_chat_ids"]) for question in raw["questions"]
        ]
        yield _conversation(turns, questions)


_SETS = {"locomo": _read_locomo, "beam-100k": _read_beam}


class World:
    """Many texts made of recorded sentences, and questions about them."""

    def __init__(self, conversations: Sequence[Conversation], count: int, queries: int) -> None:
        self._draw = random.Random(count)
        self._sentences = [
            part
            for conversation in conversations
            for turn in conversation.turns
            for part in _SENTENCE.split(turn)
        ]
        texts = [
            question.text for conversation in conversations for question in conversation.questions
        ]
        self.queries = self._draw.sample(texts, min(queries, len(texts)))
        self.count = count

    @property
    def texts(self) -> Iterator[str]:
        """Each text, of one to twelve sentences."""
        for _ in range(self.count):
            yield " ".join(self._draw.choices(self._sentences, k=self._draw.randint(1, 12)))


# The store


async def _begin(user: UserStore, thread_id: str, nodes: Sequence[NewNode]) -> Any:
    await user.threads.ensure(thread_id)
    run = NewRun(
        id=f"{user.user_id} {thread_id}",
        thread_id=thread_id,
        agent="a",
        max_steps=1,
        spec={},
        owner=_OWNER,
        lease_seconds=1e6,
        expect_head=None,
        expect_seq=0,
        nodes=tuple(nodes),
    )
    lease, _ = await user.runs.begin(run)
    return lease


def _nodes(texts: Sequence[str], first: int = 1) -> list[NewNode]:
    return [
        NewNode(seq, seq - 1 or None, "message", "user", b"", 1, 0, text=text)
        for seq, text in enumerate(texts, first)
    ]


async def _find(url: str, conversations: Sequence[Conversation]) -> float:
    store = await open_store(url, synchronous="normal")
    shares: list[float] = []
    for number, one in enumerate(conversations):
        user = store.of(f"owner {number}")
        await _begin(user, "t", _nodes(one.turns))
        for question in one.questions:
            hits = await user.search.find(question.text, limit=LIMIT)
            shares.append(_share(question, [hit.node_id for hit in hits]))
    await store.close()
    return mean(shares)


def _share(question: Question, found: Sequence[int]) -> float:
    return len(question.evidence & set(found)) / len(question.evidence)


async def _time(backend: Backend, url: str, world: World) -> dict[str, Any]:
    store = await open_store(url, synchronous="normal")
    user = store.of("ann")
    texts = world.texts
    for number in range(0, world.count, _OF_A_THREAD):
        left = min(_OF_A_THREAD, world.count - number)
        lease = await _begin(
            user, f"t{number}", _nodes([next(texts) for _ in range(min(_BATCH, left))])
        )
        for first in range(_BATCH, left, _BATCH):
            nodes = _nodes([next(texts) for _ in range(min(_BATCH, left - first))], first + 1)
            await user.runs.commit(lease, Commit(nodes=tuple(nodes), head=nodes[-1].seq))
    if backend == "postgres":
        # Autovacuum would do this within a minute.
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
    row: dict[str, Any] = {"what": f"search, {world.count:,} texts", "backend": backend}
    searches = {"any word": {}, "every word": {"every_word": True}, "a thread": {"thread_id": "t0"}}
    for name, how in searches.items():
        took: list[float] = []
        for query in world.queries:
            began = time.perf_counter()
            await user.search.find(query, **cast("Any", how))
            took.append((time.perf_counter() - began) * 1000)
        row |= {
            f"{name} p50 ms": median(took),
            f"{name} p95 ms": sorted(took)[len(took) * 95 // 100],
        }
    await store.close()
    return row


async def _commits(plain: str, indexed: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Time commits of one message, alternately without and with its text."""
    took: dict[bool, list[float]] = {False: [], True: []}
    stores = {
        with_text: await open_store(url) for with_text, url in ((False, plain), (True, indexed))
    }
    users = {with_text: store.of("ann") for with_text, store in stores.items()}
    leases = {with_text: await _begin(user, "t", _nodes([""])) for with_text, user in users.items()}
    for seq, text in enumerate(texts, 2):
        for with_text, user in users.items():
            node = NewNode(
                seq, seq - 1, "message", "user", text.encode(), 1, 0, text=text if with_text else ""
            )
            began = time.perf_counter()
            await user.runs.commit(leases[with_text], Commit(nodes=(node,), head=seq))
            took[with_text].append((time.perf_counter() - began) * 1000)
    for store in stores.values():
        await store.close()
    return [
        {
            "what": f"commit {'with' if with_text else 'without'} its text, "
            f"{mean(map(len, texts)):.0f} characters",
            "backend": "file",
            "p50 ms": median(took[with_text]),
        }
        for with_text in took
    ]


# The databases' own search


def _words(query: str) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(query.lower())))


def _plain_fts5(conversations: Sequence[Conversation]) -> float:
    shares: list[float] = []
    for conversation in conversations:
        connection = cast("SqliteConnection", apsw.Connection(":memory:"))
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (text)")
        for number, text in enumerate(conversation.turns, 1):
            row = {"number": number, "text": text}
            connection.execute("INSERT INTO texts (rowid, text) VALUES (:number, :text)", row)
        for question in conversation.questions:
            match = " OR ".join(f'"{word}"' for word in _words(question.text))
            rows = connection.execute(
                "SELECT rowid FROM texts WHERE texts MATCH :match ORDER BY rank LIMIT :limit",
                {"match": match, "limit": LIMIT},
            ).fetchall()
            shares.append(_share(question, [number for (number,) in rows]))
        connection.close()
    return mean(shares)


def _plain_ts_rank(url: str, conversations: Sequence[Conversation]) -> float:
    shares: list[float] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for conversation in conversations:
            connection.execute("DROP TABLE IF EXISTS texts")
            connection.execute("CREATE TABLE texts (id bigint, words tsvector)")
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO texts VALUES (%s, to_tsvector('simple', %s))",
                    list(enumerate(conversation.turns, 1)),
                )
            for question in conversation.questions:
                match = " | ".join(f"'{word}'" for word in _words(question.text))
                rows = connection.execute(
                    "SELECT id FROM texts WHERE words @@ %(match)s::tsquery"
                    " ORDER BY ts_rank(words, %(match)s::tsquery) DESC, id LIMIT %(limit)s",
                    {"match": match, "limit": LIMIT},
                ).fetchall()
                shares.append(_share(question, [cast("int", number) for (number,) in rows]))
    return mean(shares)
