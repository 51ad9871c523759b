"""What the documents say of the comparison with other runtimes, from its last report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from benchmarks.peers.environments import FLOOR, OURS
from docs.generate.page import PAGES, table

REPORT = PAGES.parent / "benchmarks" / "report" / "peers.json"
README_STEPS = 200

INTRODUCTION = """\
{conditions}
Tasks of {steps} steps; a dash is one that was not finished in time or not measured.
The weighted volume counts uncached bytes, and all that summaries and observations read, in full,
and cached bytes a tenth. A page is kept if the last prompt still has its text or a note of it.
"""
BEHAVIOUR = """\
- Did not finish 100 steps in a window of 32K tokens: {stopped}.
- Finished them, but with prompts in which the task no longer stood in the user's words: {lost}.
- After two runs at once on one thread, the next saw a part of their results: {pairs}.
- After a kill in a tool, tools ran again: {again}.
"""
README = """\
- **A step is cheap, and storage grows linearly.** {steps} steps used {ours}. LangGraph with
  `SqliteSaver` used {langgraph}, pydantic-ai with compaction {pydantic},
  bare httpx that appends to SQLite {floor}, in the same run (`python -m benchmarks peers`).
- **A small window does not end a task.** In a window of 32K tokens, 100 steps were finished with
  the task in every prompt. {stopped} did not finish.
"""

Row = dict[str, Any]


def page() -> str:
    """Return the generated part of the page of measurements."""
    report = _report()
    rows: list[Row] = report["rows"]
    steps = sorted({row["steps"] for row in _table(rows, "speed")})
    by = {(row["table"], row["peer"], row.get("steps")): row for row in rows if "peer" in row}

    def each(name: str, part: str, figure: str) -> str:
        found = [by.get((part, name, one)) for one in steps]
        return " / ".join(_short(row[figure]) if row else "–" for row in found)

    lines = [
        [
            "this runtime" if name == OURS else name,
            each(name, "speed", "cpu_ms"),
            each(name, "speed", "database_mb"),
            each(name, "prompts", "weighted_mb"),
            each(name, "prompts", "kept"),
        ]
        for name in dict.fromkeys(row["peer"] for row in _table(rows, "speed"))
    ]
    targets = [[one["name"], one["wanted"], _value(one["value"])] for one in report["targets"]]
    over = " / ".join(f"{one:,}" for one in steps)
    parts = [
        INTRODUCTION.format(conditions=_conditions(report), steps=over),
        table(["", "CPU ms per step", "database MB", "weighted MB", "pages kept"], lines),
        table(["this runtime", "wanted", "measured"], targets),
        BEHAVIOUR.format(**_behaviour(rows)),
    ]
    return "\n".join(parts)


def readme() -> str:
    """Return the generated part of the README."""
    rows: list[Row] = _report()["rows"]
    speed = {row["peer"]: row for row in _table(rows, "speed") if row["steps"] == README_STEPS}

    def of(name: str) -> str:
        row = speed.get(name)
        if row is None:
            return "more time than it was given"
        return f"{_short(row['cpu_ms'])} ms and {_short(row['database_mb'])} MB"

    ours = speed[OURS]
    return README.format(
        steps=README_STEPS,
        ours=f"{_short(ours['cpu_ms'])} ms of CPU time each and {_short(ours['database_mb'])} MB",
        langgraph=of("LangGraph"),
        pydantic=of("pydantic-ai, compaction"),
        floor=of(FLOOR),
        stopped=_behaviour(rows)["stopped"],
    )


def _report() -> Row:
    """Return the last report.

    Raises:
        ValueError: it lacks a part that the documents quote.
    """
    report: Row = orjson.loads(REPORT.read_bytes())
    measured = {(row["peer"], row["steps"]) for row in _table(report["rows"], "speed")}
    if (OURS, README_STEPS) not in measured or not _table(report["rows"], "behaviour"):
        raise ValueError(
            f"{REPORT.name} lacks speed at {README_STEPS} steps, or behaviour: write it again by "
            "`python -m benchmarks peers --write benchmarks/report`, without --skip or --steps"
        )
    return report


def _behaviour(rows: Sequence[Row]) -> dict[str, str]:
    """Return who did what in the trials."""
    by: dict[str, list[Row]] = {}
    for row in _table(rows, "behaviour"):
        by.setdefault(row["trial"], []).append(row)
    window, pair, killed = by["window of 32K"], by["two at once"], by["killed in a tool"]
    return {
        "stopped": _listed(row["peer"] for row in window if not row["done"]),
        "lost": _listed(
            f"{row['peer']} ({row['task_lost']})"
            for row in window
            if row["done"] and row["task_lost"]
        ),
        "pairs": _listed(
            f"{row['peer']} ({row['kept']} of {row['kept_of']})"
            for row in pair
            if row["kept"] != row["kept_of"]
        ),
        "again": _listed(f"{row['peer']} ({row['twice']})" for row in killed if row["twice"]),
    }


def _listed(names: Iterable[str]) -> str:
    # A variant's name has a comma, such as in "LangGraph, summaries".
    *first, last = [name.replace(", ", " with ") for name in names] or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def _conditions(report: Row) -> str:
    said = [
        f"{row['date']} ({row['part']}, load {row['load_before']:.0f} to "
        f"{row['load_after']:.0f} on {report['machine']['cores']} cores)"
        for row in _table(report["rows"], "conditions")
    ]
    return f"Measured {'; '.join(said)}."


def _table(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if row.get("table") == name]


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2g}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"
