"""Replay the edits and reads of recorded Claude Code runs through the workspace tools.

An edit is made in the file as far as the run's own reads, edits and writes show it, so one whose
old text was not among them cannot be replayed.  What other programs did to a file shows only in the
next read of it.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_runtime.errors import ToolError
from agent_runtime.models.tokens import count_text
from agent_runtime.tools.workspace.editing.replace import Replacement, apply_edits
from agent_runtime.tools.workspace.editing.text_file import TextFile
from agent_runtime.tools.workspace.reading.pages import LinePage, page_of, render
from benchmarks.frame import Report, Row, at_least, data_folder
from benchmarks.tools.recorded_files import FileCall, KnownFile, file_calls, shown_lines

APPLIED = 0.98
"""The least share of edits that succeeded there, and can be replayed, to be applied."""
NAMED = 0.9
"""The least share of missed texts, where the file is known, whose nearest place is named."""
USED_WITHIN = 60
"""Calls on files after a read within which an edit shows that a line of it was needed."""
NOTE_TOKENS = 50
"""The tokens of the line that says that a text is unchanged."""
_PLACE = re.compile(r"nearest text is at line|there already, at line")


@dataclass(slots=True)
class Reads:
    """Tokens of the recorded reads.

    Attributes:
        theirs: of the results as recorded.
        ours: of our first pages for the same calls.
        further: of the further pages that later edits needed; `pages` counts them.
        unchanged: saved by saying that a text still stands in the prompt.
    """

    calls: int = 0
    theirs: int = 0
    ours: int = 0
    further: int = 0
    pages: int = 0
    unchanged: int = 0
    repeats: int = 0


@dataclass(slots=True)
class Replayed:
    """The outcomes of the recorded edits."""

    counts: Counter[str] = field(default_factory=Counter[str])
    misses: Counter[str] = field(default_factory=Counter[str])
    failed: list[str] = field(default_factory=list[str])
    reads: Reads = field(default_factory=Reads)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--show", action="store_true", help="print each edit that did not fit")


def run(args: argparse.Namespace) -> Report:
    """Replay all runs; takes about a minute."""
    made = replay(data_folder(args))
    if args.show:
        print("\n\n".join(made.failed))
    return report(made)


def replay(folder: Path) -> Replayed:
    """Return the outcomes of the edits and reads of all runs."""
    made = Replayed()
    for calls in file_calls(folder):
        _replay_run(calls, made)
    return made


def _replay_run(calls: Sequence[FileCall | None], made: Replayed) -> None:
    known: dict[str, KnownFile] = {}
    shown: dict[str, set[tuple[int, str]]] = {}
    for place, call in enumerate(calls):
        if call is None:
            shown.clear()
            continue
        file = known.setdefault(call.path, KnownFile())
        if call.name == "Read" and not call.failure and (lines := shown_lines(call.result)):
            whole = not call.arguments.get("offset") and not call.arguments.get("limit")
            _read(call, lines, whole, calls[place + 1 :], shown, made.reads)
            file.see(lines, whole=whole and min(lines) == 1 and len(lines) < 2000)
        elif call.name == "Write" and not call.failure:
            file.write(str(call.arguments.get("content", "")))
            file.whole = True
        elif call.name in ("Edit", "MultiEdit"):
            _edit(call, file, made)


def _edit(call: FileCall, file: KnownFile, made: Replayed) -> None:
    if call.failure in ("refused", "other"):
        made.counts["refused or cancelled there"] += 1
        return
    edits = _edits(call)
    before = file.text
    error = ""
    try:
        after, _ = apply_edits(call.path, TextFile(before), edits)
    except ToolError as failed:
        after, error = None, failed.message
    if call.failure:
        _missed(call, file, error, made)
        return
    made.counts["succeeded there"] += 1
    replayable = all(one.old in before for one in edits[:1])
    if not replayable:
        made.counts["their text was never shown"] += 1
    elif after is None:
        made.counts["not applied"] += 1
        made.failed.append(f"{call.path}: {error}")
    else:
        made.counts["applied"] += 1
    if after is not None:
        file.write(after.text)
    if lines := shown_lines(call.result):
        file.see(lines, whole=False)


def _edits(call: FileCall) -> list[Replacement]:
    raw: Any = call.arguments.get("edits") or [call.arguments]
    return [
        Replacement.model_construct(
            old=str(one.get("old_string", "")),
            new=str(one.get("new_string", "")),
            all=bool(one.get("replace_all")),
        )
        for one in raw
    ]


def _missed(call: FileCall, file: KnownFile, error: str, made: Replayed) -> None:
    kind = call.failure
    if kind == "not found":
        how = "whole" if file.whole else "in part" if file.lines else "not"
        named = bool(_PLACE.search(error)) if error else True
        made.misses[f"{how} known, {'named' if named else 'not named'}"] += 1
        if not named:
            made.failed.append(f"{call.path} ({how} known): {error}\n{call.arguments}")
    else:
        outcome = "applied here" if not error else "refused here"
        made.counts[f"{kind} there: {outcome}"] += 1


def _read(
    call: FileCall,
    lines: dict[int, str],
    whole: bool,
    later: Sequence[FileCall | None],
    shown: dict[str, set[tuple[int, str]]],
    reads: Reads,
) -> None:
    """Count a read: theirs, our page, and the pages that later edits need."""
    reads.calls += 1
    reads.theirs += count_text(call.result)
    first = min(lines)
    # The lines before are there, so that the numbers are as long.
    text = "\n" * (first - 1) + "".join(f"{lines[number]}\n" for number in sorted(lines))
    limit = call.arguments.get("limit")
    page = _page(call.path, text, first, int(limit) if limit else None)
    tokens = count_text(render(call.path, len(text), page))
    known = shown.setdefault(call.path, set())
    if all(one in known for one in lines.items()):
        reads.repeats += 1
        reads.unchanged += max(0, tokens - NOTE_TOKENS)
    known.update((number, lines[number]) for number in range(page.first, page.last + 1)
                 if number in lines)  # fmt: skip
    reads.ours += tokens
    if whole and page.more:
        for start in _needed(call.path, lines, page, later):
            further = _page(call.path, text, start, None)
            known.update(
                (n, lines[n]) for n in range(further.first, further.last + 1) if n in lines
            )
            reads.pages += 1
            reads.further += count_text(render(call.path, len(text), further))


def _page(path: str, text: str, first: int, limit: int | None) -> LinePage:
    return page_of(path, TextFile(text), first, limit)


def _needed(
    path: str, lines: dict[int, str], page: LinePage, later: Sequence[FileCall | None]
) -> Iterator[int]:
    """Yield the first lines of further pages that hold what is edited or read next."""
    text = "".join(f"{lines[number]}\n" for number in sorted(lines))
    seen: set[int] = set()
    for call in later[:USED_WITHIN]:
        if call is None:
            return
        if call.path != path:
            continue
        if call.name == "Write":
            return
        if call.name == "Read":
            # Read again there, too, which counts by itself.
            if not call.arguments.get("offset"):
                return
            continue
        for edit in _edits(call):
            at = text.find(edit.old) if edit.old else -1
            number = min(lines) + text.count("\n", 0, at)
            if at < 0 or number <= page.last:
                continue
            size = max(1, len(page.lines))
            start = page.last + 1 + (number - page.last - 1) // size * size
            if start not in seen:
                seen.add(start)
                yield start


def report(made: Replayed) -> Report:
    """Return the figures."""
    counts, reads = made.counts, made.reads
    replayable = counts["applied"] + counts["not applied"]
    applied = counts["applied"] / max(1, replayable)
    known = {how: made.misses[f"{how} known, named"] for how in ("whole", "in part")}
    missed = {how: known[how] + made.misses[f"{how} known, not named"] for how in known}
    named = known["whole"] / max(1, missed["whole"])
    rows: list[Row] = [{"table": "edits", "what": what, "edits": n} for what, n in counts.items()]
    rows += [
        {"table": "missed texts", "file": what, "edits": n}
        for what, n in sorted(made.misses.items())
    ]
    further = reads.ours + reads.further
    rows.append(
        {
            "table": "reads",
            "reads": reads.calls,
            "their tokens": reads.theirs,
            "our first pages": reads.ours,
            "further pages": reads.pages,
            "with further pages": further,
            "repeats": reads.repeats,
            "with repeats named": further - reads.unchanged,
            "share": round((further - reads.unchanged) / max(1, reads.theirs), 3),
        }
    )
    return Report(
        "edits",
        rows,
        [
            at_least("replayable edits applied", round(applied, 4), APPLIED),
            at_least("nearest place named, file whole", round(named, 3), NAMED),
        ],
    )
