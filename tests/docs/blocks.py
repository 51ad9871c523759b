"""The code blocks of the documents, and the comments above them.

A comment directly above a block is for the test, not for the reader:

    <!-- not run: REASON -->        the block cannot run in a test
    <!-- fresh clone -->            `./check package` runs it in a fresh clone, not the tests
    <!-- file: NAME -->             the block is the text of a file; it is written, not run
    <!-- serves -->                 its commands serve until Ctrl-C: each is started, called, ended
    <!-- model: EXPRESSION -->      the model's answers: a list of `say`, `call` and `calls`
    <!-- setup: STATEMENTS -->      Python that runs first
    <!-- exit: CODE, ... -->        the exit codes of the block's commands, by default 0
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
KEYS = ("not run", "fresh clone", "file", "serves", "model", "setup", "exit", "prints")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        line: of its first line, from 1.
        comments: the comments above the block, by their keys.
    """

    page: Path
    line: int
    language: str
    text: str
    comments: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def where(self) -> str:
        """The block's place, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return the README and every page of the documents, the generated ones too."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        comments = {key: value for key, value in _COMMENT.findall(match["comments"]) if key in KEYS}
        line = text.count("\n", 0, match.start("body")) + 1
        yield Block(page, line, match["language"], textwrap.dedent(match["body"]), comments)
