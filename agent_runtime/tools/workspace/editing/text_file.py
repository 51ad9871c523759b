"""`TextFile`: a file's text, with what its bytes need to stay as they are."""

from __future__ import annotations

import bisect
import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent_runtime.errors import ToolError

_BOMS = (
    # That of UTF-32 begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ESCAPED = re.compile("[\udc80-\udcff]")
_CRLF = re.compile("\r\n")

Span = tuple[int, int]


class NotText(ValueError):
    """The bytes are no text in any encoding that is recognised."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file's text; line ends, encoding and byte order mark stay as they are when it is written.

    Attributes:
        raw: the text with its own line ends; bytes that are not UTF-8 as lone surrogates.
        encoding: the name of Python's codec.
        bom: the byte order mark, which is not in `raw`.
    """

    raw: str = ""
    encoding: str = "utf-8"
    bom: bytes = b""

    @classmethod
    def of(cls, data: bytes) -> TextFile:
        """Return the text of a file's bytes.

        Without a byte order mark they are UTF-8.  Where more bytes are not UTF-8 than are, they
        are taken for Windows-1252, which also covers Latin-1.

        Raises:
            NotText: they are binary.
        """
        for bom, encoding in _BOMS:
            if data.startswith(bom):
                try:
                    return cls(data[len(bom) :].decode(encoding), encoding, bom)
                except UnicodeDecodeError:
                    raise NotText from None
        # UTF-16 without a mark has zero bytes too, but cannot be distinguished from data.
        if b"\0" in data:
            raise NotText
        raw = data.decode("utf-8", "surrogateescape")
        if raw.isascii() or not (escaped := len(_ESCAPED.findall(raw))):
            return cls(raw)
        # Mostly valid UTF-8, with some broken bytes, which are kept as they are.
        if sum(not char.isascii() for char in raw) > 2 * escaped:
            return cls(raw)
        try:
            return cls(data.decode("cp1252"), "cp1252")
        except UnicodeDecodeError:
            # It has a character for every byte, so this cannot fail.
            return cls(data.decode("latin-1"), "latin-1")

    @property
    def text(self) -> str:
        """The text with `\\n` as its line ends, as models see and write it."""
        return self.raw.replace("\r\n", "\n")

    @property
    def notes(self) -> list[str]:
        """What a model should know of the bytes."""
        notes: list[str] = []
        if "\r\n" in self.raw:
            notes.append("CRLF line ends, kept")
        if self.encoding != "utf-8":
            notes.append(f"encoding {self.encoding}, kept")
        if self.encoding == "utf-8" and _ESCAPED.search(self.raw):
            notes.append("bytes that are not UTF-8 are shown as �")
        return notes

    def encode(self) -> bytes:
        """Return the bytes of the file.

        Raises:
            ToolError: its encoding lacks a character.
        """
        # Only bytes that were read may be written as such, not surrogates that a model wrote.
        errors = "surrogateescape" if self.encoding == "utf-8" else "strict"
        try:
            return self.bom + self.raw.encode(self.encoding, errors)
        except UnicodeEncodeError as error:
            lacking = self.raw[error.start : error.start + 1]
            raise ToolError(
                f"The file's encoding, {self.encoding}, has no character {lacking!r}.",
                cure="Write it in another way, or convert the file to UTF-8 first.",
            ) from None

    def replaced(self, spans: Sequence[Span], new: str) -> TextFile:
        """Return the file with places of its `text`, in order, replaced.

        Line ends in `new` become those of the text that it replaces, else the file's usual ones.

        Raises:
            ToolError: `new` holds what no encoding can.
        """
        new = written(new)
        ends = [one.start() for one in _CRLF.finditer(self.raw)]
        # Where they are in `text`, which has one character less for each before it.
        places = [end - index for index, end in enumerate(ends)]
        pieces: list[str] = []
        reached = 0
        for start, end in spans:
            first = start + bisect.bisect_left(places, start)
            last = end + bisect.bisect_left(places, end)
            old = self.raw[first:last]
            # The line ends of what is replaced decide, because a file may have both kinds.
            windows = "\r\n" in old or ("\n" not in old and self._mostly_windows(len(ends)))
            pieces += (self.raw[reached:first], new.replace("\n", "\r\n") if windows else new)
            reached = last
        return replace(self, raw="".join((*pieces, self.raw[reached:])))

    def rewritten(self, text: str) -> TextFile:
        """Return the file with another text in place of all of it.

        Raises:
            ToolError: the text holds what no encoding can.
        """
        text = written(text)
        if self._mostly_windows(self.raw.count("\r\n")):
            text = text.replace("\n", "\r\n")
        return replace(self, raw=text)

    def appended(self, text: str) -> bytes:
        """Return the bytes that add a text to the end of the file.

        Raises:
            ToolError: the text cannot be encoded.
        """
        return replace(self.rewritten(text), bom=b"").encode()

    def _mostly_windows(self, windows: int) -> bool:
        return windows > 0 and 2 * windows >= self.raw.count("\n")


def shown(text: str) -> str:
    """Return a text as models see it: bytes that are not UTF-8 as `�`."""
    return _ESCAPED.sub("�", text)


def written(text: str) -> str:
    """Return what a model wrote, with `\\n` as its line ends.

    Raises:
        ToolError: it cannot be encoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"The text cannot be written as UTF-8: {error.reason}.") from None
    return text.replace("\r\n", "\n")
