"""A program that turns HTML into readable text, in a process that can be killed.

It is started by its path and imports the standard library only.  On stdin it gets a line of JSON
with the page's address and the most characters to return, then the HTML in UTF-8.  It writes JSON
with the title and the text, which is Markdown.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

# Bytes of address space: a page that needs more ends this program, and nothing else.
MOST_MEMORY = 1 << 30
_SKIPPED = frozenset((
    "script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "select",
    "option", "button", "dialog", "math", "video", "audio",
))  # fmt: skip
_CHROME = frozenset(("nav", "footer", "aside", "header", "form", "menu"))
_MAIN = frozenset(("main", "article"))
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "wbr")
)
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hr", "html", "li", "main", "menu", "nav", "ol", "p", "pre", "section", "summary",
    "table", "tbody", "tfoot", "thead", "tr", "ul",
))  # fmt: skip
_LEAST_MAIN = 400
"""Characters that the marked main part must have to be taken for the whole."""
_SPACE = re.compile(r"[ \t\r\n\f\v\u00a0]+")
_HIDDEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.I)


class PageReader(HTMLParser):
    """Collects the blocks of a page.

    Attributes:
        blocks: text, whether it follows without an empty line, whether it is in the main part,
            and whether it is navigation or the like.
    """

    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.blocks: list[tuple[str, bool, bool, bool]] = []
        self._base = base
        self._inline: list[str] = []
        self._open: list[str] = []
        self._skipped: list[str] = []
        self._links: list[tuple[int, str]] = []
        self._lists: list[int | None] = []
        self._prefix = ""
        self._row: list[str] | None = None
        self._rows = 0
        self._in_title = False
        self._after_item = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        given = dict(attrs)
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.append(tag)
            return
        if tag not in _VOID and (tag in _SKIPPED or _is_hidden(given)):
            self._skipped.append(tag)
            return
        if tag in ("tr", "table"):
            self._end_row()
        if tag in _BLOCKS:
            self._end_block()
        if tag in _MAIN or tag in _CHROME or tag in ("pre", "blockquote", "table"):
            self._open.append(tag)
        self._begin(tag, given)

    def _begin(self, tag: str, given: dict[str, str | None]) -> None:
        if tag == "title" and not self.title:
            self._in_title = True
        elif tag in ("ul", "ol"):
            self._lists.append(1 if tag == "ol" else None)
        elif tag == "li":
            self._prefix = self._item()
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self._prefix = "#" * int(tag[1]) + " "
        elif tag == "table":
            self._rows = 0
        elif tag == "tr":
            self._row = []
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag == "br":
            self._inline.append("\n")
        elif tag == "hr":
            self._add("---")
        elif tag == "img" and (alt := (given.get("alt") or "").strip()):
            self._inline.append(f"[image: {_SPACE.sub(' ', alt)}]")
        elif tag == "code" and "pre" not in self._open:
            self._inline.append("`")
        elif tag == "a":
            self._links.append((len(self._inline), given.get("href") or ""))

    def handle_endtag(self, tag: str) -> None:
        """End an element; one that was not begun changes little."""
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.pop()
            return
        if tag == "title":
            self._in_title = False
        elif tag == "a" and self._links:
            self._end_link()
        elif tag == "code" and "pre" not in self._open:
            self._inline.append("`")
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag in ("tr", "table"):
            self._end_row()
        elif tag in _BLOCKS:
            self._end_block()
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        if tag in self._open:
            # With what was opened inside of it and never ended, as pages often leave it.
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._skipped:
            return
        if self._in_title:
            self.title += data
        elif "pre" in self._open:
            self._inline.append(data)
        else:
            self._inline.append(_SPACE.sub(" ", data))

    def close(self) -> None:
        """End what is open."""
        super().close()
        self._end_row()
        self._end_block()

    def _item(self) -> str:
        indent = "  " * max(len(self._lists) - 1, 0)
        number = self._lists[-1] if self._lists else None
        if number is None:
            return f"{indent}- "
        self._lists[-1] = number + 1
        return f"{indent}{number}. "

    def _end_link(self) -> None:
        start, href = self._links.pop()
        text = "".join(self._inline[start:]).strip()
        try:
            url = urljoin(self._base, href.strip())
        except ValueError:
            return
        same = url.partition("#")[0] == self._base.partition("#")[0]
        if not text or same or not url.startswith(("http://", "https://")) or "\n" in text:
            return
        del self._inline[start:]
        self._inline.append(f"[{text}]({url.replace(' ', '%20')})")

    def _text(self) -> str:
        text = "".join(self._inline)
        self._inline.clear()
        self._links.clear()
        return text

    def _end_cell(self) -> None:
        text = " ".join(self._text().split())
        if self._row is None:
            self._inline.append(text)
        elif text:
            self._row.append(text.replace("|", "\\|"))

    def _end_row(self) -> None:
        row = self._row
        if row is None:
            return
        self._end_cell()
        self._row = None
        if row:
            self._add(f"| {' | '.join(row)} |", tight=self._rows > 0)
            if not self._rows:
                self._add("|" + "---|" * len(row), tight=True)
            self._rows += 1

    def _end_block(self) -> None:
        # Blocks inside of a cell stay in its line, or the table would break.
        if self._row is not None:
            self._inline.append(" ")
            return
        raw = self._text()
        if "pre" in self._open:
            if raw.strip():
                # A longer fence, where the text itself has one.
                fence = "```" + "`" * ("```" in raw)
                self._add(f"{fence}\n{raw.strip(chr(10))}\n{fence}")
            return
        lines = (" ".join(line.split(" ")).strip() for line in raw.split("\n"))
        text = "\n".join(line for line in lines if line)
        if text:
            prefix, self._prefix = self._prefix, ""
            if "blockquote" in self._open:
                prefix = f"> {prefix}"
            is_item = prefix.endswith(("- ", ". "))
            self._add(prefix + text, tight=is_item and self._after_item)
            self._after_item = is_item

    def _add(self, text: str, *, tight: bool = False) -> None:
        self._after_item = False
        main = any(one in _MAIN for one in self._open)
        self.blocks.append(
            (text, tight, main, not main and any(one in _CHROME for one in self._open))
        )


def _is_hidden(given: dict[str, str | None]) -> bool:
    hidden = "hidden" in given or (given.get("aria-hidden") or "").lower() == "true"
    return hidden or bool(_HIDDEN.search(given.get("style") or ""))


def readable(html: str, base: str, most: int) -> dict[str, str]:
    """Return the title of a page and its text without navigation, as Markdown."""
    reader = PageReader(base)
    reader.feed(html)
    reader.close()
    main = [one for one in reader.blocks if one[2]]
    plain = [one for one in reader.blocks if not one[3]]
    chosen = main if _size(main) >= _LEAST_MAIN else plain
    # A part that was never ended may have taken in nearly everything.
    if _size(chosen) * 5 < _size(reader.blocks):
        chosen = reader.blocks
    parts: list[str] = []
    for text, tight, _, _ in chosen:
        parts.append(("\n" if tight else "\n\n") + text)
    return {"title": " ".join(reader.title.split())[:300], "text": "".join(parts).strip()[:most]}


def _size(blocks: list[tuple[str, bool, bool, bool]]) -> int:
    return sum(len(one[0]) for one in blocks)


def main() -> None:
    """Read one page from stdin, and write its text to stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    options = json.loads(sys.stdin.buffer.readline())
    html = sys.stdin.buffer.read().decode("utf-8", "replace")
    found = readable(html, options["base"], options["most"])
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
