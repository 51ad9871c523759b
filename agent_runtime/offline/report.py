"""The parts of the offline model's report, as Markdown."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.offline.state import OTHER, State
from agent_runtime.offline.tool_output import Reading, SearchSummary, title

STUB = "This survey is being made.\n"
"""Stands in the report file while the folder is listed and searched; no search matches it."""
READ_LINES = 60
"""So many lines of a file are looked at; how many it has, the tool tells."""
EXAMPLES = 5
"""How many matching lines are quoted of a search."""


@dataclass(frozen=True, slots=True)
class SurveySearch:
    """A search that the survey makes."""

    label: str
    pattern: str
    glob: str = "*"
    quoted: bool = False


QUESTIONS = (
    SurveySearch("lines with TODO or FIXME", r"\b(TODO|FIXME)\b", quoted=True),
    SurveySearch("Python functions (`def`)", r"^\s*(async\s+)?def\s+\w+", "*.py"),
    SurveySearch("Python classes (`class`)", r"^\s*class\s+\w+", "*.py"),
    SurveySearch("headings in README files", r"^#{1,6}\s+\S", "README*", quoted=True),
)


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What came of reading one file: what was seen, or why nothing was."""

    path: str
    reading: Reading | None
    reason: str = ""


def figures(state: State, counts: list[tuple[SearchSummary | None, str]]) -> str:
    """Return the report's first part; `counts` has a result, or an error, for each question."""
    lines = [f"# Survey of {_code(state.folder)}", "", _method(state), "", "## Figures", ""]
    lines += [
        f"- Files: {state.files:,}",
        f"- Folders: {state.folders:,}",
        f"- Symbolic links (not followed): {state.links:,}",
        f"- Special files: {state.special:,}",
        f"- Empty files: {state.empty:,}",
        f"- Bytes: {state.bytes:,}",
        *(f"- {note}" for note in state.notes),
    ]
    if state.offset < state.total:
        lines.append(
            f"- Only the first {state.offset:,} of {state.total:,} entries were listed; "
            "the figures are of these."
        )
    if state.changed:
        lines.append("- The folder changed while it was listed, so the figures may be off.")
    lines += ["", "## By extension", "", "| extension | files | bytes |", "|---|---|---|"]
    table = sorted(state.extensions.items(), key=lambda one: (-one[1][1], one[0]))
    lines += [f"| {_cell(name)} | {count:,} | {size:,} |" for name, (count, size) in table]
    if OTHER in state.extensions:
        lines += ["", f"`{OTHER}`: extensions that turned up after {len(table) - 1} others."]
    lines += ["", "## Biggest files", ""]
    lines += [f"- {_code(path)}: {size:,} bytes" for size, path in state.biggest] or ["None."]
    lines += ["", "## Searches", ""]
    for question, (found, error) in zip(QUESTIONS, counts, strict=True):
        lines += _search(question, found, error)
    lines += ["", "## Files read", "", *([] if state.files else ["None."])]
    return "\n".join(lines) + "\n"


def part(outcomes: list[FileOutcome]) -> str:
    """Return the lines of some files that were read, or could not be."""
    return "\n".join(map(line, outcomes)) + "\n"


def line(one: FileOutcome) -> str:
    """Return the line of a file that was read, or could not be."""
    if one.reading is None:
        return f"- {_code(one.path)}: not read: {one.reason}"
    quoted = f"; “{one.reading.title}”" if one.reading.title else ""
    return f"- {_code(one.path)}: {one.reading.lines:,} lines, {one.reading.bytes:,} bytes{quoted}"


def ending(state: State) -> str:
    """Return the report's last part."""
    chosen = state.opened + state.binary + state.failed
    return "\n".join(
        [
            "",
            "## What was read, and what was not",
            "",
            f"- Opened: {chosen:,} of {state.files:,} files{_share(state)}.",
            f"- Read: {state.opened:,} files; together they have {state.lines:,} lines.",
            f"- Not read because they are binary: {state.binary:,} files.",
            f"- Not read because of an error, or because the name is no UTF-8: {state.failed:,} "
            "files.",
            f"- Not opened: {state.files - chosen:,} files.",
            *_delegated(state),
            "",
        ]
    )


def _delegated(state: State) -> list[str]:
    """Return how the reading was handed over, and what the log says of the first listing."""
    if not state.delegated:
        return []
    tried = [one for one in state.parts if one.tries]
    lines = [
        "",
        "## How it was read",
        "",
        f"- By sub-agents: {len(tried):,} parts, {sum(one.tries for one in tried):,} attempts.",
    ]
    for one in state.parts:
        if one.stops:
            name = f"- {_code(one.id)} (entries {one.first + 1:,} to {one.end:,})"
            lines.append(f"{name}: {'; '.join(one.stops)}.")
    if state.recalled:
        lines.append(
            f"- Recalled from the log at the end, the first listing said: {state.recalled}"
        )
    return lines


def final_answer(state: State) -> str:
    """Return the run's last answer."""
    text = (
        f"The survey of {state.folder} is in {state.report} ({state.size:,} bytes). The folder has "
        f"{state.files:,} files and {state.folders:,} folders, together {state.bytes:,} bytes. "
        f"{state.opened:,} files were read ({state.lines:,} lines)"
    )
    if state.stride > 1:
        text += f", one of every {state.stride}"
    missing = state.binary + state.failed
    text += f"; {missing:,} could not be ({state.binary:,} are binary)." if missing else "."
    if tried := [one for one in state.parts if one.tries]:
        attempts = sum(one.tries for one in tried)
        text += f" They were read by sub-agents, in {len(tried):,} parts and {attempts:,} attempts."
    if state.recalled:
        text += f" The first listing was recalled from the log ({state.whereabouts})."
    return f"{text} No language model was used."


def one_line(text: str) -> str:
    """Return an error's text on one line, short enough to quote."""
    return title("", " ".join(text.split()))


def _method(state: State) -> str:
    return (
        "Made by the offline model of the agent runtime, by listing, searching and reading; no "
        f"language model was used. The report itself, {_code(state.report)}, is left out of all "
        "figures. Sizes are in bytes. Of each file that was read, the first "
        f"{READ_LINES} lines were looked at, and the one that says best what it is stands in "
        "quotes: the first of its docstring, its heading, or its first."
    )


def _share(state: State) -> str:
    return (
        f" (one of every {state.stride}, in the order of their paths)" if state.stride > 1 else ""
    )


def _search(question: SurveySearch, found: SearchSummary | None, error: str) -> list[str]:
    if found is None:
        return [f"- {question.label}: not known ({one_line(error)})"]
    early = "; stopped early" if found.stopped else ""
    line = (
        f"- {question.label}: {found.matches:,} in {found.files:,} files "
        f"({found.searched:,} of {found.candidates:,} files searched{early})"
    )
    return [line, *(f"  - {_code(one)}" for one in found.examples if question.quoted)]


def _code(text: str) -> str:
    plain = "".join(one if one.isprintable() else "�" for one in text)
    fence = "``" if "`" in plain else "`"
    pad = " " if "`" in plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def _cell(text: str) -> str:
    return _code(text).replace("|", "\\|")
