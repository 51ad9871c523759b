"""The files of recorded Claude Code runs, as far as the runs' own reads and writes show them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import orjson
import zstandard

SOURCE = "claude_code_traces"
PAGE = 2000
"""The lines that a read without a range shows at most."""

Failure = Literal[
    "not found", "not unique", "not read", "changed", "no change", "no file", "other", "refused"
]
_NUMBERED = re.compile(r"^ *(\d+)→(.*)$", re.MULTILINE)
_FAILURES: tuple[tuple[Failure, str], ...] = (
    ("not found", "String to replace not found"),
    ("not unique", "matches of the string to replace"),
    ("not read", "has not been read yet"),
    ("changed", "modified since read"),
    ("no change", "exactly the same"),
    ("no file", "does not exist"),
)
_REFUSED = ("doesn't want to proceed", "rejected", "Sibling tool call", "was cancelled", "denied")


@dataclass(frozen=True, slots=True)
class FileCall:
    """A call that reads or changes one file.

    Attributes:
        failure: why it failed there; empty if it did not.
    """

    name: str
    path: str
    arguments: Mapping[str, Any]
    result: str
    failure: Failure | Literal[""]


def file_calls(folder: Path) -> Iterator[list[FileCall | None]]:
    """Yield the calls on files of each run, in order; None where its context was compacted."""
    with (folder / SOURCE / "traces.jsonl.zst").open("rb") as file:
        text = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        for line in text:
            yield list(_calls(orjson.loads(line)["messages"]))


def _calls(messages: list[dict[str, Any]]) -> Iterator[FileCall | None]:
    made: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for message in messages:
        if message.get("compact_summary"):
            yield None
        for call in message.get("tool_calls") or ():
            function = call["function"]
            try:
                arguments = orjson.loads(function["arguments"] or "{}")
            except orjson.JSONDecodeError:
                continue
            made[call["id"]] = function["name"], arguments
        if message["role"] == "tool" and message["tool_call_id"] in made:
            name, arguments = made[message["tool_call_id"]]
            path = arguments.get("file_path")
            if name in ("Read", "Edit", "MultiEdit", "Write") and isinstance(path, str):
                result = _text(message["content"])
                yield FileCall(name, path, arguments, result, _failure(result))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [cast("dict[str, Any]", one) for one in parts if isinstance(one, dict)]
    return "\n".join(str(one.get("text", "")) for one in texts)


def _failure(result: str) -> Failure | Literal[""]:
    begin = result[:600]
    if any(mark in begin for mark in _REFUSED) and not _NUMBERED.search(begin):
        return "refused"
    if "<tool_use_error>" not in begin and not begin.startswith("Error"):
        return ""
    for kind, mark in _FAILURES:
        if mark in begin:
            return kind
    return "other"


def shown_lines(result: str) -> dict[int, str]:
    """Return the numbered lines that a result shows."""
    return {int(number): line for number, line in _NUMBERED.findall(result)}


@dataclass(slots=True)
class KnownFile:
    """What a run has seen of a file: its lines, with others in place of those not seen.

    Attributes:
        whole: whether all of it is known.
    """

    lines: list[str] = field(default_factory=list[str])
    whole: bool = False

    @property
    def text(self) -> str:
        """The known text, with a line that nothing is like for each that is not known."""
        return "".join(f"{line}\n" for line in self.lines)

    def see(self, shown: Mapping[int, str], *, whole: bool) -> None:
        """Take up lines that a read has shown."""
        if whole:
            self.lines, self.whole = [line for _, line in sorted(shown.items())], True
            return
        last = max(shown)
        for number in range(len(self.lines) + 1, last + 1):
            self.lines.append(_unknown(number))
        differs = [
            number
            for number, line in shown.items()
            if self.lines[number - 1] != line and not _is_unknown(self.lines[number - 1])
        ]
        if differs:
            # Changed by another program: lines may have moved, so the rest is not known any more.
            self.lines = [_unknown(number) for number in range(1, len(self.lines) + 1)]
            self.whole = False
        for number, line in shown.items():
            self.lines[number - 1] = line

    def write(self, text: str) -> None:
        """Take up a new text of the whole file, or of what is known of it."""
        self.lines = text.removesuffix("\n").split("\n")


def _unknown(number: int) -> str:
    return f"\x01{number}\x01"


def _is_unknown(line: str) -> bool:
    return line.startswith("\x01")
