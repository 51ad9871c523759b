"""Counts a folder without the tools, to check the figures of a report."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Truth:
    """The contents of a folder, without the report."""

    files: dict[str, int] = field(default_factory=dict[str, int])
    folders: int = 0
    links: int = 0


def recount(root: Path, report: str = "REPORT.md") -> Truth:
    """Walk the folder and count."""
    truth = Truth()
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name != ".git"]
        for name in [*below, *names]:
            path = Path(folder) / name
            if path.is_symlink():
                truth.links += 1
            elif path.is_dir():
                truth.folders += 1
            elif (relative := path.relative_to(root).as_posix()) != report:
                truth.files[relative] = path.stat().st_size
    return truth


def lines_of(path: Path) -> int:
    """Return how many lines a file has."""
    data = path.read_bytes()
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def matching(paths: list[Path], pattern: str) -> tuple[int, int]:
    """Return how many lines match, and in how many files; binary files do not count."""
    texts = [
        data.decode(errors="replace") for path in paths if b"\0" not in (data := path.read_bytes())
    ]
    counts = [sum(bool(re.search(pattern, line)) for line in text.split("\n")) for text in texts]
    return sum(counts), sum(count > 0 for count in counts)


class Report:
    """A parsed report."""

    def __init__(self, text: str) -> None:
        self.text = text

    def number(self, label: str) -> int:
        """Return the figure in a line `- label: figure`."""
        match = re.search(rf"^- {re.escape(label)}: ([\d,]+)", self.text, re.MULTILINE)
        assert match is not None, f"the report has no figure for {label!r}:\n{self.text}"
        return int(match[1].replace(",", ""))

    def search(self, label: str) -> tuple[int, int]:
        """Return the matches and the files with matches of a search."""
        match = re.search(
            rf"^- {re.escape(label)}: ([\d,]+) in ([\d,]+) files?", self.text, re.MULTILINE
        )
        assert match is not None, f"the report has no search {label!r}:\n{self.text}"
        return int(match[1].replace(",", "")), int(match[2].replace(",", ""))

    def section(self, title: str) -> list[str]:
        """Return the lines of a section."""
        return self.text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0].strip().split("\n")

    @property
    def read(self) -> dict[str, tuple[int, int, str]]:
        """Lines, bytes and title of each file that was read."""
        matches = re.findall(
            r"^- (?:`` (.+) ``|`(.+)`): ([\d,]+) lines?, ([\d,]+) bytes?(?:; “(.*)”)?$",
            self._joined("Files read"),
            re.MULTILINE,
        )
        return {
            fenced or path: (int(lines.replace(",", "")), int(size.replace(",", "")), title)
            for fenced, path, lines, size, title in matches
        }

    @property
    def unread(self) -> dict[str, str]:
        """The files that could not be read, with reasons."""
        return dict(re.findall(r"^- `(.+)`: not read: (.+)$", self._joined("Files read"), re.M))

    def _joined(self, title: str) -> str:
        return "\n".join(self.section(title))
