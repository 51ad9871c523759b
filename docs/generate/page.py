"""A page with a generated part, and the Markdown that generators share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

PAGES = Path(__file__).parents[1]
BEGIN = "<!-- generated:begin -->\n"
END = "<!-- generated:end -->\n"


def replaced(page: str, generated: str, name: str) -> str:
    """Return the page with the generated part between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{name} lacks the lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{generated.strip()}\n\n{END}{after}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
