"""Calls of tools as lines: the call, how it ended, the end of its output, its changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent_runtime.cli.display.diffs import CHANGING, change_of
from agent_runtime.cli.display.figures import seconds_text
from agent_runtime.cli.display.rows import Line, cut
from agent_runtime.cli.terminal import shorten
from agent_runtime_config.counted import counted

SHELLS = frozenset({"bash", "run_command"})
"""The tools whose results are the output of a program."""
OBJECTS = ("command", "pattern", "query", "url", "file_path", "path", "role", "name", "id")
"""The arguments that say most about a call; shown first, without their names."""
PATHS = frozenset({"path", "file_path"})
BULKY = frozenset({"content", "instructions", "input", *CHANGING})
"""Arguments that are too long for one line, or are shown as a change."""
DELEGATED = ("role", "task_key", "background")
"""The arguments to show of a call of `delegate`."""
# Characters of a call, and of one of its arguments, before the line is cut to the terminal's
# width.
CALL_WIDTH = 400
VALUE_WIDTH = 48
RESULT_WIDTH = 60
"""Results of one line are shown whole up to this length."""
HEADLINES = {
    # `a.py: 900 lines, 9,000 bytes; lines 1-300 follow; next: offset=301.`
    "read_file": re.compile(
        r"(?P<all>[\d,]+|many) lines?, (?:.*; lines? (?P<part>[\d,]+(?:-[\d,]+)?) follows?)?"
    ),
    "search": re.compile(r"(?P<all>[\d,]+) matching lines? in [\d,]+ of [\d,]+ files?"),
    "glob": re.compile(r"(?P<all>[\d,]+) entr(?:y|ies)"),
}
LINE_WIDTH = 2_000
"""Columns of a line that is shown on several rows."""
LOOKED_AT = 64 << 10
"""Most characters of an output that are read."""
INSET = 4
"""Columns before the text of a tool, so that it cannot look like a line of this display."""

# Escape sequences of terminals: colours, titles, movements of the cursor.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_EXIT_CODE = re.compile(r"\W*exit(?:ed with)?(?: code)?:? (-?\d+)\b", re.IGNORECASE)


@dataclass(slots=True)
class Detail:
    """How much is shown of results.

    Attributes:
        output: lines of the output of a command that succeeded.
        failed: lines of one that failed, or of an error.
        change: lines of a change to a file.
        result: lines of any other result.
    """

    output: int = 3
    failed: int = 10
    change: int = 14
    result: int = 0


VERBOSE = Detail(output=20, failed=60, change=100, result=20)


@dataclass(slots=True)
class ShownCall:
    """A call that was started.

    Attributes:
        began: seconds on the clock of the display.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    began: float = 0.0

    def line(self, before: str, mark: str) -> Line:
        """Return the call on one line after a mark and a few words: `● 3 bash pytest -q`."""
        text = f"{before} {call_text(self.tool, self.arguments)}".strip()
        # The end of a path tells more than its beginning.
        path = next((self.arguments[one] for one in OBJECTS if one in self.arguments), "")
        keeps_end = any(self.arguments.get(one) == path for one in PATHS) and bool(path)
        return Line(
            text, mark, cut_at=len(f"{before} {self.tool} ".lstrip()) if keeps_end else None
        )


def call_text(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a call on one line, its most telling argument first."""
    # Leave out what is off.
    given = {name: one for name, one in arguments.items() if one is not None and one is not False}
    if tool == "delegate":
        given = {name: given[name] for name in DELEGATED if name in given}
    if tool == "ask_user":
        # The question is on the screen already, with its answer.
        given = {}
    first = next((name for name in OBJECTS if name in given), None)
    parts = [tool]
    if first is not None:
        parts.append(_value(given.pop(first), CALL_WIDTH))
    parts += [
        f"{name}={_value(value, VALUE_WIDTH, quoted=True)}"
        for name, value in given.items()
        if name not in BULKY
    ]
    return shorten(" ".join(parts), CALL_WIDTH)


def _value(value: Any, width: int, *, quoted: bool = False) -> str:
    if isinstance(value, str) and not quoted:
        # Read only the beginning of a very long text.
        return shorten(" ↵ ".join(value[: 4 * width].strip().splitlines()), width)
    return shorten(json.dumps(value, ensure_ascii=False, default=str), width)


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call ended, as its event says.

    Attributes:
        result: the result's text; None where it is not known.
        seconds: how long it took; None where its beginning was not seen.
    """

    call: ShownCall
    outcome: str
    result: str | None = None
    seconds: float | None = None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the program that it ran; None if there is none."""
        if self.call.tool not in SHELLS or self.result is None:
            return None
        first, last = self.result[:200].lstrip(), self.result[-200:].rstrip().rpartition("\n")[2]
        found = _EXIT_CODE.match(first) or _EXIT_CODE.match(last)
        return int(found[1]) if found else None

    @property
    def ok(self) -> bool:
        """Whether the call succeeded, and the program that it ran as well."""
        return self.outcome == "ok" and not self.exit_code

    def lines(self, number: str, detail: Detail) -> Iterator[Line]:
        """Yield the line of the call, then the lines of its error, output or change.

        Args:
            number: the number of the step.
        """
        facts = list(self._facts())
        if self.seconds is not None and self.seconds >= 1:
            facts.append(seconds_text(self.seconds))
        mark, style = ("✓", "green") if self.ok else ("✗", "bad")
        change = change_of(self.call.tool, self.call.arguments) if self.ok else None
        if change is not None:
            facts[:1] = [change.counts()]
        yield replace(self.call.line(number, mark), facts=tuple(facts), mark_style=style)
        if change is not None:
            yield from change.lines(detail.change, INSET)
        elif self.call.tool in SHELLS and self.outcome in ("ok", "error"):
            yield from self._output(detail)
        elif not self.ok:
            yield from _first(self.result, detail.failed, "red")
        elif detail.result and self.result and not self._is_one_line(self.result.strip()):
            yield from _first(self.result, detail.result, "dim")

    def _facts(self) -> Iterator[str]:
        if self.exit_code:
            yield f"exit code {self.exit_code}"
        elif self.outcome != "ok":
            yield self.outcome
        elif self.result is not None and self.call.tool not in SHELLS:
            text = self.result.strip()
            if headline := _headline(self.call.tool, text):
                yield headline
            elif self._is_one_line(text):
                yield text
            else:
                yield counted(text.count("\n") + 1, "line")

    @staticmethod
    def _is_one_line(text: str) -> bool:
        return "\n" not in text and len(text) <= RESULT_WIDTH

    def _output(self, detail: Detail) -> Iterator[Line]:
        """Yield the last lines of a program's output."""
        most = detail.output if self.ok else detail.failed
        lines = output_lines(self.result or "")
        if self.outcome != "ok" and lines:
            # It says why there is no exit code.
            yield Line(lines.pop(0), indent=INSET, style="red", wrapped=True)
        # Leaving out one line saves nothing, because the remark about it is a line too.
        if (left := len(lines) - most) > 1:
            # Lines were counted only in the part that was read.
            some = "more" if len(self.result or "") > LOOKED_AT else f"{left:,} earlier"
            yield Line(f"… {some} lines", indent=INSET, style="dim")
            lines = lines[left:]
        for line in lines:
            yield Line(line, indent=INSET, style="dim")


def _first(result: str | None, most: int, style: str) -> Iterator[Line]:
    """Yield the first lines of a result."""
    whole = result or ""
    lines = output_lines(whole[:LOOKED_AT])
    left = len(lines) - most if len(lines) - most > 1 else 0
    for line in lines[: len(lines) - left]:
        yield Line(cut(line, LINE_WIDTH), indent=INSET, style=style, wrapped=True)
    if left or len(whole) > LOOKED_AT:
        some = "more" if len(whole) > LOOKED_AT else f"{left:,} more"
        yield Line(f"… {some} lines", indent=INSET, style="dim")


def _headline(tool: str, result: str) -> str:
    """Return the counts in the first line of a workspace tool's result; empty if it has none."""
    pattern = HEADLINES.get(tool)
    found = pattern.search(result.partition("\n")[0]) if pattern is not None else None
    if found is None:
        return ""
    if part := found.groupdict().get("part"):
        return f"line{'s' * ('-' in part)} {part} of {found['all']}"
    return found[0].partition(", ")[0] if tool == "read_file" else found[0]


def output_lines(text: str) -> list[str]:
    """Return the lines of an output as a terminal would show them, without the exit code."""
    plain = _ESCAPES.sub("", text[-LOOKED_AT:])
    # A progress bar overwrites its line: keep its last state.
    lines = [line.rstrip("\r").rpartition("\r")[2].expandtabs(4) for line in plain.split("\n")]
    lines = [line.rstrip() for line in lines if line.strip()]
    if lines and _EXIT_CODE.match(lines[0]):
        lines = lines[1:]
    if lines and _EXIT_CODE.match(lines[-1]):
        lines = lines[:-1]
    return lines
