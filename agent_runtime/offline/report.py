"""The offline model's report, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.messages import PromptMessage
from agent_runtime.offline.reader import MOST_EXTENSIONS, OTHERS, READ_LINES, Findings
from agent_runtime.offline.tool_output import FolderListing, code, counted, one_line, parse_search

STUB = "This survey is in progress.\n"
"""The report's text while the folder is searched; no search matches it."""
EXAMPLES = 3
"""Matching lines of a search to quote."""


SEARCHES = (
    ("lines with TODO or FIXME", r"\b(TODO|FIXME)\b", "*"),
    ("Python functions (`def`)", r"^\s*(async\s+)?def\s+\w+", "*.py"),
    ("Python classes (`class`)", r"^\s*class\s+\w+", "*.py"),
    ("headings in README files", r"^#{1,6}\s+\S", "README*"),
)
"""Labels, patterns, and the names of the files to search."""


def beginning(
    folder: str, report: str, listing: FolderListing, results: Sequence[PromptMessage]
) -> str:
    """Return the first part; `results` are those of the searches."""
    notes = [listing.note] if listing.note else []
    if listing.stopped:
        notes.insert(
            0, "Listing the folder took too long, so entries are missing everywhere below."
        )
    lines = [
        f"# Survey of {code(folder)}",
        "",
        "Written by the offline model of the agent runtime, which lists, searches and reads; no "
        f"language model was used. No figure includes this report, {code(report)}. Of each file "
        f"that was read, the first {READ_LINES} lines were looked at, and the line that describes "
        "it best is quoted: the first of its docstring, its heading, or its first line.",
        "",
        *(line for note in notes for line in (note, "")),
        "## Searches",
        "",
    ]
    for (label, _, _), result in zip(SEARCHES, results, strict=True):
        found = parse_search(result.text)
        if found is None:
            lines.append(f"- {label}: not known ({one_line(result.text)})")
            continue
        early = " (stopped early)" if found.stopped else ""
        lines.append(f"- {label}: {found.matches:,} in {counted(found.files, 'file')}{early}")
        lines += [f"  - {code(example)}" for example in found.examples[:EXAMPLES]]
    return "\n".join([*lines, "", "## Files read", "", ""])


def figures(found: Findings, listed: int, total: int) -> list[str]:
    """Return the lines of the figures; `listed` of `total` entries were counted."""
    entries = found.entries
    lines = [
        "",
        "## Figures",
        "",
        f"- Files: {entries['file']:,}",
        f"- Folders: {entries['folder']:,}",
        f"- Symbolic links (not followed): {entries['link']:,}",
        f"- Special files: {entries['special']:,}",
        f"- Bytes: {sum(size for _, size in found.extensions.values()):,}",
    ]
    if listed < total:
        lines.append(
            f"- Only {listed:,} of {total:,} entries were listed; the figures are of these."
        )
    lines += ["", "## By extension", "", "| extension | files | bytes |", "|---|---|---|"]
    for name, (files, size) in sorted(
        found.extensions.items(), key=lambda row: (-row[1][1], row[0])
    ):
        cell = code(name).replace("|", "\\|")
        lines.append(f"| {cell} | {files:,} | {size:,} |")
    if OTHERS in found.extensions:
        lines += ["", f"`{OTHERS}`: where a part has more than {MOST_EXTENSIONS} extensions."]
    lines += ["", "## Biggest files", ""]
    lines += [f"- {code(path)}: {size:,} bytes" for size, path in found.biggest] or ["None."]
    return lines
