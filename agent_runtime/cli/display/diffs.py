"""Changes to files, shown from the arguments of the calls that made them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agent_runtime.cli.display.rows import Line
from agent_runtime_config.counted import counted

OLD = ("old", "old_text", "old_string", "search")
NEW = ("new", "new_text", "new_string", "replace")
CHANGING = frozenset({*OLD, *NEW, "edits", "patch", "diff"})
"""Arguments that are shown as a change."""
WRITES = frozenset({"write_file", "Write"})
COMPARED = 300
"""Lines; longer texts are not compared, since that takes time with the square of their lines."""
LOOKED_AT = 16 << 10
"""Most characters of a new file that are read."""
STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change to files.

    Attributes:
        rows: its lines, each after `+`, `-`, `@` or a blank; only the first ones of a long change.
        unseen: how many added lines follow them.
    """

    rows: Sequence[str]
    unseen: int = 0

    def counts(self) -> str:
        """Return how many lines are added and removed: `+3 −1`."""
        added = sum(row.startswith("+") for row in self.rows) + self.unseen
        removed = sum(row.startswith("-") for row in self.rows)
        parts = [f"+{added:,}" if added else "", f"−{removed:,}" if removed else ""]
        return " ".join(filter(None, parts)) or "no lines changed"

    def lines(self, most: int, indent: int) -> Iterator[Line]:
        """Yield at most this many lines, and a line with the number of those left out."""
        for row in self.rows[:most]:
            sign, text = row[:1], row[1:].expandtabs(4)
            yield Line(text, sign, style=STYLES.get(sign, "dim"), indent=indent)
        if (left := len(self.rows) + self.unseen - most) > 0:
            yield Line(f"… {counted(left, 'more line')}", indent=indent, style="dim")


def change_of(tool: str, arguments: Mapping[str, Any]) -> ShownChange | None:
    """Return the change that a call makes; None if its arguments show none."""
    patch = next((arguments[one] for one in ("patch", "diff") if one in arguments), None)
    if isinstance(patch, str):
        return ShownChange(_patch_rows(patch))
    if tool in WRITES and isinstance(content := arguments.get("content"), str):
        # A file may be as long as an answer; only its beginning is shown.
        seen = content[:LOOKED_AT]
        return ShownChange([f"+{one}" for one in seen.splitlines()], content.count("\n", len(seen)))
    edits = arguments.get("edits", [arguments])
    rows: list[str] = []
    for edit in cast("list[Any]", edits) if isinstance(edits, list) else []:
        if isinstance(edit, Mapping):
            pair = _pair(cast("Mapping[str, Any]", edit))
            rows += _compared(*pair) if pair else []
    return ShownChange(rows) if rows else None


def _pair(edit: Mapping[str, Any]) -> tuple[str, str] | None:
    old = next((edit[one] for one in OLD if one in edit), None)
    new = next((edit[one] for one in NEW if one in edit), None)
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def _compared(old: str, new: str) -> list[str]:
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > COMPARED:
        return [*(f"-{one}" for one in before), *(f"+{one}" for one in after)]
    # The first two lines name the files.  The numbers of lines are not those of the file.
    rows = list(difflib.unified_diff(before, after, lineterm="", n=1))[3:]
    return ["@…" if row.startswith("@@") else row for row in rows]


def _patch_rows(patch: str) -> list[str]:
    """Return the rows of a unified diff or of the `*** Begin Patch` form."""
    rows: list[str] = []
    for line in patch.splitlines():
        if line.startswith(("--- ", "+++ ", "*** Begin", "*** End", "diff ", "index ")):
            continue
        if line.startswith("*** "):
            rows.append(f"@{line[4:]}")
        else:
            rows.append(line if line[:1] in ("+", "-", "@", " ") else f" {line}")
    return rows
