"""Retrieval: the evidence found by full text, by vectors and by both, and the search times.

`--data DIR` names the recorded conversations (`locomo`, `longmemeval`, `beam`) with questions and
the messages that answer them; each belongs to its own owner, and everything goes through the store.
The embedder is the real MiniLM (see `benchmarks.retrieval.minilm`).  R@5 and R@10 are the shares of
a question's evidence among the first five and ten messages found, `range` is the share within two
before and one after these ten, and `tokens` is the size of that range.  `rank fusion` adds
reciprocal ranks (k = 60) of full text and vectors; `hybrid` is the product's.

`--latency N` instead times searches of a user with N messages.  `--at URL` names a database to keep
for it: the first run writes the messages, later ones use them.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Protocol
from urllib.parse import urlsplit

import anyio

from agent_runtime.memory.recall.search import CANDIDATES, retrieve
from agent_runtime_storage import UserStore, open_store
from benchmarks.backends import empty_databases, parse_backends
from benchmarks.frame import Report, Target, at_least, at_most, data_folder
from benchmarks.memory import beam, locomo, longmemeval
from benchmarks.memory.data import Conversation
from benchmarks.retrieval.latency import QUERIES, measure_latency
from benchmarks.retrieval.minilm import MiniLM
from benchmarks.retrieval.threads import THREAD, Asked, Embed, Talk, embed, talk_of, write

BEFORE, AFTER = 2, 1
FIRST = 10
SYSTEMS = ("full text", "vectors", "rank fusion", "hybrid")
WANTED: Mapping[str, Mapping[str, float]] = {
    "locomo": {"R@10": 0.78, "range": 0.87},
    "longmemeval-planted": {"R@5": 0.87, "R@10": 0.94},
    "beam-100k": {"R@10": 0.65},
    "beam-1m": {"R@10": 0.50},
}
_RANKS = 60
_SAME = 0.02

_SETS: Mapping[str, Callable[[Path], list[Conversation]]] = {
    "locomo": locomo.read,
    "longmemeval-planted": lambda folder: longmemeval.planted(longmemeval.read(folder), folder),
    "longmemeval-haystacks": longmemeval.read,
    "beam-100k": lambda folder: beam.read(folder, "100K"),
    "beam-1m": lambda folder: beam.read(folder, "1M"),
}


class Embedder(Protocol):
    """A function that embeds texts, with its name; it may block."""

    @property
    def name(self) -> str: ...

    @property
    def embed(self) -> Embed: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--backends", type=parse_backends, default=("file", "postgres"))
    parser.add_argument("--sets", default=",".join(_SETS), help=f"of {', '.join(_SETS)}")
    parser.add_argument("--limit", type=int, help="conversations of each set")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="keeps vectors between runs")
    parser.add_argument("--latency", type=int, metavar="N", help="time searches among N messages")
    parser.add_argument("--at", action="append", metavar="URL", help="a database for --latency")
    parser.add_argument("--queries", type=int, default=QUERIES, help="of --latency, for each mode")


def run(args: argparse.Namespace) -> Report:
    """Ask every question of every system.  Blocks until it is done."""
    if args.latency:
        return Report("retrieval", _latencies(args))
    folder = data_folder(args)
    model = MiniLM(args.cache)
    rows: list[dict[str, Any]] = []
    with empty_databases() as make:
        for name in args.sets.split(","):
            talks = [talk_of(conversation) for conversation in _SETS[name](folder)[: args.limit]]
            for backend in args.backends:
                print(f"{name} on {backend}: {len(talks)} conversations", file=sys.stderr)
                figures = anyio.run(measure, make(backend), talks, model)
                rows += [{"set": name, "backend": backend, **row} for row in figures]
    return Report("retrieval", rows, _targets(rows))


def _latencies(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.at:
        urls: list[str] = args.at
        kept = {urlsplit(url).scheme: url for url in urls}
        return anyio.run(measure_latency, kept, args.latency, args.queries)
    rows: list[dict[str, Any]] = []
    for backend in args.backends:
        # One at a time: an idle server with its data would take memory from the next.
        with empty_databases() as make:
            databases = {backend: make(backend)}
            rows += anyio.run(measure_latency, databases, args.latency, args.queries)
    return rows


async def measure(url: str, talks: Sequence[Talk], model: Embedder) -> list[dict[str, Any]]:
    """Write talks into an empty database, each for its own owner, and ask their questions.

    Returns:
        The mean figures of each system.
    """
    scores: dict[str, list[Mapping[str, float]]] = {system: [] for system in SYSTEMS}
    store = await open_store(url, synchronous="normal")
    try:
        for talk in talks:
            scratch, user = store.of(f"{talk.name} as it was written"), store.of(talk.name)
            await write(talk, scratch, user)
            await embed(user, model.name, model.embed)
            vectors = model.embed([question.text for question in talk.questions])
            for asked, vector in zip(talk.questions, vectors, strict=True):
                for system, nodes in (await _answers(user, model.name, asked, vector)).items():
                    scores[system].append(score(talk, asked, nodes))
    finally:
        await store.close()
    return [
        {"system": system, "questions": len(of_system), **_means(of_system)}
        for system, of_system in scores.items()
    ]


async def _answers(
    user: UserStore, model: str, question: Asked, vector: Sequence[float]
) -> dict[str, list[int]]:
    async def ask(mode: Any, limit: int) -> list[int]:
        matches = await retrieve(
            user,
            question.text,
            vector=vector,
            model=model,
            mode=mode,
            thread_id=THREAD,
            limit=limit,
        )
        return [hit.node for hit in matches]

    text, vectors = await ask("text", CANDIDATES), await ask("vectors", CANDIDATES)
    return {
        "full text": text,
        "vectors": vectors,
        "rank fusion": _by_ranks(text, vectors),
        "hybrid": await ask("hybrid", FIRST),
    }


def _by_ranks(*lists: Sequence[int]) -> list[int]:
    scores: dict[int, float] = defaultdict(float)
    for nodes in lists:
        for rank, node in enumerate(nodes, 1):
            scores[node] += 1 / (_RANKS + rank)
    return sorted(scores, key=lambda node: (-scores[node], node))


def score(talk: Talk, question: Asked, nodes: Sequence[int]) -> dict[str, float]:
    """Return the figures of one question for the nodes found, best first."""
    best = list(nodes[:FIRST])
    wanted = question.evidence
    near = {node for centre in best for node in range(centre - BEFORE, centre + AFTER + 1)}
    near = {node for node in near if 1 <= node <= len(talk.turns)}
    gain = sum(1 / math.log2(rank + 1) for rank, node in enumerate(best, 1) if node in wanted)
    most = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(wanted), FIRST) + 1))
    return {
        "R@5": len(wanted & set(best[:5])) / len(wanted),
        "R@10": len(wanted & set(best)) / len(wanted),
        "nDCG@10": gain / most,
        "range": len(wanted & near) / len(wanted),
        "tokens": float(sum(talk.tokens[node - 1] for node in near)),
    }


def _means(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = scores[0] if scores else ()
    return {name: mean(figures[name] for figures in scores) for name in names}


def _targets(rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    targets: list[Target] = []
    by_set: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        by_set[row["set"], row["backend"]][row["system"]] = row
    for (name, backend), systems in by_set.items():
        ours = systems["hybrid"]
        for figure in ("R@5", "R@10", "nDCG@10", "range"):
            others = max(systems[other][figure] for other in SYSTEMS[:-1])
            wanted = max(others, WANTED.get(name, {}).get(figure, 0.0))
            targets.append(at_least(f"{figure} of {name} on {backend}", ours[figure], wanted))
        first = next(found for (other, _), found in by_set.items() if other == name)
        if first is not systems:
            apart = max(
                abs(first["hybrid"][figure] - ours[figure]) for figure in ("R@5", "R@10", "range")
            )
            targets.append(at_most(f"{name}: {backend} apart from the first", apart, _SAME))
    return targets
