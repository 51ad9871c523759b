"""The code blocks of the documents, and what the comments above them say.

A comment directly above a block says what the test needs to know and a reader does not:

    <!-- not run: REASON -->        the block cannot run here, because of the reason
    <!-- model: EXPRESSION -->      what the model answers: a list of `say`, `call` and `calls`
    <!-- setup: STATEMENTS -->      Python that runs first
    <!-- exit: CODE, ... -->        the exit codes of the block's commands, 0 if none are given
    <!-- prints -->                 the text that the Python block before it prints
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"(?P<comments>(?:^ *<!--(?:(?!-->).)*-->\s*?\n\s*?)*)"
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^ *```\s*?$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"<!-- ([a-z ]+?)(?:: ?(.*?))? ?-->", re.DOTALL)
KEYS = ("not run", "model", "setup", "exit", "prints")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        line: of its first line, from 1.
        says: the comments above it, by their keys.
    """

    page: Path
    line: int
    language: str
    text: str
    says: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def where(self) -> str:
        """Where it is, for a message."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return the README and every page of the documents, the generated ones too."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        says = {key: value for key, value in _COMMENT.findall(match["comments"]) if key in KEYS}
        line = text.count("\n", 0, match.start("body")) + 1
        yield Block(page, line, match["language"], textwrap.dedent(match["body"]), says)
