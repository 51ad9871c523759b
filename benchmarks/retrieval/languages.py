"""Full text in sixteen languages: the share of evidence found by questions in other words.

`--data DIR` names the folder that holds `languages/recall_*.jsonl`: 120 messages and 12 questions a
language, each question with the messages that answer it and with what mainly stands between its
words and theirs.  `own` is R@10 among the messages of the question's language, `pooled` among those
of all languages.  `terms` is how many terms the index has for each distinct word.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import anyio
import orjson

from agent_runtime_storage import (
    Commit,
    Finish,
    LeaseOwner,
    NewNode,
    NewRun,
    UserStore,
    open_store,
)
from agent_runtime_storage.search.tokenizer import owner_key, split_words, terms_of
from benchmarks.backends import empty_databases, parse_backends
from benchmarks.frame import Report, Target, at_least, data_folder

WANTED_MEAN, WANTED_EACH, WANTED_POOLED = 0.9, 0.8, 0.8
FIRST = 10
POOLED = "all languages"
_OWNER = LeaseOwner(host="here", boot="b", pid=1, started="s")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the ids of the messages that answer it, and its kind."""

    text: str
    evidence: frozenset[str]
    kind: str


@dataclass(frozen=True, slots=True)
class Part:
    """The messages of a language by their ids, and the questions about them."""

    language: str
    messages: Mapping[str, str]
    questions: tuple[Question, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--backends", type=parse_backends, default=("file", "postgres"))


def run(args: argparse.Namespace) -> Report:
    """Ask every question.  Blocks until it is done."""
    parts = list(read(data_folder(args)))
    rows: list[dict[str, Any]] = []
    targets: list[Target] = []
    for backend in args.backends:
        with empty_databases() as make:
            of_backend = anyio.run(measure, make(backend), parts)
        rows += [{"backend": backend, **row} for row in of_backend]
        targets += _targets(backend, of_backend)
    return Report("languages", rows, targets)


def read(folder: Path) -> Iterable[Part]:
    """Yield the languages in the data, by their codes."""
    for path in sorted((folder / "languages").glob("recall_*.jsonl")):
        lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
        messages = {line["id"]: line["text"] for line in lines if line["type"] == "message"}
        questions = tuple(
            Question(line["text"], frozenset(line["evidence"]), line["kind"])
            for line in lines
            if line["type"] == "question"
        )
        yield Part(path.stem.removeprefix("recall_"), messages, questions)


async def measure(url: str, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Write the messages into an empty database and ask the questions.

    Returns:
        The figures of each language, of all languages, and of each kind of question.
    """
    rows: list[dict[str, Any]] = []
    kinds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    store = await open_store(url, synchronous="normal")
    try:
        pooled = store.of(POOLED)
        for part in parts:
            await _write(store.of(part.language), part)
            await _write(pooled, part)
        for part in parts:
            found: list[tuple[float, float]] = []
            for question in part.questions:
                own = await _share(store.of(part.language), part, question)
                found.append((own, await _share(pooled, part, question)))
                kinds[question.kind].append(found[-1])
            rows.append(_row(part.language, found) | {"terms": await _terms(part)})
    finally:
        await store.close()
    return [*rows, *(_row(kind, found) for kind, found in sorted(kinds.items()))]


def _row(name: str, found: Sequence[tuple[float, float]]) -> dict[str, Any]:
    own, pooled = (mean(figures) for figures in zip(*found, strict=True))
    return {"of": name, "questions": len(found), "own": own, "pooled": pooled}


async def _write(user: UserStore, part: Part) -> None:
    await user.threads.ensure(part.language)
    nodes = tuple(
        NewNode(seq, seq - 1 or None, "message", "user", b"{}", 1, 0, text=text)
        for seq, text in enumerate(part.messages.values(), 1)
    )
    run = NewRun(f"run-{part.language}", part.language, "a", 1, {}, _OWNER, 600.0, None, 0, nodes)
    lease, _ = await user.runs.begin(run)
    await user.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))


async def _share(user: UserStore, part: Part, question: Question) -> float:
    ids = list(part.messages)
    hits = await user.search.find(question.text, limit=FIRST)
    found = {ids[hit.node_id - 1] for hit in hits if hit.thread_id == part.language}
    return len(found & question.evidence) / len(question.evidence)


async def _terms(part: Part) -> float:
    key = owner_key(part.language)
    words = terms = 0
    for text in part.messages.values():
        words += len({word for one in split_words(text) for word in one.plain + one.wholes})
        terms += len((await terms_of(text, key)).times)
    return terms / words


def _targets(backend: str, rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    languages = [row for row in rows if "terms" in row]
    own = {row["of"]: row["own"] for row in languages}
    return [
        at_least(f"mean R@10 on {backend}", mean(own.values()), WANTED_MEAN),
        at_least(
            f"R@10 of {min(own, key=own.__getitem__)} on {backend}", min(own.values()), WANTED_EACH
        ),
        at_least(f"pooled on {backend}", mean(row["pooled"] for row in languages), WANTED_POOLED),
    ]
