"""The Observer without a model: it picks out what was said and done, by rule.

It keeps every statement of the user and every error; then, as far as its size allows, the plan,
what the agent found and decided, what it did in a line for each run of similar calls, and
identifiers of what it saw.  The same interval gives the same notes, in time linear in its length.

What does not fit goes in this order: identifiers, the oldest actions, the oldest conclusions, the
wording of errors, the wording of the user, each down to a beginning that names its node; at last a
line that names the nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import anyio.lowlevel

from agent_runtime.messages import (
    AssistantMessage,
    Note,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_runtime.rendering import message_tokens
from agent_runtime.tokens import count_text
from agent_runtime.view import Entry

from .ledger import LONGEST, identifiers
from .observation import Line, Notes, Priority, render_notes
from .observer import Interval, Observed
from .rules import (
    Verb,
    binding,
    ends,
    error_lines,
    exit_code,
    numbers,
    one_line,
    outcome_line,
    read_part,
    sentences,
    shorten,
    verb_of,
    weight_of,
    words,
)
from .transcript import time_of

SHARE = 0.1
"""How large notes are wanted, as a share of what they stand for."""
MOST = 0.5
"""How large the user's statements and errors may make them."""
LEAST = 200
"""Tokens that notes may always have; a short interval cannot be told in a tenth."""
LINE_CHARS = 500
"""The longest line of a statement; a longer statement is split."""

Kind = Literal["user", "error", "plan", "conclusion", "action", "background"]

_LINE_TOKENS = 10
_RUN = 6
_STATEMENT = (100, 500, 1600, 6000)
_FIRST_ROUNDS = (8, 20)
_LAST_ROUNDS = (40, 240)
_MOST_NAMES = 240
_PLACE = re.compile(r"[-:][0-9]+[-:]?$")
_OWN, _DEFINED = 6, 3
_DEFINING = words(
    "def class func function fn struct interface type enum const let var val trait impl module "
    "export package namespace record"
)
_TEXT_KEYS = words(
    "content new_string old_string new_str old_str file_text text body patch todos edits"
)

# In this order what is wanted is granted, each kind's newest first: (kind, form).
_KEPT: tuple[tuple[Kind, int], ...] = (("user", 0), ("error", 0), ("user", 1))
_WANTED: tuple[tuple[Kind, int], ...] = (
    ("plan", 0),
    ("user", 2),
    ("conclusion", 0),
    ("action", 0),
    ("error", 1),
    ("background", 0),
    ("action", 1),
)


@dataclass(slots=True)
class _Item:
    """Something that may be told.

    Attributes:
        forms: its text, from the shortest that is worth telling to the whole.
        names: identifiers that belong to it, the likeliest to be needed first.
        granted: which form is told; -1 for none.
        added: the names that are told beside it.
        reached: how many of its names were looked at for that.
        times: how often it happened.
    """

    at: str
    seq: int
    kind: Kind
    priority: Priority
    forms: tuple[str, ...]
    names: tuple[str, ...] = ()
    granted: int = -1
    added: list[str] = field(default_factory=list[str])
    reached: int = 0
    times: int = 1

    def text(self) -> str:
        """Return what is told of it."""
        text = self.forms[self.granted]
        if self.times > 1:
            text = f"{text} ({self.times} times)"
        return f"{text}; {', '.join(self.added)}" if self.added else text


class ExtractiveObserver:
    """An `Observer` that needs no model and costs nothing.

    Args:
        share: how large notes are wanted, as a share of what they stand for.
    """

    def __init__(self, share: float = SHARE) -> None:
        self._share = share

    async def observe(self, interval: Interval) -> Observed:
        """Return notes of the interval by rule; never fails.

        The loop gets its turn between two nodes.
        """
        extract = Extract()
        for entry in interval.entries:
            await anyio.lowlevel.checkpoint()
            extract.read(entry)
        earlier = interval.earlier[-1].notes if interval.earlier else None
        size = sum(map(_size, interval.entries))
        notes = extract.notes(
            max(LEAST, int(size * self._share)), max(LEAST, int(size * MOST)), earlier
        )
        return Observed(notes if notes.lines else None, origin="rules")

    def bound(self, interval: Interval) -> tuple[int, int]:
        """Return zeros: it calls no model."""
        return 0, 0


def extract_notes(
    entries: Sequence[Entry], wanted: int, limit: int | None = None, earlier: Notes | None = None
) -> Notes:
    """Return notes of an interval by rule.

    Args:
        wanted: about how many tokens they should have.
        limit: how many the user's statements and errors may make them; `wanted` unless given.
        earlier: the notes before, which say the task where this interval does not.
    """
    extract = Extract()
    for entry in entries:
        extract.read(entry)
    return extract.notes(wanted, wanted if limit is None else limit, earlier)


def _size(entry: Entry) -> int:
    if entry.tokens:
        return entry.tokens
    return message_tokens(entry.message) + sum(count_text(result.text) for result in entry.results)


@dataclass(slots=True)
class _Run:
    """Similar calls that follow each other."""

    at: str
    seq: int
    verb: Verb
    tool: str
    texts: list[str] = field(default_factory=list[str])
    outcomes: list[str] = field(default_factory=list[str])
    own: dict[str, None] = field(default_factory=dict[str, None])
    seen: dict[str, int] = field(default_factory=dict[str, int])


class Extract:
    """What is picked out of an interval, node by node: `read` them in order, then take `notes`."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._runs: list[tuple[int, _Run]] = []
        self._run: _Run | None = None
        self._own: Counter[str] = Counter()
        self._spread: Counter[str] = Counter()
        self._errors: dict[str, _Item] = {}
        self._plan: _Item | None = None
        self._task = ""
        self._next = ""

    # Reading

    def read(self, entry: Entry) -> None:
        """Take in one node."""
        at, message = time_of(entry.at), entry.message
        match message:
            case UserMessage():
                self._statement(at, entry.seq, message.text, message)
                self._task, self._next = one_line(message.text) or self._task, ""
            case Note():
                if message.source == "steer":
                    self._statement(at, entry.seq, message.text)
                elif message.source == "background" and (text := one_line(message.text)):
                    text = shorten(text, 400)
                    self._add(_Item(at, entry.seq, "background", "important", (text,)))
            case AssistantMessage():
                self._said(at, entry.seq, message)
                for call, result in zip(message.calls, entry.results, strict=False):
                    self._called(at, entry.seq, call, result)

    def _add(self, item: _Item) -> None:
        self._run = None
        self._items.append(item)

    def _statement(self, at: str, seq: int, text: str, message: UserMessage | None = None) -> None:
        names = (
            [one_line(file.name or file.uri)[:LONGEST] for file in message.files] if message else []
        )
        plain = "\n".join(filter(None, (one_line(line) for line in text.splitlines())))
        if names:
            plain = f"{plain} [files: {', '.join(names)}]".strip()
        if not plain:
            return
        self._own.update(set(_names(plain)))
        gap = f" [... shortened; whole in node {seq} ...] "
        forms = dict.fromkeys(shorten(plain, chars, gap) for chars in _STATEMENT)
        priority: Priority = "critical" if binding(plain[:20_000]) else "important"
        self._add(_Item(at, seq, "user", priority, tuple(forms)))

    def _said(self, at: str, seq: int, message: AssistantMessage) -> None:
        text = read_part(message.text)
        found = list(sentences(text))
        self._own.update(set(_names(text)))
        final = not message.calls
        self._next = "" if final or not found else found[-1]
        weighed = [(*weight_of(sentence), sentence) for sentence in found]
        if final and weighed and not any(weight for weight, _, _ in weighed):
            # What is not English, or says it plainly: its beginning and its end.
            weighed[0] = (1, *weighed[0][1:])
            weighed[-1] = (1, *weighed[-1][1:])
        telling = sorted((w for w in weighed if w[0] > 0), key=lambda w: -w[0])
        chosen = {id(one) for one in telling[: 8 if final else 3]}
        for one in weighed:
            if id(one) in chosen:
                self._add(_Item(at, seq, "conclusion", one[1], (one[2],)))

    def _called(self, at: str, seq: int, call: ToolCall, result: ToolResult) -> None:
        text, own = _described(call)
        verb = verb_of(call.name, text)
        if verb == "plan":
            self._planned(at, seq, call)
            return
        names = dict.fromkeys(_names(own))
        self._own.update(names.keys())
        output = result.text
        code = exit_code(output) if verb in ("run", "look") else None
        wrong = error_lines(output) if result.outcome != "ok" or verb == "run" else []
        silent = code == 1 and not wrong and verb == "look"
        if result.outcome != "ok" or (code and not silent) or (wrong and code is None):
            self._went_wrong(at, seq, call, f"{call.name} {text}", result, code, wrong)
            return
        run = self._run_for(at, seq, verb, call.name)
        run.own.update(names)
        shown = f"{text} (nothing)" if silent else text
        if shown and shown not in run.texts:
            run.texts.append(shown)
        if verb in ("run", "other"):
            run.outcomes.append(shorten(outcome_line(output), 160))
        before = ""
        for name in _names(output):
            if name not in run.seen and len(run.seen) < 4 * _MOST_NAMES:
                run.seen[name] = 0
                self._spread[name] += 1
        for word in read_part(output).split():
            if before in _DEFINING and (name := word.split("(")[0].rstrip(":{")) in run.seen:
                run.seen[name] = _DEFINED
            before = word

    def _run_for(self, at: str, seq: int, verb: Verb, tool: str) -> _Run:
        run = self._run
        same = run is not None and run.verb == verb and (verb != "other" or run.tool == tool)
        if run is None or not same or len(run.texts) >= (_RUN if verb == "look" else 3):
            self._run = run = _Run(at, seq, verb, tool)
            self._runs.append((len(self._items), run))
        return run

    def _planned(self, at: str, seq: int, call: ToolCall) -> None:
        text = one_line("\n".join(_values(call.arguments)))
        if text:
            self._own.update(set(_names(text)))
            item = _Item(at, seq, "plan", "info", (f"Plan: {shorten(text, 900)}",))
            if self._plan is not None and call.name.lower().startswith(("todo", "plan", "update")):
                self._items.remove(self._plan)
            self._plan = item
            self._add(item)

    def _went_wrong(
        self,
        at: str,
        seq: int,
        call: ToolCall,
        what: str,
        result: ToolResult,
        code: int | None,
        wrong: list[str],
    ) -> None:
        how = result.outcome if result.outcome not in ("ok", "error") else "failed"
        how = f"exit {code}" if code else how
        lines = wrong or ends(result.text) or ["no output"]
        last = shorten(lines[-1], 240)
        key = f"{how} {lines[-1]}"
        if (known := self._errors.get(key)) is not None and what[:60] in known.forms[0]:
            known.times += 1
            self._run = None
            return
        told = " | ".join(
            dict.fromkeys(shorten(line, 240) for line in (*lines, *ends(result.text)))
        )
        forms = (
            f"{shorten(what, 80)} {how}: {shorten(last, 120)}",
            f"{shorten(what, 240)} {how}: {shorten(told, 900)}",
        )
        names = tuple(dict.fromkeys(_names(f"{_described(call)[1]}\n{' '.join(wrong)}")))
        item = _Item(at, seq, "error", "important", forms, names[:_MOST_NAMES])
        self._errors[key] = item
        self._add(item)

    # Telling

    def notes(self, wanted: int, limit: int, earlier: Notes | None = None) -> Notes:
        """Return the notes: about `wanted` tokens, at most `limit` (which is at least `LEAST`)."""
        limit = max(limit, wanted, LEAST)
        task = shorten(self._task or (earlier.task if earlier else ""), 300)
        following = shorten(self._next, 200)
        items = self._ordered()
        about = count_text(task) + count_text(following) + 8
        spare = wanted - about
        notes = Notes(())
        for most in (limit - about, int((limit - about) * 0.85), int((limit - about) * 0.6)):
            told, left_over = _granted(items, min(spare, most), most)
            notes = Notes(_lines(told, left_over), task, following)
            size = count_text(render_notes(notes))
            if size < wanted:
                # Lines were taken for longer than they are.
                _name(told, size + _LINE_TOKENS, wanted, _LAST_ROUNDS)
                notes = replace(notes, lines=_lines(told, left_over))
                size = count_text(render_notes(notes))
            if size <= limit:
                return notes
        return _shortest(notes, limit)

    def _ordered(self) -> list[_Item]:
        """Return the items with the runs of calls among them, in the order of the interval."""
        ordered: list[_Item] = []
        done = 0
        for place, run in self._runs:
            ordered += self._items[done:place]
            done = max(done, place)
            ordered.append(self._action(run))
        return [*ordered, *self._items[done:]]

    def _action(self, run: _Run) -> _Item:
        # What it used again and again it will use again.
        own = sorted(run.own, key=lambda name: -self._own[name])
        seen = sorted(
            (name for name in run.seen if name not in run.own),
            key=lambda name: (
                -(run.seen[name] + _OWN * min(self._own[name], 2) + min(self._spread[name], 4))
            ),
        )
        verbs = {"look": "Looked at", "edit": "Changed", "run": "Ran"}
        verb = verbs.get(run.verb, run.tool)
        short = "; ".join(shorten(text, 160) for text in run.texts)
        whole = "; ".join(shorten(text, 400) for text in run.texts)
        if outcome := next((one for one in reversed(run.outcomes) if one), ""):
            short, whole = f"{short} -> {shorten(outcome, 80)}", f"{whole} -> {outcome}"
        forms = dict.fromkeys(f"{verb or 'Called'} {text}".strip() for text in (short, whole))
        priority: Priority = "done" if run.verb == "edit" else "info"
        names = tuple([*own, *seen][:_MOST_NAMES])
        return _Item(run.at, run.seq, "action", priority, tuple(forms), names)


def _names(text: str) -> Iterator[str]:
    """Yield the identifiers of a text; the places that a search puts behind a path are no part."""
    for name in identifiers(read_part(text)):
        plain = _PLACE.sub("", name) if "/" in name else name
        if (
            len(plain) <= LONGEST
            and len(plain) > 2
            and not (plain[0] == "/" and plain.count("/") == 1)
        ):
            yield plain


def _values(value: object) -> Iterator[str]:
    """Yield what the values of JSON say, in their order, however deep they are nested."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            stack += reversed(list(cast("dict[str, object]", one).values()))
        elif isinstance(one, list | tuple):
            stack += reversed(cast("Sequence[object]", one))
        elif isinstance(one, str | int | float) and not isinstance(one, bool):
            yield str(one)


def _described(call: ToolCall) -> tuple[str, str]:
    """Return what a call was made with, in short, and whole."""
    if call.raw is not None:
        return shorten(one_line(call.raw), 400), call.raw
    short: list[str] = []
    for key, value in call.arguments.items():
        if isinstance(value, str) and (key not in _TEXT_KEYS or len(call.arguments) == 1):
            short.append(one_line(value.split("\n", 1)[0])[:400])
        elif isinstance(value, int | float) and not isinstance(value, bool) and key.endswith("id"):
            short.append(str(value))
    whole = "\n".join(_values(call.arguments))
    return " ".join(filter(None, short)) or shorten(one_line(whole), 160), whole


def _granted(
    items: Sequence[_Item], wanted: int, limit: int
) -> tuple[list[_Item], dict[Kind, list[int]]]:
    """Decide which form of each item is told; return those told, and the nodes of what is not.

    The user's statements and errors may take up to `limit` tokens; all else stops at `wanted`.
    """
    used = 0
    for item in items:
        item.granted, item.added, item.reached = -1, [], 0
    for kind, form in _KEPT:
        used = _grant(items, kind, form, used, limit - 40)
    for kind, form in _WANTED:
        used = _grant(items, kind, form, used, wanted)
    told = [item for item in items if item.granted >= 0]
    used = _name(told, used, wanted, _FIRST_ROUNDS)
    used = _grant(items, "user", len(_STATEMENT) - 1, used, wanted)
    _name(told, used, wanted, _LAST_ROUNDS)
    left_over: dict[Kind, list[int]] = {}
    for item in items:
        if item.granted < 0 and item.kind in ("user", "error"):
            left_over.setdefault(item.kind, []).append(item.seq)
    return told, left_over


def _grant(items: Sequence[_Item], kind: Kind, form: int, used: int, limit: int) -> int:
    """Grant a form to the items of a kind, the newest first; return the tokens used then."""
    for item in reversed(items):
        if item.kind != kind or not item.granted < form < len(item.forms):
            continue
        if form and item.granted < 0:
            continue
        cost = _cost(item.forms[form]) - (
            _cost(item.forms[item.granted]) if item.granted >= 0 else 0
        )
        if used + cost <= limit:
            used += cost
            item.granted = form
    return used


def _cost(text: str) -> int:
    return count_text(text) + _LINE_TOKENS * (1 + len(text) // LINE_CHARS)


def _name(told: Sequence[_Item], used: int, limit: int, rounds: Sequence[int]) -> int:
    """Add identifiers to what is told, in rounds, the newest items first, none twice.

    Returns how many tokens are used then.
    """
    text = "\n".join(item.text() for item in told)
    for most in rounds:
        for item in reversed(told):
            while item.reached < len(item.names) and len(item.added) < most:
                name = item.names[item.reached]
                item.reached += 1
                if name in text:
                    continue
                cost = count_text(f", {name}")
                if used + cost > limit:
                    if limit - used < 3:
                        return used
                    continue
                used += cost
                item.added.append(name)
                text = f"{text}\n{name}"
    return used


def _lines(told: Sequence[_Item], left_over: dict[Kind, list[int]]) -> tuple[Line, ...]:
    lines: list[Line] = []
    names = {"user": "The user also wrote", "error": "There were also errors in"}
    for kind, seqs in left_over.items():
        text = f"{names[kind]} nodes {shorten(numbers(seqs), 60)}: recall opens them."
        lines.append(Line("", "critical" if kind == "user" else "important", text))
    for item in told:
        lines += _lines_of(item)
    return tuple(lines)


def _lines_of(item: _Item) -> Iterator[Line]:
    text = item.text()
    if item.kind != "user":
        yield Line(item.at, item.priority, one_line(text))
        return
    for number, piece in enumerate(_pieces(text)):
        priority: Priority = "critical" if binding(piece) else "important"
        yield Line(item.at, priority, f"{'(cont.)' if number else 'User:'} {piece}")


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces of at most `LINE_CHARS`, cut between its lines, or else its words."""
    piece = ""
    for line in text.splitlines():
        rest = one_line(line)
        while rest:
            room = LINE_CHARS - len(piece) - 1
            if len(rest) <= room:
                piece, rest = f"{piece} {rest}".strip(), ""
            elif piece:
                yield piece
                piece = ""
            else:
                stop = rest.rfind(" ", room // 2, room)
                stop = room if stop < 0 else stop
                yield rest[:stop]
                rest = rest[stop:].lstrip()
    if piece:
        yield piece


def _shortest(notes: Notes, limit: int) -> Notes:
    """Return as much of the notes as has at most `limit` tokens, the weightiest lines first."""
    order: dict[Priority, int] = {"critical": 0, "important": 1, "info": 2, "done": 3}
    ranked = sorted(range(len(notes.lines)), key=lambda i: (order[notes.lines[i].priority], -i))
    left = limit - count_text(notes.task) - count_text(notes.next_step) - 40
    kept: list[int] = []
    for index in ranked:
        cost = count_text(notes.lines[index].text) + _LINE_TOKENS
        if cost <= left:
            left -= cost
            kept.append(index)
    return Notes(tuple(notes.lines[i] for i in sorted(kept)), notes.task, notes.next_step)
