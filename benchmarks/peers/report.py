"""The comparison for people: Markdown tables, plots and the rows as JSON, in a folder.

`python -m benchmarks.peers.report FILE... DIR` writes them again from reports in JSON, so that
parts that ran one after another make one report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from benchmarks.frame import Machine, Report, Row, Target
from benchmarks.peers.environments import OURS, PEERS
from benchmarks.peers.plots import bars, lines
from benchmarks.peers.targets import targets

HEAD = """# Peers

Written by `python -m benchmarks peers --write benchmarks/report`; do not edit.

The task of every line is the same: read the pages of a book (Python's own source, 2 KB a page) one
by one with a tool, and say that it is done. One scripted server on loopback speaks OpenAI's
protocol and answers at once. Each runtime works in an environment of pinned versions and in a
process of its own, which is fresh for each measurement; rounds are interleaved and medians shown.
`benchmarks/peers/runners` has one short script for each: that is how it is set up. All keep what
they need to resume in SQLite. Those that can summarize and need a threshold do it at 30,000 tokens
and keep 20 messages, which are this runtime's defaults. deepagents has its own threshold of
170,000 tokens where it does not know the model's window. ADK compacts only between runs.

The scripted model writes what it is asked for. Observations have a line for each page and a tenth
of its length, as the Observer's instructions ask. Summaries, for which no length is asked, have the
same lines for the newest pages, 4,000 bytes in all. Nobody gets a note of what it did not show.
"""

TARGETS = """## Targets
"""

SPEED = """## A step

"Net" is wall time of a step outside the server, "CPU" the CPU time of the process with all its
threads, both without the first step. In brackets: times this runtime's. A dash: not finished in
time, where that is listed below, or not measured.
"""

PROMPTS = """## The prompts of {steps} steps

"Kept" counts the pages of which the last prompt still holds the text or a note. "Cacheable" is the
common prefix with the prompt before, as a share of all bytes; "breaks" counts prompts that do not
begin with all of the prompt before. "Summaries" counts the calls that write summaries or
observations, next to the size of their prompts and of what they wrote. "Weighted" is what prompts
cost: uncached bytes in full, cached ones a tenth, and those of summaries in full. "Without task"
counts prompts in which the user's task does not stand in the user's words; the server's summaries
do not repeat it.

LangGraph's summaries as documented give the model the last 4,000 tokens from a user's message on.
In a run with one user message that is nothing: no summary is asked for, and what leaves the prompt
is gone. "Summaries of all" sets `trim_tokens_to_summarize=None`. pydantic-ai's compaction shows the
model the first 500 characters of each result.
"""

BEHAVIOUR = """## Where a long task breaks

- *killed in a tool*: `kill -9` while the tool works at step 30, after its effect; then the run is
  resumed.
- *killed after a tool*: `kill -9` when the request after step 30 arrives at the server; then the
  same.
- *two at once*: two runs of 12 steps on one thread at the same time; results that a third run
  sees.
- *cancel, continue*: the run is cancelled while its tool works at step 10, and the thread
  continued.
- *window of 32K*: 100 steps, where prompts beyond 32,768 tokens are refused as OpenAI refuses
  them. Those that can be given the window are given it.

A result is kept if the first prompt of the resumed or next run holds it, also where its tool ran
again for that. A call that the peer forgot is asked for again by the scripted model, as a real one
would. In all but the last the server takes 0.1 s for an answer, and refuses prompts whose calls and
results do not match, as OpenAI does.
"""


NONE = "–"


def write(report: Report, folder: Path) -> None:
    """Write `peers.md`, `peers.json` and the plots into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peers.json").write_bytes(report.to_json())
    plots = drawings(report.rows)
    for name, drawing in plots.items():
        (folder / name).write_text(drawing)
    (folder / "peers.md").write_text(markdown(report, list(plots)))


def markdown(report: Report, plots: Sequence[str] = ()) -> str:
    """Return the report as Markdown."""
    parts = [HEAD, _conditions(report)]
    if speed := table(report.rows, "speed"):
        parts += [SPEED, _speed(speed)]
        parts += [f"![{Path(name).stem}]({name})\n" for name in plots]
    if prompts := table(report.rows, "prompts"):
        steps = shared_steps(prompts)
        parts += [PROMPTS.format(steps=steps), _prompts(prompts, steps)]
    if behaviour := table(report.rows, "behaviour"):
        parts += [BEHAVIOUR, _behaviour(behaviour)]
    if report.targets:
        parts += [TARGETS, _targets(report.targets)]
    if unfinished := table(report.rows, "unfinished"):
        parts.append("## Not finished\n")
        parts.append(
            "".join(f"- {row['peer']}, {row['steps']} steps: {row['why']}\n" for row in unfinished)
        )
    if missing := table(report.rows, "missing"):
        parts.append("## Missing\n")
        parts.append("".join(f"- {row['peer']}: {_cell(row['why'])}\n" for row in missing))
    return "\n".join(parts)


def table(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the rows of one table."""
    return [row for row in rows if row.get("table") == name]


def shared_steps(rows: Sequence[Row]) -> int:
    """Return the number of steps that most peers have, the largest of several."""
    every = [int(row["steps"]) for row in rows]
    return max(every, key=lambda one: (every.count(one), one))


def _targets(found: Sequence[Target]) -> str:
    return _markdown(
        ["", "wanted", "measured", "met"],
        [
            [one.name, one.wanted, _figure(one.value), "yes" if one.met else "**no**"]
            for one in found
        ],
    )


def _figure(value: float | str | None) -> str:
    return _short(value) if isinstance(value, float | int) else str(value)


def _conditions(report: Report) -> str:
    on = report.machine
    said = [f"{on.cores} cores ({on.cpu}), {on.memory / 2**30:.0f} GiB, Python {on.python}."]
    for row in table(report.rows, "conditions"):
        said.append(
            f"{row['date']}, load average {row['load_before']:.1f} before and "
            f"{row['load_after']:.1f} after ({row['part']}{_rounds(row)})."
        )
        if max(row["load_before"], row["load_after"]) > on.cores:
            said.append("**The machine was busy with other work: trust the ratios and CPU times.**")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return " ".join(dict.fromkeys(said)) + (f"\n\nVersions: {versions}.\n" if versions else "\n")


def _rounds(row: Row) -> str:
    return f", rounds: {row['rounds']}" if row.get("rounds") else ""


def _speed(rows: Sequence[Row]) -> str:
    steps = sorted({row["steps"] for row in rows})
    by = {(row["peer"], row["steps"]): row for row in rows}
    over = " / ".join(map(str, steps))

    def each(peer: str, cell: Callable[[Row], str]) -> str:
        return " / ".join(cell(by[peer, one]) if (peer, one) in by else NONE for one in steps)

    def figure(name: str) -> Callable[[Row], str]:
        def shown(row: Row) -> str:
            ours = by.get((OURS, row["steps"]))
            return _short(row[name]) + (f" ({_short(row[name] / ours[name])})" if ours else "")

        return shown

    found: list[list[str]] = []
    for peer in dict.fromkeys(row["peer"] for row in rows):
        last = by[peer, max(one for one in steps if (peer, one) in by)]
        first = by[peer, min(one for one in steps if (peer, one) in by)]
        found.append(
            [
                peer,
                each(peer, figure("net_ms")),
                each(peer, figure("cpu_ms")),
                each(peer, lambda row: _short(row["database_mb"])),
                f"{last['peak_mb']:.0f}",
                f"{first['startup_ms']:,.0f} / {first['startup_cpu_ms']:,.0f}",
            ]
        )
    head = [
        "",
        f"net ms a step, {over} steps",
        f"CPU ms a step, {over}",
        f"database MB, {over}",
        "peak MB",
        "to the first request, ms / CPU ms",
    ]
    return _markdown(head, found)


def _prompts(rows: Sequence[Row], steps: int) -> str:
    return _markdown(
        [
            "",
            "weighted MB",
            "kept",
            "without task",
            "prompts MB",
            "largest KB",
            "cacheable",
            "breaks",
            "summaries: calls",
            "read MB",
            "written KB",
        ],
        [
            [
                row["peer"],
                f"{row['weighted_mb']:.1f}",
                str(row["kept"]),
                str(row["without_task"]),
                f"{row['prompt_mb']:.1f}",
                f"{row['largest_kb']:.0f}",
                f"{row['cacheable']:.1%}",
                str(row["breaks"]),
                str(row["summaries"]),
                f"{row['summary_mb']:.1f}",
                f"{row['written_kb']:.0f}",
            ]
            for row in rows
            if row["steps"] == steps
        ],
    )


def _behaviour(rows: Sequence[Row]) -> str:
    trials = list(dict.fromkeys(row["trial"] for row in rows))
    by = {(row["peer"], row["trial"]): row for row in rows}
    return _markdown(
        ["", *trials],
        [
            [
                peer,
                *(_cell(by[peer, one]["outcome"]) if (peer, one) in by else "" for one in trials),
            ]
            for peer in dict.fromkeys(row["peer"] for row in rows)
        ],
    )


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    every = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in every)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _cell(text: Any) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def drawings(rows: Sequence[Row]) -> dict[str, str]:
    """Return the plots by file name."""
    speed, prompts = table(rows, "speed"), table(rows, "prompts")
    if not speed:
        return {}
    steps = shared_steps(speed)

    def over(figure: str) -> Mapping[str, list[tuple[float, float]]]:
        found: dict[str, list[tuple[float, float]]] = {}
        for row in speed:
            found.setdefault(row["peer"], []).append((row["steps"], row[figure]))
        return found

    def last(found: Sequence[Row], figure: str) -> dict[str, float]:
        return {row["peer"]: row[figure] for row in found if row["steps"] == steps}

    return {
        "cpu.svg": lines("CPU time of a step", "ms", over("cpu_ms")),
        "net.svg": lines("Time of a step outside the server", "ms", over("net_ms")),
        "database.svg": lines("Database", "MB", over("database_mb")),
        "prompts.svg": bars(
            f"Prompts of {steps} steps, weighted by price", "MB", last(prompts, "weighted_mb")
        ),
        "startup.svg": bars("CPU time to the first request", "ms", last(speed, "startup_cpu_ms")),
    }


def load(files: Sequence[Path]) -> Report:
    """Return one report with the rows of several; a later file replaces what it measured again."""
    found: list[dict[str, Any]] = [orjson.loads(file.read_bytes()) for file in files]
    versions: dict[str, str] = {}
    for one in found:
        versions |= one["versions"]
    by: dict[tuple[Any, ...], Row] = {}
    for number, one in enumerate(found):
        for row in one["rows"]:
            place = number if row["table"] == "conditions" else None
            of = row.get("peer"), row.get("steps"), row.get("trial"), place
            by[row["table"], *of] = row
            if row["table"] == "speed":
                by.pop(("unfinished", *of), None)
    order = [peer.name for peer in PEERS]
    rows = sorted(
        by.values(),
        key=lambda row: (row.get("steps") or 0, order.index(row["peer"]) if "steps" in row else 0),
    )
    return Report(
        "peers",
        rows,
        targets(rows),
        machine=Machine(**found[0]["machine"]),
        versions=versions,
    )


if __name__ == "__main__":
    *given, place = map(Path, sys.argv[1:])
    write(load(given), place)
