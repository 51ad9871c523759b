"""A reader without a model that answers questions about a run from a text alone.

It reads what a prompt shows, raw messages and observations, or what `recall` returns to queries
made of the question's own words and to the handles in its answers.  It knows no answer beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from agent_runtime.messages import (
    AssistantMessage,
    PromptMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    call_id,
)
from agent_runtime.prompt.view import Entry
from benchmarks.memory.trace_questions import BACK, START, TraceQuestion, flat, reasons
from benchmarks.replay.survival_facts import edited, outcome_of, test_runs, written

Recall = Callable[[str, str], Awaitable[str]]
"""Returns what `recall` answers to a handle or a query; one of them is empty."""

_ROOT = re.compile(r"\$=(\S+)")
_OBSERVED = re.compile(r"<observed \S+ nodes \d+ to \d+>\n(.*?)\n</observed \S+>", re.DOTALL)
_VERDICT = re.compile(r"^\* (passed|failed) \((\d+)\): (.*)$")
_CHANGE = re.compile(
    r"^\*(?: (?P<path>\S+))? \((?P<node>\d+)(?:, (?P<times>\d+) times)?\): (?P<what>.*)$"
)
_LINE = re.compile(r"^(?:\d\d:\d\d )?(?:!!|!|-|\+) (?:\((?P<node>\d+)\) )?(?P<text>.*)$")
_HEADER = re.compile(r"^\[\w+ \| (?:node )?(?P<node>\w+) \| (?P<rest>.*)\]$", re.MULTILINE)
_ARGUMENT = re.compile(
    r"(command|description|file_path|old_string|new_string|content|timeout|replace_all): ?"
)
_OPTION = re.compile(r"-+[a-z]+$")
_WORD = re.compile(r"[^\s'\"]+")
_LITTLE = frozenset(("python", "python3", "-m", "npx", "run", "./...", "."))


@dataclass(slots=True)
class Known:
    """What a text tells.

    Attributes:
        entries: messages and exchanges that it shows as they were.
        verdicts: of notes: whether it passed, and the check.
        changes: of notes: the node, the path and the change.
        lines: of notes: the node, 0 if unknown, and the text.
    """

    entries: list[Entry] = field(default_factory=list[Entry])
    verdicts: list[tuple[int, bool, str]] = field(default_factory=list[tuple[int, bool, str]])
    changes: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    lines: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    text: str = ""


def read_prompt(messages: Sequence[PromptMessage], entries: Sequence[Entry]) -> Known:
    """Return what a prompt tells: its observations, and its raw nodes as it shows them."""
    known = Known(entries=list(entries))
    for message in messages:
        for observed in _OBSERVED.findall(message.text) if message.role == "user" else ():
            _read_notes(known, observed)
    known.text = flat("\n".join(message.text for message in messages))
    return known


def _read_notes(known: Known, text: str) -> None:
    root = found[1] if (found := _ROOT.search(text)) else ""
    path, node = "", 0
    for line in text.replace("$/", f"{root}/").splitlines():
        if match := _VERDICT.match(line):
            known.verdicts.append((int(match[2]), match[1] == "passed", match[3]))
            known.lines.append((int(match[2]), match[3]))
        elif match := _CHANGE.match(line):
            path = match["path"] or path
            change = (int(match["node"]), path, match["what"])
            known.changes += [change] * int(match["times"] or 1)
        elif match := _LINE.match(line):
            node = int(match["node"] or node)
            known.lines.append((node, match["text"]))


def answer(question: TraceQuestion, known: Known) -> str:
    """Return the answer that the text gives; empty if it gives none."""
    match question.form:
        case "said":
            return _after(question.about[0], known.text)
        case "output":
            return _output(question.about[0], known)
        case "failure":
            return _failure(question.about[1], known)
        case "reason":
            return _reason(question.about[1], known)
        case "verdict":
            passed = _verdict(question.about[0], known)
            return "" if passed is None else "passed" if passed else "failed"
        case "content":
            return _content(question.about[0], known)
        case "edits":
            return _edits(question.about, known)
        case "failing":
            return str(sum(_verdict(name, known) is False for name in question.about))


def is_right(question: TraceQuestion, given: str) -> bool:
    """Return whether an answer is one of the question's."""
    if question.form == "failure":
        return any(_same_command(one, given) for one in question.answers)
    if question.form in ("content", "output", "reason", "said"):
        given = flat(given)
        # Notes may shorten a long line, but not to what many lines begin with.
        return any(
            given[:START] == one[:START] or (len(given) > START // 2 and one.startswith(given))
            for one in question.answers
        )
    return given in question.answers


async def recalled(question: TraceQuestion, known: Known, recall: Recall) -> Known:
    """Return what the text and `recall` tell together, asked for what the question names."""
    nodes: set[int] = set()
    for name in question.about[-1:]:
        found = await recall("", name[:200])
        for match in list(_HEADER.finditer(found))[:4]:
            number = re.search(r"node (\d+)", match[0])
            plain = match["node"]
            if number or plain.isdecimal():
                nodes.add(int(number[1] if number else plain))
    if question.form in ("failure", "reason"):
        nodes = {node - back for node in nodes for back in range(BACK + 1)}
    seen = {entry.seq for entry in known.entries}
    opened = [
        _entry(node, await recall(str(node), "")) for node in sorted(nodes - seen) if node > 0
    ]
    entries = sorted([*(one for one in opened if one), *known.entries], key=lambda one: one.seq)
    more = flat("\n".join(text for one in opened if one for text in _texts(one)))
    return Known(entries, known.verdicts, known.changes, known.lines, f"{known.text} {more}")


def _texts(entry: Entry) -> Iterator[str]:
    yield entry.message.text
    for result in entry.results:
        yield result.text


def _entry(node: int, opened: str) -> Entry | None:
    """Return the message or exchange that `recall` shows of a node."""
    headers = list(_HEADER.finditer(opened))
    said = ""
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    user: str | None = None
    for header, after in zip(headers, [*headers[1:], None], strict=True):
        text = opened[header.end() : after.start() if after else len(opened)].strip("\n")
        rest = header["rest"]
        if "| agent, calls " in rest:
            name = rest.split("| agent, calls ")[1].split(" |")[0].split(",")[0]
            calls.append(ToolCall(call_id(node, len(calls)), name, _arguments(text)))
        elif "| agent |" in rest:
            said = text
        elif found := re.search(r"\| tool \S+ \((\w+)\)", rest):
            results.append(ToolResult(text, "ok" if found[1] == "ok" else "error"))
        elif "| user" in rest:
            user = text
    if user is not None:
        return Entry(node, node - 1 or None, UserMessage(user))
    if not said and not calls:
        return None
    calls = calls[: len(results)]
    return Entry(node, node - 1 or None, AssistantMessage(said, tuple(calls)), tuple(results))


def _arguments(text: str) -> dict[str, str]:
    """Return arguments as `recall` shows them: `name: value`, where a value may have more lines."""
    known: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        found = re.match(
            r"(command|description|file_path|old_string|new_string|content|timeout|replace_all): ?",
            line,
        )
        if found:
            name = found[1]
            known[name] = line[found.end() :]
        elif name:
            known[name] += f"\n{line}"
    return known


# Forms


def _after(start: str, text: str) -> str:
    place = text.find(start)
    return text[place + len(start) :][:START] if place >= 0 else ""


def _commands(known: Known) -> Iterator[tuple[int, str, ToolResult]]:
    for entry in known.entries:
        calls = entry.message.calls if isinstance(entry.message, AssistantMessage) else ()
        for call, result in zip(calls, entry.results, strict=False):
            command = call.arguments.get("command")
            if isinstance(command, str):
                yield entry.seq, command, result


def _output(name: str, known: Known) -> str:
    for _, command, result in _commands(known):
        # Not those that only begin alike: `pytest -v | tail` is another command than `pytest -v`.
        if flat(command)[: 2 * START] == name:
            lines = [flat(line) for line in result.text.splitlines() if len(flat(line)) > 10]
            return lines[-1] if lines else ""
    for _, text in known.lines:
        if name[:START] in flat(text) and " -> " in text:
            return text.rsplit(" -> ", 1)[1].split("; ")[0].strip('"')
    return ""


def _verdict(name: str, known: Known) -> bool | None:
    if runs := test_runs(known.entries).get(name):
        return runs[-1].passed
    wanted = _words(name)
    noted = [
        passed for _, passed, check in known.verdicts if _words(check.split("; ")[0]) == wanted
    ]
    return noted[-1] if noted else None


def _words(command: str) -> frozenset[str]:
    words = (word.removeprefix("./") for word in _WORD.findall(command.split(" (in ")[0]))
    return frozenset(
        word for word in words if word not in _LITTLE and not re.match(r"-+[a-z]+$", word)
    )


def _content(path: str, known: Known) -> str:
    found = [(node, _added(what)) for node, target, what in known.changes if target == path]
    for entry in known.entries:
        found += [(entry.seq, lines[0]) for target, lines in written([entry]) if target == path]
    # Of edits in one node the last; what is raw after what notes tell of it.
    return max(enumerate(found), key=lambda one: (one[1][0], one[0]), default=(0, (0, "")))[1][1]


def _added(what: str) -> str:
    first = what.removeprefix("+ ").split(" / ")[0].split("; - ")[0]
    return re.sub(r" \(\d+ more\)$", "", first).split(" … ")[0]


def _edits(about: tuple[str, ...], known: Known) -> str:
    raw = list(edited(known.entries))
    shown = {entry.seq for entry in known.entries}
    # What a shell moved, deleted or replaced is no edit.
    noted = [
        path
        for node, path, what in known.changes
        if node not in shown and what.startswith(("+ ", "- ", "spaces only:", "reordered:"))
    ]
    if not about:
        return str(len({*raw, *noted}))
    return str([*raw, *noted].count(about[0]))


def _edit_node(line: str, known: Known) -> int:
    """Return the node of the edit that wrote a line; 0 if the text does not tell."""
    for entry in known.entries:
        if any(line in lines for _, lines in written([entry])):
            return entry.seq
    start = flat(line)[:START]
    return next((node for node, _, what in known.changes if start in flat(what)), 0)


def _failure(line: str, known: Known) -> str:
    if not (node := _edit_node(line, known)):
        return ""
    found: list[tuple[int, str]] = []
    for seq, command, result in _commands(known):
        if node - BACK <= seq < node and (
            result.outcome != "ok" or outcome_of(command, result) is False
        ):
            found.append((seq, command))
    for seq, passed, check in known.verdicts:
        if seq < node and not passed:
            found.append((seq, check.split("; ")[0]))
    for seq, text in known.lines:
        # An edit or a read that failed is no command.
        if seq < node and (match := re.match(r"[Bb]ash (.*?) (?:failed|exit \d+):", text)):
            found.append((seq, match[1]))
    return max(found, default=(0, ""), key=lambda one: one[0])[1]


def _same_command(one: str, other: str) -> bool:
    if not other:
        return False
    if flat(other)[:START] == flat(one)[:START]:
        return True
    return bool(wanted := _words(other)) and wanted <= _words(one)


def _reason(line: str, known: Known) -> str:
    if not (node := _edit_node(line, known)):
        return ""
    found: list[tuple[int, str]] = []
    for entry in known.entries:
        if node - BACK <= entry.seq <= node and isinstance(entry.message, AssistantMessage):
            found += [(entry.seq, reason) for reason in reasons(entry.message.text)]
    found += [(seq, text) for seq, text in known.lines if seq <= node and reasons(text)]
    return max(found, default=(0, ""), key=lambda one: one[0])[1]
