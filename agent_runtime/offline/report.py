"""The offline model's report, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from agent_runtime.messages import PromptMessage
from agent_runtime.offline.reader import OTHER, Findings
from agent_runtime.offline.tool_output import FolderListing, code, search_counts

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
    late = "Listing the folder took too long, so entries are missing everywhere below."
    notes = [late] * listing.stopped + [listing.note] * bool(listing.note)
    lines = [
        f"# Survey of {code(folder)}",
        "",
        "Written by the offline model of the agent runtime, which lists, searches and reads; no "
        f"language model was used. No figure includes this report, {code(report)}. Of each file "
        "that was read, the first line is quoted, without the marks of a docstring, a heading or "
        "a comment.",
        "",
        *(line for note in notes for line in (note, "")),
        "## Searches",
        "",
    ]
    for (label, _, _), result in zip(SEARCHES, results, strict=True):
        lines.append(f"- {label}: {search_counts(result.text)}")
    return "\n".join([*lines, "", "## Files read", "", ""])


def figures(found: Findings, total: int, *, partial: bool) -> list[str]:
    """Return the lines of the figures; if partial, of a folder with `total` entries."""
    counts = found.counts
    lines = [
        "",
        "## Figures",
        "",
        f"- Files: {counts['file']:,}",
        f"- Folders: {counts['folder']:,}",
        f"- Symbolic links (not followed): {counts['link']:,}",
        f"- Special files: {counts['special']:,}",
        f"- Bytes: {found.sizes.total():,}",
    ]
    if partial:
        listed = sum(counts[kind] for kind in ("file", "folder", "link", "special"))
        lines.append(
            f"- Only {listed:,} of {total:,} entries were listed; the figures are of these."
        )
    lines += ["", "## By extension", "", "| extension | files | bytes |", "|---|---|---|"]
    for name, files in sorted(found.files.items(), key=lambda row: (-row[1], row[0])):
        lines.append(f"| `{name}` | {files:,} | {found.sizes[name]:,} |")
    if OTHER in found.files:
        lines += ["", f"`{OTHER}`: all extensions that have no row."]
    return lines
