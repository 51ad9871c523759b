"""The facts of a recorded run that its notes should keep, found without the product's own rules.

They are what edits wrote, the newest verdict of each test command, the names of its failing tests,
what the agent said before a short answer, and what the user requires.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent_runtime.messages import AssistantMessage, Note, ToolCall, ToolResult, UserMessage
from agent_runtime.prompt.view import Entry

Fact = Literal["edits", "verdicts", "failing tests", "proposals", "constraints"]

SHORT_ANSWER = 120
"""Characters of an answer that says little alone."""
LEAST_LINE = 8
"""Characters of a new line that is worth looking for, of which `LINE` are."""
LINE = 60

_TEST = re.compile(
    r"(?:^|[;&|(]\s*|\s)(?:python3? -m (?:pytest|unittest)|pytest|go test|cargo test|"
    r"(?:npm|pnpm|yarn) (?:run )?test\S*|npx (?:jest|vitest)|jest|vitest|mvn test|mise run test\S*|"
    r"(?:python3? )?\S*runtests\.py)(?=\s|$)[^\n;|]*"
)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|<<\s*'?(\w+)'?.*?\n\1\b", re.DOTALL)
_INSTALLS = re.compile(r"\b(?:pip3?|apt\S*|conda) (?:install|list|show|download)\b|\bwhich ")
_ITEM = re.compile(r"^(?:[-*+] |\d+[.)] )")
_NOISE = re.compile(r"\s(?:\d?>&?\S*|-v+|-q|-x\w*|--tb=\S+|-count=\d+)(?=\s|$)")
_HEREDOC = re.compile(
    r"\bcat\s*>\s*(?P<path>[\w./-]+)\s*<<\s*'?(?P<end>\w+)'?\n(?P<body>.*?)\n(?P=end)\b", re.DOTALL
)
_EXIT = re.compile(r"<returncode>(-?\d+)</returncode>|^Exit code (\d+)")
_FAILED = re.compile(
    r"^(?:FAIL\b|--- FAIL|FAILED|.*\b[1-9]\d* (?:failed|failures?|errors?)\b|test result: FAILED)"
    r"|^.*No module named|^\S*Error\b",
    re.MULTILINE,
)
_PASSED = re.compile(
    r"^(?:ok\s+\S|PASS\b|OK\b|=*.*\b\d+ passed\b|test result: ok|.*\b\d+ passing\b)", re.MULTILINE
)
_FAILING = re.compile(
    r"^(?:FAILED \S*?::(\w+)|\S+::(\w+)(?:\[.*?\])? FAILED|\s*--- FAIL: (\w+)"
    r"|(?:FAIL|ERROR): (\w+) \()",
    re.MULTILINE,
)
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\s*\n\s*")
_MUST = re.compile(r"\b(?:must|never|always|don't|do not|make sure)\b", re.IGNORECASE)
_RUNTIME = re.compile(r"^\s*<|caveat|system-reminder", re.IGNORECASE)
_VERDICT = re.compile(r"^\* (passed|failed) \((\d+)\)", re.MULTILINE)


@dataclass(slots=True)
class Kept:
    """How many facts of each kind there are, and how many of them are kept."""

    of: dict[Fact, int] = field(default_factory=dict[Fact, int])
    kept: dict[Fact, int] = field(default_factory=dict[Fact, int])
    stale: int = 0

    def count(self, fact: Fact, *, kept: bool) -> None:
        """Count a fact."""
        self.of[fact] = self.of.get(fact, 0) + 1
        self.kept[fact] = self.kept.get(fact, 0) + kept

    def share(self, fact: Fact) -> float:
        """Return the kept share of a kind of facts; 1 if there is none."""
        of = self.of.get(fact, 0)
        return round(self.kept.get(fact, 0) / of, 4) if of else 1.0


def count_facts(entries: Sequence[Entry], shown: str, kept: Kept) -> None:
    """Count the facts of nodes that left the prompt, and those that a text still tells."""
    plain = _plain(shown)
    for path, lines in written(entries):
        named = path.rsplit("/", 1)[-1] in shown and any(line in plain for line in lines)
        kept.count("edits", kept=named)
    verdicts = {int(node): word == "passed" for word, node in _VERDICT.findall(shown)}
    for runs in test_runs(entries).values():
        last = runs[-1]
        kept.count("verdicts", kept=verdicts.get(last.node) == last.passed)
        mentioned = [one.node for one in runs if one.node in verdicts]
        kept.stale += bool(mentioned) and verdicts[mentioned[-1]] != last.passed
        for name in last.failing:
            kept.count("failing tests", kept=name in shown)
    for sentence in proposed(entries):
        kept.count("proposals", kept=sentence in plain)
    for sentence in required_by_user(entries):
        kept.count("constraints", kept=sentence in plain)


def _plain(text: str) -> str:
    return " ".join(text.replace('"', "'").split())


# Edits


def written(entries: Sequence[Entry]) -> Iterator[tuple[str, list[str]]]:
    """Yield the file and the new lines of each edit by a tool for edits."""
    for _, call, result in _calls(entries):
        command = call.arguments.get("command")
        for match in _HEREDOC.finditer(command) if isinstance(command, str) else ():
            if lines := [line for line in _lines(match["body"]) if len(line) >= LEAST_LINE]:
                yield match["path"], [line[:LINE] for line in lines]
        path = call.arguments.get("file_path") or call.arguments.get("path")
        new = call.arguments.get("new_string", call.arguments.get("content"))
        if result.outcome != "ok" or not isinstance(path, str) or not isinstance(new, str):
            continue
        old = {_plain(line) for line in str(call.arguments.get("old_string", "")).splitlines()}
        lines = [line for line in _lines(new) if len(line) >= LEAST_LINE and line not in old]
        if lines:
            yield path, [line[:LINE] for line in lines]


def edited(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the file of each edit by a tool for edits, also of those that only remove lines."""
    for _, call, result in _calls(entries):
        command = call.arguments.get("command")
        for match in _HEREDOC.finditer(command) if isinstance(command, str) else ():
            yield match["path"]
        path = call.arguments.get("file_path") or call.arguments.get("path")
        new = call.arguments.get("new_string", call.arguments.get("content"))
        if result.outcome == "ok" and isinstance(path, str) and isinstance(new, str):
            yield path


def _lines(text: str) -> list[str]:
    return [_plain(line) for line in text.splitlines()]


def _calls(entries: Sequence[Entry]) -> Iterator[tuple[int, ToolCall, ToolResult]]:
    for entry in entries:
        if isinstance(entry.message, AssistantMessage):
            for call, result in zip(entry.message.calls, entry.results, strict=True):
                yield entry.seq, call, result


# Tests


@dataclass(frozen=True, slots=True)
class TestRun:
    """A run of a test command."""

    __test__ = False

    node: int
    passed: bool
    failing: tuple[str, ...]


def test_runs(entries: Sequence[Entry]) -> dict[str, list[TestRun]]:
    """Return the runs of each test command whose outcome is plain, by its words."""
    runs: dict[str, list[TestRun]] = {}
    for node, call, result in _calls(entries):
        command = call.arguments.get("command")
        if not isinstance(command, str):
            continue
        plain = _QUOTED.sub(lambda one: "_" * len(one[0]), command)
        found = [one for one in _TEST.finditer(plain) if not _INSTALLS.search(plain, 0, one.end())]
        # Of several in one call, the output is that of all.
        if len(found) != 1 or (passed := outcome_of(command, result)) is None:
            continue
        text = command[found[0].start() : found[0].end()].strip(" ;&|(")
        name = " ".join(_NOISE.sub(" ", f"{text} ").split())
        failing = () if passed else tuple(dict.fromkeys(_failing(result.text)))
        runs.setdefault(name, []).append(TestRun(node, passed, failing))
    return runs


def outcome_of(command: str, result: ToolResult) -> bool | None:
    text = result.text
    failed, passed = _FAILED.search(text), _PASSED.search(text)
    if failed or passed:
        return not failed
    code = _EXIT.search(text)
    if result.outcome == "error" or (code and (code[1] or code[2]) != "0"):
        return False
    # Behind a pipe or among other commands, an exit code says nothing of the tests.
    return True if code and not re.search(r"[|;]", _QUOTED.sub("", command)) else None


def _failing(text: str) -> Iterator[str]:
    for match in _FAILING.finditer(text):
        yield next(filter(None, match.groups()))


# What was said


def proposed(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the sentences of what the agent said last before a short answer of the user."""
    before: str = ""
    for entry in entries:
        message = entry.message
        if isinstance(message, AssistantMessage):
            before = "" if message.calls else message.text
            continue
        if _by_user(message) and before and 0 < len(message.text) <= SHORT_ANSWER:
            sentences = map(_plain, _SENTENCE.split(before))
            yield from (one for one in sentences if len(one) > SHORT_ANSWER // 10)
        before = ""


def required_by_user(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the sentences of the user that say what must be or must not be."""
    for entry in entries:
        text = entry.message.text
        if not _by_user(entry.message) or _RUNTIME.search(text) or "```" in text:
            continue
        for sentence in (_ITEM.sub("", _plain(one)) for one in _SENTENCE.split(text)):
            if _MUST.search(sentence) and len(sentence) <= 300 and not sentence.endswith("?"):
                yield sentence


def _by_user(message: object) -> bool:
    return isinstance(message, UserMessage) or (
        isinstance(message, Note) and message.source == "steer"
    )
