"""Lines of progress, and the rows of a terminal that they become at its width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agent_runtime.cli.terminal import HANGING, cells, printable, wrap

BETWEEN = " · "
CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "bad": "1;31",
}
"""The terminal's codes for the styles of lines."""
SHORTEST = 12
"""Columns that a line's text keeps, whatever is said after it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a terminal.

    Attributes:
        text: what is read; it is printable.
        styled: the same with the terminal's codes.
    """

    text: str
    styled: str

    def shown(self, *, color: bool) -> str:
        """Return what to write."""
        return self.styled if color else self.text


EMPTY = Row("", "")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of progress.

    Attributes:
        text: what happens.
        mark: a sign before the text, with a style of its own.
        facts: always shown; the text is cut to make room for them.
        more: further facts, shown as far as there is room.
        style, mark_style: names in `CODES`; empty for none.
        wrapped: whether the line becomes as many rows as it takes; otherwise it is one, cut.
        indent: columns before each row.
        cut_at: where a text that is too long loses characters; None for its end.
    """

    text: str
    mark: str = ""
    facts: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    style: str = ""
    mark_style: str = ""
    wrapped: bool = False
    indent: int = 0
    cut_at: int | None = None

    def plain(self) -> str:
        """Return the whole line, for a pipe or a log file."""
        start = f"{self.mark} {self.text}" if self.mark else self.text
        line = BETWEEN.join((start, *self.facts, *self.more))
        return " " * self.indent + printable(line, lines=False)

    def rows(self, width: int) -> Iterator[Row]:
        """Yield its rows, none of them wider than `width`."""
        mark = f"{self.mark} " if self.mark else ""
        room = max(1, width - self.indent - cells(mark))
        texts = self._wrapped(room) if self.wrapped else [self._fitted(room)]
        for number, text in enumerate(texts):
            # The rows after the first begin below its text.
            before = mark if not number else " " * cells(mark)
            yield joined(
                (" " * self.indent, ""), (before, self.mark_style or self.style), (text, self.style)
            )

    def _wrapped(self, width: int) -> Sequence[str]:
        text = printable(BETWEEN.join((self.text, *self.facts, *self.more)))
        return [row for line in text.split("\n") for row in wrap(line, width, indent=HANGING)]

    def _fitted(self, width: int) -> str:
        facts = "".join(f"{BETWEEN}{one}" for one in self.facts)
        line = cut(self.text, max(SHORTEST, width - cells(facts)), self.cut_at)
        line = cut(line + facts, width)
        for one in self.more:
            if cells(longer := f"{line}{BETWEEN}{one}") > width:
                break
            line = longer
        return line


@dataclass(slots=True)
class Block:
    """Rows that are already laid out, such as those of a Markdown text."""

    found: Sequence[Row] = field(default_factory=list[Row])

    def rows(self, width: int) -> Iterator[Row]:
        """Yield the rows as they are."""
        del width
        yield from self.found


def joined(*parts: tuple[str, str]) -> Row:
    """Return a row of texts, each with its style."""
    clean = [(printable(text, lines=False), style) for text, style in parts]
    return Row(
        "".join(text for text, _ in clean).rstrip(),
        "".join(_styled(text, style) for text, style in clean if text),
    )


def _styled(text: str, style: str) -> str:
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if style else text


def cut(text: str, width: int, at: int | None = None) -> str:
    """Return the text on one line, at most `width` columns wide.

    Args:
        at: where a text that is too long loses characters; None for its end.
    """
    line = printable(text, lines=False)
    if cells(line) <= width:
        return line
    if at is None or cells(line[:at]) > width // 2 or not line.isascii():
        return _head(line, max(0, width - 1)) + "…"
    # Cut in the middle, because the ends of a command or a path say most.
    return f"{line[:at]}…{line[len(line) - (width - at - 1) :]}"


def _head(text: str, width: int) -> str:
    """Return as much of the text's beginning as fits."""
    if text.isascii():
        return text[:width]
    from rich.cells import set_cell_size

    # It pads with a blank where half of a wide character would fit.
    return set_cell_size(text, width).rstrip()
