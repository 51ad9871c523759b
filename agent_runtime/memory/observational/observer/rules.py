"""The Observer without a model: it picks out what was said and done, by rules.

It keeps every statement of the user and every error; then, as far as its budget allows, the plan,
the agent's findings and decisions, a line for each run of similar calls, and identifiers.  The same
interval gives the same notes, in time linear in its length.

Over budget, it drops in this order: identifiers, the oldest actions, the oldest conclusions, the
wording of errors, the wording of the user; a shortened statement names its node, and at the end a
single line names the nodes of all that were dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import anyio.lowlevel

from agent_runtime.memory.observational.ledgers import ledger_of_nodes
from agent_runtime.memory.observational.observer.base import ObserverInput, ObserverResult
from agent_runtime.memory.observational.observer.described import described, values
from agent_runtime.memory.observational.observer.select import (
    STATEMENT,
    ItemKind,
    NoteItem,
    select_notes,
)
from agent_runtime.memory.observational.observer.sentences import (
    LEFT_OUT,
    SAID_CHARS,
    Verb,
    answer_text,
    binding,
    ends,
    error_lines,
    exit_code,
    gist,
    informative_sentences,
    outcome_line,
    read_part,
    sentences,
    verb_of,
    weight_of,
    words,
)
from agent_runtime.memory.observational.observer.slots.extract import (
    is_short,
    observed,
    slots_of_nodes,
)
from agent_runtime.memory.transcript import time_of
from agent_runtime.messages import (
    ASK_USER,
    AssistantMessage,
    Change,
    Note,
    Observed,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_runtime.models.tokens import count_text
from agent_runtime.prompt.constraints import own_words
from agent_runtime.prompt.ledger import LONGEST, identifiers, spelled_out
from agent_runtime.prompt.observation import ObservationNotes, Priority
from agent_runtime.prompt.render import TASK_CHARS, message_tokens
from agent_runtime.prompt.slots import NO_SLOTS, Slots, render_slots
from agent_runtime.prompt.text import date_of, one_line, shorten
from agent_runtime.prompt.view import Entry

SHARE = 0.1
"""Wanted size of notes, as a share of what they replace."""
SPOKEN = 0.2
"""The same of the agent's answers, which are most of a chat."""
MOST = 0.5
"""Largest size, which only the user's statements and errors may use."""
LEAST = 200
"""Tokens that notes may always have: a tenth of a short interval would say nothing."""

# Between a task and the short answer that followed it.
_THEN = "; then the user: "
# Characters of the notes of a workflow's history.
_HISTORY_CHARS = 1_600
# Calls that look at something and share a line.
_RUN = 6
_MOST_NAMES = 240
# Characters up to which a statement is shortened by sentences.
_TALK = 500
# The line number that a search puts after a path.
_PLACE = re.compile(r"[-:][0-9]+[-:]?$")
# Weights of a name in a result: used by the agent as well, and defined there.
_OWN, _DEFINED = 6, 3
_DEFINING = words(
    "def class func function fn struct interface type enum const let var val trait impl module "
    "export package namespace record"
)
# A time with a mark of weight, a speaker, or a field of notes.
_LIKE_NOTES = re.compile(
    r"\d\d:\d\d\s+!|!!|\b(?:user|human|runtime|system|assistant)\s*:|^(?:task|next|seen)\s*:",
    re.IGNORECASE,
)


class RuleObserver:
    """An `Observer` that needs no model and costs nothing.

    Args:
        share: wanted size of notes, as a share of what they replace.
    """

    def __init__(self, share: float = SHARE) -> None:
        self._share = share

    async def observe(self, interval: ObserverInput) -> ObserverResult:
        """Return notes written by rules; never fails.

        Yields to the event loop between nodes.
        """
        slots = await slots_of_nodes(interval.entries)
        ledger = await ledger_of_nodes(interval.entries, interval.earlier)
        listed = (*ledger, *(name for one in interval.earlier for name in one.ledger))
        extract = NoteExtractor(slots, listed)
        for entry in interval.entries:
            await anyio.lowlevel.checkpoint()
            extract.read(entry)
        earlier = interval.earlier[-1].notes if interval.earlier else None
        size = sum(map(_size, interval.entries))
        spoken = sum(map(_spoken, interval.entries))
        # Slots say a part of it, so they are paid for by the notes.
        wanted = int(size * self._share) - count_text(render_slots(slots))
        limit = max(LEAST, int(size * MOST))
        notes = extract.notes(max(LEAST, wanted), limit, earlier, answers=int(spoken * SPOKEN))
        return ObserverResult(notes if notes.lines else None, origin="rules")

    def bound(self, interval: ObserverInput) -> tuple[int, int]:
        """Return zeros: it calls no model."""
        return 0, 0


def _quoted(text: str) -> str:
    """Return a text of others in quotes if it could pass for a line of notes, or for the user's."""
    return '"' + text.replace('"', "'") + '"' if _LIKE_NOTES.search(text) else text


def _size(entry: Entry) -> int:
    # Entries that were read from the store, outside of a view, are not counted yet.
    if entry.tokens:
        return entry.tokens
    return message_tokens(entry.message) + sum(count_text(result.text) for result in entry.results)


def _spoken(entry: Entry) -> int:
    """Return the tokens of an answer of the agent."""
    message = entry.message
    answers = isinstance(message, AssistantMessage) and not message.calls
    return message_tokens(message) if answers else 0


@dataclass(slots=True)
class _Run:
    """Similar calls in a row."""

    at: str
    seq: int
    verb: Verb
    tool: str
    texts: list[str] = field(default_factory=list[str])
    outcomes: list[str] = field(default_factory=list[str])
    own: dict[str, None] = field(default_factory=dict[str, None])
    seen: dict[str, int] = field(default_factory=dict[str, int])


class NoteExtractor:
    """Extracts notes from an interval: `read` its nodes in order, then take `notes`."""

    def __init__(self, slots: Slots = NO_SLOTS, listed: Iterable[str] = ()) -> None:
        """Begin an interval.

        Args:
            slots: its slots, which the notes do not repeat.
            listed: ledgers that stand next to the notes, whose identifiers they do not repeat.
        """
        self._kept = {(one.node, one.change.target) for one in slots.changes}
        self._judged = {one.verdict.check: one.node for one in slots.verdicts}
        self._proposed = {one.node for one in slots.agreements}
        self._agreed = {one.answered for one in slots.agreements}
        self._stamp = ""
        self._listed = frozenset(spelled_out(listed))
        self._items: list[NoteItem] = []
        self._runs: list[tuple[int, _Run]] = []
        self._run: _Run | None = None
        self._said_already: set[str] = set()
        self._own: Counter[str] = Counter()
        self._spread: Counter[str] = Counter()
        self._errors: dict[str, NoteItem] = {}
        self._plan: NoteItem | None = None
        # Identifiers of calls that slots tell of, and the time and node of the last of these.
        self._unsaid: tuple[str, int, dict[str, None]] = ("", 0, {})
        self._task = ""
        self._reply = ""
        self._next = ""

    def read(self, entry: Entry) -> None:
        """Read the next node."""
        at, message = time_of(entry.at), entry.message
        match message:
            case UserMessage() if (own := own_words(message.text)) != message.text:
                observed_text = one_line(message.text.removesuffix(own))
                self._add(
                    NoteItem(
                        at,
                        entry.seq,
                        "background",
                        "important",
                        (shorten(observed_text, _HISTORY_CHARS),),
                    )
                )
                self._statement(at, entry.seq, own)
            case UserMessage():
                self._statement(at, entry.seq, message.text, message)
                self._asked(one_line(message.text))
            case Note():
                if message.source == "steer":
                    self._statement(at, entry.seq, message.text)
                elif message.source == "background" and (text := one_line(message.text)):
                    text = _quoted(shorten(text, 400))
                    self._add(NoteItem(at, entry.seq, "background", "important", (text,)))
            case AssistantMessage():
                self._said(at, entry.seq, message)
                for call, result in zip(message.calls, entry.results, strict=False):
                    self._called(at, entry.seq, call, result)

    def _asked(self, text: str) -> None:
        self._next = ""
        # "Yes" alone is no task: it belongs to the one before.
        if is_short(text):
            self._reply = text
        elif text:
            self._task, self._reply = text, ""

    def _add(self, item: NoteItem) -> None:
        self._run = None
        self._items.append(item)

    def _statement(
        self,
        at: str,
        seq: int,
        text: str,
        message: UserMessage | None = None,
        *,
        answers: bool = False,
    ) -> None:
        names = (
            [one_line(file.name or file.uri)[:LONGEST] for file in message.files] if message else []
        )
        plain = "\n".join(filter(None, (one_line(line) for line in text.splitlines())))
        if names:
            plain = f"{plain} [files: {', '.join(names)}]".strip()
        if not plain:
            return
        self._own.update(set(_names(plain)))
        talk = len(plain) <= STATEMENT[-1]
        forms = dict.fromkeys(
            # The ends of a pasted text say what it is.
            gist(plain, chars)
            if talk and chars <= _TALK
            else min(shorten(plain, chars, LEFT_OUT), plain, key=len)
            for chars in STATEMENT
        )
        stamp = date_of(plain)
        shared = count_text(stamp) if stamp and stamp == self._stamp else 0
        self._stamp = stamp
        # Bounded: a pasted text of megabytes is a statement too.
        priority: Priority = "critical" if binding(plain[:20_000]) else "important"
        if priority != "critical" and seq in self._agreed:
            # A slot has it, with what it answers.
            self._run = None
            return
        item = NoteItem(at, seq, "user", priority, tuple(forms), answers=answers, shared=shared)
        self._add(item)

    def _said(self, at: str, seq: int, message: AssistantMessage) -> None:
        text = read_part(message.text)
        said = list(sentences(text))
        self._own.update(set(_names(text)))
        final = not message.calls
        if seq in self._proposed:
            self._next = ""
            return
        self._next = "" if final or not said else said[-1]
        weighed = [(*weight_of(sentence), sentence) for sentence in said]
        informative = sorted((w for w in weighed if w[0] > 0), key=lambda w: -w[0])
        chosen = {id(one) for one in informative[: 8 if final else 3]}
        others = [one[2] for one in weighed if id(one) not in chosen]
        more = informative_sentences(others, SPOKEN) if final else frozenset[str]()
        # No pattern matches, as in other languages: then these are all that is known of it.
        kind: ItemKind = "said" if chosen else "conclusion"
        for one in weighed:
            if one[2] in self._said_already:
                continue
            if id(one) in chosen:
                self._said_already.add(one[2])
                self._add(NoteItem(at, seq, "conclusion", one[1], (_quoted(one[2]),)))
            elif one[2] in more:
                self._said_already.add(one[2])
                self._add(NoteItem(at, seq, kind, "info", (_quoted(shorten(one[2], SAID_CHARS)),)))

    def _called(self, at: str, seq: int, call: ToolCall, result: ToolResult) -> None:
        text, own = described(call)
        verb = verb_of(call.name, text)
        if call.name == ASK_USER and result.outcome == "ok":
            said = answer_text(str(call.arguments.get("question", "")), result.text)
            self._statement(at, seq, said, answers=True)
            return
        if verb == "plan":
            self._planned(at, seq, call)
            return
        names = dict.fromkeys(_names(own))
        self._own.update(names.keys())
        noted = observed(call, result)
        if noted and all(self._is_slot(seq, one) for one in noted):
            self._run = None
            self._unsaid = (at, seq, {**self._unsaid[2], **names})
            return
        output = result.text
        code = exit_code(output) if verb in ("run", "look") else None
        # A file that is read may hold error texts; only what was run, or failed, has errors of its
        # own.
        wrong = error_lines(output) if result.outcome != "ok" or verb == "run" else []
        # grep exits with 1 if it finds nothing; that is a finding, not an error.
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
            # Quoted, because it is the text of a tool.
            run.outcomes.append(_quoted(shorten(outcome_line(output), 160)))
        before = ""
        for name in _names(output):
            # Bounded: a listing may name thousands, of which the notes can show few.
            if len(run.seen) >= 4 * _MOST_NAMES:
                break
            if name not in run.seen:
                run.seen[name] = 0
                self._spread[name] += 1
        for word in read_part(output).split():
            if before in _DEFINING and (name := word.split("(")[0].rstrip(":{")) in run.seen:
                run.seen[name] = _DEFINED
            before = word

    def _is_slot(self, seq: int, one: Observed) -> bool:
        """Return whether a slot says it, or a newer verdict replaces it."""
        if isinstance(one, Change):
            return (seq, one.target) in self._kept
        # An earlier failure led to what follows; an earlier pass says nothing any more.
        newest = self._judged.get(one.check, 0)
        return seq <= newest if one.passed else seq == newest

    def _run_for(self, at: str, seq: int, verb: Verb, tool: str) -> _Run:
        run = self._run
        same = run is not None and run.verb == verb and (verb != "other" or run.tool == tool)
        # Looking is cheap to tell in a list; of commands and edits a line with many would hide
        # the outcomes.
        if run is None or not same or len(run.texts) >= (_RUN if verb == "look" else 3):
            self._run = run = _Run(at, seq, verb, tool)
            # Its place among the items: a run grows after it began, so it is rendered at the end.
            self._runs.append((len(self._items), run))
        return run

    def _planned(self, at: str, seq: int, call: ToolCall) -> None:
        text = one_line("\n".join(values(call.arguments)))
        if text:
            self._own.update(set(_names(text)))
            item = NoteItem(at, seq, "plan", "info", (f"Plan: {shorten(text, 900)}",))
            # Such a tool writes the whole plan, so the last call replaces the one before it.
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
        lines = [_quoted(one) for one in wrong or ends(result.text)] or ["no output"]
        last = shorten(lines[-1], 240)
        key = f"{how} {lines[-1]}"
        # The same command with the same last line: one item with a count instead of one per
        # attempt.
        if (known := self._errors.get(key)) is not None and what[:60] in known.forms[0]:
            known.times += 1
            self._run = None
            return
        shown = dict.fromkeys(
            shorten(line, 240) for line in (*lines, *map(_quoted, ends(result.text)))
        )
        forms = (
            f"{shorten(what, 80)} {how}: {shorten(last, 120)}",
            f"{shorten(what, 240)} {how}: {shorten(' | '.join(shown), 900)}",
        )
        named = dict.fromkeys(_names(f"{described(call)[1]}\n{' '.join(wrong)}"))
        item = NoteItem(at, seq, "error", "important", forms, self._unlisted(named))
        self._errors[key] = item
        self._add(item)

    def notes(
        self,
        wanted: int,
        limit: int,
        earlier: ObservationNotes | None = None,
        *,
        answers: int = 0,
    ) -> ObservationNotes:
        """Return notes of about `wanted` tokens, at most `limit` (at least `LEAST`).

        Args:
            earlier: the notes before, whose task is used if this interval names none.
            answers: tokens for what the agent answers, whatever the user's statements take.
        """
        limit = max(limit, wanted, LEAST)
        before = self._task or (earlier.task.partition(_THEN)[0] if earlier else "")
        task = shorten(before or self._reply, TASK_CHARS)
        if before and self._reply:
            task = f"{task}{_THEN}{self._reply}"
        following = shorten(self._next, 200)
        base = ObservationNotes((), task, following)
        return select_notes(self._ordered(), base, wanted, limit, answers=answers)

    def _ordered(self) -> list[NoteItem]:
        """Return the items and the runs of calls in the order of the interval."""
        ordered: list[NoteItem] = []
        done = 0
        for place, run in self._runs:
            ordered += self._items[done:place]
            done = max(done, place)
            ordered.append(self._action(run))
        ordered += self._items[done:]
        at, seq, names = self._unsaid
        if names := self._unlisted(sorted(names, key=lambda name: -self._own[name])):
            first, *others = names
            ordered.append(NoteItem(at, seq, "action", "info", (f"Used {first}",), tuple(others)))
        return ordered

    def _unlisted(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return names that no ledger lists, at most `_MOST_NAMES`."""
        return tuple([name for name in names if name not in self._listed][:_MOST_NAMES])

    def _action(self, run: _Run) -> NoteItem:
        # Names that the agent used often are likely to be used again.
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
        names = self._unlisted((*own, *seen))
        return NoteItem(run.at, run.seq, "action", priority, tuple(forms), names)


def _names(text: str) -> Iterator[str]:
    """Yield the identifiers of a text, without the line numbers that a search puts after paths."""
    for name in identifiers(read_part(text)):
        plain = _PLACE.sub("", name) if "/" in name else name
        if (
            len(plain) <= LONGEST
            and len(plain) > 2
            # `/word` is rarely a path: it is a closing tag, a route or a division.
            and not (plain[0] == "/" and plain.count("/") == 1)
        ):
            yield plain
