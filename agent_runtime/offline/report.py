"""The offline model's report, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_runtime.messages import PromptMessage
from agent_runtime.offline.tool_output import FolderListing, code, search_counts

SEARCHES = (
    ("lines with TODO or FIXME", r"\b(TODO|FIXME)\b", "*"),
    ("Python functions (`def`)", r"^\s*(async\s+)?def\s+\w+", "*.py"),
    ("Python classes (`class`)", r"^\s*class\s+\w+", "*.py"),
    ("headings in README files", r"^#{1,6}\s+\S", "README*"),
)
"""Labels, patterns, and the names of the files to search."""
KINDS = {
    "file": "Files",
    "folder": "Folders",
    "link": "Symbolic links (not followed)",
    "special": "Special files",
}


def beginning(
    folder: str, report: str, listing: FolderListing, results: Sequence[PromptMessage]
) -> str:
    """Return the first part; `results` are those of the searches."""
    lines = [
        f"# Survey of {code(folder)}",
        "",
        "Written by the offline model of the agent runtime, which lists, searches and reads; no "
        f"language model was used. No figure includes this report, {code(report)}. Of each file "
        "that was read, the first line is quoted, without the marks of a docstring, a heading or "
        "a comment.",
        "",
        *((listing.note, "") if listing.note else ()),
        "## Searches",
        "",
    ]
    for (label, _, _), result in zip(SEARCHES, results, strict=True):
        lines.append(f"- {label}: {search_counts(result.text)}")
    return "\n".join([*lines, "", "## Files read", "", ""])


def figures(counts: Mapping[str, int], total: int, *, partial: bool) -> list[str]:
    """Return the lines of the figures; if partial, of a folder with `total` entries."""
    lines = ["", "## Figures", "", *(f"- {name}: {counts[kind]:,}" for kind, name in KINDS.items())]
    lines.append(f"- Bytes: {counts['bytes']:,}")
    if partial:
        listed = sum(counts[kind] for kind in KINDS)
        lines.append(
            f"- Only {listed:,} of {total:,} entries were listed; the figures are of these."
        )
    return lines
