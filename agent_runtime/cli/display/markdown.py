"""Markdown as rows of a terminal."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from markdown_it import MarkdownIt
from rich.color import ColorSystem
from rich.markdown import CodeBlock, Heading, Markdown, TableElement, TableRowElement
from rich.measure import Measurement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from agent_runtime.cli.display.rows import Row
from agent_runtime.cli.terminal import cells, printable, rendering_console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderResult  # noqa: TID251  (types only)

# The terminal's own colours, which fit its background.
THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "default",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.item.number": "default",
        "markdown.item.bullet": "default",
        "markdown.block_quote": "default",
    }
)
CODE_THEME = "ansi_dark"
LEAST_COLUMN = 6
"""Columns of the terminal; a table whose columns had fewer is shown as lines."""

UNLIMITED = 1 << 20
"""Columns: more than any table takes."""


class _Heading(Heading):
    """A heading at the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        self.text.justify = "left"
        yield self.text


class _CodeBlock(CodeBlock):
    """Code on the terminal's own background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=self.theme,
            word_wrap=True,
            background_color="default",
        )


class _Table(TableElement):
    """A table of which no character is lost, however narrow the terminal is."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if not isinstance(table, Table):
                yield table
            elif len(table.columns) * LEAST_COLUMN <= options.max_width:
                self._fit(table, console, options)
                yield table
            else:
                yield from self._lines()

    def _fit(self, table: Table, console: Console, options: ConsoleOptions) -> None:
        """Give each column the room for its longest word, where there is enough for all.

        rich narrows the widest columns first, and breaks words that would have had room.
        """
        columns = list(zip(*self._rows(), strict=True))
        whole = [max(map(cells, texts)) for texts in columns]
        words = [max((cells(word) for text in texts for word in text.split()), default=1)
                 for texts in columns]  # fmt: skip
        between = Measurement.get(console, options.update(max_width=UNLIMITED), table).maximum
        between -= sum(whole)
        spare = options.max_width - between - sum(words)
        wanted = sum(whole) - sum(words)
        for column, widest, word in zip(table.columns, whole, words, strict=True):
            column.overflow = "fold"
            # Otherwise all fits as it is, or not even the words do, and rich shares out the room.
            if 0 <= spare < wanted:
                column.width = max(1, word + spare * (widest - word) // wanted)

    def _rows(self) -> list[list[str]]:
        return [[cell.content.plain for cell in row.cells] for row in self._cells()]

    def _lines(self) -> Iterator[Text]:
        for row in self._cells():
            yield Text(" | ").join(cell.content for cell in row.cells)

    def _cells(self) -> list[TableRowElement]:
        header = [self.header.row] if self.header is not None and self.header.row else []
        return [*header, *(self.body.rows if self.body is not None else ())]


class _Markdown(Markdown):
    elements = {  # noqa: RUF012
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "table_open": _Table,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)
        self.parsed = parser().parse(text)


@functools.cache
def parser() -> MarkdownIt:
    """Return the parser; what looks like HTML is text to it, since rich would leave it out."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def markdown_rows(text: str, width: int, indent: int) -> list[Row]:
    """Return the rows of a text, each after some blanks and none wider than `width`."""
    console = rendering_console(max(1, width - indent))
    console.push_theme(THEME)
    # Entities of Markdown can stand for any character, so the rows are made printable as well.
    lines = console.render_lines(_Markdown(printable(text)), pad=False)
    return [_row(line, " " * indent) for line in lines]


def _row(segments: list[Segment], before: str) -> Row:
    plain, styled = before, before
    # Blanks at the end would become rows of their own in a window that becomes narrower.
    while segments and not segments[-1].text.strip():
        segments = segments[:-1]
    for place, segment in enumerate(segments, 1):
        text = printable(segment.text, lines=False)
        text = text.rstrip() if place == len(segments) else text
        plain += text
        styled += (
            segment.style.render(text, color_system=ColorSystem.STANDARD) if segment.style else text
        )
    return Row(plain.rstrip(), styled)


class Start(NamedTuple):
    """Where a part of a text begins that can be rendered by itself.

    Attributes:
        line: the number of its first line.
        in_list: whether it continues the list that the part before it belongs to.
    """

    line: int
    in_list: bool


def part_starts(text: str) -> list[Start]:
    """Return where the text's top-level blocks begin, and the items of its top-level lists."""
    tokens: list[Any] = list(parser().parse(text))
    starts: list[Start] = []
    for token in tokens:
        if token.level == 0 and token.nesting >= 0 and token.map:
            starts.append(Start(token.map[0], in_list=False))
        elif token.level == 1 and token.type == "list_item_open" and token.map[0] > starts[-1].line:
            starts.append(Start(token.map[0], in_list=True))
    return starts
