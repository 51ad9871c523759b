"""Questions about an agent's work, answered from its memory: recall, cause, state, abstraction.

Recorded runs are replayed with the product's memory by rules.  A scripted reader then answers from
the whole history, from the last prompt (memory), and from the last prompt with `recall`.

All runs of both sets take some 20 minutes of processor time.  `--keep FILE` keeps the answers of
each run as it ends, and the same command continues there; `--limit N` asks about N runs of each
set that are spread over it, so those of a smaller limit are among them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import anyio
import orjson

from agent_runtime.log.branch import load_view
from agent_runtime.memory.recall.tool import recall
from agent_runtime.prompt.build import build_prompt, entry_of
from agent_runtime.prompt.view import Entry
from agent_runtime.tools.context import ToolContext
from agent_runtime_storage import UserStore
from benchmarks.frame import Report, Row, Target, at_least, data_folder
from benchmarks.memory.trace_questions import KINDS, Kind, TraceQuestion, flat, questions_of
from benchmarks.memory.trace_reader import Known, Recall, answer, is_right, read_prompt, recalled
from benchmarks.replay.recordings import Trace, read_traces
from benchmarks.replay.world import Policy, ReplayRuntime, live, settings_for

SOURCES = ("claude_code_traces", "swebench_mini_traces")
CONTEXTS = ("full", "memory", "memory+recall")
WANTED: dict[tuple[str, Kind], float] = {
    **{("full", kind): 1.0 for kind in ("recall", "cause", "state", "abstraction")},
    ("memory", "state"): 0.9,
    ("memory", "cause"): 0.6,
    **{("memory+recall", kind): 0.9 for kind in ("recall", "cause", "state", "abstraction")},
}
BY_RULES = Policy("memory by rules")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--source", choices=SOURCES, action="append", help="may be repeated")
    parser.add_argument("--every", type=int, default=10, metavar="N", help="each Nth trace only")
    parser.add_argument("--limit", type=int, metavar="N", help="N traces, spread over the set")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="keep answers, and continue there"
    )


@dataclass(slots=True)
class Score:
    """How many questions of a form were answered rightly, by context."""

    asked: int = 0
    right: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, other: Score) -> None:
        """Count another score's questions, too."""
        self.asked += other.asked
        for context, right in other.right.items():
            self.right[context] = self.right.get(context, 0) + right


def run(args: argparse.Namespace) -> Report:
    """Ask about what the options name; each tenth run takes a few minutes."""
    folder = data_folder(args)
    rows: list[Row] = []
    targets: list[Target] = []
    for source in args.source or SOURCES:
        name = source.removesuffix("_traces")
        traces = list(islice(enumerate(read_traces(folder, source)), 0, None, args.every))
        chosen = sorted(traces, key=lambda one: _turn(one[0]))[: args.limit]
        scores: dict[str, Score] = {}
        for place, trace in chosen:
            for form, score in _answers(trace, source, place, args.keep).items():
                scores.setdefault(form, Score()).add(score)
        rows.append({"source": name, "runs": len(chosen)})
        kinds: dict[Kind, Score] = {}
        for form, kind in KINDS.items():
            score, total = scores.get(form, Score()), kinds.setdefault(kind, Score())
            rows.append({"source": name, "kind": kind, "form": form, **_row(score)})
            total.asked += score.asked
            for context in CONTEXTS:
                total.right[context] = total.right.get(context, 0) + score.right.get(context, 0)
        rows += [
            {"source": name, "kind": kind, "form": "all", **_row(kinds[kind])} for kind in kinds
        ]
        targets += [
            at_least(f"{name}: {kind} by {context}", _share(kinds[kind], context), wanted)
            for (context, kind), wanted in WANTED.items()
            if kinds[kind].asked
        ]
    return Report("trace_qa", rows, targets)


def _turn(place: int) -> int:
    """Return a rank by which the first few of many places are spread over all."""
    return int(f"{place:08b}"[::-1], 2)


def _answers(trace: Trace, source: str, place: int, keep: Path | None) -> dict[str, Score]:
    """Return the scores of a run's questions by form, kept ones without asking again."""
    for line in keep.read_bytes().splitlines() if keep and keep.exists() else ():
        known = orjson.loads(line)
        if (known["source"], known["n"]) == (source, place):
            return {form: Score(asked, right) for form, (asked, right) in known["scores"].items()}
    scores: dict[str, Score] = {}
    anyio.run(_ask_about, trace, scores)
    if keep:
        plain = {form: (score.asked, score.right) for form, score in scores.items()}
        with keep.open("ab") as file:
            file.write(orjson.dumps({"source": source, "n": place, "scores": plain}) + b"\n")
    return scores


def _row(score: Score) -> Row:
    return {"asked": score.asked, **{context: _share(score, context) for context in CONTEXTS}}


def _share(score: Score, context: str) -> float:
    return round(score.right.get(context, 0) / max(1, score.asked), 3)


async def _ask_about(trace: Trace, scores: dict[str, Score]) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = f"file:{Path(folder) / 'runs.db'}"
        async with ReplayRuntime.open(settings_for(BY_RULES, url)) as runtime:
            await live(runtime, trace, BY_RULES, thread="asked")
            store = runtime.store_of()
            await _ask(store, "asked", scores)


async def _ask(store: UserStore, thread_id: str, scores: dict[str, Score]) -> None:
    head = (await store.threads.get(thread_id)).head
    if head is None:
        return
    view = await load_view(store, thread_id, head)
    history = [entry_of(node) for node in await store.log.branch(thread_id, head)]
    raw = [_as_shown(entry) for entry in view.entries]
    known = read_prompt(build_prompt(view).messages, raw)
    whole = Known(entries=history, text=_whole_text(history))
    asks = _recall_of(store, thread_id)
    for question in questions_of(history):
        score = scores.setdefault(question.form, Score())
        score.asked += 1
        for context, given in (
            ("full", answer(question, whole)),
            ("memory", answer(question, known)),
            ("memory+recall", await _with_recall(question, known, asks)),
        ):
            score.right[context] = score.right.get(context, 0) + is_right(question, given)


async def _with_recall(question: TraceQuestion, known: Known, asks: Recall) -> str:
    """Return the answer by memory and what `recall` opens together."""
    return answer(question, await recalled(question, known, asks)) or answer(question, known)


def _as_shown(entry: Entry) -> Entry:
    """Return a raw node with its results as the prompt shows them."""
    texts = [message.text for message in entry.prompt if message.role == "tool"]
    if len(texts) != len(entry.results):
        return entry
    results = zip(entry.results, texts, strict=True)
    return replace(entry, results=tuple(replace(one, text=text) for one, text in results))


def _whole_text(entries: Sequence[Entry]) -> str:
    return flat("\n".join(entry.message.text for entry in entries))


def _recall_of(store: UserStore, thread_id: str) -> Recall:
    async def ask(handle: str, query: str) -> str:
        context = ToolContext("", thread_id, "", "c00000000", 1, store, None, _no_agent)
        result = await recall.call({"handle": handle, "query": query, "limit": 20_000}, context)
        return result.text

    return ask


async def _no_agent(*_: object) -> None:
    raise NotImplementedError
